//! Measurements in the machine, whose kernel can attach disks that the host's kernel cannot.

use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::guest::nbd;
use crate::guest::process::run;
use crate::message::Message;
use crate::program::Program;

/// The measurements.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Measurement {
    /// Berkeley DB as memcachedb uses it: on our disk beside tmpfs and other disks in memory
    BerkeleyDb,
}

const PROGRAMS: &[Program] = &[
    Program::REMANENT,
    Program::Ours { name: "remanent-bench", build: "-p remanent-bench" },
    Program::debian("nbd-client", "nbd-client"),
    Program::debian("nbdkit", "nbdkit"),
    Program::Plugin { file: "nbdkit-memory-plugin.so", package: "nbdkit" },
];
/// `brd` is the kernel's RAM disk.
const MODULES: &[&str] = &["nbd", "brd"];

/// Size of each disk: as `remanent disk create` and nbdkit take it, and in KiB for `brd`.
const DISK_SIZE: &str = "192M";
const DISK_KIB: &str = "196608";

impl Measurement {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Programs that the guest needs for it.
    pub(crate) fn programs(self) -> &'static [Program] {
        PROGRAMS
    }

    pub(crate) fn modules(self) -> &'static [&'static str] {
        MODULES
    }

    /// Runs the measurement in the guest, whose persistent memory is mounted at `memory`.
    pub(crate) fn run(self, memory: &Path, words: &[String]) -> Result<Message> {
        const OUT: &str = "/run/results";
        let places = Places::attach(memory)?;
        let mut arguments = vec![self.name(), format!("--out={OUT}")];
        arguments.extend(places.on.iter().map(|(name, path)| format!("--on={name}={path}")));
        arguments.extend_from_slice(words);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let table = run("remanent-bench", &arguments)?;
        let path = format!("{OUT}/{}.json", self.name());
        let report = std::fs::read(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(Message::Measured { table, report: serde_json::from_slice(&report)? })
    }
}

/// The measurement of that name.
pub(crate) fn named(name: &str) -> Result<Measurement> {
    Measurement::from_str(name, false).map_err(anyhow::Error::msg)
}

/// Directories for the measurement: tmpfs, then an ext4 on each of some disks in memory.
struct Places {
    on: Vec<(&'static str, String)>,
    /// They serve until the machine ends.
    _servers: [Child; 2],
}

impl Places {
    fn attach(memory: &Path) -> Result<Places> {
        let pool = memory.join("disk.pool");
        let pool = pool.to_str().context("the pool's path is not UTF-8")?;
        run("remanent", &["disk", "create", pool, "--size", DISK_SIZE, "--durability", "power"])?;
        let socket = "/run/remanent.socket";
        let ours = ["remanent", "disk", "serve", pool, "--socket", socket];
        let ours = nbd::attach(&ours, socket, "/dev/nbd0")?;
        let socket = "/run/nbdkit.socket";
        let plugin = "/lib/nbdkit-memory-plugin.so";
        let theirs = ["nbdkit", "--foreground", "--unix", socket, plugin, DISK_SIZE];
        let theirs = nbd::attach(&theirs, socket, "/dev/nbd1")?;
        make_ram_disk()?;
        std::fs::create_dir_all(memory.join("berkeley-db"))?;
        let dax = memory.join("berkeley-db").to_string_lossy().into_owned();
        let on = vec![
            ("tmpfs", mount("tmpfs", "tmpfs", "tmpfs")?),
            ("remanent", mount_new_ext4("/dev/nbd0", "remanent")?),
            ("nbdkit", mount_new_ext4("/dev/nbd1", "nbdkit")?),
            ("brd", mount_new_ext4("/dev/ram0", "brd")?),
            ("dax", dax),
        ];
        Ok(Places { on, _servers: [ours, theirs] })
    }
}

/// Loads `brd` again, with one disk that is large enough, because the init script loads modules
/// without parameters.
fn make_ram_disk() -> Result<()> {
    let modules = std::fs::read_dir("/modules").context("cannot list the modules")?;
    let brd = modules
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with("-brd.ko"));
    let Some(brd) = brd.as_deref().and_then(Path::to_str) else { bail!("there is no module brd") };
    run("rmmod", &["brd"])?;
    run("insmod", &[brd, "rd_nr=1", &format!("rd_size={DISK_KIB}")]).map(drop)
}

fn mount_new_ext4(device: &str, name: &str) -> Result<String> {
    run("mkfs.ext4", &["-F", "-q", "-b", "4096", device])?;
    mount("ext4", device, name)
}

/// Mounts a file system at a directory of that name, and returns the path.
fn mount(kind: &str, device: &str, name: &str) -> Result<String> {
    let place = format!("/run/{name}");
    std::fs::create_dir_all(&place)?;
    run("mount", &["-t", kind, device, &place])?;
    Ok(place)
}
