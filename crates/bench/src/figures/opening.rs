//! How long opening takes where a pool has many roots, or a root many structures.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};
use remanent_structures::shared::{Found, MemberId, Recovery, Shareable, Site};
use remanent_structures::{BlinkTree, HashMap, Vector};

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "opening",
    "Time to open a pool with 1,000 roots, and a heap with 1,000 structures, after a crash",
    run,
);

/// Roots, or structures of one heap. A third are hash maps, trees and vectors each.
const COUNT: u32 = 1_000;
const ROUNDS: usize = 15;
/// Bytes that the owner keeps for the header of a structure of any kind.
const HEADER_LEN: u64 = 1344;

type Map = HashMap<u64, u64>;
type Tree = BlinkTree<u64, u64>;
type Numbers = Vector<u64>;

/// A root whose heap has many structures.
struct Owner {
    structures: Vec<Structure>,
}

enum Structure {
    Map(Map),
    Tree(Tree),
    Numbers(Numbers),
}

/// A structure before the heap has recovered.
enum Waiting {
    Map(Found<Map, Mapped>),
    Tree(Found<Tree, Mapped>),
    Numbers(Found<Numbers, Mapped>),
}

fn site(heap: &Arc<Heap<Mapped>>, headers: u64, index: u32) -> Site<Mapped> {
    let member = MemberId::new(index + 1).expect("far below the greatest number");
    Site::shared(heap, headers + u64::from(index) * HEADER_LEN, member)
}

impl Structure {
    fn create(site: Site<Mapped>, index: u32) -> Result<Self, PoolError> {
        Ok(match index % 3 {
            0 => Structure::Map(Map::create_in(site)?),
            1 => Structure::Tree(Tree::create_in(site)?),
            _ => Structure::Numbers(Numbers::create_in(site)?),
        })
    }

    fn fill(&self, number: u64) -> remanent_structures::Result<()> {
        match self {
            Structure::Map(map) => map.put(&number, &number).map(drop),
            Structure::Tree(tree) => tree.put(&number, &number).map(drop),
            Structure::Numbers(numbers) => numbers.push(&number).map(drop),
        }
    }

    fn len(&self) -> remanent_structures::Result<u64> {
        match self {
            Structure::Map(map) => map.len(),
            Structure::Tree(tree) => tree.len(),
            Structure::Numbers(numbers) => Ok(numbers.len()),
        }
    }
}

