//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::measurement::Measurement;
use crate::{guest, scenario};

/// Cut the power of a machine with persistent memory, and check what was acknowledged
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario on one memory: repeatedly put on load, cut the power, boot and check
    ///
    /// Ends with status 1 if something acknowledged is lost, or if the rig itself fails.
    Run(Run),
    /// Measure something that needs a kernel with persistent memory; no power is cut
    ///
    /// The machine is emulated, so each instruction takes many times as long as on real hardware.
    /// Only ratios are meaningful, and only roughly.
    Measure(Measure),
    /// List the scenarios
    List,
    /// Check that everything the machine needs is installed
    Check(Machine),
    /// Boot the machine with a shell on this terminal; `exit` ends it
    Shell(Machine),
    /// The part in the guest; its init script starts it
    #[command(hide = true)]
    Guest {
        #[command(subcommand)]
        life: guest::serve::Life,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Name of the scenario; `remanent-rig list` lists them
    #[arg(value_parser = scenario::named)]
    pub(crate) scenario: scenario::Named,

    /// Number of power cuts
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cuts: u32,

    /// Seed of the writes and of the moments of the cuts; repeats a run. Default: random
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) machine: Machine,
}

#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// What to measure
    #[arg(value_name = "NAME")]
    pub(crate) measurement: Measurement,

    /// Operations of each kind in a sample
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,

    /// Fifteen rounds instead of three
    #[arg(long)]
    pub(crate) full: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) machine: Machine,
}

impl Measure {
    /// Arguments of the program that measures.
    pub(crate) fn words(&self) -> Vec<String> {
        let quick = (!self.full).then(|| "--quick".to_owned());
        quick.into_iter().chain([format!("--operations={}", self.operations)]).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Machine {
    /// Size of the persistent memory, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory_size)]
    pub(crate) memory: u64,

    /// Directory for the memory's content and the output of each boot. Default: a temporary
    /// directory, which is kept if something is lost
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Directory with boot/vmlinuz-VERSION and lib/modules/VERSION of the kernel to boot. Default:
    /// the one that ci/test unpacked beside this program, or else the one installed on this machine
    #[arg(long, value_name = "DIR")]
    pub(crate) kernel: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  remanent-rig list
  remanent-rig run server
  remanent-rig run server --cuts 100 --seed 7 --keep /tmp/rig --json
  remanent-rig measure berkeley-db
  remanent-rig shell";

/// Minimal size for the files of each scenario.
const MEMORY_MIN: u64 = 384 << 20;
/// Maximal size that the guest can address: see the machine's `maxmem`.
const MEMORY_MAX: u64 = 16 << 30;
/// The kernel adds memory in sections of this size.
const MEMORY_UNIT: u64 = 128 << 20;

fn memory_size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text
        .trim_end_matches("iB")
        .split_at_checked(text.trim_end_matches("iB").len().saturating_sub(1))
    {
        Some((number, "M")) => (number, 20),
        Some((number, "G")) => (number, 30),
        _ => (text, 0),
    };
    let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match size {
        Some(size) if size % MEMORY_UNIT == 0 && (MEMORY_MIN..=MEMORY_MAX).contains(&size) => {
            Ok(size)
        }
        Some(_) => Err(format!("`{text}` is no multiple of 128M from 384M to 16G")),
        None => Err(format!("`{text}` is no size; write for example 512M or 2G")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_memory_are_read() {
        for (text, size) in [("512M", 512 << 20), ("2G", 2 << 30), ("1GiB", 1 << 30)] {
            assert_eq!(memory_size(text), Ok(size), "{text}");
        }
        for text in ["", "M", "500M", "128M", "1T", "-1G", "99999999999999999999G"] {
            assert!(memory_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
