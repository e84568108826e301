//! What may be observed after a crash.
//!
//! *Durable linearizability*: there is an order of the operations, consistent with real time and with every
//! answer that was given, in which all acknowledged operations and any of those in flight happened.
//!
//! The search is Wing and Gong's with the memory of Lowe's: a node is how far each thread has come and
//! the state reached, so its size is bounded by how much the operations overlap, not by their number.

use std::collections::HashMap;
use std::fmt::Debug;

use serde::Serialize;

use crate::subject::Subject;

/// Which recovered states are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// Every acknowledged operation survives; one in flight survives wholly or not at all.
    #[default]
    Durable,
    /// A prefix of the history survives, with everything that the last acknowledged
    /// [sync](Subject::is_sync) covers.
    Buffered,
}

/// One operation of a run.
pub(crate) struct Call<S: Subject> {
    pub(crate) thread: usize,
    pub(crate) op: S::Op,
    /// When it began: in the order of all begins and ends, and in events of the trace.
    pub(crate) began: Moment,
    /// When it was acknowledged, and with what answer.
    pub(crate) ended: Option<(Moment, S::Ret)>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Unique among the begins and ends of a run, ascending.
    pub(crate) stamp: u64,
    /// Events recorded before.
    pub(crate) position: usize,
}

impl<S: Subject> Call<S> {
    /// Whether a crash at this position meets the operation.
    pub(crate) fn has_begun(&self, position: usize) -> bool {
        self.began.position < position
    }

    /// When it was acknowledged, unless the crash at this position came first.
    pub(crate) fn acknowledged(&self, position: usize) -> Option<u64> {
        let (end, _) = self.ended.as_ref()?;
        (end.position <= position).then_some(end.stamp)
    }
}

/// Works out the right states at ascending positions of one history.
pub(crate) struct Linearizer<'a, S: Subject> {
    subject: &'a S,
    oracle: Oracle,
    /// Calls by thread, in order.
    threads: Vec<Vec<&'a Call<S>>>,
    /// How far the threads had come at the last moment when nothing was in flight.
    base: Vec<usize>,
    /// The states that were possible then.
    base_states: Vec<S::State>,
}

/// How far each thread has come, and the state that this led to.
type Node<State> = (Vec<usize>, State);

impl<'a, S: Subject> Linearizer<'a, S> {
    pub(crate) fn new(subject: &'a S, oracle: Oracle, calls: &'a [Call<S>]) -> Self {
        let count = calls.iter().map(|call| call.thread + 1).max().unwrap_or(0);
        let mut threads = vec![Vec::new(); count];
        calls.iter().for_each(|call| threads[call.thread].push(call));
        let base = vec![0; count];
        Linearizer { subject, oracle, threads, base, base_states: vec![S::State::default()] }
    }

    /// Every state that may be observed after a crash at `position`; none when the answers given before
    /// it contradict each other.
    ///
    /// Positions must not descend from call to call.
    pub(crate) fn states(&mut self, position: usize) -> Vec<S::State> {
        let mut search = Search::new(self, position);
        let bases = self.base_states.clone();
        for state in bases {
            search.visit(self, (self.base.clone(), state));
        }
        let Search { ends: states, acknowledged, required, begun, .. } = search;
        // When all that began before the last answer is acknowledged, and nothing is optional, what
        // follows starts from here.
        let last_end = self.calls().filter_map(|call| call.acknowledged(position)).max();
        let overlapping = self.calls().filter(|call| Some(call.began.stamp) < last_end).count();
        if begun == acknowledged
            && acknowledged == required
            && overlapping == acknowledged.iter().sum()
        {
            self.base = acknowledged;
            self.base_states.clone_from(&states);
        }
        states
    }

