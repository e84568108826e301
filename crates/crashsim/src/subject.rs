//! What the simulator needs to know of a structure.

use std::error::Error;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use crate::rng::Rng;
use crate::sim::Sim;

/// Result of a step that a structure may fail at, with any error.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A persistent structure under test, beside a plain model of it.
///
/// The explorer [creates](Subject::create) the structure on a [`Sim`], [applies](Subject::apply)
/// operations to it, crashes it, [opens](Subject::open) what is left, and compares what it
/// [observes](Subject::observe) with the model.
///
/// Everything must depend on the medium and the arguments alone: no clock, no random state. Then the same
/// seed gives the same run, and an image that differs only where recovery never looks need not run.
pub trait Subject: Sync {
    /// One operation.
    type Op: Clone + Debug + Send + Sync;
    /// What an operation answers.
    type Ret: Clone + PartialEq + Debug + Send;
    /// The model, and at once everything that can be observed of the structure. The default is empty.
    type State: Clone + Default + Eq + Hash + Debug;
    /// The opened structure with all it needs. Dropping it is a clean close, which is explored too.
    type Handle: Send + Sync;

    /// Makes the structure, empty, on a medium of zeros; or on what a crash left of an earlier creation, where
    /// [`open`](Subject::open) refuses.
    ///
    /// # Errors
    ///
    /// Any error is a violation: a creation can be repeated.
    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle>;

    /// Brings a new structure to the state in which operations begin, which the default of
    /// [`State`](Subject::State) stands for. Preparation is not crashed.
    ///
    /// # Errors
    ///
    /// Any error ends the run as a violation.
    fn prepare(&self, medium: &Arc<Sim>, handle: Self::Handle) -> Outcome<Self::Handle> {
        let _ = medium;
        Ok(handle)
    }

    /// Recovers the structure after a crash.
    ///
    /// # Errors
    ///
    /// An error is right when a fault was injected, and while the structure was not yet created: then
    /// [`create`](Subject::create) must succeed on what is there. At any other time it is a violation.
    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle>;

    /// Does one operation. A panic is a violation.
    fn apply(&self, handle: &Self::Handle, op: &Self::Op) -> Self::Ret;

    /// Does the same to the model.
    fn model(&self, state: &mut Self::State, op: &Self::Op) -> Self::Ret;

    /// Reads everything that can be observed.
    ///
    /// # Errors
    ///
    /// A violation, unless a fault was injected.
    fn observe(&self, handle: &Self::Handle) -> Outcome<Self::State>;

    /// An operation for a generated workload.
    fn op(&self, rng: &mut Rng) -> Self::Op;

    /// Checks the structure's own invariants.
    ///
    /// # Errors
    ///
    /// The invariant that does not hold; a violation, unless a fault was injected.
    fn check(&self, handle: &Self::Handle) -> Outcome {
        let _ = handle;
        Ok(())
    }

    /// Whether this answer says that nothing was changed, for a reason that the model does not know:
    /// the medium is full, or a fault was met.
    fn is_refused(&self, ret: &Self::Ret) -> bool {
        let _ = ret;
        false
    }

    /// What an operation does that is not one step. [`model`](Subject::model) does all of it at once.
    fn steps(&self, op: &Self::Op) -> Steps<Self::Op> {
        let _ = op;
        Steps::One
    }

    /// How many effects the answer of a step reports, such as entries that it removed. The sum over all steps of an
    /// operation decides its answer: see [`answer_for_effects`](Subject::answer_for_effects).
    fn step_effects(&self, ret: &Self::Ret) -> u64 {
        let _ = ret;
        0
    }

    /// The right answer of an operation of many steps, when its steps had `effects` in total
    /// ([`step_effects`](Subject::step_effects)).
    ///
    /// Only asked where another thread may have acted between the steps; [`model`](Subject::model) answers otherwise.
    /// With `None`, the default, any answer is right there.
    fn answer_for_effects(&self, op: &Self::Op, effects: u64) -> Option<Self::Ret> {
        let _ = (op, effects);
        None
    }

    /// Whether everything that was acknowledged before this operation is durable after it.
    ///
    /// Only asked with [`Oracle::Buffered`](crate::Oracle::Buffered).
    fn is_sync(&self, op: &Self::Op) -> bool {
        let _ = op;
        false
    }
}

/// What an operation consists of: other operations, whose answers nobody sees.
///
/// A crash may leave some of them done, and so may an error that [refuses](Subject::is_refused) the rest; threads may
/// do something between them. The answer of an operation of many steps is compared with the model's when nothing else
/// happened meanwhile, and otherwise with what [the effects of its steps](Subject::answer_for_effects) make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steps<Op> {
    /// It is one step.
    One,
    /// One after the other.
    InOrder(Vec<Op>),
    /// Each at least once, in any order; at most 64, none of which changes anything when it follows itself.
    AnyOrder(Vec<Op>),
}

/// The operations of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload<Op> {
    /// Done one after the other before any thread starts.
    pub setup: Vec<Op>,
    /// Done by each simulated thread; one thread alone runs without a schedule.
    pub threads: Vec<Vec<Op>>,
}

impl<Op> Workload<Op> {
    /// One thread with these operations.
    pub fn sequence(ops: Vec<Op>) -> Self {
        Workload { setup: Vec::new(), threads: vec![ops] }
    }

    /// Draws operations from the subject.
    pub fn generate<S: Subject<Op = Op>>(
        subject: &S,
        seed: u64,
        setup: usize,
        threads: usize,
        ops: usize,
    ) -> Self {
        let mut rng = Rng::from_parts(&[seed, 0x0b5]);
        let mut draw = |count| (0..count).map(|_| subject.op(&mut rng)).collect();
        Workload { setup: draw(setup), threads: (0..threads).map(|_| draw(ops)).collect() }
    }
}
