//! What programs use to read a moment of a database.

use remanent_pmem::{Mapped, Medium};

use super::notes::Notes;
use super::snapshots::Held;
use super::view::View;
use super::{Moment, Sealed};
use crate::engine::Engine;
use crate::{Error, Result};

/// A moment of a database: what was committed before it, and nothing of what came later.
///
/// ```
/// use remanent_engine::{Database, TableSpec, Type};
/// # use remanent_pmem::Pool;
/// # let directory = tempfile::tempdir()?;
/// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
/// let database = Database::create(&pool, "shop")?;
/// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
/// let items = database.create_table(&spec)?;
///
/// let before = database.snapshot();
/// items.insert(&[1u32.into()])?;
/// let get = items.prepare_get("primary")?;
/// assert!(get.run(&before, &[1u32.into()], |_| Ok(()))?.is_none());
/// assert!(get.run(&database.snapshot(), &[1u32.into()], |_| Ok(()))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot<'d, M: Medium = Mapped> {
    engine: &'d Engine<M>,
    held: Held,
}

impl<'d, M: Medium> Snapshot<'d, M> {
    #[inline]
    pub(crate) fn of(engine: &'d Engine<M>) -> Self {
        let held = engine.snapshots.hold(engine.medium(), &engine.stamps);
        Snapshot { engine, held }
    }

    /// The number of the moment: commits are numbered in their order.
    pub fn stamp(&self) -> u64 {
        self.held.stamp
    }
}

impl<M: Medium> Sealed<M> for Snapshot<'_, M> {
    #[inline(always)]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn view_in(&self, engine: &Engine<M>) -> Result<View> {
        match std::ptr::eq(self.engine, engine) {
            true => Ok(View::of(&self.held, None)),
            false => Err(Error::OtherDatabase),
        }
    }

    #[inline(always)]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn notes(&self) -> Option<&Notes<M>> {
        None
    }
}

impl<M: Medium> Moment<M> for Snapshot<'_, M> {}

impl<M: Medium> Drop for Snapshot<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.engine.snapshots.give_back(&self.held);
    }
}

impl<M: Medium> std::fmt::Debug for Snapshot<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("stamp", &self.held.stamp).finish_non_exhaustive()
    }
}
