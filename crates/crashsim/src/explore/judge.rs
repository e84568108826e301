//! Judges one image: recovers it, compares it with the oracle, uses the structure, and closes it.

use std::error::Error;
use std::hash::Hash;
use std::sync::Arc;

use remanent_pmem::Medium;

use crate::config::Config;
use crate::hashes::hash_of;
use crate::oracle::Oracle;
use crate::oracle::linearizer::half_done;
use crate::panics;
use crate::report::violation::Broken;
use crate::rng::Rng;
use crate::sim::Sim;
use crate::sim::trace::Event;
use crate::subject::{Steps, Subject};

/// What may be found in an image.
#[derive(Clone, Debug)]
pub(crate) struct Allowed<State> {
    /// The right states.
    pub(crate) states: Vec<State>,
    /// Whether `open` may refuse, since the structure was not created yet.
    pub(crate) may_be_missing: bool,
    /// Hash of the two fields above.
    pub(crate) hash: u64,
}

impl<State: Hash> Allowed<State> {
    pub(crate) fn new(states: Vec<State>, may_be_missing: bool) -> Arc<Self> {
        let hash = hash_of(&(&states, may_be_missing));
        Arc::new(Allowed { states, may_be_missing, hash })
    }
}

/// How an image is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Treatment {
    /// The seed of the run.
    pub(crate) seed: u64,
    /// Whether errors are accepted, since a fault was injected.
    pub(crate) errors_excused: bool,
    /// Whether to record the second life, and to open the structure once more after its clean
    /// close.
    pub(crate) thorough: bool,
}

/// The result of an image.
pub(crate) struct Judgement<State> {
    pub(crate) failure: Option<(Broken, String)>,
    /// The events from recovery to clean close, if they were recorded.
    pub(crate) life: Life<State>,
    /// Hash of the observed state.
    pub(crate) state: Option<u64>,
}

/// A life after a crash: recovery, a few operations, clean close.
#[derive(Debug)]
pub(crate) struct Life<State> {
    pub(crate) events: Vec<Event>,
    /// Number of events of the recovery.
    opened: usize,
    /// Number of events before its state had been observed.
    observed: usize,
    /// The recovered state, and the state after each operation.
    states: Vec<State>,
    /// For each operation: the number of events before it and after it, and whether it is a sync.
    calls: Vec<(usize, usize, bool)>,
    /// For each operation of several steps: the states that a crash during it may leave.
    half_done: Vec<Vec<State>>,
}

impl<State: Clone + Hash> Life<State> {
    fn new() -> Self {
        Life {
            events: Vec::new(),
            opened: usize::MAX,
            observed: usize::MAX,
            states: Vec::new(),
            calls: Vec::new(),
            half_done: Vec::new(),
        }
    }

    /// What a crash in this life may leave. `found` is what recovery was allowed to find; with
    /// `killed`, that was not durable.
    pub(crate) fn allowed(
        &self,
        position: usize,
        found: &Arc<Allowed<State>>,
        oracle: Oracle,
        killed: bool,
    ) -> Arc<Allowed<State>> {
        if position < self.opened || self.states.is_empty() {
            return Arc::clone(found);
        }
        // What nobody has observed may be lost again. With buffered operations, so may what was
        // observed, until the next sync.
        let is_open = killed
            && match oracle {
                Oracle::Durable => position < self.observed,
                Oracle::Buffered => !self.calls.iter().any(|call| call.2 && call.1 <= position),
            };
        let begun = self.calls.iter().filter(|(began, _, _)| *began < position).count();
        let ended = || self.calls.iter().filter(|(_, end, _)| *end <= position);
        let first = match oracle {
            Oracle::Durable => ended().count(),
            Oracle::Buffered => (1..)
                .zip(ended())
                .filter(|(_, call)| call.2)
                .map(|(end, _)| end)
                .last()
                .unwrap_or(0),
        };
        let end = begun.max(ended().count()).min(self.states.len() - 1);
        let mut states = self.states[first..=end].to_vec();
        // With buffered operations, a crash may leave steps of any of them, not only of the last.
        states.extend(self.half_done[first..end].iter().flatten().cloned());
        if is_open {
            states.extend(found.states.iter().cloned());
        }
        Allowed::new(states, false)
    }
}

/// Recovers the image in `sim` and compares what is found with what is allowed.
pub(crate) fn judge<S: Subject>(
    subject: &S,
    config: &Config,
    sim: &Arc<Sim>,
    allowed: &Allowed<S::State>,
    treatment: Treatment,
) -> Judgement<S::State> {
    sim.begin_run(config.steps_max);
    if let Some(number) = config.faults.full_at_again(treatment.seed) {
        sim.fail_call(number);
    }
    if treatment.thorough {
        sim.record();
    }
    let mut judge = Judge { subject, config, sim, treatment, life: Life::new(), state: None };
    let verdict = panics::catch(|| judge.run(allowed));
    // Events after a failure are not needed.
    sim.take_events();
    let failure = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some((Broken::Panic, panic)),
    };
    Judgement { failure, life: judge.life, state: judge.state }
}

struct Judge<'a, S: Subject> {
    subject: &'a S,
    config: &'a Config,
    sim: &'a Arc<Sim>,
    treatment: Treatment,
    life: Life<S::State>,
    state: Option<u64>,
}

/// A failure, or a result.
type Verdict<T = ()> = Result<T, (Broken, String)>;

