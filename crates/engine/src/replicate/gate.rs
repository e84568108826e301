//! Telling somebody of each commit, in the order of commits, before it is acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use super::write_set::WriteSet;
use crate::Result;

/// Who learns of each commit between the moment at which it is durable, and the moment at which it
/// is acknowledged and others see it. Set by [`Database::set_gate`](crate::Database::set_gate),
/// which has an example.
///
/// Commits behind one that waits are not seen before it. So what a gate does, or waits for, must
/// not need a change of the same database, be it of rows, of the schema, or of the gate. Snapshots
/// may be read.
pub trait Gate: Send + Sync {
    /// Takes what a commit has changed. Called once for each commit, in the order of their stamps,
    /// by one thread at a time; there may be numbers between them that no commit has. It should be
    /// quick, as others wait meanwhile.
    ///
    /// An error says that what the commit has changed is not known: a row is damaged, or the medium
    /// met a fault. With [`Error::Unconfirmed`](crate::Error::Unconfirmed), nobody knows whether
    /// the commit counts. Who follows the database has to [copy](crate::Database::export) it again.
    fn take(&self, stamp: u64, write_set: Result<WriteSet>);

    /// Waits until the commit may be acknowledged, or is given up on. Called behind
    /// [`take`](Gate::take) by the thread that commits; threads wait for many commits at once.
    ///
    /// False has the commit refused with [`Error::Unconfirmed`](crate::Error::Unconfirmed). It
    /// counts all the same: it is durable, and seen from then on.
    fn wait(&self, stamp: u64) -> bool;
}

/// The gate of a database, and commits that have overtaken others on their way to it.
#[derive(Default)]
pub(crate) struct Gated {
    is_on: AtomicBool,
    state: PauseMutex<State>,
}

#[derive(Default)]
struct State {
    /// Each is told of the stamps behind this one, until the next one is.
    gates: Vec<(u64, Option<Arc<dyn Gate>>)>,
    /// The stamp that is told next.
    next: u64,
    /// That of the last change of the schema that was told.
    schema_version: u64,
    /// Those behind it that are done. `None` for stamps that no commit has.
    early: BTreeMap<u64, Option<Result<WriteSet>>>,
}

impl Gated {
    /// Whether commits have to be told.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        // Acquire: partner of the store in `set`.
        self.is_on.load(Ordering::Acquire)
    }

    /// Sets the gate, or takes it away. `last_stamp` gives the last stamp that somebody has: those
    /// behind it are told to the new one. Who takes one of them afterwards has to see what was
    /// stored before. The caller waits until readers see it, and then calls
    /// [`forget_before`](Gated::forget_before).
    pub(crate) fn set<M: Medium>(
        &self,
        medium: &M,
        gate: Option<Arc<dyn Gate>>,
        schema_version: u64,
        last_stamp: impl FnOnce() -> u64,
    ) -> u64 {
        let mut state = self.state.lock(medium);
        let is_first = state.gates.is_empty();
        if is_first && gate.is_none() {
            return last_stamp();
        }
        // Release: partner of the load in `is_on`.
        self.is_on.store(true, Ordering::Release);
        let last = last_stamp();
        if is_first {
            let early = BTreeMap::new();
            *state = State { gates: Vec::new(), next: last + 1, schema_version, early };
        }
        state.gates.push((last, gate));
        last
    }

    /// Forgets gates that are told of no stamp behind this one.
    pub(crate) fn forget_before<M: Medium>(&self, medium: &M, stamp: u64) {
        let mut state = self.state.lock(medium);
        let first = state.gates.iter().rposition(|(from, _)| *from <= stamp).unwrap_or(0);
        state.gates.drain(..first);
        if state.gates.iter().all(|(_, gate)| gate.is_none()) {
            *state = State::default();
            // Release: partner of the load in `is_on`.
            self.is_on.store(false, Ordering::Release);
        }
    }

    /// Tells of a stamp that is done, once those before it are told. Returns who is to be waited
    /// for.
    pub(crate) fn pass<M: Medium>(
        &self,
        medium: &M,
        stamp: u64,
        told: Option<Result<WriteSet>>,
    ) -> Option<Arc<dyn Gate>> {
        let mut state = self.state.lock(medium);
        let gate = state.gate_of(stamp);
        // Those that had begun before the gate was set are not told.
        if state.gates.is_empty() || stamp < state.next {
            return None;
        }
        state.early.insert(stamp, told);
        loop {
            // Also if another thread was to do it, and its gate has panicked.
            while let Some((next, told)) = state.take_next() {
                if let (Some(gate), Some(told)) = (state.gate_of(next), told) {
                    gate.take(next, told);
                }
            }
            // Nobody is told any more of what comes behind the last gate.
            if state.next > stamp || state.gates.is_empty() {
                return gate;
            }
            // For who has a stamp before this one.
            drop(state);
            medium.pause();
            state = self.state.lock(medium);
        }
    }
}

