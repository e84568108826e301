//! How long clients wait after a `kill -9`: from exec to the first correct GET.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::peers::redis::{self, Append};
use crate::peers::remanent_serve;
use crate::peers::server::Server;
use crate::report::{Ground, Report, Shape, backing_of};
use crate::setup::Setup;
use crate::workloads::keys::mix;

pub(super) const BENCH: Bench = Bench::new(
    "restart",
    "Time from exec to the first correct GET after a SIGKILL, beside Redis",
    run,
);

/// A data set, and the number of restarts on it.
struct Stage {
    /// The end of the claims' names.
    name: &'static str,
    entries: u64,
    ours: usize,
    theirs: usize,
}

const SMALL: Stage = Stage { name: "1k", entries: 1_000, ours: 11, theirs: 5 };
const LARGE: Stage = Stage { name: "10m", entries: 10_000_000, ours: 7, theirs: 3 };
const LARGE_QUICK: Stage = Stage { name: "1m", entries: 1_000_000, ours: 7, theirs: 3 };

/// Restarts both servers on a small and a large data set.
///
/// # Errors
///
/// When `remanent` is missing, a server fails, or one answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    let program = remanent_serve::find()?;
    let with_redis = redis::is_here();
    let mut report = Report::new("restart")?;
    for stage in [SMALL, if setup.quick { LARGE_QUICK } else { LARGE }] {
        run_stage(&stage, setup, &program, with_redis, &mut report)?;
    }
    report.chart(
        "first-get",
        "From exec to the first correct GET after SIGKILL",
        "ms",
        "",
        Shape::BarsLog,
    );
    Ok(report)
}

fn run_stage(
    stage: &Stage,
    setup: &Setup,
    program: &Path,
    with_redis: bool,
    report: &mut Report,
) -> Result<()> {
    let progress =
        Progress::new("restart", 2 + stage.ours + with_redis as usize * (2 + stage.theirs));
    let ours = Contender::remanent(program, &setup.dir)?;
    progress.step(format!("loading {} entries into remanent", stage.entries));
    ours.load(stage.entries)?;
    let theirs = if with_redis { Some(Contender::redis(&setup.dir)?) } else { None };
    if let Some(theirs) = &theirs {
        progress.step(format!("loading {} entries into Redis", stage.entries));
        theirs.load(stage.entries)?;
    }
    let [mut ours_ms, mut theirs_ms, mut exec_ms] = [const { Samples::new() }; 3];
    for round in 0..stage.ours.max(stage.theirs) {
        let number = mix(round as u64) % stage.entries;
        if round < stage.ours {
            progress.step("restarting remanent");
            exec_ms.push(exec_and_exit_ms(program)?);
            ours_ms.push(ours.restart_ms(number)?);
        }
        if let Some(theirs) = theirs.as_ref().filter(|_| round < stage.theirs) {
            progress.step("restarting Redis");
            theirs_ms.push(theirs.restart_ms(number)?);
        }
    }
    let x = format!("{} entries", stage.entries);
    report.row("remanent", &x, &ours.ground, "ms", &ours_ms);
    if let Some(theirs) = &theirs {
        report.row("redis appendonly", &x, &theirs.ground, "ms", &theirs_ms);
    }
    report.row("floor: exec and exit", &x, &ours.ground, "ms", &exec_ms);
    add_claims(stage, &ours_ms, &theirs_ms, &exec_ms, report);
    Ok(())
}

/// The floor: the time in which the program starts and exits without serving.
fn exec_and_exit_ms(program: &Path) -> Result<f64> {
    let start = Instant::now();
    let output =
        Command::new(program).arg("--version").output().context("cannot execute remanent")?;
    ensure!(output.status.success(), "`{} --version` failed", program.display());
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn add_claims(
    stage: &Stage,
    ours_ms: &Samples,
    theirs_ms: &Samples,
    exec_ms: &Samples,
    report: &mut Report,
) {
    let against = match theirs_ms.runs() {
        0 => "nobody: redis-server is not installed".to_owned(),
        _ => format!("Redis with appendonly yes: {:.1} ms", theirs_ms.median()),
    };
    let id = format!("restart.first_get_ms.{}", stage.name);
    report.claim(&id, ours_ms, "ms", against, Some(exec_ms.median()));
    let against = format!(
        "time to the first GET: Redis {:.1} ms, remanent {:.1} ms",
        theirs_ms.median(),
        ours_ms.median()
    );
    let id = format!("restart.redis_vs_ours.{}", stage.name);
    let floor = theirs_ms.median() / exec_ms.median();
    report.claim(&id, &theirs_ms.over(ours_ms), "x", against, Some(floor));
}

/// A server with its data, which outlives the server's processes.
struct Contender {
    scratch: Scratch,
    /// Path of `remanent`; `None` for Redis.
    program: Option<PathBuf>,
    ground: Ground,
}

impl Contender {
    fn remanent(program: &Path, dir: &Path) -> Result<Self> {
        let promise = "every acknowledged write survives the process";
        let ground = Ground::new(backing_of(dir)?, "process", "none", promise);
        Ok(Contender { scratch: Scratch::new(dir)?, program: Some(program.to_owned()), ground })
    }

    /// Its files lie in the same directory as ours, so that reading them costs as little as
    /// possible.
    fn redis(dir: &Path) -> Result<Self> {
        let promise = "appendonly yes, appendfsync everysec";
        let ground = Ground::new(backing_of(dir)?, "process", "none", promise);
        Ok(Contender { scratch: Scratch::new(dir)?, program: None, ground })
    }

    fn start(&self) -> Result<Server> {
        match &self.program {
            Some(program) => remanent_serve::start(program, &self.scratch.path().join("data.pool")),
            None => redis::start(self.scratch.path(), Append::EverySec),
        }
    }

    /// Fills the server and kills it.
    fn load(&self, entries: u64) -> Result<()> {
        let mut server = self.start()?;
        server.ready()?;
        server.client()?.load(0..entries).context("cannot load the data")?;
        if self.program.is_none() {
            redis::wait_for_append_only_file(&server)?;
        }
        Ok(())
    }

    /// Starts the server, waits for the first correct answer, and kills it.
    fn restart_ms(&self, number: u64) -> Result<f64> {
        let elapsed = self.start()?.first_get(number)?;
        Ok(elapsed.as_secs_f64() * 1e3)
    }
}
