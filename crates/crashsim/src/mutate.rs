//! Flushes, fences and syncs left out, one at a time: does any image show it?
//!
//! Each of them in the source should be there for a reason. Without it some crash must break
//! something; if none does, either the exploration is too weak, or the site is redundant.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde::Serialize;

use crate::config::Config;
use crate::explore::explore;
use crate::report::{Broken, Report};
use crate::subject::Subject;
use crate::trace::{Site, SiteKind};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The exploration noticed that the site was missing.
    Killed {
        /// What broke first.
        broken: Broken,
        /// The seed of the run in which it broke.
        seed: u64,
        /// What was found.
        what: String,
    },
    /// Nobody noticed, and the source says why: the site is marked `// Redundant: reason`.
    Explained {
        /// The reason.
        reason: String,
    },
    /// Nobody noticed.
    Survived,
}

/// A structure without one of its flushes, fences or syncs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// The site that was left out.
    pub site: Site,
    /// What became of it.
    pub fate: Fate,
}

/// What became of all mutants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mutation {
    /// By site, ascending.
    pub mutants: Vec<Mutant>,
}

impl Mutation {
    /// Mutants that were killed.
    pub fn killed(&self) -> usize {
        self.mutants.iter().filter(|mutant| matches!(mutant.fate, Fate::Killed { .. })).count()
    }

    /// Mutants that nobody noticed and nothing explains.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.mutants.iter().filter(|mutant| mutant.fate == Fate::Survived)
    }

    /// Adds the outcome of another subject or configuration: a mutant is killed when any of them kills it.
    pub fn merge(&mut self, other: Mutation) {
        for mutant in other.mutants {
            match self.mutants.iter_mut().find(|known| known.site == mutant.site) {
                None => self.mutants.push(mutant),
                Some(known) if rank(&mutant.fate) < rank(&known.fate) => *known = mutant,
                Some(_) => {}
            }
        }
        self.mutants.sort_by_key(|mutant| mutant.site);
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, killed) = (self.mutants.len(), self.killed());
        let survivors = self.survivors().count();
        let explained = all - killed - survivors;
        write!(f, "{all} mutants: {killed} killed, {explained} explained, {survivors} survived")?;
        for Mutant { site, fate } in &self.mutants {
            match fate {
                Fate::Killed { broken, seed, .. } => {
                    write!(f, "\n  killed    {site} ({broken:?}, seed {seed})")?;
                }
                Fate::Explained { reason } => write!(f, "\n  explained {site}: {reason}")?,
                Fate::Survived => write!(f, "\n  SURVIVED  {site}")?,
            }
        }
        Ok(())
    }
}

/// Source texts in which survivors may be explained.
///
/// A redundant flush, fence or sync is marked where it stands, so that the explanation moves with it:
///
/// ```text
/// // Redundant: the superblock's checksum would tell.
/// medium.persist(offset, len);
/// ```
///
/// The marker is a line comment directly above the statement, or at the end of the line of the call.
/// A marked site that is killed all the same is no error; it only was not redundant.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The end of the file's path, and its text.
    texts: Vec<(&'static str, &'static str)>,
}

impl Sources {
    /// No source.
    pub fn new() -> Self {
        Sources::default()
    }

    /// Adds the source file whose path ends with `path`; `text` comes from `include_str!`.
    #[must_use]
    pub fn file(mut self, path: &'static str, text: &'static str) -> Self {
        self.texts.push((path, text));
        self
    }

    /// Why a site is redundant, if its source says so: `// Redundant: reason` above it, or at the
    /// end of its line; of two at one place, `// Redundant fence: reason` and
    /// `// Redundant flush: reason` speak of one.
    pub fn reason(&self, site: &Site) -> Option<String> {
        let (_, text) = self.texts.iter().find(|(path, _)| site.file.ends_with(path))?;
        let lines: Vec<&str> = text.lines().take(site.line as usize).map(str::trim).collect();
        let (last, above) = lines.split_last()?;
        if let Some(reason) = marked(last, site.kind) {
            return Some(reason);
        }
        // Upwards through the statement and the comments over it.
        let mut reason = Vec::new();
        for line in above.iter().rev() {
            match line.strip_prefix("//") {
                Some(comment) => match marked(line, site.kind) {
                    Some(first) => {
                        reason.push(first);
                        reason.reverse();
                        return Some(reason.join(" "));
                    }
                    None => reason.push(comment.trim().to_owned()),
                },
                None => {
                    let code = line.split("//").next().unwrap_or(line).trim_end();
                    if code.is_empty() || code.ends_with([';', '{', '}']) {
                        return None;
                    }
                    reason.clear();
                }
            }
        }
        None
    }
}

/// Explores the subject once for each flush, fence and sync that it calls, with that one left out.
///
/// The sites are those that an exploration without mutation meets, in the run and in recovery. When that
/// exploration finds a violation, nothing is mutated and the report says what was found.
pub fn mutate<S: Subject>(subject: &S, config: &Config, sources: &Sources) -> Report {
    mutate_with(subject, config, sources, |_, _| ControlFlow::Continue(()))
}

/// Like [`mutate`]; `observer` is told of each mutant, with the number of all, and may break off.
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

/// The reason after the marker, when the line has one.
fn marked(line: &str, kind: SiteKind) -> Option<String> {
    let (_, marked) = line.split_once("// Redundant")?;
    let (of, reason) = marked.split_once(": ")?;
    (of.is_empty() || of.trim_start() == kind.name()).then(|| reason.trim().to_owned())
}

fn rank(fate: &Fate) -> u8 {
    match fate {
        Fate::Killed { .. } => 0,
        Fate::Explained { .. } => 1,
        Fate::Survived => 2,
    }
}
