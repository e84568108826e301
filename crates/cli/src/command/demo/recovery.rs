//! `remanent demo recovery`: the demonstration in the appendix of SOFORT's paper.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use remanent_tatp::Population;
use remanent_tatp::recovery::{self, Plan, RebuildPolicy, Trial, placed};
use tempfile::TempDir;

use super::chart;
use super::stop::{self, Stop};
use super::summary::{self, Observed};
use super::view::View;
use crate::command::output::complain;
use crate::command::units::parse_duration;

/// Exit status after SIGINT, by the shells' convention.
const EXIT_INTERRUPTED: u8 = 130;

/// Kill a database under load, and watch its throughput come back
///
/// Loads TATP, a benchmark of telecom transactions, into a pool and has users execute it in a
/// process of their own. Kills that process with SIGKILL, starts it again at once, and draws its
/// throughput until it is as high as before. Does this for each recovery policy:
///
///   wait        indexes lie in DRAM; opening rebuilds them before it answers
///   background  indexes lie in DRAM; threads rebuild them while users are answered
///   all-pmem    indexes lie in the pool; there is nothing to rebuild
///
/// Rows and transactions lie in the pool in all cases, and nothing that was committed is lost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, verbatim_doc_comment)]
pub(crate) struct Recovery {
    /// Threads that execute transactions, one client each
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    users: u64,
    /// Subscribers in the database, such as 20000, 100k or 1M; each takes about a kibibyte
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_subscribers)]
    subscribers: u32,
    /// Recovery policies to show, in this order
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_values = ["wait", "background", "all-pmem"])]
    policy: Vec<Policy>,
    /// Percent of the indexes to put into the pool for `wait` and `background`: those that users
    /// read most often
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    in_pool: u32,
    /// Emulated latency of the pool, such as 200ns [default: that of this machine's memory]
    #[arg(long, value_name = "LATENCY", value_parser = parse_latency)]
    latency: Option<u32>,
    /// How long users work at full speed before the kill
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_time)]
    kill_after: Duration,
    /// How long to watch after the kill, and longer until the former speed is reached
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_time)]
    watch: Duration,
    /// Transactions that are open at the kill; the next process resumes and commits them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=64))]
    long_transactions: u32,
    /// Where to make the pool, which is removed at the end
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,
    /// Draw the throughput of all policies in this file, as SVG
    #[arg(long, value_name = "FILE", default_value = "recovery.svg")]
    svg: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remanent demo recovery                                  half a minute; draws recovery.svg
  remanent demo recovery --subscribers 1M --watch 5s      more rows to rebuild indexes of
  remanent demo recovery --policy background --in-pool 40 a part of the indexes in the pool
  remanent demo recovery --latency 200ns                  as if the pool were slower memory

Columns of the result:
  in pool        part of all index entries that lies in the pool
  before         thousands of transactions a second before the kill
  first answer   time from the start of the next process to its first answer
  work lost      work that was not done, as time at full speed
  recovered      time from the kill until throughput was 95 % of that before

Long transactions insert a row and then count their statements in it. After the kill, the next
process resumes each by its token behind the last statement that took effect, makes some more, and
commits. The command ends with status 1 if a statement was lost or took effect twice.";

/// Where indexes lie, and who rebuilds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    Wait,
    Background,
    AllPmem,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Wait => "wait",
            Policy::Background => "background",
            Policy::AllPmem => "all-pmem",
        }
    }
}

/// A pool with the tables, and how much of the indexes it has.
struct Loaded {
    directory: TempDir,
    percent: u32,
}

impl Recovery {
    pub(crate) fn run(self) -> Result<ExitCode> {
        stop::install()?;
        let stopped = match self.show() {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(error) => error.downcast::<Stop>()?,
        };
        if stopped == Stop::Interrupted {
            complain(format_args!("interrupted: the users were killed, and the pool was removed"));
        }
        Ok(ExitCode::from(EXIT_INTERRUPTED))
    }

    fn show(&self) -> Result<()> {
        let mut view = View::new(self.json, self.long_transactions as usize);
        let observed = self.observe(&mut view);
        view.end();
        let observed = observed?;
        match self.json {
            true => summary::print_json(&observed),
            false => summary::print(&observed),
        }
        let title = format!("TATP after a SIGKILL, {} subscribers", self.subscribers);
        chart::draw(&self.svg, &title, &observed)?;
        if !self.json {
            view.tell(&format!("\ndrawn in {}", self.svg.display()));
        }
        summary::check_exact(&observed)
    }

