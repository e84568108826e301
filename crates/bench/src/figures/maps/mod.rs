//! The maps: the paper's stand-alone evaluation of its hash map and its tree (NVC-Hashmap, section
//! 5, Figures 4 to 7); and the default ordered map compared with that tree, a volatile one and two
//! databases.

mod contention;
mod fill;
mod mix;
mod ordered;
mod restart;
mod scaling;
mod urls;

use std::thread::available_parallelism;

use anyhow::Result;
use remanent_pmem::{Emulation, FlushInstruction, Options};

use super::bench::Bench;
use super::effort::Effort;
use crate::memory::pool;
use crate::peers::multi::Kind;
use crate::report::Report;
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "maps",
    "The paper's hash map and tree (Figures 4 to 7); the ordered map beside std, LMDB and redb",
    run,
);

/// The process that `maps` kills: fills a map in `--dir` and writes to it without end.
pub(super) const WRITER: Bench =
    Bench {
        is_hidden: true,
        ..Bench::new("maps-writer", "Writes until it is killed", |setup| {
            match restart::write(setup)? {}
        })
    };

/// Measures all of it.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    if !cfg!(has_lmdb) {
        eprintln!(
            "LMDB was not found when this was built (liblmdb-dev): no rows and claims beside it"
        );
    }
    let effort = Effort::of(setup);
    let mut report = Report::new("maps")?;
    fill::run(effort, setup, &mut report)?;
    mix::run(effort, setup, &mut report)?;
    contention::run(effort, setup, &mut report)?;
    ordered::run(effort, setup, &mut report)?;
    scaling::run(effort, setup, &mut report)?;
    urls::run(effort, setup, &mut report)?;
    restart::run(effort, setup, &mut report)?;
    Ok(report)
}

/// One of the paper's structures, with or without flushes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Variant {
    kind: Kind,
    flush: Flush,
}

/// How a structure makes its stores durable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flush {
    /// With the best instruction that the CPU has, and a store fence.
    Best,
    /// With the paper's: CLFLUSH, which evicts the line, and a full fence.
    Clflush,
    /// Not at all.
    None,
}

impl Variant {
    /// The four lines of the paper's figures.
    fn all() -> Vec<Variant> {
        Self::of(&[Flush::Best, Flush::None])
    }

    /// These, and the two that flush as in the paper, if the CPU can.
    fn all_with_clflush() -> Vec<Variant> {
        let can = cfg!(target_arch = "x86_64");
        let flushes = [Flush::Best, Flush::None, Flush::Clflush];
        Self::of(&flushes[..2 + usize::from(can)])
    }

    fn of(flushes: &[Flush]) -> Vec<Variant> {
        let each = |kind| flushes.iter().map(move |&flush| Variant { kind, flush });
        Kind::ALL.into_iter().flat_map(each).collect()
    }

    /// Name of the line.
    fn name(self) -> String {
        let name = self.kind.name();
        match self.flush {
            Flush::Best => name.to_owned(),
            Flush::Clflush => format!("{name}, CLFLUSH"),
            Flush::None => format!("{name}, no flush"),
        }
    }

    /// Options of its pool.
    fn options(self) -> Options {
        match self.flush {
            Flush::Best => pool::options(Emulation::Nvram),
            Flush::Clflush => {
                pool::options(Emulation::Nvram).flush_instruction(FlushInstruction::Clflush)
            }
            Flush::None => pool::options(Emulation::None),
        }
    }
}

/// So many threads, and the number of cores if they are fewer.
fn threads_label(threads: usize) -> String {
    let cores = available_parallelism().map_or(1, usize::from);
    match threads {
        1 => "1 thread".to_owned(),
        _ if threads <= cores => format!("{threads} threads"),
        _ => format!("{threads} threads on {cores} cores"),
    }
}

/// A number of entries, as labels end with it: `10 k`.
fn count_label(count: usize) -> String {
    match count {
        count if count.is_multiple_of(1_000_000) => format!("{} m", count / 1_000_000),
        count if count.is_multiple_of(1_000) => format!("{} k", count / 1_000),
        count => count.to_string(),
    }
}
