//! The lock on a database, for the connections of this process. There are no others, because a pool
//! has one opener.

/// Lock level of a connection, as in SQLite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    None,
    /// Reading, with others.
    Shared,
    /// About to write. Others read, and may begin to.
    Reserved,
    /// Waiting for the present readers. No reader begins.
    Pending,
    /// Alone.
    Exclusive,
}

impl Level {
    /// The level with this number of SQLite; an unknown number is the highest level.
    pub(crate) fn from_number(number: i32) -> Self {
        match number {
            ..=0 => Level::None,
            1 => Level::Shared,
            2 => Level::Reserved,
            3 => Level::Pending,
            4.. => Level::Exclusive,
        }
    }
}

/// Lock state of all connections to a database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Connections at [`Level::Shared`] and above.
    holders: usize,
    /// Whether one of them is above [`Level::Shared`].
    is_reserved: bool,
    /// Whether that one lets no reader begin.
    is_pending: bool,
}

impl Locks {
    /// Raises the level of a connection from `own` to `wanted`. Returns false if others prevent it;
    /// the connection may then be at [`Level::Pending`] on the way to [`Level::Exclusive`].
    pub(crate) fn raise(&mut self, own: &mut Level, wanted: Level) -> bool {
        if *own < Level::Shared && wanted >= Level::Shared {
            if self.is_pending {
                return false;
            }
            self.holders += 1;
            *own = Level::Shared;
        }
        if *own < Level::Reserved && wanted >= Level::Reserved {
            // A connection that rolls a journal back takes all levels at once, and is as exclusive
            // as a writer.
            if self.is_reserved {
                return false;
            }
            self.is_reserved = true;
            *own = Level::Reserved;
        }
        if *own < Level::Pending && wanted >= Level::Pending {
            self.is_pending = true;
            *own = Level::Pending;
        }
        if *own < Level::Exclusive && wanted >= Level::Exclusive {
            if self.holders > 1 {
                return false;
            }
            *own = Level::Exclusive;
        }
        true
    }

    /// Lowers the level of a connection to [`Level::Shared`] or [`Level::None`].
    pub(crate) fn lower(&mut self, own: &mut Level, wanted: Level) {
        if *own > Level::Shared && wanted <= Level::Shared {
            self.is_reserved = false;
            self.is_pending = false;
            *own = Level::Shared;
        }
        if *own == Level::Shared && wanted < Level::Shared {
            self.holders -= 1;
            *own = Level::None;
        }
    }

    /// Whether a connection is writing, or about to.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let mut locks = Locks::default();
        let [mut reader, mut writer, mut late] = [Level::None; 3];
        assert!(locks.raise(&mut reader, Level::Shared));
        assert!(locks.raise(&mut writer, Level::Shared));
        assert!(locks.raise(&mut writer, Level::Reserved));
        assert!(locks.is_reserved());
        assert!(!locks.raise(&mut reader, Level::Reserved), "one writes");
        assert!(locks.raise(&mut late, Level::Shared), "a reserved database is read");
        locks.lower(&mut late, Level::None);
        assert!(!locks.raise(&mut writer, Level::Exclusive));
        assert_eq!(writer, Level::Pending);
        assert!(!locks.raise(&mut late, Level::Shared));
        locks.lower(&mut reader, Level::None);
        assert!(locks.raise(&mut writer, Level::Exclusive));
        locks.lower(&mut writer, Level::Shared);
        assert!(!locks.is_reserved());
        assert!(locks.raise(&mut late, Level::Shared));
        locks.lower(&mut writer, Level::None);
        assert!(
            locks.raise(&mut late, Level::Exclusive),
            "from shared at once, as for a hot journal"
        );
        locks.lower(&mut late, Level::None);
        assert!(locks.raise(&mut reader, Level::Exclusive), "nothing is left behind");
    }

    #[test]
    fn two_that_want_all_do_not_both_wait_for_ever() {
        let mut locks = Locks::default();
        let [mut one, mut other] = [Level::None; 2];
        assert!(locks.raise(&mut one, Level::Shared));
        assert!(locks.raise(&mut other, Level::Shared));
        assert!(!locks.raise(&mut one, Level::Exclusive));
        assert!(!locks.raise(&mut other, Level::Exclusive));
        assert_eq!(other, Level::Shared, "it gives way");
        locks.lower(&mut other, Level::None);
        assert!(locks.raise(&mut one, Level::Exclusive));
    }
}
