//! Exploration of one seed: records a run, crashes it at each point, judges each image, and crashes
//! the life after it again.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Total;
use super::crash_path::{CrashPath, Frame};
use super::judge::{Allowed, Judgement, Life, Treatment, judge};
use super::prune::Prune;
use super::record::{Recording, record};
use crate::config::{Config, Points};
use crate::crash::fault::{Injected, Places, Written};
use crate::crash::image::{Choice, Images};
use crate::crash::pending::Pending;
use crate::hashes::Hashes;
use crate::oracle::history::Call;
use crate::oracle::linearizer::Linearizer;
use crate::report::Report;
use crate::report::violation::{Broken, Violation};
use crate::rng::{Rng, mix};
use crate::sim::trace::{Event, StoreKind, digest};
use crate::sim::{Class, Sim};
use crate::subject::{Subject, Workload};

/// The exploration of one seed.
pub(super) struct SeedExplorer<'a, 't, S: Subject> {
    subject: &'a S,
    config: &'a Config,
    seed: u64,
    /// The number from which everything random is drawn: the seed, mixed with the configuration's
    /// salt.
    chance: u64,
    total: &'a Total<'t>,
    sim: Arc<Sim>,
    report: Report,
    told_at: Instant,
    /// Hashes of the images judged, each with the states that were allowed.
    seen: Hashes,
    /// The crashes on the way to where the exploration is.
    path: CrashPath<'a>,
    calls: Arc<Vec<Call<S>>>,
    /// A violation in a second life. Reported only if no first life has one, since a single crash
    /// is easier to explain.
    deeper: Option<Violation>,
    is_clean: bool,
}

/// A run, or a life after a crash, that is to be crashed at each of its points.
struct Walk<'a> {
    events: &'a [Event],
    /// What is pending before the first event.
    pending: Pending,
    /// The first crash point.
    first: usize,
    /// Positions that are no crash points: the preparation.
    skipped: Range<usize>,
    /// Crashes that may follow in the life after one of these.
    depth: u32,
}

/// An image of a crash point, and what is done with it.
struct Chosen<'a> {
    number: u64,
    choice: &'a Choice,
    hash: u64,
    injected: Option<Injected>,
    /// Whether the life after it is crashed as well.
    thorough: bool,
}

impl<'a, 't, S: Subject> SeedExplorer<'a, 't, S> {
    pub(super) fn new(subject: &'a S, config: &'a Config, seed: u64, total: &'a Total<'t>) -> Self {
        SeedExplorer {
            subject,
            config,
            seed,
            chance: config.chance(seed),
            total,
            sim: Arc::new(Sim::new(config.sim.clone())),
            report: Report::default(),
            told_at: Instant::now(),
            seen: Hashes::default(),
            path: CrashPath::new(config, seed),
            calls: Arc::default(),
            deeper: None,
            is_clean: true,
        }
    }

    pub(super) fn run(mut self, workload: &Workload<S::Op>) {
        self.sim.keep_undo();
        let start = self.sim.mark();
        let recording = record(self.subject, self.config, self.chance, workload, &self.sim);
        self.sim.roll_back(start);
        let Recording { events, created, prepared, calls, failure } = recording;
        self.calls = Arc::new(calls);
        self.report.schedules = 1;
        self.report.digest = mix(digest(&events) ^ mix(self.seed));
        let calls = Arc::clone(&self.calls);
        let linearizer = || Linearizer::new(self.subject, self.config.oracle, &calls);
        if let Some(failure) = failure {
            self.violation(Broken::Run, failure, usize::MAX);
        } else if let Some(refusal) = self.refusal() {
            self.violation(Broken::Refused, refusal, usize::MAX);
        } else if linearizer().states(usize::MAX).is_empty() {
            let what = "no order of the operations explains their answers".to_owned();
            self.violation(Broken::Linearizability, what, usize::MAX);
        } else {
            self.crash_run(&events, created..prepared, linearizer());
        }
        let deeper = self.deeper.take().filter(|_| self.is_clean);
        self.report.violations.extend(deeper);
        self.report.sites = self.sim.sites();
        self.report.reached = self.sim.take_reached();
        self.total.add(self.report);
    }

