//! Mutation: leaves out one flush, fence or sync at a time, and explores the rest.
//!
//! Each of them should be there for a reason, so without it some crash should break something. If
//! none does, either the exploration is too weak, or the site is redundant.

pub(crate) mod mutation;
pub(crate) mod sources;

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::config::Config;
use crate::explore::explore;
use crate::report::Report;
use crate::sim::trace::Site;
use crate::subject::Subject;
use mutation::{Fate, Mutant, Mutation};
use sources::Sources;

/// Explores the subject once for each flush, fence and sync site, with that site left out.
///
/// The sites are those that a first exploration meets, during the run and during recovery. If that
/// exploration finds a violation, nothing is mutated, and its report is returned.
pub fn mutate<S: Subject>(subject: &S, config: &Config, sources: &Sources) -> Report {
    mutate_with(subject, config, sources, |_, _| ControlFlow::Continue(()))
}

/// Like [`mutate`]. `observer` gets each mutant and the number of all, and may end the mutation.
pub fn mutate_with<S: Subject>(
    subject: &S,
    config: &Config,
    sources: &Sources,
    observer: impl FnMut(&Mutant, usize) -> ControlFlow<()> + Send,
) -> Report {
    let started = Instant::now();
    let mut report = explore(subject, config);
    if !report.is_clean() {
        return report;
    }
    let sites: Vec<Site> = report.sites.iter().copied().collect();
    let next = AtomicUsize::new(0);
    let progress = Mutex::new((Mutation::default(), observer));
    let work = || {
        while let Some(&site) = sites.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mutant = Mutant { site, fate: try_mutant(subject, config, sources, site) };
            let (mutation, observer) = &mut *progress.lock().expect("observers do not panic");
            let flow = observer(&mutant, sites.len());
            mutation.mutants.push(mutant);
            if flow.is_break() {
                next.store(sites.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..config.jobs {
            scope.spawn(work);
        }
        work();
    });
    let (mut mutation, _) = progress.into_inner().expect("observers do not panic");
    mutation.mutants.sort_by_key(|mutant| mutant.site);
    report.mutation = Some(mutation);
    report.seconds = started.elapsed().as_secs_f64();
    report
}

fn try_mutant<S: Subject>(subject: &S, config: &Config, sources: &Sources, site: Site) -> Fate {
    let mut config = Config { violations_max: 1, jobs: 1, ..config.clone() };
    config.sim.mutant = Some(site);
    let report = explore(subject, &config);
    match report.violations.into_iter().next() {
        Some(violation) => {
            Fate::Killed { broken: violation.broken, seed: violation.seed, what: violation.what }
        }
        None => match sources.reason(&site) {
            Some(reason) => Fate::Explained { reason },
            None => Fate::Survived,
        },
    }
}
