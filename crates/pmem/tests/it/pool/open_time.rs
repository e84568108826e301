//! Opening costs the same whatever the pool holds, and however it ended.
//!
//! Counted in accesses to the medium: time depends on what else the machine does. `remanent-bench
//! restart` measures that.

use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

use super::slots::Slots;

const CHUNK_LEN: u64 = 64 << 10;
const BLOCK_LEN: u64 = CHUNK_LEN / 4;

/// Makes a pool that holds about `bytes` of blocks that are linked.
fn fill(bytes: u64) -> Arc<Sim> {
    let size_max = bytes + (64 << 20);
    let sim = Arc::new(Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() }));
    let pool = Pool::format(Arc::clone(&sim), &Format::new(size_max)).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let content = vec![7; BLOCK_LEN as usize - 16];
    for index in 0..bytes / BLOCK_LEN {
        slots.put(index, &content).unwrap();
    }
    sim
}

/// Accesses until the first answer.
fn steps_to_open(sim: &Arc<Sim>) -> u64 {
    let before = sim.steps();
    let pool = Pool::recover(Arc::clone(sim)).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(0).map(|content| content.len()), Some(BLOCK_LEN as usize - 16));
    sim.steps() - before
}

/// Leaves active chunks and suspects behind, as a crash in the middle of work does.
fn change_and_die(sim: &Arc<Sim>) {
    let pool = Pool::recover(Arc::clone(sim)).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    for round in 1..100 {
        slots.put(round % 10, &vec![7; 100 * round as usize]).unwrap();
    }
    slots.put(0, &vec![7; BLOCK_LEN as usize - 16]).unwrap();
    // Neither is closed: nothing of what a proper end does is done.
    std::mem::forget((slots, pool));
}

#[test]
fn a_full_pool_opens_in_as_many_steps_as_an_empty_one() {
    let (small, large) = (fill(1 << 20), fill(256 << 20));
    let compare = |when: &str| {
        let (few, many) = (steps_to_open(&small), steps_to_open(&large));
        eprintln!("{when}: {few} steps when small, {many} when large");
        // The large one has 256 times the chunks.
        assert!(many < few + few / 8, "{when}: {few} steps when small, {many} when large");
    };
    compare("after a close");
    for sim in [&small, &large] {
        change_and_die(sim);
    }
    compare("after a crash");
}
