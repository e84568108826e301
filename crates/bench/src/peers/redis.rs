//! Redis, and its load generator.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::resp::Reply;
use super::server::{Server, free_address, is_installed};

/// Redis's append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Append {
    /// None: nothing survives.
    No,
    /// Written at once, synced once a second.
    EverySec,
    /// Synced before writes are acknowledged.
    Always,
}

/// Whether Debian's redis-server is installed; reports on stderr if not.
pub(crate) fn is_here() -> bool {
    let here = is_installed("redis-server");
    if !here {
        eprintln!("redis-server is not installed: no rows and no claims beside it");
    }
    here
}

/// Starts Redis on a free loopback port, with its files in `directory` and its default settings.
///
/// # Errors
///
/// When it cannot be started.
pub(crate) fn start(directory: &Path, append: Append) -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new("redis-server");
    command.arg("--bind").arg("127.0.0.1").arg("--port").arg(address.port().to_string());
    // No snapshots, which would disturb the other contenders.
    command.arg("--dir").arg(directory).args(["--save", "", "--daemonize", "no"]);
    match append {
        Append::No => command.args(["--appendonly", "no"]),
        Append::EverySec => command.args(["--appendonly", "yes", "--appendfsync", "everysec"]),
        Append::Always => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    Server::start(&mut command, address, &directory.join("redis.log"))
}

/// Keeps a running server from rewriting its append-only file, which would disturb the other
/// contenders.
///
/// # Errors
///
/// When the server does not start, or refuses.
pub(crate) fn stop_rewrites(server: &mut Server) -> Result<()> {
    server.ready()?;
    let request: [&[u8]; 4] = [b"CONFIG", b"SET", b"auto-aof-rewrite-percentage", b"0"];
    let reply = server.client()?.call(&request)?;
    ensure!(reply == Reply::Simple("OK".to_owned()), "Redis refused to stop rewrites: {reply:?}");
    Ok(())
}

/// Waits until the append-only file holds everything and no rewrite of it is under way.
///
/// # Errors
///
/// When the server goes away.
pub(crate) fn wait_for_append_only_file(server: &Server) -> Result<()> {
    // One second is the longest that `everysec` leaves data unwritten.
    thread::sleep(Duration::from_millis(1500));
    let mut client = server.client()?;
    while client.info_number("persistence", "aof_rewrite_in_progress")? != 0.0
        || client.info_number("persistence", "aof_rewrite_scheduled")? != 0.0
    {
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A run of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// `set`, `get` or `ping_mbulk`; or a command and its arguments.
    pub(crate) words: &'static [&'static str],
    /// Requests that a client sends before it reads the replies.
    pub(crate) pipeline: u32,
    /// Requests in all.
    pub(crate) requests: u64,
    /// Keys are drawn at random from so many.
    pub(crate) keys: u64,
}

/// Connections of redis-benchmark.
pub(crate) const CLIENTS: u32 = 50;

/// Runs redis-benchmark and returns its requests a second.
///
/// # Errors
///
/// When it fails, or prints something else than a rate.
pub(crate) fn benchmark(address: SocketAddr, load: Load) -> Result<f64> {
    let port = address.port().to_string();
    let numbers = [CLIENTS.into(), load.pipeline.into(), load.requests, load.keys]
        .map(|n: u64| n.to_string());
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &port, "-d", "16", "--csv"]);
    command.args(["-c", &numbers[0], "-P", &numbers[1], "-n", &numbers[2], "-r", &numbers[3]]);
    match load.words {
        [test] => command.args(["-t", test]),
        words => command.args(words),
    };
    let output = command.output().context("cannot execute redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "redis-benchmark failed: {text}{errors}");
    requests_per_second(&text)
}

/// The rate in redis-benchmark's CSV: the second field of the last line.
fn requests_per_second(text: &str) -> Result<f64> {
    let line = text.lines().rfind(|line| line.starts_with('"') && !line.starts_with("\"test\""));
    let rate = line.and_then(|line| line.split(',').nth(1)).map(|field| field.trim_matches('"'));
    match rate.and_then(|rate| rate.parse().ok()) {
        Some(rate) => Ok(rate),
        None => bail!("redis-benchmark printed no rate: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_last_line() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"134228.19\",\"0.2\"\n";
        assert_eq!(requests_per_second(text).expect("there is one"), 134_228.19);
        assert!(requests_per_second("\"test\",\"rps\"\n").is_err());
    }
}
