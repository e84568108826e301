//! Search for the states that may be observed after a crash.
//!
//! *Durable linearizability*: there is an order of the operations, consistent with real time and
//! with every answer, in which all acknowledged operations happened, and any of those in flight.
//!
//! An operation of [several steps](crate::Steps) has one linearization point for each step.
//!
//! The search is Wing and Gong's, with Lowe's memory of visited nodes. A node is the progress of
//! each thread and the state reached. The number of nodes therefore depends on how much the
//! operations overlap, not on how many there are.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use super::Oracle;
use super::history::Call;
use crate::subject::{Steps, Subject};

/// Finds the right states at ascending positions of one history.
pub(crate) struct Linearizer<'a, S: Subject> {
    subject: &'a S,
    oracle: Oracle,
    /// Calls of each thread, in order.
    threads: Vec<Vec<&'a Call<S>>>,
    /// The steps of each call.
    plans: Vec<Vec<Plan<S::Op>>>,
    /// Calls of each thread that were done at the last moment when nothing was in flight.
    base: Vec<usize>,
    /// The states that were possible at that moment.
    base_states: Vec<S::State>,
}

/// Progress of each thread, and the state reached.
type Node<State> = (Vec<Progress>, State);

/// The steps of a call.
struct Plan<Op> {
    steps: Steps<Op>,
    /// Whether no other call overlapped this one, so that its answer is the model's.
    is_alone: bool,
}

/// Progress of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Progress {
    /// Calls that are done.
    calls: usize,
    /// Steps of the next call that are done: their number if they are ordered, otherwise one bit
    /// for each.
    steps: u64,
    /// Sum of the effects of these steps.
    effects: u64,
}

impl Progress {
    /// Progress after this many calls, with no step of the next one done.
    fn after(calls: usize) -> Progress {
        Progress { calls, steps: 0, effects: 0 }
    }
}

impl<'a, S: Subject> Linearizer<'a, S> {
    pub(crate) fn new(subject: &'a S, oracle: Oracle, calls: &'a [Call<S>]) -> Self {
        let count = calls.iter().map(|call| call.thread + 1).max().unwrap_or(0);
        let mut threads = vec![Vec::new(); count];
        let mut plans: Vec<_> = (0..count).map(|_| Vec::new()).collect();
        for call in calls {
            threads[call.thread].push(call);
            let steps = subject.steps(&call.op);
            assert_few(&steps);
            let is_alone = !matches!(steps, Steps::One) && is_alone(call, calls);
            plans[call.thread].push(Plan { steps, is_alone });
        }
        let base = vec![0; count];
        let base_states = vec![S::State::default()];
        Linearizer { subject, oracle, threads, plans, base, base_states }
    }

