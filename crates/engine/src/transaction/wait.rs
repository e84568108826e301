//! Waiting for who is in the way of a statement.

use std::thread;
use std::time::Duration;

use remanent_pmem::Medium;

use super::Token;
use super::waits::Circle;
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::{Error, Result};

/// Who keeps a statement from a row or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// `None` for one who is done in a moment.
    pub(super) slot: Option<u32>,
}

/// Why a statement cannot go on.
pub(super) enum Refused {
    /// Somebody is in the way, who has the key in the index with this number, or decides it.
    Busy {
        holder: Holder,
        index: u32,
    },
    /// The same of a row to which a foreign key refers, or that refers to one.
    Tied {
        holder: Holder,
        wanted: Box<Told>,
    },
    For(Error),
}

impl<E: Into<Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Refused::For(error.into())
    }
}

/// What a statement waits for, as a person is told.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w, M: Medium> {
    pub(super) table: &'w Table<M>,
    pub(super) index: &'w Index<M>,
    pub(super) key: &'w Key,
}

/// The same in words.
#[derive(Debug)]
pub(super) enum Told {
    Key {
        table: String,
        index: String,
        key: String,
    },
    /// To change the schema.
    Schema,
}

impl<M: Medium> Wanted<'_, M> {
    #[cold]
    pub(super) fn told(self) -> Told {
        let Wanted { table, index, key } = self;
        Told::Key {
            table: table.name.clone(),
            index: index.spec.name.clone(),
            key: key.tell(&table.format, &index.spec),
        }
    }
}

impl Told {
    fn in_the_way(self, holder: Option<Token>) -> Error {
        match self {
            Told::Key { table, index, key } => Error::Conflict { table, index, key, holder },
            Told::Schema => Error::SchemaBusy { holder },
        }
    }

    fn deadlock(self, holder: Option<Token>) -> Error {
        match self {
            Told::Key { table, index, key } => Error::Deadlock { table, index, key, holder },
            Told::Schema => Error::SchemaDeadlock { holder },
        }
    }
}

/// A statement that may have to wait. It holds nothing meanwhile that the holder could need, but
/// what its transaction has changed, and its own row.
pub(super) struct Waiting<'e, M: Medium> {
    engine: &'e Engine<M>,
    slot: u32,
    limit_ms: u64,
    since_ms: Option<u64>,
    turns: u32,
    /// The circle in which it seems to wait for itself, as it was first seen.
    circle: Option<Circle>,
}

/// Turns before a statement sleeps between looks, and how long then.
const TURNS: u32 = 100;
pub(super) const NAP: Duration = Duration::from_micros(50);

impl<'e, M: Medium> Waiting<'e, M> {
    pub(super) fn new(engine: &'e Engine<M>, slot: u32, limit_ms: u64) -> Self {
        Waiting { engine, slot, limit_ms, since_ms: None, turns: 0, circle: None }
    }

    /// Waits for a moment, unless the holder is a transaction whose time is over: that is given up.
    ///
    /// # Errors
    ///
    /// When the time is over, or the holder waits for this statement's transaction.
    pub(super) fn wait(&mut self, holder: Holder, wanted: Wanted<'_, M>) -> Result<()> {
        self.wait_for(holder, || wanted.told())
    }

    /// The same, with what it waits for in words.
    pub(super) fn wait_for(&mut self, holder: Holder, told: impl FnOnce() -> Told) -> Result<()> {
        let engine = self.engine;
        if let Some(slot) = holder.slot
            && engine.expire(slot)?
        {
            return Ok(());
        }
        if self.limit_ms == 0 {
            return Err(engine.in_the_way(holder, told()));
        }
        engine.waits.set(self.slot, holder.slot);
        let now_ms = engine.clock.now_ms(engine.medium());
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        if self.is_in_a_circle() {
            return Err(told().deadlock(engine.token_of(holder)));
        }
        if now_ms.saturating_sub(since_ms) > self.limit_ms {
            return Err(engine.in_the_way(holder, told()));
        }
        engine.heap.verify()?;
        engine.medium().pause();
        self.turns += 1;
        if self.turns > TURNS {
            thread::sleep(NAP);
        }
        Ok(())
    }

    /// Whether it has seen for a while that it waits for itself, and has to give up.
    fn is_in_a_circle(&mut self) -> bool {
        let now = self.engine.waits.circle(self.slot);
        if let (Some(now), Some(before)) = (&now, &self.circle)
            && now.is_same(before)
        {
            return now.confirms(before);
        }
        self.circle = now;
        false
    }
}

impl<M: Medium> Drop for Waiting<'_, M> {
    fn drop(&mut self) {
        if self.since_ms.is_some() {
            self.engine.waits.end(self.slot);
        }
    }
}

impl<M: Medium> Engine<M> {
    /// The open transaction of several statements that is in the way.
    fn token_of(&self, holder: Holder) -> Option<Token> {
        let slot = holder.slot?;
        // Not as one whose name is known: there may be many of them, and they would take the places
        // of those whose owners have asked.
        self.statuses.open_in(slot).map(|serial| Token::new(slot, serial))
    }

    #[cold]
    pub(super) fn in_the_way(&self, holder: Holder, told: Told) -> Error {
        told.in_the_way(self.token_of(holder))
    }
}
