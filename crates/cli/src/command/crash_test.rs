//! `remanent crash-test`: long crash exploration of Remanent's own structures, in simulation.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use remanent_crashsim::{Config, Mutation, Only, Report};
use remanent_crashtest::{
    Redundant, SOURCES, Scenario, counterexamples, mutate, one_in, scenarios,
};
use serde_json::{Value, json};

use super::output::{has_failed, say};

/// Crash the pool, the allocator and the structures at every point, in simulation
///
/// Runs each structure on a simulated medium and crashes it before every flush and every fence, by
/// a power cut or the death of the process. It recovers every image that such a crash can leave,
/// crashes the recovery, too, and compares the result with a model. A seed determines the
/// operations and the schedule of threads. Every failure is printed with the command that repeats
/// it.
///
/// Ends with status 1 if a guarantee was violated, if a scenario did not reach the events it is
/// for, or if a flush or fence can be left out without a failure and without an explanation in the
/// source.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CrashTest {
    /// Explore this structure (`hashmap`), or one scenario of it (`hashmap/threads`), instead of
    /// all
    #[arg(long, value_name = "NAME")]
    structure: Option<String>,
    /// Runs of each scenario; each has its own seed
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u64,
    /// Simulated threads in scenarios with several threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=8))]
    threads: Option<u64>,
    /// Parallel runs [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also leave out each flush and each fence in turn, and check that an exploration fails
    #[arg(long)]
    mutate: bool,
    /// Leave out only flushes and fences of source files whose path contains this, such as
    /// `structures/src/hashmap`
    #[arg(long, value_name = "PATH", requires = "mutate")]
    sources: Option<String>,
    /// List the scenarios, and end
    #[arg(long)]
    list: bool,
    /// Divide the limits of images at a crash point by this; tests do so by 3, and name it in the
    /// command that repeats a violation
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "mutate",
        value_parser = clap::value_parser!(u64).range(1..))]
    share: u64,
    /// Repeat one run; with `--point` and `--image`, one crash of it
    #[arg(long, value_name = "SEED", requires = "structure", conflicts_with = "mutate")]
    seed: Option<u64>,
    /// Crash point to repeat; given twice, the second is in the life after the first crash
    #[arg(long, value_name = "POINT", requires = "seed")]
    point: Vec<u64>,
    /// Image that survives that crash, by number; one for each `--point`
    #[arg(long, value_name = "IMAGE", requires = "point")]
    image: Vec<u64>,
}

const EXAMPLES: &str = "\
Examples:
  remanent crash-test                              everything, in a few minutes
  remanent crash-test --structure hashmap --seeds 200 --report hashmap.json
  remanent crash-test --mutate --seeds 4           is every flush and fence needed, and tested?
  remanent crash-test --structure hashmap --mutate --sources structures/src/hashmap
  remanent crash-test --structure heap/large --seed 7 --point 49 --image 1

Columns of the result:
  crash points   moments at which a run was crashed
  images         contents that such a crash may leave on the medium, and on which recovery ran
  states         different contents of the structure after recovery
  violations     images on which something was lost, invented, leaked or damaged; each is printed
                 with what survived, the operations before the crash, and the command that repeats it";

