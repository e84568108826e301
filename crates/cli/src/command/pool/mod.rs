//! `remanent pool`: create, describe, check and convert pools.

mod check;
mod convert;
mod info;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use remanent::Durability;

use super::units::{parse_duration, parse_size_at_least_1};

/// Create, describe, check or convert a pool file
#[derive(Debug, clap::Args)]
pub(crate) struct Pool {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Create an empty pool
    #[command(after_help = "Example:\n  remanent pool create my.pool --size 8G --durability power")]
    Create {
        #[command(flatten)]
        target: Target,
        /// Size beyond which the pool does not grow, such as 512M or 8G. It includes 16.6M of
        /// metadata for each 4G, which take space only as the pool fills
        #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size_at_least_1)]
        size: u64,
        /// What a write survives: the death of the `process`, or the loss of `power`
        #[arg(long, value_name = "CLASS", default_value = "process")]
        durability: Durability,
        /// Declare that a power failure may leave garbage in lines that are being written
        ///
        /// The pool remembers this. Structures that do not survive it, maps among them, are
        /// refused.
        #[arg(long)]
        write_disturbance: bool,
    },
    /// Show the backing, the durability and the content of a pool; the file does not change
    #[command(after_help = "Example:\n  remanent pool info /mnt/pmem/my.pool --json")]
    Info {
        #[command(flatten)]
        target: Target,
    },
    /// Check that a pool is consistent: nothing lost, nothing leaked, nothing damaged
    ///
    /// The command only reads: the file does not change, and the file system may be read-only.
    /// Recovery from a crash is done in memory first. If the pool is damaged, the command names
    /// every violation, with its offset if it has one, and ends with status 1. It also compares the
    /// entries of a server's sorted sets with each other, which takes memory for all members.
    #[command(after_help = "Example:\n  remanent pool check /mnt/pmem/my.pool && echo whole")]
    Check {
        #[command(flatten)]
        target: Target,
    },
    /// Give a server's entries, if an older version made the pool, the faster map of new pools
    ///
    /// Older versions kept the entries in a `HashMap`. Such a pool is served as it is; in an
    /// `ExtendibleMap` its entries are written and read faster, and take less space. The command
    /// copies them and then removes the former map, so the pool needs room for both meanwhile. The
    /// server must not run. The command can be interrupted or killed at any time, and run again:
    /// nothing is lost. Pools of `--durability batched` stay as they are.
    #[command(after_help = "Example:\n  remanent pool convert /mnt/pmem/my.pool")]
    Convert {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, clap::Args)]
struct Target {
    /// Pool file
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
}

impl Pool {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Subcommand::Create { target, size, durability, write_disturbance } => {
                let options = remanent::Pool::options().size_max(size).durability(durability);
                let options = options.write_disturbance(write_disturbance);
                let pool = options.wait(target.wait).create(&target.path)?;
                info::describe(&pool.info()?, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Info { target } => {
                info::describe(&target.options().inspect(&target.path)?.info()?, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Check { target } => check::run(&target),
            Subcommand::Convert { target } => convert::run(&target),
        }
    }
}

impl Target {
    fn options(&self) -> remanent::Options {
        remanent::Pool::options().wait(self.wait)
    }
}

/// Bytes of storage that the file occupies, without holes.
pub(super) fn physical_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

/// A progress bar, on a terminal only.
pub(super) fn progress(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.set_style(ProgressStyle::default_spinner());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
