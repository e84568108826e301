//! `remanent damage-test`: damages pools of every kind, and checks the answers.

mod table;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use remanent_crashtest::damage::{Subject, subjects};
use serde_json::json;

use super::output::say;
use super::pool::progress;
use super::units::parse_duration;
use table::Tally;

/// Damage pools of every kind, and check that no answer is wrong
///
/// Fills pools and damages each file in one place: a bit, a word, a line, a sector or a page is
/// flipped, zeroed, filled with garbage or ones, exchanged, copied, or set back to an earlier
/// state; or the file is truncated. It then checks the pool as `remanent pool check` does, reads
/// everything, writes something else, and reads again. A seed determines the damage.
///
/// Ends with status 1 if a pool made the process panic, hang or take too much memory, if data with
/// a checksum were answered wrongly, or if the check did not notice such damage.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DamageTest {
    /// Damage pools of this kind only
    #[arg(long, value_name = "NAME")]
    structure: Option<String>,
    /// Damaged pools of each kind
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pools: u64,
    /// First seed; each pool has its own
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Time after which a pool counts as hanging
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration)]
    patience: Duration,
    /// Pools at the same time [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print the outcome of every pool
    #[arg(long)]
    verbose: bool,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// List the kinds, and end
    #[arg(long)]
    list: bool,
    /// Judge pools in this process, one line of JSON for each; the command starts itself this way
    #[arg(long, hide = true, requires = "structure", value_name = "DIRECTORY")]
    work_in: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  remanent damage-test --pools 2000                       all kinds; some minutes
  remanent damage-test --structure disk --seed 77 --pools 1 --verbose

How to read a line of the result, in numbers of pools:
  right       every answer was as if nothing had happened
  told        something was refused with an error, and nothing was answered wrongly
  absent      entries that are stored were said not to be
  older       an entry was answered as it was before it was replaced or removed
  wrong       something was answered that was never stored there
  disturbed   the answers got worse by writing something else
  unnoticed   something was answered wrongly, and `remanent pool check` finds nothing
  panics, hangs, grown   the process died, did not end, or took memory or storage without bound";

impl DamageTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.seed.checked_add(self.pools).is_none() {
            bail!("--seed and --pools together are more than {}", u64::MAX);
        }
        let chosen = self.chosen()?;
        if self.list {
            for subject in &chosen {
                let unprotected = subject.unprotected().unwrap_or("nothing");
                say!("{:<20} without a checksum: {unprotected}", subject.name());
            }
            return Ok(ExitCode::SUCCESS);
        }
        if let (Some(directory), [subject]) = (&self.work_in, &chosen[..]) {
            worker::work(&**subject, directory, self.seed, self.pools)?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = progress("damaging pools");
        say!("{}", Tally::HEADINGS);
        let mut tallies = Vec::new();
        for subject in &chosen {
            progress.set_message(format!("damaging pools: {}", subject.name()));
            let tally = self.tally(&**subject)?;
            progress.suspend(|| tally.print(subject.name(), self.verbose));
            tallies.push((subject.name(), tally));
        }
        progress.finish_and_clear();
        if let Some(path) = &self.report {
            let kinds: Vec<_> = tallies.iter().map(|(name, tally)| tally.to_json(name)).collect();
            let report = json!({"first_seed": self.seed, "pools": self.pools, "kinds": kinds});
            std::fs::write(path, format!("{report:#}\n"))
                .with_context(|| format!("cannot write the report {}", path.display()))?;
        }
        let is_sound = tallies.iter().all(|(_, tally)| tally.is_sound());
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn chosen(&self) -> anyhow::Result<Vec<Box<dyn Subject>>> {
        let mut chosen = subjects();
        if let Some(name) = &self.structure {
            let names: Vec<_> = chosen.iter().map(|subject| subject.name()).collect();
            if !names.contains(&name.as_str()) {
                bail!("there is no kind `{name}` to damage; there are {}", names.join(", "));
            }
            chosen.retain(|subject| subject.name() == name);
        }
        Ok(chosen)
    }

    /// Damages pools of one kind, in processes of their own.
    fn tally(&self, subject: &dyn Subject) -> anyhow::Result<Tally> {
        let jobs = match self.jobs {
            Some(jobs) => jobs.max(1),
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        let share = self.pools.div_ceil(jobs as u64).max(1);
        let parts = (0..jobs as u64).map(|job| {
            let from = self.seed + (job * share).min(self.pools);
            from..self.seed + ((job + 1) * share).min(self.pools)
        });
        let mut tally = Tally::new(subject.unprotected());
        let outcomes = thread::scope(|scope| {
            let started: Vec<_> = parts
                .filter(|part| !part.is_empty())
                .map(|part| scope.spawn(|| worker::supervise(subject.name(), part, self.patience)))
                .collect();
            started.into_iter().map(|job| job.join().expect("no panic")).collect::<Vec<_>>()
        });
        for outcomes in outcomes {
            outcomes?.into_iter().for_each(|outcome| tally.add(outcome));
        }
        Ok(tally)
    }
}
