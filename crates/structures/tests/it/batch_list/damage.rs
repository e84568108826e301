//! Lists whose words were overwritten: told, not followed.

use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};
use remanent_structures::BatchOptions;
use remanent_structures::batch_list::{BatchList, ChangeList, Changeable, List, Log, Variant};
use remanent_structures::papers::{Append, FlushAlways, Table};

use super::create;
use crate::support::sim_pool;

/// Where the first root's header and its first segment lie.
const HEADER: u64 = ChunkId(DATA_FIRST).offset();
const SEGMENT: u64 = HEADER + CHUNK_LEN;

const GARBAGE: [u64; 7] =
    [0, 1, 4096 + 8, 4096 + 12, (1 << 20) - 8, 1 << 62 | 0xffff_ffff, u64::MAX];

/// Whatever is found, an answer or an error is given, and that soon.
fn look<V: Variant>(sim: &Arc<Sim>) {
    let pool = Pool::recover(Arc::clone(sim)).unwrap();
    let options = BatchOptions::without_thread();
    let Ok(mut list) = List::<V, _>::open(&pool, "list", options) else { return };
    let _ = list.get(77);
    let _ = list.for_each(|_, _| {});
    let _ = list.check();
}

fn overwrite<V: Variant>(fill: impl FnOnce(&mut List<V, Arc<Sim>>)) {
    let pool = sim_pool(Guarantee::default());
    let mut list = create::<V, _>(&pool);
    fill(&mut list);
    let sim = Arc::clone(pool.medium());
    drop((list, pool));
    let first = SEGMENT + 4096;
    assert_ne!(sim.load(first + 8) | sim.load(first + 24), 0, "elements lie elsewhere");
    let words = (HEADER..HEADER + 128).chain(first..first + 512).step_by(8);
    for at in words {
        let saved = sim.load(at);
        for garbage in GARBAGE {
            sim.store(at, garbage);
            look::<V>(&sim);
            sim.store(at, saved);
        }
    }
}

fn change<V: Changeable>(list: &mut List<V, Arc<Sim>>) {
    (1..6).for_each(|key| assert!(list.insert(key, &[1; 40]).unwrap()));
    list.sync().unwrap();
    assert!(list.update(3, &[2; 10]).unwrap());
    assert!(list.remove(1).unwrap());
}

#[test]
fn damage_is_told() {
    overwrite::<FlushAlways>(change);
    overwrite::<Log>(change);
    overwrite::<Table>(change);
    overwrite::<Append>(|list| {
        (1..6).for_each(|key| assert!(list.insert(key, &[1; 40]).unwrap()));
    });
}

#[test]
fn a_check_finds_what_contradicts() {
    fn check<V: Variant>(next_of: u64) {
        let pool = sim_pool(Guarantee::default());
        let mut list = create::<V, _>(&pool);
        (1..6).for_each(|key| assert!(list.insert(key, &[1; 40]).unwrap()));
        assert_eq!(list.check().unwrap(), []);
        let at = SEGMENT + next_of;
        let saved = pool.medium().load(at);
        for garbage in [0, 4096, 4100, 9 << 20, saved + 8] {
            pool.medium().store(at, garbage);
            assert_ne!(list.check().unwrap(), [], "{garbage:#x}");
        }
        pool.medium().store(at, saved);
        assert_eq!(list.check().unwrap(), []);
    }
    check::<FlushAlways>(4096);
    check::<Append>(4096 + 64);
    check::<Log>(4096);
    check::<Table>(4096);
}
