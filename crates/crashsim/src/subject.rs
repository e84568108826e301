//! What a test tells the simulator about a structure: [`Subject`] and [`Workload`].

use std::error::Error;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use crate::rng::Rng;
use crate::sim::Sim;

/// Result of a step that a structure may fail at, with any error.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A persistent structure under test, and a plain model of it.
///
/// The explorer [creates](Subject::create) the structure on a [`Sim`] and [applies](Subject::apply)
/// operations to it. It crashes the structure, [opens](Subject::open) what is left, and compares
/// what it [observes](Subject::observe) with the model.
///
/// Everything must depend on the medium and the arguments alone: no clock, no random state. Then a
/// seed repeats a run, and images that differ only where recovery never reads need not run.
pub trait Subject: Sync {
    /// One operation.
    type Op: Clone + Debug + Send + Sync;
    /// The answer of an operation.
    type Ret: Clone + PartialEq + Debug + Send;
    /// State of the model, and everything that can be observed of the structure. The default is the
    /// empty structure.
    type State: Clone + Default + Eq + Hash + Debug;
    /// The opened structure, with all it needs. Dropping it is a clean close, which is explored
    /// too.
    type Handle: Send + Sync;

    /// Creates an empty structure.
    ///
    /// The medium holds zeros, or what a crash left of an earlier creation that
    /// [`open`](Subject::open) refuses.
    ///
    /// # Errors
    ///
    /// Any error is a violation: creation can always be repeated.
    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle>;

    /// Brings a new structure to the state in which the operations begin. The default of
    /// [`State`](Subject::State) stands for that state. Preparation is not crashed.
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
    /// An error is accepted after an injected fault. It is also accepted as long as the structure
    /// was not created yet; [`create`](Subject::create) must then succeed on the same medium. Any
    /// other error is a violation.
    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle>;

    /// Executes one operation. A panic is a violation.
    fn apply(&self, handle: &Self::Handle, op: &Self::Op) -> Self::Ret;

    /// Executes the same operation on the model.
    fn model(&self, state: &mut Self::State, op: &Self::Op) -> Self::Ret;

    /// Reads everything that can be observed.
    ///
    /// # Errors
    ///
    /// Any error is a violation, unless a fault was injected.
    fn observe(&self, handle: &Self::Handle) -> Outcome<Self::State>;

    /// The model's state after a crash, if what was observed equals one that it holds possible. The
    /// default is what was observed. A model that knows more than can be observed, which equality
    /// and hashes do without, goes on from its own state.
    fn go_on_from(&self, of_model: &Self::State, observed: Self::State) -> Self::State {
        let _ = of_model;
        observed
    }

    /// Draws an operation for a generated workload.
    fn op(&self, rng: &mut Rng) -> Self::Op;

    /// Checks the structure's own invariants.
    ///
    /// # Errors
    ///
    /// Names the invariant that does not hold: a violation, unless a fault was injected.
    fn check(&self, handle: &Self::Handle) -> Outcome {
        let _ = handle;
        Ok(())
    }

    /// Whether this answer refuses the operation for a reason that the model does not know, such as
    /// a full medium or a fault. A refused operation has changed nothing, or has done some of its
    /// [steps](Subject::steps).
    fn is_refused(&self, ret: &Self::Ret) -> bool {
        let _ = ret;
        false
    }

    /// The steps of an operation that is not one atomic step. [`model`](Subject::model) executes
    /// all of them at once.
    fn steps(&self, op: &Self::Op) -> Steps<Self::Op> {
        let _ = op;
        Steps::One
    }

    /// How many effects the answer of a step reports, such as entries that it removed. The sum over
    /// all steps of an operation decides its answer: see
    /// [`answer_for_effects`](Subject::answer_for_effects).
    fn step_effects(&self, ret: &Self::Ret) -> u64 {
        let _ = ret;
        0
    }

    /// The right answer of an operation whose steps had `effects` in total
    /// ([`step_effects`](Subject::step_effects)).
    ///
    /// Only asked when another thread may have acted between the steps; otherwise
    /// [`model`](Subject::model) says the right answer. `None`, the default, accepts any answer.
    fn answer_for_effects(&self, op: &Self::Op, effects: u64) -> Option<Self::Ret> {
        let _ = (op, effects);
        None
    }

    /// Whether this operation makes everything durable that was acknowledged before it.
    ///
    /// Only asked with [`Oracle::Buffered`](crate::Oracle::Buffered).
    fn is_sync(&self, op: &Self::Op) -> bool {
        let _ = op;
        false
    }
}

/// The steps of an operation, each an operation itself whose answer nobody sees.
///
/// A crash may leave some of the steps done. So may an error that [refuses](Subject::is_refused)
/// the rest. Other threads may act between the steps: then the answer is compared with
/// [`answer_for_effects`](Subject::answer_for_effects), and otherwise with the model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steps<Op> {
    /// The operation is one atomic step.
    One,
    /// Steps that happen in this order.
    InOrder(Vec<Op>),
    /// Steps that happen in any order, each at least once. There are at most 64, and repeating a
    /// step at once changes nothing.
    AnyOrder(Vec<Op>),
    /// Steps that happen in any order, each once. There are at most 64.
    OnceEach(Vec<Op>),
}

/// The operations of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload<Op> {
    /// Executed one after the other, before any thread starts.
    pub setup: Vec<Op>,
    /// Executed by each simulated thread. A single thread runs without a schedule.
    pub threads: Vec<Vec<Op>>,
}

impl<Op> Workload<Op> {
    /// A workload of one thread.
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
