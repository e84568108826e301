//! SOFORT's recovery: TATP before and after a `kill -9`, by where indexes lie and who rebuilds them
//! (Oukid et al., CIDR 2015, figures 8 to 10).

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use remanent_engine::{DatabaseOptions, Rebuild};
use remanent_tatp::Population;
use remanent_tatp::recovery::{
    self, ENTRIES_PER_SUBSCRIBER, Plan, ROOT, RebuildPolicy, Timeline, Trial, Window, placed,
};

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::report::{Ground, Report};
use crate::setup::{Extra, Setup};

pub(super) const BENCH: Bench = Bench {
    extras: &[Extra::Full],
    ..Bench::new(
        "recovery",
        "TATP before and after a SIGKILL: indexes in DRAM or in the pool, and who rebuilds them",
        run,
    )
};

/// The process with users that is killed.
pub(super) const USERS: Bench =
    Bench {
        is_hidden: true,
        ..Bench::new("recovery-users", "TATP without end", |setup| {
            match recovery::serve(&setup.dir)? {}
        })
    };

/// Subscribers, as in the paper.
const PAPER: u32 = 5_000_000;
/// Clients, as in the paper.
const USER_COUNT: u64 = 4;
/// Threads that rebuild.
const THREADS: usize = 2;

/// What was measured for one share and policy.
#[derive(Default)]
struct Measured {
    full_ktps: Samples,
    first_ms: Samples,
    lost_ms: Samples,
    recovered_ms: Samples,
    p99_us: Samples,
    /// What the time until the first answer goes into.
    phases_ms: Vec<(&'static str, Samples)>,
}

impl Measured {
    fn add(&mut self, timeline: &Timeline) {
        self.full_ktps.push(timeline.full_ktps);
        self.first_ms.push(timeline.first_ms);
        self.lost_ms.push(timeline.lost_ms());
        self.recovered_ms.extend(timeline.recovered_ms());
        self.p99_us.push(timeline.p99_us());
        for (name, ms) in timeline.phases.named() {
            match self.phases_ms.iter_mut().find(|(of, _)| *of == name) {
                Some((_, samples)) => samples.push(ms),
                None => self.phases_ms.push((name, Samples::from_iter([ms]))),
            }
        }
    }
}

/// A placement and a policy.
struct Case {
    name: String,
    /// Percent of all index entries that are in the pool at the most.
    percent: u32,
    policy: RebuildPolicy,
    measured: Measured,
    /// That of the last round.
    timeline: Option<Timeline>,
}

/// Kills TATP again and again.
///
/// The rows are loaded once. Then the indexes are moved from one measurement to the next, so that
/// all cases are measured in each round, beside each other.
///
/// # Errors
///
/// When a pool cannot be made, or a process fails.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let subscribers = if setup.full { PAPER } else { effort.pick(1_000_000, 100_000, 2_000) };
    let rounds = if setup.full { 3 } else { effort.pick(5, 3, 1) };
    let mut report = Report::new("recovery")?;
    let percents: &[u32] = effort.pick(&[0, 20, 40, 60, 80, 100], &[0, 40, 100], &[0, 100]);
    let latencies: &[u32] = effort.pick(&[0, 200], &[0], &[0]);
    let progress = Progress::new("recovery", 2 + percents.len() * latencies.len() * rounds);
    let scratch = Scratch::new(&setup.dir)?;
    progress.step(format!("loading {subscribers} subscribers"));
    let pool = recovery::load(scratch.path(), &Population::new(subscribers), 0, &mut |_| Ok(()))?;
    let ground = Ground::of_pool(&pool);
    drop(pool);
    progress.step("rebuilding all indexes");
    measure_rebuild(scratch.path(), subscribers, &mut report)?;
    for &latency_ns in latencies {
        let mut cases = cases(percents);
        for round in 1..=rounds {
            for &percent in percents {
                progress.step(format!("kills, {percent} % in the pool, {latency_ns} ns, {round}"));
                recovery::place(scratch.path(), percent)?;
                for case in cases.iter_mut().filter(|case| case.percent == percent) {
                    let plan = Plan {
                        subscribers,
                        users: USER_COUNT,
                        threads: THREADS,
                        policy: case.policy,
                        latency_ns,
                        long_transactions: 0,
                        first_s_id: subscribers + 1,
                    };
                    let timeline = crash(&plan, scratch.path(), effort)?;
                    case.measured.add(&timeline);
                    case.timeline = Some(timeline);
                }
            }
        }
        recovery::check(scratch.path())?;
        tell(&mut report, &cases, &ground, subscribers, latency_ns);
    }
    Ok(report)
}

/// All indexes in DRAM and opening waits, and others beside it.
fn cases(percents: &[u32]) -> Vec<Case> {
    let case = |name: String, percent, policy| Case {
        name,
        percent,
        policy,
        measured: Measured::default(),
        timeline: None,
    };
    let mut cases = vec![case("wait".to_owned(), 0, RebuildPolicy::Wait)];
    cases.extend(percents.iter().map(|&percent| {
        let name = match percent {
            0 => "background".to_owned(),
            100 => "all_pmem".to_owned(),
            percent => percent.to_string(),
        };
        case(name, percent, RebuildPolicy::Background)
    }));
    cases
}

