//! A skip list on memory and on slower memory: SOFORT's Figure 5, and its latencies of Figure 6
//! (Oukid et al., CIDR 2015, section 2.2).
//!
//! The paper has a machine whose memory is slowed down to 200 ns and more, where DRAM takes 90 ns.
//! Here, the pool's model of latency adds the same differences to each access that misses its model
//! of a cache, and to each fence.

#[cfg(test)]
mod crash;
mod list;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use remanent_pmem::{Emulation, Latency, Medium, Options, Pool};

use self::list::{Kind, SkipList};
use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, mean_ns, turns};
use crate::memory::area::{Area, Order};
use crate::memory::floor::FenceCost;
use crate::memory::pool;
use crate::report::{Ground, PROMISE_NVRAM, Report, Shape, number};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "skip-list",
    "A skip list, transient and persistent, on memory and at higher latencies (SOFORT, Figures 5, 6)",
    run,
);

const ROOT: &str = "list";
/// Bytes beyond which no pool of this bench grows.
const SIZE_MAX: u64 = 4 << 30;
const UNIT: &str = "ns/operation";
/// Latency of the paper's DRAM.
const DRAM_NS: u32 = 90;
/// Latency of the paper's SCM in Figure 5.
const SCM_NS: u32 = 200;
/// The highest latency of Figure 6.
const SCM_MAX_NS: u32 = 700;
/// Bytes over which a fence is measured: more than a cache holds.
const AREA_LEN: u64 = 1 << 28;

/// How much is done.
struct Sizes {
    rounds: usize,
    entries: u32,
    operations: u32,
    /// Operations at latencies other than Figure 5's.
    operations_of_series: u32,
    latencies_ns: &'static [u32],
}

impl Sizes {
    fn of(setup: &Setup) -> Self {
        let full = Sizes {
            rounds: 3,
            entries: 1_000_000,
            operations: 10_000_000,
            operations_of_series: 1_000_000,
            latencies_ns: &[SCM_NS, 300, 400, 500, 600, SCM_MAX_NS],
        };
        let quick = Sizes {
            operations: 100_000,
            operations_of_series: 50_000,
            latencies_ns: &[SCM_NS, SCM_MAX_NS],
            ..full
        };
        let tiny = Sizes {
            rounds: 1,
            entries: 5_000,
            operations: 500,
            operations_of_series: 500,
            ..quick
        };
        Effort::of(setup).pick(full, quick, tiny)
    }

    fn operations_at(&self, place: Place) -> u32 {
        match place {
            Place::Memory | Place::Nvram(SCM_NS) => self.operations,
            Place::Nvram(_) => self.operations_of_series,
        }
    }
}

/// Where a list lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// This machine's memory, with its own flushes and fences for a persistent list.
    Memory,
    /// Memory of this latency.
    Nvram(u32),
}

impl Place {
    /// Its latency as the paper would give it.
    fn ns(self) -> u32 {
        match self {
            Place::Memory => DRAM_NS,
            Place::Nvram(ns) => ns,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Insert(Kind),
}

impl Work {
    const ALL: [Work; 3] =
        [Work::Read, Work::Insert(Kind::Transient), Work::Insert(Kind::Persistent)];

    fn name(self) -> &'static str {
        match self {
            Work::Read => "read",
            Work::Insert(Kind::Transient) => "write, transient",
            Work::Insert(Kind::Persistent) => "write, persistent",
        }
    }

    fn id(self) -> &'static str {
        match self {
            Work::Read => "read",
            Work::Insert(Kind::Transient) => "write.transient",
            Work::Insert(Kind::Persistent) => "write.persistent",
        }
    }

