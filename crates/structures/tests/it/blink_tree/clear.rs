//! Clearing is one pass: it does not run after what others insert behind it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Config, Outcome, Rng, Sim, SimOptions, Steps, Subject, Workload};
use remanent_pmem::Pool;
use remanent_pmem::pool::{Format, Guarantee};
use remanent_structures::BlinkTree;

use crate::support::sim_pool;

const SIZE_MAX: u64 = 64 << 20;
/// Keys that are there.
const KEYS: u64 = 2;

type Tree = BlinkTree<u64, [u8], Arc<Sim>>;

/// A tree of one leaf with records, which one thread clears while others put its entries back.
struct Chased;

#[derive(Clone, Debug)]
enum Op {
    Clear,
    Put(u64),
    Remove(u64),
}

struct Open {
    tree: Tree,
    _pool: Pool<Arc<Sim>>,
}

impl Subject for Chased {
    type Op = Op;
    /// Whether the answer is one that one pass can give.
    type Ret = bool;
    type State = BTreeSet<u64>;
    type Handle = Open;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let format = Format { guarantee: Guarantee::default(), ..Format::new(SIZE_MAX) };
        let pool = Pool::format(medium, &format)?;
        let tree = Tree::create(&pool, "tree")?;
        for key in 0..KEYS {
            tree.put(&key, b"from the start")?;
        }
        Ok(Open { tree, _pool: pool })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let pool = Pool::recover(medium)?;
        Ok(Open { tree: Tree::open(&pool, "tree")?, _pool: pool })
    }

    fn apply(&self, open: &Open, op: &Op) -> bool {
        match *op {
            Op::Clear => open.tree.clear().is_ok_and(|removed| removed <= KEYS),
            Op::Put(key) => open.tree.put(&key, b"once more").is_ok(),
            Op::Remove(key) => open.tree.discard(&key).is_ok(),
        }
    }

    fn model(&self, state: &mut BTreeSet<u64>, op: &Op) -> bool {
        match *op {
            Op::Clear => state.extend(0..KEYS),
            Op::Put(key) => state.retain(|&absent| absent != key),
            Op::Remove(key) => state.extend([key]),
        }
        true
    }

    /// The keys that are not there: none at first.
    fn observe(&self, open: &Open) -> Outcome<BTreeSet<u64>> {
        let mut absent: BTreeSet<u64> = (0..KEYS).collect();
        open.tree.ascend(.., |key, _| {
            absent.remove(key);
            ControlFlow::Continue(())
        })?;
        Ok(absent)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        Op::Put(rng.below(KEYS))
    }

    fn check(&self, open: &Open) -> Outcome {
        match open.tree.check()? {
            violations if violations.is_empty() => Ok(()),
            violations => Err(format!("{violations:?}").into()),
        }
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        match op {
            Op::Clear => Steps::AnyOrder((0..KEYS).map(Op::Remove).collect()),
            _ => Steps::One,
        }
    }

    fn answer_for_effects(&self, _: &Op, _: u64) -> Option<bool> {
        Some(true)
    }
}

/// The last point alone is of interest: the answers.
fn run(threads: Vec<Vec<Op>>, seeds: u64) {
    let config = Config {
        seeds: 0..seeds,
        samples: 1,
        full_max: 1,
        creation: false,
        sim: SimOptions { capacity: SIZE_MAX, ..SimOptions::default() },
        ..Config::default()
    };
    let workload = Workload { setup: Vec::new(), threads };
    let report = remanent_crashsim::explore_workload(&Chased, &config, &workload);
    assert!(report.violations.is_empty(), "{report}");
}

#[test]
fn clearing_removes_no_entry_twice() {
    let puts = (0..KEYS).cycle().take(8).map(Op::Put).collect();
    run(vec![vec![Op::Clear], puts], 8);
}

#[test]
fn clearing_removes_whatever_was_there() {
    let pool = sim_pool(Guarantee::default());
    let tree: Tree = Tree::create(&pool, "tree").unwrap();
    for count in [0, 1, 24, 25, 500] {
        (0..count).for_each(|key| assert!(tree.put(&(key * 7919 % count), b"value").unwrap()));
        assert_eq!(tree.clear().unwrap(), count);
        assert!(tree.is_empty().unwrap());
        assert_eq!(tree.check().unwrap(), []);
    }
}
