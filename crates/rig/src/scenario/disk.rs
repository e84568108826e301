//! A block device that a program serves from the memory, with a file system on it: synced files
//! survive every cut.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result};

use super::ext4::Tree;
use super::server::{check_backing, check_pool};
use super::tree::{self, Sync};
use super::{Load, Opened, Scenario};
use crate::guest::Guest;
use crate::guest::nbd;
use crate::guest::process::{output, run, said};
use crate::message::{Lost, Past};
use crate::program::Program;

/// Programs of the server's and the kernel's side of the device.
const PROGRAMS: &[Program] = &[Program::REMANENT, Program::debian("nbd-client", "nbd-client")];
/// Size of the device, as `remanent disk create` takes it.
const DEVICE_SIZE: &str = "64M";

const SOCKET: &str = "/run/disk.socket";
const DEVICE: &str = "/dev/nbd0";
const PLACE: &str = "/run/disk";

/// The scenario.
pub(crate) struct Disk;

impl Scenario for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn about(&self) -> &'static str {
        "a block device over NBD with ext4 on it: what was synced is whole, and fsck finds nothing"
    }

    fn writers(&self) -> usize {
        tree::WRITERS
    }

    fn acks(&self) -> Range<u64> {
        20..200
    }

    fn programs(&self) -> &'static [Program] {
        PROGRAMS
    }

    fn modules(&self) -> &'static [&'static str] {
        &["nbd"]
    }

    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened> {
        let path = guest.directory().join("disk.pool");
        if guest.is_first() {
            create(&path)?;
        }
        check_disk(&path)?;
        let begin = Instant::now();
        let server = serve(&path)?;
        let first_answer_ms = begin.elapsed().as_secs_f64() * 1e3;
        std::fs::create_dir_all(PLACE)?;
        if guest.is_first() {
            run("mkfs.ext4", &["-F", "-q", "-b", "4096", DEVICE])?;
        } else {
            // Mounting replays the file system's journal; after that nothing may be left to repair.
            run("mount", &["-t", "ext4", DEVICE, PLACE])
                .map_err(|error| Lost(vec![format!("{error:#}")]))?;
            run("umount", &[PLACE])?;
            check_file_system()?;
        }
        run("mount", &["-t", "ext4", DEVICE, PLACE])?;
        let kept = tree::check(guest.seed(), Path::new(PLACE), past)?;
        let tree = Tree { root: PLACE.into(), sync: Sync::Each };
        let facts = BTreeMap::from([("first_answer_ms".to_owned(), first_answer_ms)]);
        Ok(Opened { kept, facts, load: Box::new(Mounted { tree, server }) })
    }
}

/// Creates the disk that the server serves.
fn create(path: &Path) -> Result<()> {
    let path = path.to_str().context("the pool's path is not UTF-8")?;
    run("remanent", &["disk", "create", path, "--size", DEVICE_SIZE, "--durability", "power"])?;
    Ok(())
}

/// An inconsistent disk after a cut, or a block with wrong content, is a loss.
fn check_disk(path: &Path) -> Result<()> {
    let path = path.to_str().context("the pool's path is not UTF-8")?;
    check_backing(path, "dax")?;
    let output = output("remanent", &["disk", "check", path])?;
    if !output.status.success() {
        return Err(Lost(vec![format!("remanent disk check: {}", said(&output))]).into());
    }
    check_pool(path)
}

/// Attaches the disk in the pool as a kernel device.
fn serve(path: &Path) -> Result<Child> {
    let path = path.to_str().context("the pool's path is not UTF-8")?;
    nbd::attach(&["remanent", "disk", "serve", path, "--socket", SOCKET], SOCKET, DEVICE)
}

fn check_file_system() -> Result<()> {
    let output = output("fsck.ext4", &["-f", "-n", DEVICE])?;
    if output.status.success() {
        return Ok(());
    }
    Err(Lost(vec![format!("fsck.ext4 -f -n {DEVICE}: {}", said(&output))]).into())
}

/// The mounted file system on the device, and its server.
struct Mounted {
    tree: Tree,
    server: Child,
}

impl Load for Mounted {
    fn run(mut self: Box<Self>, guest: &Guest, round: u64) -> Result<std::convert::Infallible> {
        let outcome = Box::new(self.tree).run(guest, round);
        let ended = self.server.try_wait();
        outcome.with_context(|| format!("the server of the device: {ended:?}"))
    }
}
