//! Vectors whose bits were flipped: told, or a valid state, and never walked without an end.

use std::sync::Arc;

use remanent_pmem::heap::layout::HEADER_LEN;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::pool::{Format, Guarantee};
use remanent_pmem::{Medium, Pool};
use remanent_structures::Vector;

use crate::support::memory::Memory;
use crate::support::sim_pool;

/// Where the first root's header lies.
const HEADER: u64 = ChunkId(DATA_FIRST).offset();
/// Words that a vector of this size reads at most.
const STEPS: u64 = 400_000;

fn fill(pool: &Pool<Arc<Memory>>) {
    let vector: Vector<u64, _> = Vector::create(pool, "vector").unwrap();
    vector.extend_from_slice(&(0..9_000).collect::<Vec<u64>>()).unwrap();
    vector.set(3, &33).unwrap();
    vector.set(8_999, &99).unwrap();
    vector.push(&9_000).unwrap();
}

/// Reads everything: each call ends soon, with an answer or an error. Returns the elements, if
/// there was no error.
fn look(memory: &Arc<Memory>) -> Option<Vec<u64>> {
    memory.bound(STEPS);
    let pool = Pool::recover(Arc::clone(memory)).ok()?;
    let vector: Vector<u64, _> = Vector::open(&pool, "vector").ok()?;
    let elements = vector.iter().collect::<Result<Vec<u64>, _>>().ok();
    let _ = vector.get(u64::MAX);
    let is_whole = vector.check().is_ok_and(|violations| violations.is_empty());
    elements.filter(|_| is_whole)
}

#[test]
fn a_header_with_other_bits_is_told_or_made_good() {
    let memory = Arc::new(Memory::new(32 << 20));
    let format = Format { guarantee: Guarantee::default(), ..Format::new(32 << 20) };
    let pool = Pool::format(Arc::clone(&memory), &format).unwrap();
    fill(&pool);
    drop(pool);
    let whole = look(&memory).expect("nothing is damaged yet");
    assert_eq!((whole.len(), whole[3], whole[8_999]), (9_001, 33, 99));
    memory.mark();
    for at in (HEADER..HEADER + HEADER_LEN).step_by(8) {
        let word = memory.word(at);
        for damaged in (0..64).step_by(5).map(|bit| word ^ 1 << bit).chain([0, u64::MAX]) {
            memory.damage(at, damaged);
            if let Some(elements) = look(&memory) {
                assert_eq!(elements, whole, "byte {} of the header", at - HEADER);
            }
            memory.put_back();
        }
    }
}

#[test]
fn a_check_finds_what_contradicts() {
    let pool = sim_pool(Guarantee::default());
    let vector: Vector<u64, _> = Vector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[7; 100]).unwrap();
    assert_eq!(vector.check().unwrap(), []);
    let newest =
        [HEADER, HEADER + 64].into_iter().max_by_key(|&at| pool.medium().load(at)).unwrap();
    for at in [newest, newest + 8, newest + 56] {
        let saved = pool.medium().load(at);
        pool.medium().store(at, saved ^ 2);
        assert_ne!(vector.check().unwrap(), [], "{at:#x}");
        pool.medium().store(at, saved);
    }
    assert_eq!(vector.check().unwrap(), []);
}
