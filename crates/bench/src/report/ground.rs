//! What numbers stand on: the place of the data, and what would survive.

use std::path::Path;

use anyhow::{Context, Result};
use remanent_pmem::{Emulation, Medium, Pool};
use serde::Serialize;

/// The guarantee of emulated persistent memory.
pub(crate) const PROMISE_NVRAM: &str =
    "every operation is durable on return, DRAM standing in for persistent memory";

/// What a series of rows stands on: the place of its data, and what would survive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ground {
    /// `dax`, `memory`, `file`, as for pools, or `heap` for a volatile rival.
    pub(crate) backing: String,
    /// `process`, `power`, or `none`; with `, batched` where an acknowledged operation may lag
    /// behind.
    pub(crate) durability: String,
    /// The emulated memory, or `none`.
    pub(crate) emulation: String,
    /// In words, what an acknowledged operation survives.
    pub(crate) promise: String,
}

impl Ground {
    /// The ground described by these words.
    pub(crate) fn new(backing: &str, durability: &str, emulation: &str, promise: &str) -> Self {
        Ground {
            backing: backing.to_owned(),
            durability: durability.to_owned(),
            emulation: emulation.to_owned(),
            promise: promise.to_owned(),
        }
    }

    /// Ordinary memory of the process.
    pub(crate) fn volatile() -> Self {
        Ground::new("heap", "none", "none", "nothing survives")
    }

    /// Backing and guarantee of a pool.
    pub(crate) fn of_pool<M: Medium>(pool: &Pool<M>) -> Self {
        let guarantee = pool.guarantee();
        let promise = match guarantee.emulation {
            Emulation::None => "every operation survives the death of the process",
            _ => PROMISE_NVRAM,
        };
        Ground::new(
            &guarantee.backing.to_string(),
            &guarantee.durability.to_string(),
            &guarantee.emulation.to_string(),
            promise,
        )
    }

    /// For data at `path` that another library flushes like a pool of ours under `emulation nvram`.
    ///
    /// # Errors
    ///
    /// When nothing is there.
    pub(crate) fn nvram_at(path: &Path) -> Result<Self> {
        Ok(Ground::new(backing_of(path)?, "process", "nvram", PROMISE_NVRAM))
    }
}

/// The backing of a file or directory, in the words for pools: `memory` or `file`.
///
/// # Errors
///
/// When it does not exist.
pub(crate) fn backing_of(path: &Path) -> Result<&'static str> {
    /// `f_type` of tmpfs in statfs(2).
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let stat =
        rustix::fs::statfs(path).with_context(|| format!("cannot inspect {}", path.display()))?;
    Ok(if stat.f_type as u64 == TMPFS_MAGIC { "memory" } else { "file" })
}