impl State {
    /// Who is told of a stamp.
    fn gate_of(&self, stamp: u64) -> Option<Arc<dyn Gate>> {
        self.gates.iter().rev().find(|(from, _)| *from < stamp)?.1.clone()
    }

    /// The next stamp to be told, if it is done.
    fn take_next(&mut self) -> Option<(u64, Option<Result<WriteSet>>)> {
        let next = self.next;
        let told = self.early.remove(&next)?;
        self.next += 1;
        let told = told.map(|told| told.map(|write_set| self.numbered(write_set)));
        Some((next, told))
    }

    /// A write set with the version of the schema that it goes by. One that changes the schema has
    /// its own.
    fn numbered(&mut self, mut write_set: WriteSet) -> WriteSet {
        match write_set.schema_version {
            0 => write_set.schema_version = self.schema_version,
            version => self.schema_version = version,
        }
        write_set
    }
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gated").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use remanent_pmem::Pool;

    use super::*;
    use crate::replicate::SchemaChange;

    #[derive(Default)]
    struct Taken(Mutex<Vec<(u64, u64)>>);

    impl Gate for Taken {
        fn take(&self, stamp: u64, write_set: Result<WriteSet>) {
            let version = write_set.unwrap().schema_version;
            self.0.lock().unwrap().push((stamp, version));
        }

        fn wait(&self, _: u64) -> bool {
            true
        }
    }

    fn told() -> Option<Result<WriteSet>> {
        Some(Ok(WriteSet::default()))
    }

    #[test]
    fn commits_are_told_in_the_order_of_their_stamps() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, gated, taken) = (pool.medium(), Gated::default(), Arc::new(Taken::default()));
        assert!(!gated.is_on() && gated.pass(medium, 1, told()).is_none());
        let gate: Arc<dyn Gate> = taken.clone();
        assert_eq!(gated.set(medium, Some(gate), 3, || 10), 10);
        assert!(gated.is_on());
        // Begun before.
        assert!(gated.pass(medium, 10, told()).is_none());
        thread::scope(|scope| {
            let dropped = || SchemaChange::DropTable { table: "t".to_owned() };
            let change = move || Some(Ok(WriteSet::of_schema(4, dropped())));
            // Each comes back when it was told.
            let pass = |stamp, told: Option<Result<WriteSet>>| {
                let is_told = told.is_some();
                assert!(gated.pass(medium, stamp, told).is_some());
                let taken = taken.0.lock().unwrap();
                assert!(!is_told || taken.iter().any(|(of, _)| *of == stamp), "{taken:?}");
            };
            scope.spawn(move || pass(13, told()));
            scope.spawn(move || pass(12, change()));
            scope.spawn(move || pass(15, told()));
            scope.spawn(move || pass(11, told()));
            // A stamp that no commit has.
            scope.spawn(move || pass(14, None));
        });
        assert_eq!(*taken.0.lock().unwrap(), [(11, 3), (12, 4), (13, 4), (15, 4)]);
    }

    #[test]
    fn who_has_overtaken_others_goes_on_when_the_gate_is_taken_away() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, gated) = (pool.medium(), Gated::default());
        gated.set(medium, Some(Arc::new(Taken::default())), 1, || 10);
        gated.set(medium, None, 1, || 10);
        thread::scope(|scope| {
            let overtaking = scope.spawn(|| gated.pass(medium, 12, told()).is_none());
            while gated.state.lock(medium).early.is_empty() {
                thread::yield_now();
            }
            gated.forget_before(medium, 10);
            assert!(gated.pass(medium, 11, told()).is_none());
            assert!(overtaking.join().unwrap());
        });
    }

    #[test]
    fn a_gate_is_told_of_what_had_begun_when_it_was_exchanged() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, gated) = (pool.medium(), Gated::default());
        let [one, other] = [(); 2].map(|()| Arc::new(Taken::default()));
        gated.set(medium, Some(one.clone()), 1, || 10);
        gated.set(medium, Some(other.clone()), 1, || 12);
        gated.set(medium, None, 1, || 13);
        for stamp in 11..=14 {
            assert_eq!(gated.pass(medium, stamp, told()).is_some(), stamp < 14);
        }
        let stamps =
            |of: &Taken| of.0.lock().unwrap().iter().map(|told| told.0).collect::<Vec<_>>();
        assert_eq!((stamps(&one), stamps(&other)), (vec![11, 12], vec![13]));
        gated.forget_before(medium, 12);
        assert!(gated.is_on());
        gated.forget_before(medium, 13);
        assert!(!gated.is_on() && gated.pass(medium, 15, told()).is_none());
        gated.set(medium, Some(one.clone()), 1, || 20);
        assert!(gated.pass(medium, 21, told()).is_some());
        assert_eq!(stamps(&one), [11, 12, 21]);
    }
}
