//! What a pool file lies on, and which guarantees follow.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::isa::isa;
use super::latency::Latency;
use crate::error::{Error, Result};

/// The kind of crash that a returned call survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process, by whatever signal.
    #[default]
    Process,
    /// The loss of power.
    Power,
}

/// What kind of memory a pool file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Persistent memory mapped with `MAP_SYNC`, or a devdax device.
    Dax,
    /// Memory that outlives the process: tmpfs, hugetlbfs, memfd.
    Memory,
    /// Any other file, through the page cache.
    File,
}

/// Whether DRAM stands in for persistent memory, for research and tests.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Emulation {
    /// No emulation.
    #[default]
    None,
    /// DRAM with real flush and fence instructions at every persist.
    Nvram,
    /// DRAM with modelled costs: no instruction is executed; flushes, fences and cache misses take
    /// the time of the model.
    Latency(Latency),
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Process => "process",
            Durability::Power => "power",
        })
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "process" => Ok(Durability::Process),
            "power" => Ok(Durability::Power),
            _ => Err(format!("durability is `process` or `power`, not `{text}`")),
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backing::Dax => "dax",
            Backing::Memory => "memory",
            Backing::File => "file",
        })
    }
}

impl fmt::Display for Emulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Emulation::None => f.write_str("none"),
            Emulation::Nvram => f.write_str("nvram"),
            Emulation::Latency(latency) => write!(f, "{latency}"),
        }
    }
}

impl FromStr for Emulation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Emulation::None),
            "nvram" => Ok(Emulation::Nvram),
            "pcm" => Ok(Emulation::Latency(Latency::PCM)),
            "stt-mram" => Ok(Emulation::Latency(Latency::STT_MRAM)),
            _ => Err(format!("emulation is `none`, `nvram`, `pcm` or `stt-mram`, not `{text}`")),
        }
    }
}

/// Refuses a guarantee that the backing cannot give, and never downgrades it silently.
pub(crate) fn permit(
    backing: Backing,
    durability: Durability,
    emulation: Emulation,
    path: &Path,
) -> Result<()> {
    let refuse = |asked: &'static str, reason: &str| {
        Err(Error::Unsupported { path: path.to_owned(), asked, reason: reason.to_owned() })
    };
    if emulation != Emulation::None {
        if durability == Durability::Power {
            return refuse(
                "durability `power` under emulation",
                "emulated NVRAM is DRAM and loses everything with the power; \
                 drop the emulation or ask for durability `process`",
            );
        }
        if emulation == Emulation::Nvram && isa().flush.is_none() {
            return refuse(
                "emulation `nvram`",
                "this CPU has no instruction that writes a cache line back",
            );
        }
        return Ok(());
    }
    match (backing, durability) {
        (Backing::Memory, Durability::Power) => refuse(
            "durability `power`",
            "it lies in memory (tmpfs, hugetlbfs or memfd), which loses power; put the pool on a \
             DAX file system or an ordinary disk, or ask for durability `process`",
        ),
        (Backing::Dax, Durability::Power) if isa().flush.is_none() => refuse(
            "durability `power`",
            "this CPU has no instruction that writes a cache line back",
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_refuses_power_and_says_what_to_do() {
        let error = permit(
            Backing::Memory,
            Durability::Power,
            Emulation::None,
            Path::new("/dev/shm/a.pool"),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("durability `power`"), "{error}");
        assert!(error.contains("or ask for durability `process`"), "{error}");
    }

    #[test]
    fn every_combination_is_decided() {
        let path = Path::new("p");
        for (backing, durability, emulation, permitted) in [
            (Backing::File, Durability::Power, Emulation::None, true),
            (Backing::File, Durability::Process, Emulation::None, true),
            (Backing::Memory, Durability::Process, Emulation::None, true),
            (Backing::Memory, Durability::Process, Emulation::Nvram, true),
            (Backing::Memory, Durability::Power, Emulation::Nvram, false),
            (Backing::File, Durability::Power, Emulation::Latency(Latency::PCM), false),
            (Backing::Dax, Durability::Process, Emulation::None, true),
        ] {
            let outcome = permit(backing, durability, emulation, path).is_ok();
            assert_eq!(outcome, permitted, "{backing} {durability} {emulation}");
        }
    }
}