    /// The paper's penalty at this latency, in percent of the performance on DRAM. For 700 ns it
    /// does not say of which list the writes are.
    fn paper_percent(self, ns: u32) -> Option<u32> {
        match (ns, self) {
            (SCM_NS, Work::Read) => Some(49),
            (SCM_NS, Work::Insert(Kind::Transient)) => Some(43),
            (SCM_NS, Work::Insert(Kind::Persistent)) => Some(47),
            (SCM_MAX_NS, Work::Read) => Some(82),
            (SCM_MAX_NS, Work::Insert(_)) => Some(76),
            _ => None,
        }
    }
}

/// Times of one kind of work in one place.
struct Cell {
    place: Place,
    work: Work,
    ns: Samples,
    ground: Option<Ground>,
}

/// Measures all cells.
///
/// # Errors
///
/// When a pool cannot be made, or a key is not found.
fn run(setup: &Setup) -> Result<Report> {
    let sizes = Sizes::of(setup);
    let mut report = Report::new("skip-list")?;
    let scratch = Scratch::new(&setup.dir)?;
    let filled = scratch.path().join("filled.pool");
    fill(&filled, sizes.entries)?;
    let area = Area::new(&setup.dir, AREA_LEN)?;
    let fence_ns = FenceCost::measure(&area, sizes.rounds).samples(Order::Random).median();
    drop(area);
    let places: Vec<Place> = std::iter::once(Place::Memory)
        .chain(sizes.latencies_ns.iter().map(|ns| Place::Nvram(*ns)))
        .collect();
    let mut cells: Vec<Cell> = Work::ALL
        .into_iter()
        .flat_map(|work| places.iter().map(move |place| (*place, work)))
        .map(|(place, work)| Cell { place, work, ns: Samples::new(), ground: None })
        .collect();
    let progress = Progress::new("skip-list", sizes.rounds * cells.len());
    for round in 0..sizes.rounds {
        for turn in turns(cells.len(), round) {
            let cell = &mut cells[turn];
            progress.step(format!("{}, {} ns", cell.work.name(), cell.place.ns()));
            let copy = scratch.path().join("list.pool");
            std::fs::copy(&filled, &copy).context("cannot copy the list")?;
            cell.measure(&copy, &sizes, fence_ns)?;
            std::fs::remove_file(&copy)?;
        }
    }
    drop(progress);
    tell(&cells, &sizes, &mut report);
    Ok(report)
}

/// Makes the list that each measurement begins with.
fn fill(path: &Path, entries: u32) -> Result<()> {
    let pool = options(Emulation::None).create(path)?;
    let list: Arc<SkipList<_>> = pool.create_root(ROOT)?;
    for number in 0..entries {
        list.insert(Kind::Transient, key(number), value(number))?;
    }
    ensure!(list.entries().len() == entries as usize, "an entry is missing");
    Ok(())
}

fn options(emulation: Emulation) -> Options {
    pool::options(emulation).size_max(SIZE_MAX)
}

/// A bijection of 32-bit numbers that leaves no pattern.
fn key(number: u32) -> u32 {
    let mut word = number;
    word = (word ^ (word >> 16)).wrapping_mul(0x7feb_352d);
    word = (word ^ (word >> 15)).wrapping_mul(0x846c_a68b);
    word ^ (word >> 16)
}

fn value(number: u32) -> u32 {
    !number
}

impl Cell {
    /// Opens a copy of the list, and measures the work on it.
    fn measure(&mut self, path: &Path, sizes: &Sizes, fence_ns: f64) -> Result<()> {
        match self.place {
            Place::Memory => {
                // A list without flushes has none of the pool either.
                let is_persistent = self.work == Work::Insert(Kind::Persistent);
                let emulation = if is_persistent { Emulation::Nvram } else { Emulation::None };
                self.measure_in(&options(emulation).open(path)?, sizes)
            }
            Place::Nvram(ns) => {
                let added_ns = ns - DRAM_NS;
                let latency = Latency {
                    // No instruction is executed, so that the time of this machine's is added.
                    write_latency_ns: fence_ns as u32 + added_ns,
                    read_latency_ns: added_ns,
                    write_bandwidth_mib: 0,
                };
                let pool = options(Emulation::Latency(latency)).open_emulated(path)?;
                self.measure_in(&pool, sizes)
            }
        }
    }

