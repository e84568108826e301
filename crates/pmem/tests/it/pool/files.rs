//! What a file system keeps of a file, its length and its holes, in crashes at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{
    Class, Config, Faults, Nested, Outcome, Report, Rng, Sim, SimOptions, SiteKind, Sources,
    Subject, explore,
};
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, ChunkState, DATA_FIRST};
use remanent_pmem::{Error, Format, Medium, Pool, Result};

use super::slots::Slots;

/// Room for the smallest pool and for two growths.
const SIZE_MAX: u64 = 52 << 20;
const SLOTS: u64 = 3;

/// Tables that come and go, with long blocks in their slots.
struct Tables {
    /// Chunks that are taken from the start.
    ballast: u64,
    lens: &'static [u64],
}

/// Runs are given back, and their chunks become tables, which begin with zeros.
const HOLES: Tables = Tables { ballast: 0, lens: &[300_000, 600_000] };
/// The rest of the first growth is soon taken.
const GROWTH: Tables = Tables { ballast: 226, lens: &[300_000, 900_000] };

#[derive(Clone, Debug)]
enum Op {
    Create(u64),
    Remove(u64),
    Put(u64, u64, u64),
    Clear(u64, u64),
}

/// What an operation answers: whether there was such a table, or that there was no room.
type Ret = Option<bool>;
type Table = Slots<Arc<Sim>>;

fn name(table: u64) -> String {
    format!("table {table}")
}

fn answer(result: Result<bool>) -> Ret {
    match result {
        Ok(found) => Some(found),
        Err(error) if error.is_full() => None,
        Err(error) => panic!("{error}"),
    }
}

