//! What a transaction costs, in flushes and fences.

use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Persistent, Pool};
use remanent_structures::line_tx::{SharedTx, Transactional, Tx};
use remanent_structures::papers::BoundedBuffer;

use crate::support::sim_pool;

fn pool(write_disturbance: bool) -> Pool<Arc<Sim>> {
    sim_pool(Guarantee { write_disturbance, ..Guarantee::default() })
}

/// Lines flushed and fences of `action`.
fn cost(pool: &Pool<Arc<Sim>>, action: impl FnOnce()) -> (u64, u64) {
    pool.medium().reset_counters();
    action();
    let counters = pool.medium().counters();
    (counters.flushed_lines, counters.fences)
}

/// Commits a change of the first byte, some times over, and one of every byte.
fn costs_of<const LEN: usize>(write_disturbance: bool) -> [(u64, u64); 2]
where
    [u8; LEN]: Persistent,
{
    let pool = pool(write_disturbance);
    let mut object: Tx<[u8; LEN], _> = Tx::create(&pool, "object", [0; LEN]).unwrap();
    let one_byte = |object: &mut Tx<[u8; LEN], Arc<Sim>>| {
        cost(&pool, || object.transact(|bytes| bytes[0] += 1).unwrap())
    };
    // Both copies are the same but for the first byte from here on.
    let first = [one_byte(&mut object), one_byte(&mut object), one_byte(&mut object)][2];
    let all = cost(&pool, || object.set([7; LEN]).unwrap());
    [first, all]
}

#[test]
fn a_line_costs_one_flush_and_one_fence() {
    assert_eq!(costs_of::<1>(false), [(1, 1), (1, 1)]);
    assert_eq!(costs_of::<31>(false), [(1, 1), (1, 1)]);
}

#[test]
fn several_lines_cost_two_fences_whatever_their_number() {
    // The line that changed, and the selector's.
    assert_eq!(costs_of::<32>(false), [(2, 2), (2, 2)]);
    assert_eq!(costs_of::<1024>(false), [(2, 2), (17, 2)]);
}

#[test]
fn checked_objects_cost_one_fence() {
    assert_eq!(costs_of::<31>(true), [(1, 1), (1, 1)]);
    // The version's line; the first byte is in the same.
    assert_eq!(costs_of::<1024>(true), [(1, 1), (17, 1)]);
}

#[test]
fn reads_aborts_and_changes_of_nothing_cost_nothing() {
    let pool = pool(false);
    let mut queue = BoundedBuffer::new().create(&pool, "queue").unwrap();
    assert_eq!(cost(&pool, || assert!(queue.is_empty().unwrap())), (0, 0));
    assert_eq!(cost(&pool, || assert_eq!(queue.take().unwrap(), None)), (0, 0));
    let aborted = cost(&pool, || {
        let outcome = queue.try_transact(|queue| if queue.add(1) { Err("no") } else { Ok(()) });
        assert_eq!(outcome.unwrap(), Err("no"));
    });
    assert_eq!(aborted, (0, 0));
    assert_eq!(cost(&pool, || assert!(queue.add(1).unwrap())), (1, 1));
    let both = cost(&pool, || {
        queue.transact(|queue| assert!(queue.add(2) && queue.add(3))).unwrap();
    });
    assert_eq!(both, (1, 1), "grouped calls are one transaction");
}

#[test]
fn sharing_costs_no_fence() {
    let pool = pool(false);
    let total: SharedTx<u64, _> = SharedTx::create(&pool, "total", 0).unwrap();
    assert_eq!(cost(&pool, || total.transact(|total| *total += 1).unwrap()), (1, 1));
    assert_eq!(cost(&pool, || assert_eq!(total.get().unwrap(), 1)), (0, 0));
}

/// Where the objects of the first root lie, and the lines of one of 52 bytes in the checked form.
const FIRST_OBJECT: u64 = ChunkId(DATA_FIRST).offset() + 64;
const CHECKED_LINES: u64 = 4;

#[test]
fn the_first_use_after_opening_makes_durable_what_is_believed() {
    let pool = pool(true);
    let mut object: Tx<[u8; 52], _> = Tx::create(&pool, "object", [0; 52]).unwrap();
    object.set([1; 52]).unwrap();
    drop(object);
    // The head of a transaction that a crash cut off, in copy 0: version 2.
    pool.medium().store(FIRST_OBJECT, 2);
    let sim = Arc::clone(pool.medium());
    drop(pool);
    // Closed properly since, by one who did not use the object.
    drop(Pool::recover(Arc::clone(&sim)).unwrap());
    sim.reset_counters();
    let pool = Pool::recover(Arc::clone(&sim)).unwrap();
    assert!(pool.was_clean());
    assert!(sim.counters().flushed_lines >= CHUNK_LEN / 64, "superblocks and roots");
    let opened = cost(&pool, || drop(SharedTx::<[u8; 52], _>::open(&pool, "object").unwrap()));
    assert_eq!(opened.0, 32, "the root's header");
    let object = SharedTx::<[u8; 52], _>::open(&pool, "object").unwrap();
    let first = cost(&pool, || assert_eq!(object.get().unwrap(), [1; 52]));
    assert_eq!(first, (CHECKED_LINES + 1, 2), "the object's lines, and the copy that is voided");
    assert_eq!(sim.load(FIRST_OBJECT), 1, "no version of copy 0");
    assert_eq!(cost(&pool, || assert_eq!(object.get().unwrap(), [1; 52])), (0, 0));
}
