//! The lock of a shard: a read-write lock that is held across calls of the store.
//!
//! A waiting thread calls [`Store::pause`], so that the simulator can schedule the thread that
//! holds the lock. Readers and writers give way to each other for a bounded number of rounds, so
//! that neither starves.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use crate::store::Store;

/// A read-write lock whose waiters call [`Store::pause`].
#[derive(Debug)]
pub(super) struct Gate<T> {
    lock: RwLock<T>,
    /// Threads that wait to write. Readers let them go first, for [`ROUNDS`] rounds.
    writers: AtomicU32,
    /// Readers that have waited for [`ROUNDS`] rounds. Writers let them go first, for as many
    /// rounds.
    patient: AtomicU32,
}

/// Rounds of waiting after which a thread gives way to nobody, and sleeps between rounds.
const ROUNDS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

impl<T> Gate<T> {
    pub(super) fn new(value: T) -> Self {
        Gate { lock: RwLock::new(value), writers: AtomicU32::new(0), patient: AtomicU32::new(0) }
    }

    /// Locks for reading, which other readers may do at the same time.
    pub(super) fn read<S: Store>(&self, store: &S) -> RwLockReadGuard<'_, T> {
        // Relaxed: the counts only decide who goes first. The lock orders the accesses to what it
        // guards.
        let gives_way = || self.writers.load(Ordering::Relaxed) > 0;
        let mut was_patient = false;
        let guard = wait(store, |round| {
            if round < ROUNDS && gives_way() {
                return Err(TryLockError::WouldBlock);
            }
            if round == ROUNDS {
                was_patient = true;
                self.patient.fetch_add(1, Ordering::Relaxed);
            }
            self.lock.try_read()
        });
        if was_patient {
            self.patient.fetch_sub(1, Ordering::Relaxed);
        }
        guard
    }

    /// Locks for writing, which excludes everybody else.
    pub(super) fn write<S: Store>(&self, store: &S) -> RwLockWriteGuard<'_, T> {
        // Relaxed: as in `read`, the counts only decide who goes first.
        let gives_way = || self.patient.load(Ordering::Relaxed) > 0;
        self.writers.fetch_add(1, Ordering::Relaxed);
        let guard = wait(store, |round| {
            if round < ROUNDS && gives_way() {
                return Err(TryLockError::WouldBlock);
            }
            self.lock.try_write()
        });
        self.writers.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

/// Calls `attempt` with the number of the round until it locks. A lock that a panic has poisoned is
/// taken as it is.
fn wait<G, S: Store>(store: &S, mut attempt: impl FnMut(u32) -> Result<G, TryLockError<G>>) -> G {
    let mut round = 0_u32;
    loop {
        match attempt(round) {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => store.pause(),
        }
        if round > ROUNDS {
            std::thread::sleep(NAP);
        }
        round = round.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;
    use crate::store::Volatile;

    #[test]
    fn readers_get_their_turn_among_many_writers() {
        const READS: u32 = 50;
        let (gate, store) = (Gate::new(0_u64), Volatile::new(1 << 20));
        let (is_done, started) = (AtomicBool::new(false), Instant::now());
        let reads = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) && started.elapsed().as_secs() < 20 {
                        let mut guard = gate.write(&store);
                        // Other threads come to wait meanwhile.
                        (0..100).for_each(|_| std::hint::spin_loop());
                        std::thread::yield_now();
                        *guard += 1;
                    }
                });
            }
            let mut reads = 0;
            while reads < READS && started.elapsed().as_secs() < 20 {
                std::hint::black_box(*gate.read(&store));
                reads += 1;
            }
            is_done.store(true, Ordering::Relaxed);
            reads
        });
        assert_eq!(reads, READS, "{} writes", *gate.read(&store));
    }
}