    /// Every state that may be observed after a crash at `position`. There is none if the answers
    /// given before contradict each other.
    ///
    /// Positions must not descend from call to call.
    pub(crate) fn states(&mut self, position: usize) -> Vec<S::State> {
        let mut search = Search::new(self, position);
        let bases = self.base_states.clone();
        for state in bases {
            let progress = self.base.iter().map(|&calls| Progress::after(calls));
            search.visit(self, (progress.collect(), state));
        }
        let Search { ends: states, acknowledged, required, begun, .. } = search;
        // Everything that began before the last answer is acknowledged, and nothing is optional:
        // later searches can start from here.
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

/// Whether no other call was in flight during this one.
fn is_alone<S: Subject>(call: &Call<S>, calls: &[Call<S>]) -> bool {
    let span = |call: &Call<S>| {
        let end = call.ended.as_ref().map_or(u64::MAX, |(end, _)| end.stamp);
        (call.began.stamp, end)
    };
    let (begin, end) = span(call);
    calls.iter().map(span).filter(|&(began, ended)| began < end && begin < ended).count() == 1
}

struct Search<State> {
    position: usize,
    /// Calls of each thread: acknowledged before the crash, required to survive, and begun before
    /// the crash.
    acknowledged: Vec<usize>,
    required: Vec<usize>,
    begun: Vec<usize>,
    /// For each visited node: whether all acknowledged calls can follow.
    known: HashMap<Node<State>, bool>,
    /// The right states, in the order in which they were found, and without it. Steps in any order
    /// have thousands.
    ends: Vec<State>,
    ends_known: HashSet<State>,
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
        let (known, ends, ends_known) = (HashMap::new(), Vec::new(), HashSet::new());
        Search { position, acknowledged, required, begun, known, ends, ends_known }
    }

    /// Whether an order of all acknowledged calls goes through this node. Collects the right
    /// states.
    fn visit<S: Subject<State = State>>(
        &mut self,
        linearizer: &Linearizer<'_, S>,
        mut node: Node<State>,
    ) -> bool {
        self.pass_idle_steps(linearizer, &mut node);
        if let Some(&known) = self.known.get(&node) {
            return known;
        }
        let (done, state) = &node;
        let reaches = |all: &[usize]| done.iter().zip(all).all(|(done, all)| done.calls >= *all);
        let mut completes = reaches(&self.acknowledged);
        let suffices = reaches(&self.required);
        for thread in 0..done.len() {
            for next in self.follow(linearizer, &node, thread) {
                completes |= self.visit(linearizer, next);
            }
        }
        if completes && suffices && self.ends_known.insert(state.clone()) {
            self.ends.push(state.clone());
        }
        self.known.insert(node, completes);
        completes
    }

    /// The next call of a thread and its steps, unless real time forbids that the call comes next.
    fn next_call<'l, S: Subject<State = State>>(
        &self,
        linearizer: &'l Linearizer<'_, S>,
        done: &[Progress],
        thread: usize,
    ) -> Option<(&'l Call<S>, &'l Plan<S::Op>)> {
        let calls = done[thread].calls;
        if calls == self.begun[thread] {
            return None;
        }
        let call = linearizer.threads[thread][calls];
        let must_wait = (0..done.len()).any(|other| {
            done[other].calls < self.acknowledged[other]
                && linearizer.threads[other][done[other].calls]
                    .acknowledged(self.position)
                    .is_some_and(|end| end < call.began.stamp)
        });
        (!must_wait).then(|| (call, &linearizer.plans[thread][calls]))
    }

    /// The answer of a call, if it was given before the crash.
    fn answer<'c, S: Subject>(&self, call: &'c Call<S>) -> Option<&'c S::Ret> {
        let (_, answer) = call.ended.as_ref()?;
        call.acknowledged(self.position).map(|_| answer)
    }

    /// Counts steps as done that change nothing in the present state. Steps may be repeated, so
    /// this is harmless, and it leaves fewer orders to try.
    fn pass_idle_steps<S: Subject<State = State>>(
        &self,
        linearizer: &Linearizer<'_, S>,
        (done, state): &mut Node<State>,
    ) {
        for thread in 0..done.len() {
            let next = self.next_call(linearizer, done, thread);
            let Some((_, Plan { steps: Steps::AnyOrder(steps), .. })) = next else { continue };
            for (bit, step) in steps.iter().enumerate() {
                let mut after = state.clone();
                linearizer.subject.model(&mut after, step);
                done[thread].steps |= u64::from(after == *state) << bit;
            }
        }
    }

    /// The nodes after the next step of a thread, if that step may come next and its answer fits.
    fn follow<S: Subject<State = State>>(
        &self,
        linearizer: &Linearizer<'_, S>,
        (done, state): &Node<State>,
        thread: usize,
    ) -> Vec<Node<State>> {
        let Some((call, plan)) = self.next_call(linearizer, done, thread) else {
            return Vec::new();
        };
        let subject = linearizer.subject;
        let node = |progress: Progress, after: State| {
            let mut done = done.clone();
            done[thread] = progress;
            (done, after)
        };
        let Progress { calls, steps: taken, effects } = done[thread];
        let answer = self.answer(call);
        let is_refused = answer.is_some_and(|answer| subject.is_refused(answer));
        let is_explained = plan.is_alone && answer.is_some() && !is_refused;
        let (steps, is_ordered, is_repeated) = match &plan.steps {
            Steps::InOrder(steps) if !is_explained => (steps, true, false),
            Steps::AnyOrder(steps) if !is_explained => (steps, false, true),
            Steps::OnceEach(steps) if !is_explained => (steps, false, false),
            _ => {
                let mut after = state.clone();
                let fits = is_refused || {
                    let expected = subject.model(&mut after, &call.op);
                    answer.is_none_or(|answer| *answer == expected)
                };
                return fits.then(|| node(Progress::after(calls + 1), after)).into_iter().collect();
            }
        };
        let mut nodes = Vec::new();
        let comes_next = |index: u64| match is_ordered {
            true => index == taken,
            false => is_repeated || taken & 1 << index == 0,
        };
        for (index, step) in (0..).zip(steps).filter(|&(index, _)| comes_next(index)) {
            let mut after = state.clone();
            let effects = effects + subject.step_effects(&subject.model(&mut after, step));
            let steps = if is_ordered { taken + 1 } else { taken | 1 << index };
            if !is_repeated || after != *state {
                nodes.push(node(Progress { calls, steps, effects }, after));
            }
        }
        let count = if is_ordered { taken } else { u64::from(taken.count_ones()) };
        let is_told = answer.is_none_or(|answer| {
            subject.answer_for_effects(&call.op, effects).is_none_or(|expected| *answer == expected)
        });
        if is_refused || count == steps.len() as u64 && is_told {
            nodes.push(node(Progress::after(calls + 1), state.clone()));
        }
        nodes
    }
}

