//! Sharing syncs of the store: one sync serves all clients that waited when it began.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers the syncs of a store.
///
/// Syncs run on few threads. If each client that waits for its writes ran a sync of its own, these
/// would run one after the other. With the numbers, a client whose writes were covered by a sync of
/// another client returns at once.
#[derive(Debug, Default)]
pub(crate) struct Syncs(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// Number of the sync that began last.
    begun: u64,
    /// Number of the last sync that succeeded. Everything that was written before it began is safe.
    done: u64,
}

/// A moment in the order of syncs. A sync that begins later makes safe everything that was written
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Syncs {
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.numbers().begun)
    }

    /// Returns when a sync that began after `ticket` was taken has succeeded. If there was none
    /// yet, runs `sync`.
    pub(crate) fn wait<E>(
        &self,
        ticket: Ticket,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let number = {
            let mut numbers = self.numbers();
            if numbers.done > ticket.0 {
                return Ok(());
            }
            numbers.begun += 1;
            numbers.begun
        };
        sync()?;
        let mut numbers = self.numbers();
        numbers.done = numbers.done.max(number);
        Ok(())
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sync_serves_all_who_waited_when_it_began() {
        let syncs = Syncs::default();
        let mut count = 0;
        let mut wait = |ticket| {
            let sync = || {
                count += 1;
                Ok::<(), ()>(())
            };
            syncs.wait(ticket, sync).unwrap();
            count
        };
        let (first, second) = (syncs.ticket(), syncs.ticket());
        assert_eq!(wait(first), 1);
        assert_eq!(wait(second), 1, "was written before the sync began");
        let third = syncs.ticket();
        assert_eq!(wait(third), 2, "may have been written after it began");
        assert_eq!(wait(third), 2);
    }

    #[test]
    fn a_sync_that_runs_already_serves_nobody_who_comes_later() {
        let syncs = Syncs::default();
        let ticket = syncs.ticket();
        let mut late = None;
        let sync = || {
            late = Some(syncs.ticket());
            Ok::<(), ()>(())
        };
        syncs.wait(ticket, sync).unwrap();
        assert_eq!(
            syncs.wait(late.unwrap(), || Err("a sync of its own")),
            Err("a sync of its own")
        );
    }

    #[test]
    fn a_sync_that_fails_serves_nobody() {
        let syncs = Syncs::default();
        let (first, second) = (syncs.ticket(), syncs.ticket());
        assert_eq!(syncs.wait(first, || Err("fault")), Err("fault"));
        assert_eq!(syncs.wait(second, || Err("fault")), Err("fault"));
        assert_eq!(syncs.wait(second, || Ok::<(), &str>(())), Ok(()));
    }
}
