//! Whether a table, an index or a foreign key is there, and for whom: a change of the schema that a
//! transaction has made counts for itself alone until it has committed.

use std::sync::atomic::{AtomicU8, Ordering};

/// A transaction that is open has made it.
const PROMISED: u8 = 1;
/// A transaction that is open has dropped it.
const LEAVING: u8 = 2;
/// It is not there any more.
const GONE: u8 = 4;

/// Whether something is there. One transaction at a time has changed the schema and is open: for
/// that one, the *author*, its changes count.
#[derive(Debug, Default)]
pub(crate) struct Presence(AtomicU8);

impl Presence {
    /// Says that the author has made it.
    pub(crate) fn promise(&self) {
        self.add(PROMISED);
    }

    /// Says that the author has dropped it.
    pub(crate) fn leave(&self) {
        self.add(LEAVING);
    }

    /// Says that it is there for everybody: who has made it has committed.
    pub(crate) fn keep_promise(&self) {
        self.remove(PROMISED);
    }

    /// Says that it is there as before: who has dropped it has taken that back.
    pub(crate) fn come_back(&self) {
        self.remove(LEAVING);
    }

    /// Says that it is not there any more.
    pub(crate) fn end(&self) {
        self.add(GONE);
    }

    fn add(&self, bit: u8) {
        // Release: partner of the load in `bits`.
        self.0.fetch_or(bit, Ordering::Release);
    }

    fn remove(&self, bit: u8) {
        // Release: partner of the load in `bits`; whoever finds it there sees what is in it.
        self.0.fetch_and(!bit, Ordering::Release);
    }

    #[inline(always)]
    fn bits(&self) -> u8 {
        // Acquire: partner of the changes in `add` and `remove`.
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn is_gone(&self) -> bool {
        self.bits() & GONE != 0
    }

    /// Whether the author has dropped it, and is open.
    pub(crate) fn is_leaving(&self) -> bool {
        self.bits() & LEAVING != 0
    }

    /// Whether it is there, for the author or for all others.
    #[inline(always)]
    pub(crate) fn is_there(&self, is_author: impl FnOnce() -> bool) -> bool {
        match self.bits() {
            0 => true,
            bits => bits & (GONE | if is_author() { LEAVING } else { PROMISED }) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_author_alone_sees_what_it_has_made_and_not_what_it_has_dropped() {
        let presence = Presence::default();
        let seen = || [true, false].map(|is_author| presence.is_there(|| is_author));
        assert_eq!(seen(), [true, true]);
        presence.promise();
        assert_eq!(seen(), [true, false]);
        presence.leave();
        assert_eq!(seen(), [false, false]);
        presence.come_back();
        presence.keep_promise();
        assert_eq!(seen(), [true, true]);
        presence.leave();
        assert_eq!(seen(), [false, true]);
        presence.come_back();
        presence.end();
        assert_eq!(seen(), [false, false]);
        assert!(presence.is_gone());
    }
}