/// The search keeps a bit for each step that comes in any order.
fn assert_few<Op>(steps: &Steps<Op>) {
    if let Steps::AnyOrder(steps) | Steps::OnceEach(steps) = steps {
        assert!(steps.len() <= 64, "{} steps in any order, of at most 64", steps.len());
    }
}

/// The states that a crash during an operation may leave: none, some, or all of its steps done.
pub(crate) fn half_done<S: Subject>(subject: &S, state: &S::State, op: &S::Op) -> Vec<S::State> {
    let mut states = vec![state.clone()];
    let after = |mut state: S::State, step: &S::Op| {
        subject.model(&mut state, step);
        state
    };
    match subject.steps(op) {
        Steps::One => states.push(after(state.clone(), op)),
        Steps::InOrder(steps) => {
            for step in &steps {
                states.push(after(states[states.len() - 1].clone(), step));
            }
        }
        Steps::AnyOrder(steps) | Steps::OnceEach(steps) => {
            for step in &steps {
                for index in 0..states.len() {
                    let state = after(states[index].clone(), step);
                    if state != states[index] {
                        states.push(state);
                    }
                }
            }
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::oracle::history::Moment;
    use crate::rng::Rng;
    use crate::sim::Sim;
    use crate::subject::Outcome;

    /// A register. Its operations replace the word and answer the old one.
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

        /// Multiples of ten are syncs.
        fn is_sync(&self, op: &u64) -> bool {
            op.is_multiple_of(10)
        }
    }

    const REFUSED: u64 = 999;

    /// A call from stamp `began` to stamp `ended`. Stamps serve as positions, too.
    fn call(thread: usize, op: u64, began: u64, ended: Option<(u64, u64)>) -> Call<Register> {
        let moment = |stamp| Moment { stamp, position: stamp as usize };
        let ended = ended.map(|(stamp, ret)| (moment(stamp), ret));
        Call { thread, op, began: moment(began), ended }
    }

    fn states(oracle: Oracle, calls: &[Call<Register>], position: usize) -> Vec<u64> {
        let mut linearizer = Linearizer::new(&Register, oracle, calls);
        // Earlier questions must not change the answer.
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
        // Thread 1 read the 1 that thread 0 was still writing, so the 1 must survive.
        let calls = [call(0, 1, 0, None), call(1, 2, 1, Some((3, 1)))];
        assert_eq!(states(Oracle::Durable, &calls, 9), [2]);
    }

    #[test]
    fn a_refused_call_changes_nothing() {
        let calls = [call(0, 1, 0, Some((1, 0))), call(0, 2, 2, Some((3, REFUSED)))];
        assert_eq!(states(Oracle::Durable, &calls, 9), [1]);
    }

    /// Ten bits. Operations below [`TEN`] set one bit; the others have several steps.
    struct Bits;

    const TEN: u64 = 10;
    /// Sets bits 0, 1 and 2, in this order.
    const SET: u64 = 10;
    /// Clears bits 0, 1 and 2, in any order.
    const CLEAR: u64 = 11;
    /// Like `CLEAR`, and answers how many bits it cleared.
    const CLEAR_TOLD: u64 = 12;
    /// This and all higher operations clear one bit.
    const CLEAR_ONE: u64 = 20;

    impl Subject for Bits {
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

        /// Answers how many bits it changed.
        fn model(&self, state: &mut u64, op: &u64) -> u64 {
            let before = *state;
            match *op {
                SET => *state |= 0b111,
                CLEAR | CLEAR_TOLD => *state &= !0b111,
                op if op < TEN => *state |= 1 << op,
                op => *state &= !(1 << (op - CLEAR_ONE)),
            }
            u64::from((before ^ *state).count_ones())
        }

        fn step_effects(&self, ret: &u64) -> u64 {
            *ret
        }

        fn answer_for_effects(&self, op: &u64, effects: u64) -> Option<u64> {
            (*op == CLEAR_TOLD).then_some(effects)
        }

        fn steps(&self, op: &u64) -> Steps<u64> {
            match *op {
                SET => Steps::InOrder(vec![0, 1, 2]),
                CLEAR | CLEAR_TOLD => Steps::AnyOrder((CLEAR_ONE..CLEAR_ONE + 3).collect()),
                _ => Steps::One,
            }
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
    }

    /// Thread, operation, begin, and end with answer.
    type Told = (usize, u64, u64, Option<(u64, u64)>);

    /// Like [`states`].
    fn bits(calls: &[Told], position: usize) -> Vec<u64> {
        let moment = |stamp| Moment { stamp, position: stamp as usize };
        let call = |&(thread, op, began, ended): &Told| Call {
            thread,
            op,
            began: moment(began),
            ended: ended.map(|(end, ret)| (moment(end), ret)),
        };
        let calls: Vec<Call<Bits>> = calls.iter().map(call).collect();
        let mut linearizer = Linearizer::new(&Bits, Oracle::Durable, &calls);
        (0..position).for_each(|position| drop(linearizer.states(position)));
        let mut states = linearizer.states(position);
        states.sort_unstable();
        states
    }

    #[test]
    fn a_crash_leaves_some_steps_of_what_is_many() {
        let set = (0, SET, 0, Some((5, 3)));
        assert_eq!(bits(&[set], 3), [0, 0b1, 0b11, 0b111]);
        assert_eq!(bits(&[set], 5), [0b111]);
        let clear = (0, CLEAR, 6, Some((9, 3)));
        assert_eq!(bits(&[set, clear], 8), (0..8).collect::<Vec<u64>>());
        assert_eq!(bits(&[set, clear], 9), [0]);
        assert_eq!(half_done(&Bits, &0b1001, &CLEAR), [0b1001, 0b1000]);
        assert_eq!(half_done(&Bits, &0b1001, &SET), [0b1001, 0b1001, 0b1011, 0b1111]);
    }

    #[test]
    fn an_answer_about_many_steps_counts_when_nothing_happened_between_them() {
        assert!(bits(&[(0, SET, 0, Some((5, 2)))], 9).is_empty());
        let other = (1, 7, 3, Some((4, 1)));
        assert_eq!(bits(&[(0, SET, 0, Some((5, 2))), other], 9), [0b1000_0111]);
    }

    #[test]
    fn threads_act_between_the_steps_of_another() {
        // Thread 1 sets bits 0 and 1 while thread 0 clears.
        let set = (1, SET, 0, Some((1, 3)));
        let clear = (0, CLEAR, 2, Some((9, 3)));
        let again = [(1, 0, 3, Some((4, 1))), (1, 1, 5, Some((6, 1)))];
        assert_eq!(bits(&[set, clear, again[0], again[1]], 9), [0b0, 0b1, 0b10, 0b11]);
        // Bit 0 was cleared twice.
        let twice = [(1, 0, 3, Some((4, 1))), (1, 0, 5, Some((6, 1)))];
        assert_eq!(bits(&[set, clear, twice[0], twice[1]], 9), [0b0, 0b1]);
        // A bit that was set before the clear began, and not set again, is cleared.
        let seen = (1, 0, 10, Some((11, 0)));
        assert!(bits(&[set, clear, seen], 12).is_empty());
    }

    #[test]
    fn an_answer_about_many_steps_is_what_they_add_up_to() {
        let set = (1, SET, 0, Some((1, 3)));
        let again = (1, 0, 5, Some((6, 1)));
        let cleared = |answer| bits(&[set, (0, CLEAR_TOLD, 2, Some((9, answer))), again], 9);
        // Bit 0 was cleared before it was set again. After that it stayed, or was cleared once
        // more.
        assert_eq!(cleared(3), [0b1]);
        assert_eq!(cleared(4), [0b0]);
        assert!(cleared(2).is_empty());
        assert!(cleared(5).is_empty());
    }

    #[test]
    fn what_was_refused_after_some_steps_has_done_those() {
        let set = (0, SET, 0, Some((5, REFUSED)));
        assert_eq!(bits(&[set], 9), [0, 0b1, 0b11, 0b111]);
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
