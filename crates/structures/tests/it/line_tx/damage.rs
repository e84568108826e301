//! Damaged words of a root of objects: a clear error, or it works.

use remanent_pmem::Medium;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_structures::Result;
use remanent_structures::line_tx::TxArray;

use crate::support::sim_pool;

/// Words of the header and of the objects behind it.
const WORDS: u64 = 40;

/// Makes objects, stores `value` over a word, and uses what is there. Whether it could be used.
fn is_usable(count: u64, write_disturbance: bool, word: u64, value: u64) -> bool {
    let pool = sim_pool(Guarantee { write_disturbance, ..Guarantee::default() });
    drop(TxArray::create(&pool, "objects", count, |index| [index; 3]).unwrap());
    let header = ChunkId(DATA_FIRST).offset();
    pool.medium().store(header + word * 8, value);
    let used = use_objects(|| TxArray::open(&pool, "objects"));
    if let Err(error) = &used {
        assert!(!error.to_string().is_empty());
    }
    used.is_ok()
}

fn use_objects<M: Medium>(open: impl FnOnce() -> Result<TxArray<[u64; 3], M>>) -> Result<()> {
    let objects = open()?;
    objects.check()?;
    for index in [0, objects.len() / 2, objects.len().saturating_sub(1)] {
        if let Some(object) = objects.at(index) {
            object.transact(|words| words[0] = words[0].wrapping_add(1))?;
            object.get()?;
        }
    }
    Ok(())
}

#[test]
fn any_word_of_a_root_may_be_damaged() {
    let header = ChunkId(DATA_FIRST).offset();
    let values = [0, 1, 2, 3, 64, 128, header, header + 64, header + CHUNK_LEN, 1 << 63, u64::MAX];
    for (count, write_disturbance) in [(2, false), (2, true), (2000, false)] {
        let mut usable = 0;
        for word in 0..WORDS {
            for value in values {
                usable += u64::from(is_usable(count, write_disturbance, word, value));
            }
        }
        let all = WORDS * values.len() as u64;
        assert!(usable > 0 && usable < all, "{usable} of {all} with {count} objects");
    }
}