impl CrashTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let chosen = self.chosen()?;
        if self.list {
            for scenario in &chosen {
                say!("{:<32}  {}", scenario.name, scenario.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let only = self.only(&chosen)?;
        let results = self.explore(&chosen, only.as_ref());
        let mutation = (self.mutate && results.iter().all(|(_, report)| report.is_clean()))
            .then(|| self.mutate(&chosen))
            .transpose()?;
        if let Some(path) = &self.report {
            let report = to_json(&results, mutation.as_ref());
            fs::write(path, format!("{report:#}\n"))
                .with_context(|| format!("cannot write the report {}", path.display()))?;
        }
        let is_clean = results.iter().all(|(scenario, report)| {
            report.is_clean() && self.missed(scenario, report).is_empty()
        });
        let survives = mutation.is_some_and(|mutation| mutation.survivors().count() > 0);
        Ok(if is_clean && !survives { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn chosen(&self) -> anyhow::Result<Vec<Scenario>> {
        let mut chosen = scenarios();
        if let Some(name) = &self.structure {
            let is_of = |scenario: &Scenario| {
                let rest = scenario.name.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            chosen.retain(is_of);
            if chosen.is_empty() {
                // Scenarios that are known to fail are explored only when they are named.
                chosen = counterexamples();
                chosen.retain(is_of);
            }
            if chosen.is_empty() {
                let names: Vec<_> = scenarios().iter().map(|scenario| scenario.name).collect();
                bail!("there is no structure `{name}` to explore; there are {}", names.join(", "));
            }
        }
        if let Some(threads) = self.threads {
            for scenario in &mut chosen {
                scenario.set_threads(threads as usize);
            }
        }
        Ok(chosen)
    }

    /// The part of a run to repeat.
    fn only(&self, chosen: &[Scenario]) -> anyhow::Result<Option<Only>> {
        if self.seed.is_none() {
            return Ok(None);
        }
        if let [one, another, ..] = chosen {
            bail!("`--seed` needs one scenario, such as `{}` or `{}`", one.name, another.name);
        }
        if self.point.len() != self.image.len() {
            bail!("each `--point` needs its `--image`");
        }
        let path = self.point.iter().copied().zip(self.image.iter().copied()).collect();
        Ok(Some(Only { path }))
    }

    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1)
    }

    fn explore<'s>(
        &self,
        chosen: &'s [Scenario],
        only: Option<&Only>,
    ) -> Vec<(&'s Scenario, Report)> {
        say!(
            "{:<32} {:>9} {:>12} {:>10} {:>7} {:>10} {:>7}",
            "structure",
            "schedules",
            "crash points",
            "images",
            "states",
            "violations",
            "seconds"
        );
        let progress = progress();
        let mut results = Vec::new();
        for scenario in chosen {
            if has_failed() {
                break;
            }
            let count = self.seeds * scenario.weight;
            let seeds = self.seed.map_or(0..count, |seed| seed..seed + 1);
            let (jobs, only) = (self.jobs(), only.cloned());
            let config = Config { seeds, jobs, only, ..one_in(self.share, &scenario.config) };
            let report = scenario.explore(&config, |report| {
                let (images, schedules) = (report.images, report.schedules);
                progress.set_message(format!(
                    "{}: {schedules} of {} schedules, {images} images",
                    scenario.name,
                    config.seeds.end - config.seeds.start
                ));
                ControlFlow::Continue(())
            });
            progress.suspend(|| print(scenario.name, &report));
            let missed = self.missed(scenario, &report);
            if !missed.is_empty() {
                progress.suspend(|| println!("  never reached: {}", missed.join("; ")));
            }
            results.push((scenario, report));
        }
        progress.finish_and_clear();
        let mut total = Report::default();
        results.iter().for_each(|(_, report)| total.merge(report.clone()));
        total.violations.clear();
        say!("{}", row("total", &total, results.iter().map(|(_, r)| r.violations.len()).sum()));
        results
    }

    /// Events that the scenario is for and did not reach in a complete exploration.
    fn missed(&self, scenario: &Scenario, report: &Report) -> Vec<&'static str> {
        let is_whole = self.seed.is_none() && self.threads.is_none() && self.seeds > 0;
        if is_whole && report.is_clean() { scenario.missed(report) } else { Vec::new() }
    }

    fn mutate(&self, chosen: &[Scenario]) -> anyhow::Result<Mutation> {
        let progress = progress();
        let paths: Vec<&str> = match &self.sources {
            Some(path) => vec![path],
            None => SOURCES.to_vec(),
        };
        let mutation = mutate(&paths, chosen, self.seeds, self.jobs(), Redundant::Tried, |at| {
            progress.set_message(format!(
                "mutants: {} of {} sites met are killed, now in {}",
                at.killed, at.met, at.scenario
            ));
            ControlFlow::Continue(())
        });
        progress.finish_and_clear();
        if mutation.mutants.is_empty() {
            bail!(
                "no flush and no fence was met in a source file whose path contains {}; paths are like \
                 `crates/structures/src/hashmap/ops.rs`",
                paths.join(" or ")
            );
        }
        say!("\n{mutation}");
        Ok(mutation)
    }
}

fn print(name: &str, report: &Report) {
    say!("{}", row(name, report, report.violations.len()));
    report.violations.iter().for_each(|violation| say!("{violation}"));
}

fn row(name: &str, report: &Report, violations: usize) -> String {
    let Report { schedules, crash_points, images, seconds, .. } = report;
    let states = report.distinct_states.len();
    format!(
        "{name:<32} {schedules:>9} {crash_points:>12} {images:>10} {states:>7} {violations:>10} \
         {seconds:>7.1}"
    )
}

fn to_json(results: &[(&Scenario, Report)], mutation: Option<&Mutation>) -> Value {
    let sum =
        |count: fn(&Report) -> u64| results.iter().map(|(_, report)| count(report)).sum::<u64>();
    let scenarios: Vec<Value> = results
        .iter()
        .map(|(scenario, report)| {
            json!({
                "name": scenario.name,
                "about": scenario.about,
                "config": scenario.config,
                "report": report,
            })
        })
        .collect();
    json!({
        "crash_points": sum(|report| report.crash_points),
        "images": sum(|report| report.images),
        "distinct_states": sum(|report| report.distinct_states.len() as u64),
        "violations": sum(|report| report.violations.len() as u64),
        "scenarios": scenarios,
        "mutation": mutation,
        "mutants_killed": mutation.map(Mutation::killed),
        "mutants_surviving": mutation.map(|mutation| mutation.survivors().count()),
    })
}

/// A progress bar, on a terminal only.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::default_spinner());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
