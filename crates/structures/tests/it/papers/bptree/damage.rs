//! Trees whose words were overwritten, and trees that many processes have died over.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Rng, Sim};
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::pool::{Guarantee, RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::papers::BpTree;
use remanent_structures::{Error, Map, OrderedMap};

use super::SmallNodes;
use crate::support::sim_pool;

/// Where the first root's header and its first nodes lie.
const HEADER: u64 = ChunkId(DATA_FIRST).offset();
const NODES: u64 = HEADER + CHUNK_LEN;
const CHANGING: u64 = HEADER + 256;
const LOST: u64 = HEADER + 512;

const GARBAGE: [u64; 6] = [0, 1, 4096 + 12, 1 << 62 | 0xffff_ffff, u64::MAX / 3, u64::MAX];

type Tree = BpTree<SmallNodes, u64, Arc<Sim>>;

/// A closed pool with a tree of some levels.
fn some_levels() -> Arc<Sim> {
    let pool = sim_pool(Guarantee::default());
    let tree = Tree::create(&pool, "tree").unwrap();
    (0..60).for_each(|key| assert!(tree.insert(&SmallNodes(key), &key).unwrap()));
    Arc::clone(pool.medium())
}

/// A root as trees had it whose nodes were not in order.
struct Unordered;

impl RootObject<Arc<Sim>> for Unordered {
    fn root_type() -> RootType {
        RootType { name: "BpTree<SmallNodes, u64>".to_owned(), layout: 1 }
    }

    fn create(_: Heap<Arc<Sim>>) -> Result<Self, PoolError> {
        Ok(Unordered)
    }

    fn open(_: Heap<Arc<Sim>>) -> Result<Self, PoolError> {
        Ok(Unordered)
    }
}

#[test]
fn a_tree_of_an_earlier_layout_is_refused() {
    let pool = sim_pool(Guarantee::default());
    pool.create_root::<Unordered>("tree").unwrap();
    let refused = Tree::open(&pool, "tree").unwrap_err();
    assert!(matches!(&refused, Error::Pool(PoolError::WrongType { .. })), "{refused}");
}

/// Whatever is found, an answer or an error is given, and that soon.
fn look(sim: &Arc<Sim>) {
    let pool = Pool::recover(Arc::clone(sim)).unwrap();
    let Ok(tree) = Tree::open(&pool, "tree") else { return };
    let _ = tree.get(&SmallNodes(7));
    let _ = tree.for_each(|_, _| ControlFlow::Continue(()));
    let _ = tree.descend(.., |_, _| ControlFlow::Continue(()));
    let _ = tree.check();
    let _ = tree.put(&SmallNodes(30), &0);
    let _ = tree.discard(&SmallNodes(31));
}

#[test]
fn damage_is_told() {
    let sim = some_levels();
    let words = (HEADER..HEADER + 264).chain(NODES..NODES + 2048).step_by(8);
    let mut image = vec![0; 2 * CHUNK_LEN as usize];
    sim.read(HEADER, &mut image);
    for at in words {
        for garbage in GARBAGE {
            sim.store(at, garbage);
            look(&sim);
            sim.write(HEADER, &image);
        }
    }
}

#[test]
fn entries_in_another_order_do_not_lead_in_circles() {
    let sim = some_levels();
    let words: Vec<u64> = (NODES..NODES + 4096).step_by(8).collect();
    let mut image = vec![0; 2 * CHUNK_LEN as usize];
    sim.read(HEADER, &mut image);
    let mut rng = Rng::new(5);
    for _ in 0..3000 {
        let (to, from) = (*rng.pick(&words), *rng.pick(&words));
        sim.store(to, sim.load(from));
        look(&sim);
        sim.write(HEADER, &image);
    }
}

#[test]
fn a_check_finds_what_contradicts() {
    let pool = sim_pool(Guarantee::default());
    let tree = Tree::create(&pool, "tree").unwrap();
    (0..4).for_each(|key| assert!(tree.insert(&SmallNodes(key), &key).unwrap()));
    assert_eq!(tree.check().unwrap(), []);
    // Of the only leaf: its level, its least key, and begin, end and key of its first entry.
    let (leaf, entry) = (NODES, NODES + 32);
    for (at, garbage) in [
        (leaf, 1),
        (leaf, 5 << 32),
        (leaf + 8, 1),
        (entry, 0),
        (entry, 1 << 40),
        (entry + 8, 2),
        (entry + 8, 1 << 40),
        (entry + 16, 3),
    ] {
        let saved = pool.medium().load(at);
        pool.medium().store(at, garbage);
        assert_ne!(tree.check().unwrap(), [], "{garbage:#x} at {at:#x}");
        pool.medium().store(at, saved);
    }
    assert_eq!(tree.check().unwrap(), []);
}

/// Opens the tree as after a crash, and closes it.
fn reopen(sim: &Arc<Sim>, change: impl FnOnce(&Tree)) {
    sim.store(CHANGING, 1);
    let pool = Pool::recover(Arc::clone(sim)).unwrap();
    let tree = Tree::open(&pool, "tree").unwrap();
    change(&tree);
    assert_eq!(tree.check().unwrap(), []);
}

fn noted(sim: &Arc<Sim>) -> usize {
    (0..128).filter(|index| sim.load(LOST + 8 * index) != 0).count()
}

#[test]
fn lost_versions_are_forgotten_when_all_nodes_were_seen() {
    let sim = some_levels();
    for crash in 1..=10 {
        reopen(&sim, |_| {});
        assert_eq!(noted(&sim), crash);
    }
    reopen(&sim, |tree| {
        assert_eq!(tree.len().unwrap(), 60);
        for value in 0..80 {
            assert!(!tree.put(&SmallNodes(5), &value).unwrap());
        }
    });
    assert_eq!(noted(&sim), 0);
}

#[test]
fn more_crashes_than_the_header_has_room_for() {
    let sim = some_levels();
    for _ in 0..128 {
        reopen(&sim, |_| {});
    }
    assert_eq!(noted(&sim), 128);
    reopen(&sim, |tree| assert!(tree.insert(&SmallNodes(100), &0).unwrap()));
    assert_eq!(noted(&sim), 1);
    reopen(&sim, |tree| assert_eq!(tree.len().unwrap(), 61));
}