/// Does something to a table, if it is there.
fn with(
    pool: &Pool<Arc<Sim>>,
    table: u64,
    action: impl FnOnce(Arc<Table>) -> Result<()>,
) -> Result<bool> {
    match pool.open_root::<Table>(&name(table)) {
        Ok(slots) => action(slots).map(|()| true),
        Err(Error::NoSuchRoot { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Subject for Tables {
    type Op = Op;
    type Ret = Ret;
    /// By table and slot, lengths of blocks; a table's own entry has a slot behind the last.
    type State = BTreeMap<(u64, u64), u64>;
    type Handle = Pool<Arc<Sim>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let pool = Pool::format(medium, &Format::new(SIZE_MAX))?;
        if self.ballast > 0 {
            pool.create_root::<Table>("ballast")?.put_sparse(0, self.ballast * CHUNK_LEN)?;
        }
        Ok(pool)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Ok(Pool::recover(medium)?)
    }

    fn apply(&self, pool: &Self::Handle, op: &Op) -> Ret {
        answer(match *op {
            Op::Create(table) => match pool.create_root::<Table>(&name(table)) {
                Err(Error::RootExists { .. }) => Ok(false),
                created => created.map(|_| true),
            },
            Op::Remove(table) => match pool.remove_root(&name(table)) {
                Err(Error::NoSuchRoot { .. }) => Ok(false),
                removed => removed.map(|()| true),
            },
            Op::Put(table, slot, len) => with(pool, table, |slots| slots.put_sparse(slot, len)),
            Op::Clear(table, slot) => with(pool, table, |slots| slots.clear(slot)),
        })
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Ret {
        let is_there = |state: &Self::State, table| state.contains_key(&(table, SLOTS));
        Some(match *op {
            Op::Create(table) => state.insert((table, SLOTS), 0).is_none(),
            Op::Remove(table) => {
                let found = is_there(state, table);
                state.retain(|key, _| key.0 != table);
                found
            }
            Op::Put(table, slot, len) if is_there(state, table) => {
                state.insert((table, slot), len);
                true
            }
            Op::Put(..) => false,
            Op::Clear(table, slot) => {
                state.remove(&(table, slot));
                is_there(state, table)
            }
        })
    }

    fn observe(&self, pool: &Self::Handle) -> Outcome<Self::State> {
        let mut state = BTreeMap::new();
        for root in pool.roots()? {
            let Some(table) = root.name.strip_prefix("table ") else { continue };
            let table = table.parse()?;
            let slots = pool.open_root::<Table>(&root.name)?;
            state.insert((table, SLOTS), 0);
            let lens = (0..SLOTS).filter_map(|slot| Some(((table, slot), slots.content(slot)?.1)));
            state.extend(lens);
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (table, slot) = (rng.below(2), rng.below(SLOTS));
        match rng.below(8) {
            0 | 1 => Op::Create(table),
            2 => Op::Remove(table),
            3..=5 => Op::Put(table, slot, *rng.pick(self.lens)),
            _ => Op::Clear(table, slot),
        }
    }

    /// Every chunk that is to hold zeros does.
    fn check(&self, pool: &Self::Handle) -> Outcome {
        // What a crash has left of a root's allocations is decided when the root is opened.
        for root in pool.roots()? {
            pool.open_root::<Table>(&root.name)?;
        }
        let violations = pool.check()?.violations;
        if let Some(first) = violations.first() {
            return Err(first.to_string().into());
        }
        let medium = pool.medium();
        for chunk in (DATA_FIRST..(medium.len() / CHUNK_LEN) as u32).map(ChunkId) {
            let is_free = medium.load(chunk.state()) == ChunkState::FREE.encode();
            if is_free && !medium.is_zero(chunk.offset(), CHUNK_LEN) {
                return Err(format!("chunk {} is to hold zeros, and does not", chunk.0).into());
            }
        }
        Ok(())
    }

    fn is_refused(&self, ret: &Ret) -> bool {
        ret.is_none()
    }
}

fn config(seeds: u64) -> Config {
    Config {
        seeds: 0..seeds,
        setup: 2,
        ops: 8,
        full_max: 8,
        samples: 6,
        creation: false,
        nested: Nested { depth: 1, one_in: 32, samples: 2 },
        sim: SimOptions { len: 64 << 10, capacity: SIZE_MAX, ..SimOptions::default() },
        ..Config::default()
    }
}

fn assert_clean(report: &Report, reached: &[&str]) {
    println!("{report}\n{:?}", report.reached);
    assert!(report.is_clean(), "{report}");
    for event in reached {
        assert!(report.reached.contains_key(event), "no {event}: {:?}", report.reached);
    }
}

#[test]
fn a_chunk_that_was_given_back_holds_zeros_or_says_otherwise() {
    assert_clean(&explore(&HOLES, &config(4)), &["release", "allocation"]);
}

#[test]
fn a_pool_that_grows_opens_with_its_old_length_or_its_new_one() {
    assert_clean(&explore(&GROWTH, &config(4)), &["growth", "sync"]);
}

#[test]
fn the_death_of_a_process_keeps_what_the_file_system_was_told() {
    for tables in [HOLES, GROWTH] {
        let sim = SimOptions { class: Class::Process, ..config(1).sim };
        let config = Config { sim, full_max: 1, samples: 1, ..config(1) };
        assert_clean(&explore(&tables, &config), &["allocation"]);
    }
}

#[test]
fn each_call_for_room_may_fail() {
    for (tables, reached) in [(HOLES, "release"), (GROWTH, "growth")] {
        let config = Config { faults: Faults { full: 6, ..Faults::default() }, ..config(6) };
        assert_clean(&explore(&tables, &config), &["no room", reached]);
    }
}

/// Without the sync of a growth a superblock counts on bytes that are not there.
#[test]
fn a_missing_sync_is_noticed() {
    let sources = Sources::new().file("pool/mod.rs", include_str!("../../../src/pool/mod.rs"));
    let config = config(1);
    let mut killed = 0;
    for site in explore(&GROWTH, &config).sites.into_iter().filter(|s| s.kind == SiteKind::Sync) {
        let sim = SimOptions { mutant: Some(site), ..config.sim.clone() };
        // A pool that has not grown yet shows whether its first length is durable.
        let is_missed = [HOLES, GROWTH].iter().any(|tables| {
            let report = explore(tables, &Config { sim: sim.clone(), ..config.clone() });
            println!("{site}: {report}");
            !report.is_clean()
        });
        assert!(is_missed || sources.reason(&site).is_some(), "nobody misses the {site}");
        killed += u32::from(is_missed);
    }
    assert_eq!(killed, 2, "growing and formatting sync");
}