impl RootObject<Mapped> for Owner {
    fn root_type() -> RootType {
        RootType { name: "Owner of the bench".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<Mapped>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let len = u64::from(COUNT) * HEADER_LEN;
        let headers = heap.enter().prepare_to_write().allocate_zeroed(len)?.offset;
        let structures = (0..COUNT)
            .map(|index| Structure::create(site(&heap, headers, index), index))
            .collect::<Result<_, _>>()?;
        let medium = heap.medium();
        medium.store(heap.header(), headers);
        // Flush and fence: before the root is live.
        medium.persist(heap.header(), 8);
        Ok(Owner { structures })
    }

    fn open(heap: Heap<Mapped>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let headers = heap.medium().load(heap.header());
        let mut recovery = Recovery::new();
        let mut waiting = Vec::with_capacity(COUNT as usize);
        for index in 0..COUNT {
            let site = site(&heap, headers, index);
            waiting.push(match index % 3 {
                0 => Waiting::Map(recovery.find(site)?),
                1 => Waiting::Tree(recovery.find(site)?),
                _ => Waiting::Numbers(recovery.find(site)?),
            });
        }
        recovery.run(&heap, |block| block.offset == headers)?;
        let finish = |waiting| {
            Ok(match waiting {
                Waiting::Map(found) => Structure::Map(found.finish()?),
                Waiting::Tree(found) => Structure::Tree(found.finish()?),
                Waiting::Numbers(found) => Structure::Numbers(found.finish()?),
            })
        };
        Ok(Owner { structures: waiting.into_iter().map(finish).collect::<Result<_, PoolError>>()? })
    }
}

/// Opens pools that were left open, as a process leaves them that is killed.
///
/// # Errors
///
/// When the directory is not writable, or what was stored is not found.
fn run(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("opening")?;
    let scratch = Scratch::new(&setup.dir)?;
    let (one, many, shared) = (
        left_open(scratch.path(), "one.pool", |pool| create_roots(pool, 1))?,
        left_open(scratch.path(), "roots.pool", |pool| create_roots(pool, COUNT))?,
        left_open(scratch.path(), "shared.pool", create_structures)?,
    );
    let progress = Progress::new("opening", ROUNDS);
    let [mut one_ms, mut many_ms, mut shared_ms, mut each_ms] = [const { Samples::new() }; 4];
    let mut ground = None;
    for _ in 0..ROUNDS {
        progress.step("opening");
        one_ms.push(open_ms(scratch.path(), &one, |_| Ok(()))?);
        many_ms.push(open_ms(scratch.path(), &many, |pool| {
            ground = Some(Ground::of_pool(pool));
            Ok(())
        })?);
        each_ms.push(open_ms(scratch.path(), &many, open_roots)?);
        shared_ms.push(open_ms(scratch.path(), &shared, open_structures)?);
    }
    let ground = ground.unwrap_or_else(Ground::volatile);
    for (series, x, samples) in [
        ("floor: a pool with one root", "pool", &one_ms),
        ("a pool with 1,000 roots", "pool", &many_ms),
        ("the same, and each root", "pool and structures", &each_ms),
        ("1,000 structures in one heap", "pool and structures", &shared_ms),
    ] {
        report.row(series, x, &ground, "ms", samples);
    }
    let floor = Some(one_ms.median());
    report.claim("opening.roots_ms", &many_ms, "ms", "10 ms".to_owned(), floor);
    let against = format!("1,000 roots, each opened: {:.1} ms", each_ms.median());
    report.claim("opening.structures_ms", &shared_ms, "ms", against, floor);
    report.chart("opening", "Opening after a crash", "ms", "", Shape::BarsLog);
    Ok(report)
}

/// Fills a pool, and copies its file while it is open.
fn left_open(
    directory: &Path,
    name: &str,
    fill: impl FnOnce(&Pool) -> Result<()>,
) -> Result<PathBuf> {
    let path = directory.join(format!("open-{name}"));
    let pool = Pool::options().size_max(4 << 30).create(&path)?;
    fill(&pool)?;
    let left = directory.join(name);
    fs::copy(&path, &left)?;
    drop(pool);
    fs::remove_file(&path)?;
    Ok(left)
}

fn create_roots(pool: &Pool, count: u32) -> Result<()> {
    for index in 0..count {
        let (name, number) = (index.to_string(), u64::from(index));
        match index % 3 {
            0 => drop(Map::create(pool, &name)?.put(&number, &number)?),
            1 => drop(Tree::create(pool, &name)?.put(&number, &number)?),
            _ => drop(Numbers::create(pool, &name)?.push(&number)?),
        }
    }
    Ok(())
}

fn open_roots(pool: &Pool) -> Result<()> {
    for index in 0..COUNT {
        let name = index.to_string();
        let len = match index % 3 {
            0 => Map::open(pool, &name)?.len()?,
            1 => Tree::open(pool, &name)?.len()?,
            _ => Numbers::open(pool, &name)?.len(),
        };
        ensure!(len == 1, "root {index} has {len} entries instead of one");
    }
    Ok(())
}

fn create_structures(pool: &Pool) -> Result<()> {
    let owner = pool.create_root::<Owner>("owner")?;
    for (structure, number) in owner.structures.iter().zip(0..) {
        structure.fill(number)?;
    }
    Ok(())
}

fn open_structures(pool: &Pool) -> Result<()> {
    let owner = pool.open_root::<Owner>("owner")?;
    for structure in &owner.structures {
        let len = structure.len()?;
        ensure!(len == 1, "a structure has {len} entries instead of one");
    }
    Ok(())
}

/// Opens a copy of a pool that was left open, and what `open` opens in it.
fn open_ms(directory: &Path, left: &Path, open: impl FnOnce(&Pool) -> Result<()>) -> Result<f64> {
    let path = directory.join("opened.pool");
    fs::copy(left, &path)?;
    let start = Instant::now();
    let pool = Pool::options().open(&path)?;
    open(&pool)?;
    let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
    drop(pool);
    fs::remove_file(&path)?;
    Ok(elapsed_ms)
}
