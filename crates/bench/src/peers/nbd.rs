//! NBD servers, and fio as their client.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cleanup::Guarded;

/// Timeout: a server that takes longer to listen does not start at all.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server on a Unix socket, killed when dropped.
pub(crate) struct NbdServer {
    _process: Guarded,
    uri: String,
}

impl NbdServer {
    /// `remanent disk serve` with a new disk of `len` bytes in a pool in `directory`, on DRAM that
    /// stands for `emulation`.
    ///
    /// # Errors
    ///
    /// When the disk cannot be made or served.
    pub(crate) fn remanent(
        program: &Path,
        directory: &Path,
        len: u64,
        emulation: &str,
    ) -> Result<Self> {
        let pool = directory.join(format!("{emulation}.pool"));
        let socket = pool.with_extension("socket");
        let mut create = Command::new(program);
        create.args(["disk", "create", "--size", &len.to_string()]).arg(&pool);
        let made = create.stdout(Stdio::null()).status();
        let made = made.with_context(|| format!("cannot execute {create:?}"))?;
        ensure!(made.success(), "{create:?} failed: {made}");
        let mut serve = Command::new(program);
        serve.args(["disk", "serve"]).arg(&pool).arg("--socket").arg(&socket);
        serve.args(["--emulate", emulation]);
        Self::start(serve, socket, "disk")
    }

    /// nbdkit's memory plugin.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(crate) fn nbdkit(directory: &Path, len: u64) -> Result<Self> {
        let socket = directory.join("nbdkit.socket");
        let mut serve = Command::new("nbdkit");
        serve.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        serve.args(["memory", &format!("size={len}")]);
        Self::start(serve, socket, "")
    }

    fn start(mut serve: Command, socket: PathBuf, export: &str) -> Result<Self> {
        serve.stdin(Stdio::null()).stdout(Stdio::null());
        let child = serve.spawn().with_context(|| format!("cannot execute {serve:?}"))?;
        let mut process = Guarded::new(child);
        let started = Instant::now();
        while !socket.exists() {
            ensure!(!process.has_exited(), "{serve:?} ended at once");
            ensure!(started.elapsed() < START_TIMEOUT, "{serve:?} does not listen");
            thread::sleep(POLL_INTERVAL);
        }
        let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
        Ok(NbdServer { _process: process, uri })
    }
}

/// The kind of fio's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Its name in fio.
    pub(crate) access: &'static str,
    /// Requests in flight.
    pub(crate) depth: u32,
}

/// Writes every block once.
///
/// # Errors
///
/// When fio fails.
pub(crate) fn fill(server: &NbdServer) -> Result<()> {
    fio(server, &["--rw=write", "--bs=1M", "--iodepth=4"]).map(drop)
}

/// Requests of 4 KiB a second.
///
/// # Errors
///
/// When fio fails, or says something else than it does today.
pub(crate) fn run(server: &NbdServer, job: Job, time: Duration) -> Result<f64> {
    let access = format!("--rw={}", job.access);
    let (depth, time) =
        (format!("--iodepth={}", job.depth), format!("--runtime={}", time.as_secs()));
    let found = fio(server, &[&access, &depth, &time, "--bs=4k", "--time_based"])?;
    let side = if job.access.ends_with("read") { "read" } else { "write" };
    found["jobs"][0][side]["iops"].as_f64().context("fio tells no iops")
}

fn fio(server: &NbdServer, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new("fio");
    command.args(["--name=bench", "--ioengine=nbd", "--output-format=json", "--norandommap"]);
    command.arg(format!("--uri={}", server.uri)).args(arguments);
    let output = command.output().context("cannot execute fio")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {errors}");
    // fio may print something about its engine first.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    serde_json::from_str(json).with_context(|| format!("{command:?} answered {text}"))
}
