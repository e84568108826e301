//! Persistent memory in the guest: a namespace, and an ext4 in it.

use std::path::Path;

use anyhow::{Context, Result};

use super::process::{run, wait_until};

/// What the whole NVDIMM is, as it has no labels that divide it.
const NAMESPACE: &str = "namespace0.0";

/// What the namespace is to the kernel: memory that programs map.
const DEVICE: &str = "/dev/pmem0";

/// Mounts the memory's file system at `place`; makes one before if the memory `is_new`.
pub(crate) fn mount(is_new: bool, place: &str) -> Result<()> {
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
