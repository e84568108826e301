//! The storage that outlives the machine: persistent memory or a disk, with ext4 on it.

use std::path::Path;

use anyhow::{Context, Result};

use super::process::{run, wait_until};

/// Name of the namespace that fills the NVDIMM, which has no labels that divide it.
const NAMESPACE: &str = "namespace0.0";

/// The kernel's device for the namespace: memory that programs map.
const DEVICE: &str = "/dev/pmem0";

/// The disk, in machines that have one.
const DISK: &str = "/dev/vda";

/// Mounts the memory's file system at `place`; creates it first if the memory `is_new`.
pub(crate) fn mount_memory(is_new: bool, place: &str) -> Result<()> {
    if is_new {
        let create = ["create-namespace", "--force", "--reconfig", NAMESPACE, "--mode", "fsdax"];
        run("ndctl", &create).context("cannot make an fsdax namespace of the NVDIMM")?;
    }
    wait_until("the memory is a device", || Ok(Path::new(DEVICE).exists()))?;
    if is_new {
        // DAX needs blocks of a page.
        run("mkfs.ext4", &["-F", "-q", "-b", "4096", DEVICE])?;
    }
    run("mount", &["-t", "ext4", "-o", "dax=always", DEVICE, place]).map(drop)
}

/// Like [`mount_memory`], for the disk.
pub(crate) fn mount_disk(is_new: bool, place: &str) -> Result<()> {
    wait_until("the disk is a device", || Ok(Path::new(DISK).exists()))?;
    // If the kernel knew of no write cache, it would never ask for a flush, and every loss would be
    // the rig's fault.
    let cache = std::fs::read_to_string("/sys/block/vda/queue/write_cache")?;
    anyhow::ensure!(cache.trim() == "write back", "the disk's cache is {cache:?}");
    if is_new {
        run("mkfs.ext4", &["-F", "-q", "-b", "4096", DISK])?;
    }
    run("mount", &["-t", "ext4", DISK, place]).map(drop)
}