    fn calls(&self) -> impl Iterator<Item = &'a Call<S>> {
        self.threads.iter().flatten().copied()
    }

    /// How many calls of each thread must have survived a crash at `position`.
    fn required(&self, position: usize, acknowledged: &[usize]) -> Vec<usize> {
        match self.oracle {
            Oracle::Durable => acknowledged.to_vec(),
            Oracle::Buffered => {
                let synced = self
                    .calls()
                    .filter(|call| {
                        self.subject.is_sync(&call.op) && call.acknowledged(position).is_some()
                    })
                    .map(|call| call.began.stamp)
                    .max();
                let is_covered = |call: &&&Call<S>| match (call.acknowledged(position), synced) {
                    (Some(end), Some(synced)) => end < synced || call.began.stamp == synced,
                    _ => false,
                };
                let covered = |calls: &Vec<&Call<S>>| calls.iter().filter(is_covered).count();
                self.threads.iter().map(covered).collect()
            }
        }
    }
}

struct Search<State> {
    position: usize,
    /// Calls of each thread that were acknowledged, must be in the state, and have begun.
    acknowledged: Vec<usize>,
    required: Vec<usize>,
    begun: Vec<usize>,
    /// Whether all acknowledged calls can follow, by node.
    known: HashMap<Node<State>, bool>,
    ends: Vec<State>,
}

impl<State: Clone + Eq + std::hash::Hash + Debug> Search<State> {
    fn new<S: Subject<State = State>>(linearizer: &Linearizer<'_, S>, position: usize) -> Self {
        let count = |keep: &dyn Fn(&Call<S>) -> bool| -> Vec<usize> {
            let kept = |calls: &Vec<&Call<S>>| calls.iter().filter(|call| keep(call)).count();
            linearizer.threads.iter().map(kept).collect()
        };
        let acknowledged = count(&|call| call.acknowledged(position).is_some());
        let required = linearizer.required(position, &acknowledged);
        let begun =
            count(&|call| call.has_begun(position) || call.acknowledged(position).is_some());
        Search { position, acknowledged, required, begun, known: HashMap::new(), ends: Vec::new() }
    }

    /// Whether an order of all acknowledged calls goes through this node; collects the right states.
    fn visit<S: Subject<State = State>>(
        &mut self,
        linearizer: &Linearizer<'_, S>,
        node: Node<State>,
    ) -> bool {
        if let Some(&known) = self.known.get(&node) {
            return known;
        }
        let (done, state) = &node;
        let mut completes = done.iter().zip(&self.acknowledged).all(|(done, all)| done >= all);
        for thread in 0..done.len() {
            if let Some(next) = self.follow(linearizer, done, state, thread) {
                completes |= self.visit(linearizer, next);
            }
        }
        let suffices = done.iter().zip(&self.required).all(|(done, required)| done >= required);
        if completes && suffices && !self.ends.contains(state) {
            self.ends.push(state.clone());
        }
        self.known.insert(node, completes);
        completes
    }

