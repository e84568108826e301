//! Server processes: started, waited for, killed.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::resp::{Client, Reply, entry_key, entry_value};
use crate::cleanup::Guarded;
use crate::machine::{field, first_number};

/// Interval at which a starting server is tried: short compared with the measurement, and long
/// enough not to starve the server.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Timeout: no server needs longer to load the largest data set of these benches.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// A running server, killed when dropped.
pub(crate) struct Server {
    process: Guarded,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

impl Server {
    /// Executes a server's command; its output goes to the file `log`.
    ///
    /// # Errors
    ///
    /// When the command cannot be executed.
    pub(crate) fn start(command: &mut Command, address: SocketAddr, log: &Path) -> Result<Self> {
        let output =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot execute {command:?}"))?;
        Ok(Server { process: Guarded::new(child), address, log: log.to_owned(), started })
    }

    /// Waits until the server answers the entry `number` with its right value; the time since exec.
    ///
    /// # Errors
    ///
    /// When the server ends, answers wrongly, or does not answer for minutes.
    pub(crate) fn first_get(&mut self, number: u64) -> Result<Duration> {
        let expected = Reply::Bulk(entry_value(number).to_vec());
        let key = entry_key(number);
        self.wait_for(&[b"GET", key.as_bytes()], &expected)
    }

    /// Waits until the server answers at all.
    ///
    /// # Errors
    ///
    /// As for [`first_get`](Self::first_get).
    pub(crate) fn ready(&mut self) -> Result<Duration> {
        self.wait_for(&[b"PING"], &Reply::Simple("PONG".to_owned()))
    }

    fn wait_for(&mut self, request: &[&[u8]], expected: &Reply) -> Result<Duration> {
        let mut client = None;
        while self.started.elapsed() < START_TIMEOUT {
            if client.is_none() {
                client = Client::connect(self.address).ok();
            }
            if let Some(connected) = &mut client {
                match connected.call(request) {
                    Ok(reply) if reply == *expected => return Ok(self.started.elapsed()),
                    Ok(Reply::Error(text)) if text.starts_with("LOADING") => {}
                    Ok(reply) => bail!("{request:?} was answered {reply:?}, expected {expected:?}"),
                    // A server that is just starting may drop a connection.
                    Err(_) => client = None,
                }
            }
            ensure!(!self.process.has_exited(), "the server ended: {}", self.log_tail());
            thread::sleep(POLL_INTERVAL);
        }
        bail!("no answer within {START_TIMEOUT:?}: {}", self.log_tail())
    }

    /// A new connection.
    ///
    /// # Errors
    ///
    /// When the server does not take it.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(self.address).with_context(|| format!("no connection to {}", self.address))
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes of memory of the process that belong to no file.
    ///
    /// # Errors
    ///
    /// When the kernel does not report it.
    pub(crate) fn anonymous_len(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let kib =
            field(&status, "RssAnon").and_then(first_number).context("no RssAnon in /proc")?;
        Ok(kib * 1024.0)
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" / ")
    }
}

/// A loopback address with a free port.
///
/// # Errors
///
/// When the system has no port left.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Whether a program can be executed.
pub(crate) fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
