//! A scenario: a subject with a way to explore it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Config, Report, Sim, Subject, Workload};
use xxhash_rust::xxh3::xxh3_64;

/// A structure, and a way to explore it.
pub struct Scenario {
    /// Structure and aspect, such as `hashmap/threads`.
    pub name: &'static str,
    /// What is special about it, in a line.
    pub about: &'static str,
    /// Seeds that count as one: runs that are short, and of which many are needed.
    pub weight: u64,
    /// How it is explored; seeds, jobs and mutants are for the caller to set.
    pub config: Config,
    /// Events that the subject must have [come to](Sim::reach) when as many seeds as its weight were explored.
    pub reaches: &'static [&'static str],
    /// The subject, whose type is forgotten.
    pub(crate) subject: Box<dyn Explorable>,
    subject_type: &'static str,
}

impl Scenario {
    pub(crate) fn new<S: Subject<Handle: 'static> + 'static>(
        name: &'static str,
        about: &'static str,
        subject: S,
        mut config: Config,
    ) -> Self {
        config.command = format!("remanent crash-test --structure {name}");
        config.salt = xxh3_64(name.as_bytes());
        Scenario {
            name,
            about,
            weight: 1,
            config,
            reaches: &[],
            subject: Box::new(subject),
            subject_type: std::any::type_name::<S>(),
        }
    }

    /// Name of the type that is explored.
    pub fn subject_type(&self) -> &'static str {
        self.subject_type
    }

    /// States what it must have reached.
    pub(crate) fn reaching(self, reaches: &'static [&'static str]) -> Self {
        Scenario { reaches, ..self }
    }

    /// What it must have reached, and has not by this report.
    pub fn missed(&self, report: &Report) -> Vec<&'static str> {
        let is_missed = |event: &&&str| !report.reached.contains_key(**event);
        self.reaches.iter().filter(is_missed).copied().collect()
    }

    pub(crate) fn with_weight(self, weight: u64) -> Self {
        Scenario { weight, ..self }
    }

    /// Runs it with so many simulated threads, if it has several; the printed commands say so.
    pub fn set_threads(&mut self, threads: usize) {
        if self.config.threads > 1 {
            self.config.threads = threads;
            self.config.command += &format!(" --threads {threads}");
        }
    }

    /// Explores it under `config`; `observer` sees the report grow and may break off.
    pub fn explore(
        &self,
        config: &Config,
        observer: impl FnMut(&Report) -> ControlFlow<()> + Send,
    ) -> Report {
        let mut observer = observer;
        self.subject.explore(config, &mut observer)
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(crate) type ReportObserver<'a> = &'a mut (dyn FnMut(&Report) -> ControlFlow<()> + Send);

/// A [`Subject`] whose types are forgotten.
pub(crate) trait Explorable: Sync {
    fn explore(&self, config: &Config, observer: ReportObserver<'_>) -> Report;

    /// Does the operations of a seed, those of threads one after the other, without a crash; `look` sees the structure
    /// before the first and after each.
    fn run(&self, config: &Config, seed: u64, look: &mut dyn FnMut(&dyn std::any::Any));
}

impl<S: Subject<Handle: 'static>> Explorable for S {
    fn explore(&self, config: &Config, observer: ReportObserver<'_>) -> Report {
        remanent_crashsim::explore_with(self, config, observer)
    }

    fn run(&self, config: &Config, seed: u64, look: &mut dyn FnMut(&dyn std::any::Any)) {
        let Config { setup, threads, ops, .. } = *config;
        let chance = config.chance(seed);
        let workload = Workload::generate(self, chance, setup, threads, ops);
        let sim = Arc::new(Sim::new(config.sim.clone()));
        let handle = self.create(Arc::clone(&sim)).expect("a medium without faults");
        let handle = self.prepare(&sim, handle).expect("a medium without faults");
        look(&handle);
        for op in workload.setup.iter().chain(workload.threads.iter().flatten()) {
            self.apply(&handle, op);
            look(&handle);
        }
    }
}