    /// An operation that was refused although the configuration allows no refusal.
    fn refusal(&self) -> Option<String> {
        let is_refused = |call: &&Call<S>| {
            call.ended.as_ref().is_some_and(|(_, ret)| self.subject.is_refused(ret))
        };
        let call = self.calls.iter().find(is_refused).filter(|_| !self.config.may_refuse)?;
        let (_, ret) = call.ended.as_ref()?;
        Some(format!("{:?} answered {ret:?} although there is room", call.op))
    }

    /// Crashes the recorded run at each of its points.
    fn crash_run(
        &mut self,
        events: &[Event],
        preparation: Range<usize>,
        mut linearizer: Linearizer<'_, S>,
    ) {
        let explores_creation = self.config.creation && self.seed == self.config.seeds.start;
        let Range { start: created, end: prepared } = preparation;
        let first = if explores_creation { 0 } else { prepared };
        let (pending, depth) = (Pending::new(self.sim.options(), 0), self.config.nested.depth);
        let walk = Walk { events, pending, first, skipped: preparation, depth };
        let calls = Arc::clone(&self.calls);
        let mut met = None;
        let mut allowed = Allowed::new(vec![S::State::default()], true);
        self.walk(walk, &mut |position| {
            let begun = calls.iter().filter(|call| call.has_begun(position)).count();
            let ended = calls.iter().filter(|call| call.acknowledged(position).is_some()).count();
            if position >= created && met != Some((begun, ended)) {
                met = Some((begun, ended));
                allowed = Allowed::new(linearizer.states(position), false);
            }
            Arc::clone(&allowed)
        });
    }

    /// Follows the events and crashes at each point. `allowed` returns what may be found after a
    /// crash there.
    fn walk(&mut self, walk: Walk<'_>, allowed: &mut dyn FnMut(usize) -> Arc<Allowed<S::State>>) {
        let Walk { events, mut pending, first, skipped, depth } = walk;
        let mut written = Written::default();
        for position in 0..=events.len() {
            let event = events.get(position);
            let is_explored = position >= first && !skipped.contains(&position);
            if is_explored && self.is_point(event) && self.is_wanted(position) {
                let allowed = allowed(position);
                let written = written.lines();
                let point = Point { position, event, allowed, depth, written };
                if self.path.len() < self.config.kills as usize {
                    self.kill_at(&pending, &point);
                } else {
                    self.crash_at(&pending, &point);
                }
                self.tell();
                if self.is_over() || self.path.is_nested() && self.deeper.is_some() {
                    return;
                }
            }
            if let Some(event) = event {
                pending.advance(event, &self.sim);
                if self.config.faults.images() > 0 {
                    written.note(event);
                }
            }
        }
    }

    /// Whether to crash before this event, or at the end.
    fn is_point(&self, event: Option<&Event>) -> bool {
        let Some(event) = event else { return true };
        if self.config.points == Points::End && !self.path.is_nested() {
            return false;
        }
        let in_pair = matches!(event, Event::Store { kind: StoreKind::PairSecond, .. });
        let between_stores =
            self.config.points == Points::Stores || self.config.sim.class == Class::Process;
        event.is_boundary() || between_stores && !in_pair
    }

    /// Whether to explore this crash point, if only one is asked for.
    fn is_wanted(&self, position: usize) -> bool {
        self.path.wanted().is_none_or(|(point, _)| point == position as u64)
    }