    /// The node after the next call of a thread, when that may come next and its answer fits.
    fn follow<S: Subject<State = State>>(
        &self,
        linearizer: &Linearizer<'_, S>,
        done: &[usize],
        state: &State,
        thread: usize,
    ) -> Option<Node<State>> {
        if done[thread] == self.begun[thread] {
            return None;
        }
        let call = linearizer.threads[thread][done[thread]];
        let must_wait = (0..done.len()).any(|other| {
            done[other] < self.acknowledged[other]
                && linearizer.threads[other][done[other]]
                    .acknowledged(self.position)
                    .is_some_and(|end| end < call.began.stamp)
        });
        if must_wait {
            return None;
        }
        let answer = call.ended.as_ref().map(|(_, ret)| ret);
        let answer = answer.filter(|_| call.acknowledged(self.position).is_some());
        let mut after = state.clone();
        if answer.is_none_or(|answer| !linearizer.subject.is_refused(answer)) {
            let expected = linearizer.subject.model(&mut after, &call.op);
            if answer.is_some_and(|answer| *answer != expected) {
                return None;
            }
        }
        let mut done = done.to_vec();
        done[thread] += 1;
        Some((done, after))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rng::Rng;
    use crate::sim::Sim;
    use crate::subject::Outcome;

    /// A register: its operations replace the word and answer what it was.
    struct Register;

    impl Subject for Register {
        type Op = u64;
        type Ret = u64;
        type State = u64;
        type Handle = ();

        fn create(&self, _: Arc<Sim>) -> Outcome {
            Ok(())
        }

        fn open(&self, _: Arc<Sim>) -> Outcome {
            Ok(())
        }

        fn apply(&self, (): &(), _: &u64) -> u64 {
            0
        }

        fn model(&self, state: &mut u64, op: &u64) -> u64 {
            std::mem::replace(state, *op)
        }

        fn observe(&self, (): &()) -> Outcome<u64> {
            Ok(0)
        }

        fn op(&self, _: &mut Rng) -> u64 {
            0
        }

        fn is_refused(&self, ret: &u64) -> bool {
            *ret == REFUSED
        }

        /// Round numbers are syncs.
        fn is_sync(&self, op: &u64) -> bool {
            op.is_multiple_of(10)
        }
    }

    const REFUSED: u64 = 999;

    /// A call from stamp `began` to stamp `ended`; stamps are positions too.
    fn call(thread: usize, op: u64, began: u64, ended: Option<(u64, u64)>) -> Call<Register> {
        let moment = |stamp| Moment { stamp, position: stamp as usize };
        let ended = ended.map(|(stamp, ret)| (moment(stamp), ret));
        Call { thread, op, began: moment(began), ended }
    }

    fn states(oracle: Oracle, calls: &[Call<Register>], position: usize) -> Vec<u64> {
        let mut linearizer = Linearizer::new(&Register, oracle, calls);
        // Asking in between must not change the answer.
        (0..position).for_each(|position| drop(linearizer.states(position)));
        let mut states = linearizer.states(position);
        states.sort_unstable();
        states
    }

    #[test]
    fn what_is_in_flight_happened_or_not() {
        let calls = [call(0, 1, 0, Some((1, 0))), call(0, 2, 2, Some((5, 1)))];
        for (position, expected) in
            [(0, &[0][..]), (1, &[1]), (2, &[1]), (3, &[1, 2]), (4, &[1, 2]), (5, &[2])]
        {
            assert_eq!(states(Oracle::Durable, &calls, position), expected, "at {position}");
        }
    }

    #[test]
    fn concurrent_calls_happen_in_any_order_that_explains_their_answers() {
        let unanswered = [call(0, 1, 0, None), call(1, 2, 1, None)];
        assert_eq!(states(Oracle::Durable, &unanswered, 9), [0, 1, 2]);
        let answered = [call(0, 1, 0, Some((5, 2))), call(1, 2, 1, Some((4, 0)))];
        assert_eq!(states(Oracle::Durable, &answered, 9), [1]);
        let contradictory = [call(0, 1, 0, Some((5, 0))), call(1, 2, 1, Some((4, 0)))];
        assert!(states(Oracle::Durable, &contradictory, 9).is_empty());
    }

    #[test]
    fn a_call_that_ended_comes_before_one_that_began_later() {
        let calls = [call(0, 1, 0, Some((1, 0))), call(1, 2, 2, Some((3, 0)))];
        assert!(states(Oracle::Durable, &calls, 9).is_empty(), "the second ignores the first");
    }

    #[test]
    fn an_answer_forces_what_was_in_flight() {
        // Thread 1 saw the 1 that thread 0 was still writing, so it must survive.
        let calls = [call(0, 1, 0, None), call(1, 2, 1, Some((3, 1)))];
        assert_eq!(states(Oracle::Durable, &calls, 9), [2]);
    }

    #[test]
    fn a_refused_call_changes_nothing() {
        let calls = [call(0, 1, 0, Some((1, 0))), call(0, 2, 2, Some((3, REFUSED)))];
        assert_eq!(states(Oracle::Durable, &calls, 9), [1]);
    }

    #[test]
    fn buffered_calls_survive_as_a_prefix_from_the_last_sync_on() {
        let calls = [
            call(0, 1, 0, Some((1, 0))),
            call(0, 10, 2, Some((4, 1))),
            call(0, 2, 5, Some((6, 10))),
            call(0, 3, 7, Some((8, 2))),
        ];
        for (position, expected) in
            [(1, &[0, 1][..]), (3, &[0, 1, 10]), (4, &[10]), (6, &[2, 10]), (8, &[2, 3, 10])]
        {
            assert_eq!(states(Oracle::Buffered, &calls, position), expected, "at {position}");
        }
    }
}