/// Kills users once, and watches the next ones.
fn crash(plan: &Plan, directory: &Path, effort: Effort) -> Result<Timeline> {
    let arguments: [OsString; 3] = [USERS.name.into(), "--dir".into(), directory.into()];
    let trial = Trial {
        plan,
        directory,
        arguments: &arguments,
        before: Duration::from_millis(effort.pick(1_500, 1_000, 200)),
        observed: Duration::from_millis(effort.pick(1_000, 500, 100)),
    };
    trial.run(&mut |_| Ok(()))
}

/// How long rebuilding takes one thread, for each entry of an index.
fn measure_rebuild(directory: &Path, subscribers: u32, report: &mut Report) -> Result<()> {
    let mut samples = Samples::new();
    for _ in 0..3 {
        let pool = recovery::open_pool(directory)?;
        let database = DatabaseOptions::new().rebuild(Rebuild::Steps).open(&pool, ROOT)?;
        let begin = Instant::now();
        while database.rebuild_step()? {}
        let entries = f64::from(subscribers) * ENTRIES_PER_SUBSCRIBER;
        samples.push(begin.elapsed().as_nanos() as f64 / entries);
    }
    let against = "a row in an index, by one thread; a subscriber has 17".to_owned();
    report.claim("recovery.rebuild_ns_per_row", &samples, "ns", against, None);
    Ok(())
}

fn tell(report: &mut Report, cases: &[Case], ground: &Ground, subscribers: u32, latency_ns: u32) {
    let suffix = if latency_ns == 0 { String::new() } else { format!(".{latency_ns}ns") };
    for case in cases {
        let share = placed(case.percent).1 * 100.0;
        let x = format!("{subscribers} subscribers, {share:.0} % in the pool{suffix}");
        let Measured { full_ktps, first_ms, lost_ms, recovered_ms, p99_us, phases_ms } =
            &case.measured;
        let policy = match case.policy {
            RebuildPolicy::Wait => "wait",
            RebuildPolicy::Background => "background",
        };
        for (what, unit, samples) in [
            ("before", "k transactions/s", full_ktps),
            ("first answer", "ms", first_ms),
            ("lost", "ms", lost_ms),
            ("recovered", "ms", recovered_ms),
            ("worst p99", "us", p99_us),
        ] {
            report.row(&format!("{policy}: {what}"), &x, ground, unit, samples);
        }
        for (phase, samples) in phases_ms {
            let series = format!("{policy}: first answer, {phase}");
            report.row(&series, &x, ground, "ms", samples);
        }
    }
    claims(report, cases, &suffix);
    for case in cases {
        let Some(timeline) = &case.timeline else { continue };
        let points = |value: fn(&Window) -> f64| {
            timeline.after.iter().map(|window| (window.at_ms, value(window))).collect()
        };
        let (file, unit) = (format!("throughput{suffix}"), "k transactions/s");
        let title = "TATP after a SIGKILL, by ms";
        report.curve(&file, title, unit, &case.name, points(|window| window.ktps));
        let (file, unit) = (format!("response{suffix}"), "us");
        let title = "99th percentile of response times after a SIGKILL, by ms";
        report.curve(&file, title, unit, &case.name, points(|window| window.p99_us));
    }
}

fn claims(report: &mut Report, cases: &[Case], suffix: &str) {
    let named = |name: &str| cases.iter().find(|case| case.name == name).map(|case| &case.measured);
    let Some(wait) = named("wait") else { return };
    for case in cases {
        let (name, of) = (&case.name, &case.measured);
        let kept = "from exec to the first answer".to_owned();
        report.claim(
            &format!("recovery.first_answer_ms.{name}{suffix}"),
            &of.first_ms,
            "ms",
            kept,
            None,
        );
        let kept = "work that was not done, at the speed before".to_owned();
        report.claim(&format!("recovery.lost_ms.{name}{suffix}"), &of.lost_ms, "ms", kept, None);
        let kept = "the worst 10 ms".to_owned();
        report.claim(
            &format!("recovery.response_us.p99.{name}{suffix}"),
            &of.p99_us,
            "us",
            kept,
            None,
        );
        if name == "wait" {
            continue;
        }
        let saving: Samples =
            of.lost_ms.over(&wait.lost_ms).values().map(|share| 1.0 - share).collect();
        let against = format!("what is lost when opening waits: {:.0} ms", wait.lost_ms.median());
        report.claim(&format!("recovery.area_saving.{name}{suffix}"), &saving, "", against, None);
        let against = "all indexes in DRAM, before the crash".to_owned();
        let id = format!("recovery.throughput.{name}_vs_dram{suffix}");
        report.claim(&id, &of.full_ktps.over(&wait.full_ktps), "x", against, None);
    }
}