    fn crash_at(&mut self, pending: &Pending, point: &Point<'_, S::State>) {
        let nested = self.path.is_nested();
        let (full_max, samples) = if nested {
            (self.config.nested.samples, self.config.nested.samples)
        } else {
            (self.config.full_max, self.config.samples)
        };
        let sample_seed = mix(self.chance ^ mix(point.position as u64 ^ point.allowed.hash));
        let images = Images::new(pending, &self.sim, full_max, samples, sample_seed);
        self.report.crash_points += 1;
        self.report.sampled_points += u64::from(images.is_sampled());
        let mut prune =
            Prune::new(if nested || !self.config.prune { Vec::new() } else { images.lines() });
        let mut choice = Choice::default();
        let faults = if nested { self.config.faults.nested() } else { self.config.faults };
        let faulty = faults.images();
        for number in 0..images.total() + faulty {
            if self.path.wanted().is_some_and(|(_, image)| image != number) {
                continue;
            }
            let injected = match number.checked_sub(images.total()) {
                None => {
                    images.choice(number, &mut choice);
                    None
                }
                Some(fault) => {
                    let mut rng = Rng::from_parts(&[sample_seed, number, 1]);
                    images.choice(rng.below(images.total()), &mut choice);
                    let places = Places::new(pending, point.written);
                    let injected = faults.choose(fault, &places, &self.sim, &mut rng);
                    if injected.is_none() {
                        continue;
                    }
                    injected
                }
            };
            let hash = images.hash(&choice, pending.hash, &self.sim);
            let thorough = injected.as_ref().is_none_or(Injected::may_be_followed)
                && self.is_followed(hash, number);
            if injected.is_none() && self.path.wanted().is_none() {
                if !self.seen.insert(mix(hash ^ point.allowed.hash)) {
                    self.report.duplicates += 1;
                    continue;
                }
                if prune.covers(&choice, thorough) {
                    self.report.pruned += 1;
                    continue;
                }
            }
            let chosen = Chosen { number, choice: &choice, hash, injected, thorough };
            self.crash(&images, &mut prune, &chosen, point);
            if self.is_over() || nested && self.deeper.is_some() {
                return;
            }
        }
    }

    /// Whether to crash the life after this image as well.
    fn is_followed(&self, hash: u64, number: u64) -> bool {
        let mut rng = Rng::from_parts(&[self.chance, hash, number, 2]);
        self.path.wanted().is_some() || rng.one_in(self.config.nested.one_in)
    }

    /// Makes one image, judges it, crashes its recovery, and undoes everything.
    fn crash(
        &mut self,
        images: &Images,
        prune: &mut Prune,
        chosen: &Chosen<'_>,
        point: &Point<'_, S::State>,
    ) {
        let before = self.sim.mark();
        images.materialise(chosen.choice, &self.sim);
        if let Some(injected) = &chosen.injected {
            let mut rng = Rng::from_parts(&[self.chance, chosen.hash, chosen.number]);
            injected.inject(&self.sim, &mut rng);
        }
        let thorough = chosen.thorough;
        let errors_excused = chosen.injected.as_ref().is_some_and(Injected::excuses_errors);
        let after = self.sim.mark();
        let is_pruning = chosen.injected.is_none() && self.path.wanted().is_none();
        if is_pruning {
            prune.watch(&self.sim);
        }
        let treatment = Treatment { seed: self.chance, errors_excused, thorough };
        let judgement = judge(self.subject, self.config, &self.sim, &point.allowed, treatment);
        if is_pruning {
            prune.note(&self.sim, chosen.choice, false);
        }
        if let Some(injected) = &chosen.injected {
            injected.heal(&self.sim);
        }
        self.sim.roll_back(after);
        self.count(chosen.injected.is_some(), &judgement);
        let mut survived = String::new();
        if judgement.failure.is_some() || thorough {
            survived = images.describe(chosen.choice);
            if let Some(injected) = &chosen.injected {
                survived += &format!("; {}", injected.describe());
            }
        }
        let (position, image) = (point.position as u64, chosen.number);
        let event = point.event.copied();
        self.path.push(Frame { point: position, image, event, survived });
        if let Some((broken, what)) = judgement.failure {
            self.violation(broken, what, point.position);
        } else if thorough && point.depth > 0 && self.deeper.is_none() {
            // Garbage is content of the medium, so it changes the hash.
            let garbage = chosen.injected.as_ref().map_or(0, |_| mix(chosen.number + 1));
            let pending = Pending::new(self.sim.options(), chosen.hash ^ garbage);
            self.crash_life(&judgement.life, pending, point);
            if is_pruning {
                // What later recoveries have read counts as read here.
                prune.note(&self.sim, chosen.choice, true);
            }
        }
        if is_pruning {
            prune.end_watch(&self.sim);
        }
        self.path.pop();
        self.sim.roll_back(before);
    }

