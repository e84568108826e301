//! Records one run of a workload.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use remanent_pmem::Medium;

use crate::config::Config;
use crate::oracle::history::{Call, Moment};
use crate::panics;
use crate::sim::Sim;
use crate::sim::schedule;
use crate::sim::trace::Event;
use crate::subject::{Subject, Workload};

/// Events and answers of a run.
pub(crate) struct Recording<S: Subject> {
    pub(crate) events: Vec<Event>,
    /// Number of events of the creation.
    pub(crate) created: usize,
    /// Number of events of the creation and the preparation after it.
    pub(crate) prepared: usize,
    /// Calls, in the order in which they began.
    pub(crate) calls: Vec<Call<S>>,
    /// Why the run did not reach its end, if so.
    pub(crate) failure: Option<String>,
}

/// Runs a workload on a fresh medium: creation, preparation, setup, threads, clean close.
pub(crate) fn record<S: Subject>(
    subject: &S,
    config: &Config,
    seed: u64,
    workload: &Workload<S::Op>,
    sim: &Arc<Sim>,
) -> Recording<S> {
    sim.begin_run(config.steps_max);
    sim.record();
    let log = Log::new(sim);
    let (mut created, mut prepared) = (0, 0);
    let outcome = panics::catch(|| {
        let handle =
            subject.create(Arc::clone(sim)).map_err(|error| format!("create failed: {error}"))?;
        created = sim.recorded();
        let handle =
            subject.prepare(sim, handle).map_err(|error| format!("prepare failed: {error}"))?;
        prepared = sim.recorded();
        if let Some(number) = config.faults.full_at(seed) {
            sim.fail_call(number);
        }
        workload.setup.iter().for_each(|op| log.apply(subject, &handle, 0, op));
        run_threads(subject, config, seed, &workload.threads, &handle, &log)?;
        drop(handle);
        match sim.fault() {
            Some(fault) => Err(format!("the medium met a fault in a healthy run: {fault:?}")),
            None => Ok(()),
        }
    });
    let failure = outcome.unwrap_or_else(Err).err();
    let events = sim.take_events();
    let created = if failure.is_some() && created == 0 { events.len() } else { created };
    Recording { events, created, prepared, calls: log.into_calls(), failure }
}

fn run_threads<S: Subject>(
    subject: &S,
    config: &Config,
    seed: u64,
    threads: &[Vec<S::Op>],
    handle: &S::Handle,
    log: &Log<'_, S>,
) -> Result<(), String> {
    if let [ops] = threads {
        ops.iter().for_each(|op| log.apply(subject, handle, 0, op));
        return Ok(());
    }
    let bodies = (1..).zip(threads).map(|(thread, ops)| {
        let body = move || ops.iter().for_each(|op| log.apply(subject, handle, thread, op));
        Box::new(body) as Box<dyn FnOnce() + Send + '_>
    });
    schedule::run(config.schedule, seed, config.steps_max, bodies.collect())
}

struct Log<'a, S: Subject> {
    sim: &'a Sim,
    stamps: AtomicU64,
    calls: Mutex<Vec<Call<S>>>,
}

impl<'a, S: Subject> Log<'a, S> {
    fn new(sim: &'a Sim) -> Self {
        Log { sim, stamps: AtomicU64::new(0), calls: Mutex::new(Vec::new()) }
    }

    fn apply(&self, subject: &S, handle: &S::Handle, thread: usize, op: &S::Op) {
        let call = Call { thread, op: op.clone(), began: self.now(), ended: None };
        let index = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(call);
            calls.len() - 1
        };
        let ret = subject.apply(handle, op);
        let end = (self.now(), ret);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)[index].ended = Some(end);
    }

    fn now(&self) -> Moment {
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed);
        Moment { stamp, position: self.sim.recorded() }
    }

    fn into_calls(self) -> Vec<Call<S>> {
        self.calls.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