    fn measure_in<M: Medium>(&mut self, pool: &Pool<M>, sizes: &Sizes) -> Result<()> {
        let list: Arc<SkipList<M>> = pool.open_root(ROOT)?;
        let operations = sizes.operations_at(self.place);
        let mut done = Ok(());
        let mut missing = 0;
        let ns = mean_ns(operations.into(), |turn| {
            let turn = turn as u32;
            match self.work {
                Work::Read => {
                    let number = key(turn) % sizes.entries;
                    missing += u32::from(list.get(key(number)) != Some(value(number)));
                }
                Work::Insert(kind) if done.is_ok() => {
                    let number = sizes.entries + turn;
                    done = list.insert(kind, key(number), value(number));
                }
                Work::Insert(_) => {}
            }
        });
        done.context("cannot insert")?;
        ensure!(missing == 0, "{missing} keys were not found");
        if let Work::Insert(_) = self.work {
            // A few of them: at this latency, all would take longer than to insert them.
            for number in (sizes.entries..sizes.entries + operations).step_by(997) {
                ensure!(list.get(key(number)) == Some(value(number)), "an entry is missing");
            }
        }
        self.ns.push(ns);
        let guarantee = pool.guarantee();
        let (durability, promise) = match self.work {
            Work::Insert(Kind::Persistent) => (guarantee.durability.to_string(), PROMISE_NVRAM),
            _ => ("none".to_owned(), "nothing survives: no flush, no fence"),
        };
        let backing = guarantee.backing.to_string();
        let emulation = guarantee.emulation.to_string();
        self.ground = Some(Ground::new(&backing, &durability, &emulation, promise));
        Ok(())
    }
}

/// Adds rows, claims, a table and a chart.
fn tell(cells: &[Cell], sizes: &Sizes, report: &mut Report) {
    for Cell { place, work, ns, ground } in cells {
        if let Some(ground) = ground {
            report.row(work.name(), &format!("latency {}", place.ns()), ground, UNIT, ns);
        }
    }
    let head = ["", "latency, ns", "penalty, %", "the paper's, %"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let find = |place, work| cells.iter().find(|cell| cell.place == place && cell.work == work);
    for &ns in sizes.latencies_ns {
        for work in Work::ALL {
            if let (Some(memory), Some(nvram)) =
                (find(Place::Memory, work), find(Place::Nvram(ns), work))
            {
                lines.push(compare(memory, nvram, report));
            }
        }
    }
    let title = "What a latency costs, in percent of the performance at 90 ns (Figures 5, 6)";
    report.table(title, lines);
    report.chart("figure6", "Skip list by latency (ns)", UNIT, "latency ", Shape::Lines);
}

/// Adds a claim, and returns a line of the table.
fn compare(memory: &Cell, nvram: &Cell, report: &mut Report) -> Vec<String> {
    let (work, ns) = (nvram.work, nvram.place.ns());
    let ratio = nvram.ns.over(&memory.ns);
    let percent = 100.0 * (1.0 - 1.0 / ratio.median());
    let paper_percent = work.paper_percent(ns);
    let paper = paper_percent.map_or(String::new(), |paper| {
        format!(", the paper's {paper} % ({:.2} x)", 100.0 / (100.0 - f64::from(paper)))
    });
    let against = format!(
        "time in memory; {:.0} and {:.0} {UNIT}; a penalty of {percent:.0} %{paper}",
        nvram.ns.median(),
        memory.ns.median(),
    );
    let suffix = if ns == SCM_NS { String::new() } else { format!(".{ns}ns") };
    let id = format!("skip_list.{}.nvram_vs_memory{suffix}", work.id());
    report.claim(&id, &ratio, "x", against, None);
    let paper = paper_percent.map_or(String::new(), |paper| paper.to_string());
    vec![work.name().to_owned(), ns.to_string(), number(percent), paper]
}