    /// Kills the process at this point, if the point is chosen for that, and cuts the power in the
    /// life of the next process.
    ///
    /// A kill loses nothing that was executed, since caches survive it. Recovery sees everything
    /// and builds on it, but none of it is more durable than before the kill. So the life after the
    /// kill is recorded on the visible content, and crashed on the durable content.
    fn kill_at(&mut self, pending: &Pending, point: &Point<'_, S::State>) {
        let is_wanted = self.path.wanted().is_none_or(|(_, image)| image == 0);
        // Each kill has its own choice.
        let kill = self.path.len() as u64;
        if !is_wanted || !self.is_followed(point.position as u64, kill) {
            return;
        }
        self.report.crash_points += 1;
        let before = self.sim.mark();
        let mut pending = pending.clone();
        pending.outlive_process(&self.sim);
        let durable = self.sim.mark();
        pending.show_all(&self.sim);
        let treatment = Treatment { seed: self.chance, errors_excused: false, thorough: true };
        let judgement = judge(self.subject, self.config, &self.sim, &point.allowed, treatment);
        self.sim.roll_back(durable);
        self.count(false, &judgement);
        self.path.push(Frame {
            point: point.position as u64,
            image: 0,
            event: point.event.copied(),
            survived: "everything until the power failed: the process was killed".to_owned(),
        });
        if let Some((broken, what)) = judgement.failure {
            self.violation(broken, what, point.position);
        } else if point.depth > 0 && self.deeper.is_none() {
            self.crash_life(&judgement.life, pending, point);
        }
        self.path.pop();
        self.sim.roll_back(before);
    }

    /// Crashes recovery and what followed it. `pending` is what was not durable when it began.
    fn crash_life(&mut self, life: &Life<S::State>, pending: Pending, point: &Point<'_, S::State>) {
        // A crash before the first event leaves the image that recovery started from.
        let (events, depth) = (&life.events, point.depth - 1);
        let walk = Walk { events, pending, first: 1, skipped: 0..0, depth };
        let oracle = self.config.oracle;
        let killed = self.path.len() <= self.config.kills as usize;
        self.walk(walk, &mut |position| life.allowed(position, &point.allowed, oracle, killed));
    }

    fn count(&mut self, is_faulty: bool, judgement: &Judgement<S::State>) {
        self.report.images += 1;
        self.report.nested_images += u64::from(self.path.is_nested());
        self.report.faulty_images += u64::from(is_faulty);
        self.report.distinct_states.hashes.extend(judgement.state);
    }

    fn violation(&mut self, broken: Broken, what: String, position: usize) {
        let violation = self.path.violation(&self.calls, broken, what, position);
        if self.path.len() > 1 {
            self.deeper = Some(violation);
        } else {
            self.is_clean = false;
            self.report.violations.push(violation);
        }
    }

    fn tell(&mut self) {
        if self.told_at.elapsed() > TOLD_EVERY {
            self.told_at = Instant::now();
            self.total.add(std::mem::take(&mut self.report));
        }
    }

    fn is_over(&self) -> bool {
        self.total.is_over(self.report.violations.len())
    }
}

/// A crash point.
struct Point<'a, State> {
    position: usize,
    /// The event that did not happen any more.
    event: Option<&'a Event>,
    allowed: Arc<Allowed<State>>,
    /// Crashes that may follow in the life after this one.
    depth: u32,
    /// Lines that were ever written, if faults are injected.
    written: &'a [u32],
}

/// Time between two reports to an observer.
const TOLD_EVERY: Duration = Duration::from_millis(100);
