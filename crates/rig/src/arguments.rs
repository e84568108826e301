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
    /// Run a scenario: load, a power cut, a boot and a check, again and again on the same memory
    ///
    /// Ends with status 1 when something acknowledged is lost, or when the rig itself fails.
    Run(Run),
    /// Measure something that needs a kernel with persistent memory; no power fails
    ///
    /// The machine is emulated, so each instruction takes many times as long as it should: ratios alone mean
    /// something, and those little.
    Measure(Measure),
    /// Say which scenarios there are
    List,
    /// Say whether everything is there that the machine needs
    Check(Machine),
    /// Boot the machine with a shell on this terminal; `exit` ends it
    Shell(Machine),
    /// The life in the guest; its init script starts it
    #[command(hide = true)]
    Guest {
        #[command(subcommand)]
        life: guest::serve::Life,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What to run; `remanent-rig list` says what there is
    #[arg(value_parser = scenario::named)]
    pub(crate) scenario: scenario::Named,

    /// How many times the power fails
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cuts: u32,

    /// Repeats the writes and the choice of the moments of a run. Default: another one each time
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Answer in JSON
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

    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) machine: Machine,
}

impl Measure {
    /// What the program that measures is told.
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

    /// Directory that keeps the memory's content and what each boot printed. Default: a temporary one,
    /// which stays when something is lost
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Directory with boot/vmlinuz-VERSION and lib/modules/VERSION of the kernel to boot. Default: what
    /// ci/test unpacked beside this program, or else what this machine has installed
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

/// Least size that holds each scenario's files.
const MEMORY_MIN: u64 = 384 << 20;
/// What the guest can address: see the machine's `maxmem`.
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
