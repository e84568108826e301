//! Disks over a Unix socket, by fio's NBD engine, beside nbdkit's memory.

use anyhow::Result;

use super::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::peers::nbd::{self, Job, NbdServer};
use crate::peers::remanent_serve;
use crate::peers::server::is_installed;
use crate::report::{Ground, Report, Shape, number};
use crate::setup::Setup;

/// Bytes of the disks.
const DISK_LEN: u64 = 1 << 30;

const JOBS: [Job; 4] = [
    Job { access: "randwrite", depth: 1 },
    Job { access: "randwrite", depth: 16 },
    Job { access: "randread", depth: 1 },
    Job { access: "randread", depth: 16 },
];

/// The contenders, ours first.
const NAMES: [&str; 3] = ["remanent disk serve", "remanent disk serve, nvram", "nbdkit memory"];

/// Measures requests of 4 KiB at queue depths 1 and 16.
pub(super) fn measure(
    setup: &Setup,
    effort: &Effort,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    if let Some(missing) = ["fio", "nbdkit"].into_iter().find(|program| !is_installed(program)) {
        eprintln!("{missing} is missing: rows and claims over NBD are left out");
        return Ok(());
    }
    let scratch = Scratch::new(&setup.dir)?;
    let program = remanent_serve::find()?;
    let servers = [
        NbdServer::remanent(&program, scratch.path(), DISK_LEN, "none")?,
        NbdServer::remanent(&program, scratch.path(), DISK_LEN, "nvram")?,
        NbdServer::nbdkit(scratch.path(), DISK_LEN)?,
    ];
    for server in &servers {
        nbd::fill(server)?;
    }
    let mut measured = vec![vec![Samples::new(); servers.len()]; JOBS.len()];
    for round in 0..effort.nbd_rounds {
        progress.step(format!("round {} over NBD", round + 1));
        for (job, samples) in JOBS.iter().zip(&mut measured) {
            for index in turns(servers.len(), round) {
                samples[index].push(nbd::run(&servers[index], *job, effort.nbd_sample)?);
            }
        }
    }
    for (job, samples) in JOBS.iter().zip(&measured) {
        for (index, requests) in samples.iter().enumerate() {
            let x = format!("nbd {} QD{}", job.access, job.depth);
            report.row(NAMES[index], &x, &ground(index), "req/s", requests);
        }
        let read = if job.access == "randwrite" { "" } else { ".read" };
        // Nbdkit's memory survives nothing. The first of ours is closest to it; the second also
        // executes flushes and fences.
        for (ours, nvram) in [(0, ""), (1, ".nvram")] {
            let (theirs, ours) = (&samples[2], &samples[ours]);
            let against = format!(
                "nbdkit memory: {} req/s, ours {}",
                number(theirs.median()),
                number(ours.median())
            );
            let id = format!("disk.nbd{read}.qd{}_vs_nbdkit{nvram}", job.depth);
            report.claim(&id, &ours.over(theirs), "x", against, None);
        }
    }
    let title = "Requests of 4 KiB over a Unix socket";
    report.chart("nbd", title, "req/s", "nbd ", Shape::Bars);
    Ok(())
}

fn ground(contender: usize) -> Ground {
    let ours = "a write is whole, and survives the death of the process, when it is answered";
    match contender {
        0 => Ground::new("memory", "process", "none", ours),
        1 => Ground::new("memory", "process", "nvram", crate::report::PROMISE_NVRAM),
        _ => Ground::volatile(),
    }
}
