//! A scenario: a subject and the settings of its exploration.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Config, Nested, Report, Sim, Subject, Workload};
use xxhash_rust::xxh3::xxh3_64;

/// The settings of a shorter exploration: limits of images, and how often a life behind a crash is
/// crashed, or a process killed, are divided by `share`, which is not 0. A few images are left at
/// each crash point.
///
/// Numbers of images depend on the limits, so the command that repeats a violation names the share.
pub fn one_in(share: u64, config: &Config) -> Config {
    if share == 1 {
        return config.clone();
    }
    let part = |images: u64| images.div_ceil(share);
    let Nested { one_in, samples, .. } = config.nested;
    let one_in = one_in.saturating_mul(share);
    let nested = Nested { one_in, samples: part(samples), ..config.nested };
    let (full_max, samples) = (part(config.full_max), part(config.samples));
    let command = format!("{} --share {share}", config.command);
    Config { full_max, samples, nested, command, ..config.clone() }
}

/// A structure, and the settings of its exploration.
pub struct Scenario {
    /// Names of structure and aspect, such as `hashmap/threads`.
    pub name: &'static str,
    /// One line about what is special about it.
    pub about: &'static str,
    /// Number of seeds that count as one, for short runs of which many are needed.
    pub weight: u64,
    /// Settings of the exploration; the caller sets seeds, jobs and mutants.
    pub config: Config,
    /// Events that the subject must have [reached](Sim::reach) after as many seeds as the weight.
    pub reaches: &'static [&'static str],
    /// The subject, with its type erased.
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

    /// Name of the explored type.
    pub fn subject_type(&self) -> &'static str {
        self.subject_type
    }

    /// Sets the events that it must reach.
    pub(crate) fn reaching(self, reaches: &'static [&'static str]) -> Self {
        Scenario { reaches, ..self }
    }

    /// The events that it must reach and did not, according to this report.
    pub fn missed(&self, report: &Report) -> Vec<&'static str> {
        let is_missed = |event: &&&str| !report.reached.contains_key(**event);
        self.reaches.iter().filter(is_missed).copied().collect()
    }

    pub(crate) fn with_weight(self, weight: u64) -> Self {
        Scenario { weight, ..self }
    }

    /// Sets the number of simulated threads, if the scenario has several; the printed commands
    /// include it.
    pub fn set_threads(&mut self, threads: usize) {
        if self.config.threads > 1 {
            self.config.threads = threads;
            self.config.command += &format!(" --threads {threads}");
        }
    }

    /// Explores the scenario under `config`; `observer` sees the growing report and may break off.
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

/// A [`Subject`] with its types erased.
pub(crate) trait Explorable: Sync {
    fn explore(&self, config: &Config, observer: ReportObserver<'_>) -> Report;

    /// Executes the operations of a seed without a crash, those of several threads one after the
    /// other. `look` sees the structure before the first operation and after each.
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
