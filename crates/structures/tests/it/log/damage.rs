//! Logs whose bits were flipped: told, or a valid state, and never walked without an end.

use std::sync::Arc;

use remanent_pmem::Pool;
use remanent_pmem::heap::layout::HEADER_LEN;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::pool::{Format, Guarantee};
use remanent_structures::Log;

use crate::support::memory::Memory;

/// Where the first root's header and its first segment lie.
const HEADER: u64 = ChunkId(DATA_FIRST).offset();
const SEGMENT: u64 = HEADER + CHUNK_LEN;
/// Words that a log of this size reads at most.
const STEPS: u64 = 400_000;

type Records = Vec<Vec<u8>>;

fn whole() -> Records {
    (0..20).map(|number| vec![number as u8; number * 7]).collect()
}

/// Reads everything: each call ends soon, with an answer or an error. Returns the records, if there
/// was no error.
fn look(memory: &Arc<Memory>) -> Option<Records> {
    memory.bound(STEPS);
    let pool = Pool::recover(Arc::clone(memory)).ok()?;
    let log: Log<[u8], _> = Log::open(&pool, "log").ok()?;
    let records = log.iter().map(|record| record.map(|record| record.1)).collect::<Result<_, _>>();
    let backward = log.iter().rev().map(|record| record.map(|record| record.1));
    let backward = backward.collect::<Result<Records, _>>();
    let is_whole = log.check().is_ok_and(|violations| violations.is_empty());
    assert!(!is_whole || backward.is_ok_and(|found| found.len() == whole().len()));
    records.ok().filter(|_| is_whole)
}

#[test]
fn other_bits_are_told_or_made_good() {
    let memory = Arc::new(Memory::new(32 << 20));
    let format = Format { guarantee: Guarantee::default(), ..Format::new(32 << 20) };
    let pool = Pool::format(Arc::clone(&memory), &format).unwrap();
    let log: Log<[u8], _> = Log::create(&pool, "log").unwrap();
    for record in whole() {
        log.append(&record).unwrap();
    }
    let end = log.end().to_u64();
    drop((log, pool));
    assert_eq!(look(&memory), Some(whole()), "nothing is damaged yet");
    assert_ne!(memory.word(SEGMENT + 8), 0, "records lie elsewhere");
    memory.mark();
    for at in (HEADER..HEADER + HEADER_LEN).chain(SEGMENT..SEGMENT + end).step_by(8) {
        let word = memory.word(at);
        for damaged in (0..64).step_by(7).map(|bit| word ^ 1 << bit).chain([0, u64::MAX]) {
            memory.damage(at, damaged);
            if let Some(records) = look(&memory) {
                assert_eq!(records, whole(), "{at:#x}");
            }
            memory.put_back();
        }
    }
}
