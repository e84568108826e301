//! The machine from inside, for scenarios: where their files lie, how the host learns what is acknowledged, and programs.

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

/// Where the file system is mounted that outlives the machine.
const PLACE: &str = "/mnt";
/// The port that leads to the host; the machine has no other.
const PORT: &str = "/dev/vport0p1";

/// The way to the host.
struct Port(Mutex<File>);

impl Port {
    /// Tells the host why nothing goes on.
    fn fail(&self, error: anyhow::Error) {
        match error.downcast::<Lost>() {
            Ok(Lost(losses)) => self.tell(&Message::Lost(losses)),
            Err(error) => self.tell(&Message::Failed(format!("{error:#}"))),
        }
    }

    /// A message that cannot be sent is one of a machine whose host is gone: see `listen`.
    fn tell(&self, message: &Message) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        // One write, so that a cut leaves a whole line or one without an end.
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = port.write_all(&line) {
            eprintln!("cannot write to {PORT}: {error}");
        }
    }
}

/// The machine from inside.
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

    /// Tells the host that so many writes of this round are acknowledged to the writer.
    pub(crate) fn acknowledge(&self, writer: usize, count: u64) {
        self.port.tell(&Message::Acknowledged(writer, count));
    }

    /// Tells the host why nothing goes on.
    pub(crate) fn fail(&self, error: anyhow::Error) {
        self.port.fail(error);
    }
}

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