    /// Kills the users once for each policy.
    fn observe(&self, view: &mut View) -> Result<Vec<Observed>> {
        view.wait_for("making rows".to_owned());
        let population = Population::new(self.subscribers);
        let mut loaded: Option<Loaded> = None;
        let mut observed = Vec::new();
        let mut first_s_id = self.subscribers + 1;
        for &policy in &self.policy {
            let percent = if policy == Policy::AllPmem { 100 } else { self.in_pool };
            let pool = match loaded.take().filter(|loaded| loaded.percent == percent) {
                Some(loaded) => loaded,
                // The one before is removed by now: memory may be short for two.
                None => self.load(&population, percent, view)?,
            };
            let plan = self.plan(policy, first_s_id);
            first_s_id += self.long_transactions;
            observed.push(self.kill(policy, plan, &pool, view)?);
            view.wait_for("checking that the tables agree".to_owned());
            recovery::check(pool.directory.path())?;
            stop::check()?;
            loaded = Some(pool);
        }
        Ok(observed)
    }

    fn load(&self, population: &Population, percent: u32, view: &View) -> Result<Loaded> {
        let directory = tempfile::Builder::new().prefix("remanent-demo-").tempdir_in(&self.dir);
        let directory = directory.with_context(|| {
            format!("cannot make a directory in {}; name another one by --dir", self.dir.display())
        })?;
        let (count, rows) = (population.count(), population.row_count());
        let share = placed(percent).1 * 100.0;
        view.tell(&format!(
            "loading {count} subscribers ({rows} rows), {share:.0} % of the indexes in the pool"
        ));
        let pool = recovery::load(directory.path(), population, percent, &mut |loaded| {
            view.wait_for(format!("loading: {} %", loaded * 100 / rows.max(1)));
            stop::check()
        })?;
        drop(pool);
        Ok(Loaded { directory, percent })
    }

    fn plan(&self, policy: Policy, first_s_id: u32) -> Plan {
        Plan {
            subscribers: self.subscribers,
            users: self.users,
            threads: thread::available_parallelism().map_or(1, usize::from),
            policy: match policy {
                Policy::Wait => RebuildPolicy::Wait,
                Policy::Background | Policy::AllPmem => RebuildPolicy::Background,
            },
            latency_ns: self.latency.unwrap_or(0),
            long_transactions: self.long_transactions,
            first_s_id,
        }
    }

    fn kill(&self, policy: Policy, plan: Plan, pool: &Loaded, view: &mut View) -> Result<Observed> {
        let directory = pool.directory.path();
        let arguments: [OsString; 3] = ["demo".into(), "users".into(), directory.into()];
        let trial = Trial {
            plan: &plan,
            directory,
            arguments: &arguments,
            before: self.kill_after,
            observed: self.watch,
        };
        view.begin(policy.name());
        let timeline = trial.run(&mut |seen| view.show(seen))?;
        if let Some(at_ms) = timeline.recovered_ms() {
            view.tell(&format!("{}: full speed {at_ms:.0} ms after the kill", policy.name()));
        }
        Ok(Observed { name: policy.name(), share: placed(pool.percent).1, plan, timeline })
    }
}

/// `20000`, `100k` or `1M`.
fn parse_subscribers(text: &str) -> Result<u32, String> {
    let wrong =
        || format!("`{text}` is no number of subscribers from 1 to 100M; write for example 100k");
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => match text.strip_suffix('M') {
            Some(number) => (number, 1_000_000),
            None => (text, 1),
        },
    };
    let count = number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    count.filter(|count| (1..=100_000_000).contains(count)).ok_or_else(wrong)
}

/// `200ns` or `1us`, as nanoseconds.
fn parse_latency(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no latency from 0 to 1ms; write for example 200ns or 1us");
    let nanoseconds = match text.strip_suffix("ns") {
        Some(number) => number.trim().parse::<u64>().map_err(|_| wrong())?,
        None => parse_duration(text).map_err(|_| wrong())?.as_nanos() as u64,
    };
    u32::try_from(nanoseconds).ok().filter(|ns| *ns <= 1_000_000).ok_or_else(wrong)
}

/// A duration of which windows can be counted.
fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let is_enough = time >= Duration::from_millis(100);
    is_enough.then_some(time).ok_or_else(|| format!("`{text}` is too short; 100ms is the least"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_subscribers_are_read() {
        for (text, count) in [("2000", 2_000), ("100k", 100_000), ("1M", 1_000_000)] {
            assert_eq!(parse_subscribers(text), Ok(count), "{text}");
        }
        for text in ["", "k", "0", "-1", "1G", "5000M", "101M", "1.5k"] {
            assert!(parse_subscribers(text).is_err_and(|why| why.contains("100k")), "{text}");
        }
    }

    #[test]
    fn latencies_are_read() {
        for (text, ns) in [("200ns", 200), ("1us", 1_000), ("0ns", 0)] {
            assert_eq!(parse_latency(text), Ok(ns), "{text}");
        }
        for text in ["", "ns", "fast", "1s", "-1ns"] {
            assert!(parse_latency(text).is_err_and(|why| why.contains("200ns")), "{text}");
        }
    }
}
