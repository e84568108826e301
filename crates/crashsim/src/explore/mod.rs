//! Exploration of all seeds, in as many threads as the configuration has jobs.

mod crash_path;
mod judge;
mod prune;
mod record;
mod seed;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::config::Config;
use crate::report::Report;
use crate::subject::{Subject, Workload};
use seed::SeedExplorer;

/// Generates one workload for each seed, runs and crashes it, and judges what each crash leaves.
pub fn explore<S: Subject>(subject: &S, config: &Config) -> Report {
    explore_with(subject, config, |_| ControlFlow::Continue(()))
}

/// Like [`explore`]. `observer` gets the growing report ten times a second, and may end the
/// exploration.
pub fn explore_with<S: Subject>(
    subject: &S,
    config: &Config,
    observer: impl FnMut(&Report) -> ControlFlow<()> + Send,
) -> Report {
    let generate = |seed| {
        let chance = config.chance(seed);
        Workload::generate(subject, chance, config.setup, config.threads.max(1), config.ops)
    };
    explore_each(subject, config, &generate, observer)
}

/// Like [`explore`], with the same workload for all seeds. They differ in schedules and samples.
pub fn explore_workload<S: Subject>(
    subject: &S,
    config: &Config,
    workload: &Workload<S::Op>,
) -> Report {
    explore_each(subject, config, &|_| workload.clone(), |_| ControlFlow::Continue(()))
}

fn explore_each<S: Subject>(
    subject: &S,
    config: &Config,
    workload: &(impl Fn(u64) -> Workload<S::Op> + Sync),
    observer: impl FnMut(&Report) -> ControlFlow<()> + Send,
) -> Report {
    assert!(
        config.nested.depth >= config.kills,
        "after {} kills the power has to fail",
        config.kills
    );
    let started = Instant::now();
    let next = AtomicU64::new(config.seeds.start);
    let total = Total {
        stop: AtomicBool::new(false),
        violations_max: config.violations_max.max(1),
        report: Mutex::new((Report::default(), Box::new(observer))),
    };
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= config.seeds.end || total.stop.load(Ordering::Relaxed) {
                return;
            }
            SeedExplorer::new(subject, config, seed, &total).run(&workload(seed));
        }
    };
    thread::scope(|scope| {
        for _ in 1..config.jobs {
            scope.spawn(work);
        }
        work();
    });
    let (mut report, _) = total.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.violations.sort_by_key(|violation| violation.seed);
    report.seconds = started.elapsed().as_secs_f64();
    report
}

type Observer<'a> = Box<dyn FnMut(&Report) -> ControlFlow<()> + Send + 'a>;

/// The results of all seeds so far.
struct Total<'a> {
    stop: AtomicBool,
    violations_max: usize,
    report: Mutex<(Report, Observer<'a>)>,
}

impl Total<'_> {
    /// Whether to stop a seed that has found this many violations by itself.
    fn is_over(&self, violations: usize) -> bool {
        violations >= self.violations_max || self.stop.load(Ordering::Relaxed)
    }

    fn add(&self, report: Report) {
        let (total, observer) = &mut *self.report.lock().unwrap_or_else(PoisonError::into_inner);
        total.merge(report);
        if total.violations.len() >= self.violations_max || observer(total).is_break() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
