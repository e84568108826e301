//! Cleanup of what must not outlive the bench: child processes and files in memory.
//!
//! Values clean up after themselves when they are dropped. A signal drops nothing, so each value is
//! also registered here, and the signal handler cleans up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Exit status after SIGINT, by the shells' convention.
const EXIT_INTERRUPTED: i32 = 130;

#[derive(PartialEq)]
enum Leftover {
    Process(Pid),
    Directory(PathBuf),
}

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    // A panic elsewhere must not prevent the cleanup; between any two calls the list is consistent.
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cleans up and exits on SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
///
/// When the handler cannot be installed.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        sweep();
        eprintln!("interrupted: child processes stopped, temporary files removed");
        std::process::exit(EXIT_INTERRUPTED);
    })
    .context("cannot install the signal handler")
}

fn sweep() {
    let leftovers = leftovers();
    for leftover in leftovers.iter() {
        if let Leftover::Process(pid) = leftover {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
    for leftover in leftovers.iter() {
        if let Leftover::Directory(path) = leftover {
            // A dying process may still create a file; the second attempt removes it.
            if fs::remove_dir_all(path).is_err() {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// A temporary directory that is removed with this value, or with the process.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Makes a new directory inside `parent`.
    ///
    /// # Errors
    ///
    /// When `parent` is not a directory that can be written to.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("remanent-bench-").tempdir_in(parent).with_context(
                || format!("cannot make a temporary directory in {}", parent.display()),
            )?;
        leftovers().push(Leftover::Directory(directory.path().to_owned()));
        Ok(Scratch(directory))
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let entry = Leftover::Directory(self.path().to_owned());
        let _ = fs::remove_dir_all(self.path());
        leftovers().retain(|leftover| *leftover != entry);
    }
}

/// A child process that is killed with this value, or with the bench.
pub(crate) struct Guarded(Child);

impl Guarded {
    /// Takes charge of a child.
    pub(crate) fn new(child: Child) -> Self {
        leftovers().push(Leftover::Process(Pid::from_child(&child)));
        Guarded(child)
    }

    /// The child's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether the child has ended by itself.
    pub(crate) fn has_exited(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The lock is held from the kill until the entry is removed, so that the handler cannot
        // kill another process with the same id.
        let mut leftovers = leftovers();
        let entry = Leftover::Process(Pid::from_child(&self.0));
        let _ = self.0.kill();
        let _ = self.0.wait();
        leftovers.retain(|leftover| *leftover != entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn nothing_is_left_after_a_drop() {
        let scratch = Scratch::new(&std::env::temp_dir()).expect("the directory is writable");
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "content").expect("the directory is writable");
        let child = Command::new("sleep").arg("600").spawn().expect("sleep is in coreutils");
        let child = Guarded::new(child);
        let process = PathBuf::from(format!("/proc/{}", child.pid()));
        assert!(process.exists() && path.exists());
        drop((child, scratch));
        assert!(!process.exists() && !path.exists());
        assert!(!leftovers().iter().any(|leftover| *leftover == Leftover::Directory(path.clone())));
    }
}
