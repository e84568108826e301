//! The guest's part for scenarios: places of files, reports to the host, and programs.

pub(crate) mod nbd;
pub(crate) mod process;
pub(crate) mod resp;
pub(crate) mod serve;
mod storage;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::message::{Job, Lost, Message};

/// Mount point of the file system that outlives the machine.
const PLACE: &str = "/mnt";
/// The port to the host; the machine has no other.
const PORT: &str = "/dev/vport0p1";

/// The connection to the host.
struct Port(Mutex<File>);

impl Port {
    /// Reports to the host why the guest cannot continue.
    fn fail(&self, error: anyhow::Error) {
        match error.downcast::<Lost>() {
            Ok(Lost(losses)) => self.tell(&Message::Lost(losses)),
            Err(error) => self.tell(&Message::Failed(format!("{error:#}"))),
        }
    }

    /// Sends a message. If sending fails, the host is gone: see `listen`.
    fn tell(&self, message: &Message) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        // One write, so that a cut leaves a complete line or one without an end.
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = port.write_all(&line) {
            eprintln!("cannot write to {PORT}: {error}");
        }
    }
}

/// The guest, for a scenario.
pub(crate) struct Guest {
    port: Port,
    job: Job,
}

impl Guest {
    /// Directory on the scenario's storage.
    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(PLACE)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.job.seed
    }

    /// Whether the storage is new.
    pub(crate) fn is_first(&self) -> bool {
        self.job.is_first
    }

    /// Reports to the host that `count` writes of this round are acknowledged to the writer.
    pub(crate) fn acknowledge(&self, writer: usize, count: u64) {
        self.port.tell(&Message::Acknowledged(writer, count));
    }

    /// Gives the host a note of the writer's, which replaces the one before: see `Past::notes`.
    pub(crate) fn note(&self, writer: usize, note: String) {
        self.port.tell(&Message::Noted(writer, note));
    }

    /// Reports to the host why the guest cannot continue.
    pub(crate) fn fail(&self, error: anyhow::Error) {
        self.port.fail(error);
    }
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
