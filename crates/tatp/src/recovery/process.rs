//! A users process, as its observer has it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::event::{Event, now_ns};

/// Killed when dropped.
pub(super) struct Process {
    child: Child,
    events: Receiver<Result<Event>>,
    pub(super) started_ns: u64,
}

impl Process {
    /// Executes this program again with these arguments.
    pub(super) fn start(arguments: &[OsString]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        // A group of its own: Ctrl-C in a terminal reaches the observer alone, which ends both.
        command.process_group(0);
        let started_ns = now_ns();
        let mut child = command.spawn().context("cannot execute this program again")?;
        let stdout = child.stdout.take().context("the users have no stdout")?;
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // What a kill has torn is no event.
            lines.take_while(|line| sender.send(Event::parse(line)).is_ok()).for_each(drop);
        });
        Ok(Process { child, events, started_ns })
    }

    /// The next event, or `None` if there is none within `patience`.
    pub(super) fn event(&mut self, patience: Duration) -> Result<Option<Event>> {
        match self.events.recv_timeout(patience) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().context("cannot wait for the users")?;
                bail!("the process with the users has ended by itself ({status})")
            }
        }
    }

    /// Kills it, and returns what it had told by then.
    pub(super) fn kill(mut self) -> Result<Vec<Event>> {
        self.child.kill().context("cannot kill the users")?;
        self.child.wait().context("cannot wait for the users")?;
        Ok(self.events.iter().map_while(Result::ok).collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