impl<S: Subject> Judge<'_, S> {
    fn run(&mut self, allowed: &Allowed<S::State>) -> Verdict {
        let handle = match self.subject.open(Arc::clone(self.sim)) {
            Ok(handle) => handle,
            Err(_) if self.treatment.errors_excused => {
                self.life.opened = self.sim.recorded();
                self.life.events = self.sim.take_events();
                return Ok(());
            }
            Err(error) if allowed.may_be_missing => self.create_again(&error.to_string())?,
            Err(error) => return Err((Broken::Open, format!("recovery failed: {error}"))),
        };
        let was_creating = allowed.may_be_missing && !self.treatment.errors_excused;
        let handle = if was_creating { self.prepare(handle)? } else { handle };
        self.life.opened = self.sim.recorded();
        let found = self.look(&handle, &allowed.states, Broken::State, "")?;
        let Some(mut state) = found else { return Ok(()) };
        self.state = Some(hash_of(&state));
        self.life.observed = self.sim.recorded();
        if !self.go_on(&handle, &mut state)? {
            return Ok(());
        }
        drop(handle);
        if self.treatment.thorough {
            self.life.events = self.sim.take_events();
            self.reopen(&state)?;
        }
        Ok(())
    }

    /// Creates the structure after a crash during its creation, when `open` has refused.
    fn create_again(&self, refusal: &str) -> Verdict<S::Handle> {
        self.subject.create(Arc::clone(self.sim)).map_err(|error| {
            let what = format!("there is no structure ({refusal}), nor can it be created: {error}");
            (Broken::Creation, what)
        })
    }

    /// Checks a structure after a crash during its creation, and prepares it as after any creation.
    fn prepare(&self, handle: S::Handle) -> Verdict<S::Handle> {
        let checked = self.subject.check(&handle);
        checked.map_err(|error| (Broken::Creation, format!("after a creation: {error}")))?;
        let prepared = self.subject.prepare(self.sim, handle);
        prepared.map_err(|error| (Broken::Creation, format!("prepare failed: {error}")))
    }

    /// Observes and checks the structure. `None` when an accepted error ends the inspection.
    fn look(
        &self,
        handle: &S::Handle,
        right: &[S::State],
        broken: Broken,
        when: &str,
    ) -> Verdict<Option<S::State>> {
        let failed = |broken: Broken, error: Box<dyn Error + Send + Sync>| {
            if self.treatment.errors_excused { Ok(None) } else { Err((broken, error.to_string())) }
        };
        let state = match self.subject.observe(handle) {
            Ok(state) => state,
            Err(error) => return failed(Broken::Open, error),
        };
        self.reject_fault()?;
        let Some(of_model) = right.iter().find(|right| **right == state) else {
            return Err((broken, format!("{when}{}", mismatch(&state, right))));
        };
        let state = self.subject.go_on_from(of_model, state);
        match self.subject.check(handle) {
            Ok(()) => self.reject_fault().map(|()| Some(state)),
            Err(error) => failed(Broken::Check, error),
        }
    }

    /// Executes a few more operations. False when an accepted error ends the inspection.
    fn go_on(&mut self, handle: &S::Handle, state: &mut S::State) -> Verdict<bool> {
        self.life.states.push(state.clone());
        // All images of a run get the same operations, so that they can be compared.
        let mut rng = Rng::from_parts(&[self.treatment.seed, 0xaf7e]);
        for _ in 0..self.config.after {
            let op = self.subject.op(&mut rng);
            let began = self.sim.recorded();
            let ret = self.subject.apply(handle, &op);
            let is_one_step = matches!(self.subject.steps(&op), Steps::One);
            if self.subject.is_refused(&ret) {
                if self.treatment.errors_excused {
                    return Ok(false);
                }
                if !self.config.may_refuse {
                    let what = format!("{op:?} answered {ret:?} although there is room");
                    return Err((Broken::Refused, what));
                }
                if !is_one_step {
                    // The model does not know how many steps were done.
                    let right = half_done(self.subject, state, &op);
                    self.look(handle, &right, Broken::After, "after a refusal: ")?;
                    return Ok(false);
                }
                continue;
            }
            let half_done = match self.treatment.thorough && !is_one_step {
                true => half_done(self.subject, state, &op),
                false => Vec::new(),
            };
            self.reject_fault()?;
            let expected = self.subject.model(state, &op);
            if ret != expected {
                let what =
                    format!("after recovery {op:?} answered {ret:?} instead of {expected:?}");
                return Err((Broken::After, what));
            }
            self.life.states.push(state.clone());
            self.life.half_done.push(half_done);
            self.life.calls.push((began, self.sim.recorded(), self.subject.is_sync(&op)));
        }
        if self.config.after == 0 {
            return Ok(true);
        }
        let right = std::slice::from_ref(&*state);
        let found = self.look(handle, right, Broken::After, "after more operations: ")?;
        Ok(found.is_some())
    }

    fn reopen(&self, state: &S::State) -> Verdict {
        let handle = self
            .subject
            .open(Arc::clone(self.sim))
            .map_err(|error| (Broken::Open, format!("open after a clean close failed: {error}")))?;
        let right = std::slice::from_ref(state);
        self.look(&handle, right, Broken::After, "after a clean close: ").map(drop)
    }

    fn reject_fault(&self) -> Verdict {
        match self.sim.fault() {
            None => Ok(()),
            Some(fault) => Err((
                Broken::Fault,
                format!("an answer was given although the medium had reported {fault:?}"),
            )),
        }
    }
}

fn mismatch<State: std::fmt::Debug>(found: &State, allowed: &[State]) -> String {
    let shown: Vec<_> = allowed.iter().take(SHOWN_MAX).map(|state| format!("{state:?}")).collect();
    let more = match allowed.len() - shown.len() {
        0 => String::new(),
        more => format!(", or one of {more} more"),
    };
    format!("found {found:?}; expected {}{more}", shown.join(", or "))
}

/// Expected states that a message lists.
const SHOWN_MAX: usize = 4;
