//! What outlives the machine, with an ext4 on it: persistent memory, or a disk.

use std::path::Path;

use anyhow::{Context, Result};

use super::process::{run, wait_until};

/// What the whole NVDIMM is, as it has no labels that divide it.
const NAMESPACE: &str = "namespace0.0";

/// What the namespace is to the kernel: memory that programs map.
const DEVICE: &str = "/dev/pmem0";

/// The disk, of those that have one.
const DISK: &str = "/dev/vda";

/// Mounts the memory's file system at `place`; makes one before if the memory `is_new`.
pub(crate) fn mount_memory(is_new: bool, place: &str) -> Result<()> {
    if is_new {
        let create = ["create-namespace", "--force", "--reconfig", NAMESPACE, "--mode", "fsdax"];
        run("ndctl", &create).context("cannot make an fsdax namespace of the NVDIMM")?;
    }
    wait_until("the memory is a device", || Ok(Path::new(DEVICE).exists()))?;
    if is_new {
        // DAX needs blocks as large as pages.
        run("mkfs.ext4", &["-F", "-q", "-b", "4096", DEVICE])?;
    }
    run("mount", &["-t", "ext4", "-o", "dax=always", DEVICE, place]).map(drop)
}

/// The same with the disk.
pub(crate) fn mount_disk(is_new: bool, place: &str) -> Result<()> {
    wait_until("the disk is a device", || Ok(Path::new(DISK).exists()))?;
    // Without one, the kernel asks for no flush, and every loss would be the rig's.
    let cache = std::fs::read_to_string("/sys/block/vda/queue/write_cache")?;
    anyhow::ensure!(cache.trim() == "write back", "the disk's cache is {cache:?}");
    if is_new {
        run("mkfs.ext4", &["-F", "-q", "-b", "4096", DISK])?;
    }
    run("mount", &["-t", "ext4", DISK, place]).map(drop)
}
