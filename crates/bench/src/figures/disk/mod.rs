//! The block device: in process, compared with libpmemblk and plain copies, and with the paper's
//! policies (nvramdisk, Figures 8 and 10; Figure 7 belongs to `primitives`); and over NBD, compared
//! with nbdkit.

mod nbd;
mod process;

use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use crate::measure::Progress;
use crate::report::Report;
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "disk",
    "Block devices: ours, the nvramdisk paper's by its policies, libpmemblk; over NBD beside nbdkit",
    run,
);

/// How long and how often everything is measured.
struct Effort {
    rounds: usize,
    /// Time of one sample in process.
    sample: Duration,
    /// Bytes of every disk in process: a power of two.
    len: u64,
    /// Rounds over NBD.
    nbd_rounds: usize,
    /// Time of one run of fio.
    nbd_sample: Duration,
}

const QUICK: Effort = Effort {
    rounds: 3,
    sample: Duration::from_millis(20),
    len: 64 << 20,
    nbd_rounds: 1,
    nbd_sample: Duration::from_secs(1),
};
/// For a test run.
const TINY: Effort = Effort {
    rounds: 1,
    sample: Duration::from_millis(1),
    len: 16 << 20,
    nbd_rounds: 0,
    nbd_sample: Duration::ZERO,
};
const FULL: Effort = Effort {
    rounds: 7,
    sample: Duration::from_millis(60),
    len: 512 << 20,
    nbd_rounds: 5,
    nbd_sample: Duration::from_secs(3),
};

/// Measures disks.
///
/// # Errors
///
/// When there is not enough memory, or a contender fails.
fn run(setup: &Setup) -> Result<Report> {
    let effort = match (setup.tiny, setup.quick) {
        (true, _) => TINY,
        (_, true) => QUICK,
        _ => FULL,
    };
    let mut report = Report::new("disk")?;
    let progress = Progress::new("disk", effort.rounds + effort.nbd_rounds);
    process::measure(setup, &effort, &progress, &mut report)?;
    if effort.nbd_rounds > 0 {
        nbd::measure(setup, &effort, &progress, &mut report)?;
    }
    Ok(report)
}
