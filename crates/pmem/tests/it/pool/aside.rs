//! Metadata of chunks that are damaged: told, set aside, and no danger to what lies in other chunks
//! or in those.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId};
use remanent_pmem::{Mapped, Pool};
use tempfile::TempDir;

use super::slots::Slots;
use super::support::{memory_dir, pattern};

/// Slots with a chunk of their own, enough for two pages of state words.
const WHOLE: u64 = 600;
/// Slots with blocks of a size class, behind those.
const SMALL: u64 = 300;
/// A slot with a run of ten chunks, behind those.
const RUN: u64 = WHOLE + SMALL;
const RUN_LEN: usize = 10 * CHUNK_LEN as usize - 100;

fn len(slot: u64) -> usize {
    match slot {
        0..WHOLE => 60_000,
        RUN => RUN_LEN,
        _ => 1000,
    }
}

struct Damaged {
    _directory: TempDir,
    path: PathBuf,
    /// The chunk that each slot's content lies in.
    chunks: Vec<ChunkId>,
}

impl Damaged {
    /// A pool that was closed properly.
    fn new() -> Self {
        let directory = memory_dir();
        let path = directory.path().join("a.pool");
        let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
        let slots = pool.create_root::<Slots<_>>("slots").unwrap();
        (0..=RUN).for_each(|slot| slots.put(slot, &pattern(slot, len(slot))).unwrap());
        let chunk = |slot| ChunkId::containing(slots.content(slot).unwrap().0);
        let chunks = (0..=RUN).map(chunk).collect();
        Damaged { _directory: directory, path, chunks }
    }

    fn edit(&self, offset: u64, len: usize, change: impl FnOnce(&mut [u8])) {
        let file = fs::OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).unwrap();
        change(&mut bytes);
        file.write_all_at(&bytes, offset).unwrap();
    }

    fn open(&self) -> (Pool, Arc<Slots<Mapped>>) {
        let pool = Pool::options().open(&self.path).unwrap();
        let slots = pool.open_root("slots").unwrap();
        (pool, slots)
    }

    /// Puts, clears and puts again, of many lengths; what was there before has to stay as it is.
    fn assert_nothing_is_overwritten(&self) -> Pool {
        let (pool, slots) = self.open();
        for round in 0..3 {
            for slot in 10_000..10_400 {
                let len = [100, 1000, 60_000, 300_000][slot as usize % 4];
                slots.put(slot, &pattern(slot + round, len)).unwrap();
            }
            (10_000..10_400).step_by(3).for_each(|slot| slots.clear(slot).unwrap());
        }
        for slot in 0..=RUN {
            assert!(slots.get(slot) == Some(pattern(slot, len(slot))), "slot {slot}");
        }
        // Freeing what lies in chunks that are set aside does no harm, either.
        (0..=RUN).step_by(2).for_each(|slot| slots.clear(slot).unwrap());
        slots.heap().quiesce().unwrap();
        for slot in (1..=RUN).step_by(2) {
            assert!(slots.get(slot) == Some(pattern(slot, len(slot))), "slot {slot} at last");
        }
        pool
    }

    fn told(&self) -> Vec<String> {
        let pool = Pool::options().open(&self.path).unwrap();
        let report = pool.check().unwrap();
        assert_eq!(report.untold, 0);
        report.violations.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_state_word_that_does_not_fit_is_told_once_and_its_chunk_set_aside() {
    let word = |change: fn(u64) -> u64| {
        move |bytes: &mut [u8]| {
            let value = u64::from_le_bytes(bytes.try_into().unwrap());
            bytes.copy_from_slice(&change(value).to_le_bytes());
        }
    };
    type Change = (u64, fn(u64) -> u64, &'static str);
    let changes: [Change; 6] = [
        (WHOLE + 5, |word| word ^ 0x80, "unknown kind 130"),
        (WHOLE + 5, |word| word | 0xff00, "size class 255"),
        (WHOLE + 5, |word| word | 0xff00_0000, "owner"),
        (WHOLE + 5, |word| word ^ 1 << 40, "does not fit its seal"),
        (3, |word| word | 0xffff << 48, "a run of"),
        (3, |word| word ^ 2, "as FreeDirty"),
    ];
    for (slot, change, expected) in changes {
        let damaged = Damaged::new();
        damaged.edit(damaged.chunks[slot as usize].state(), 8, word(change));
        let told = damaged.told();
        assert!(told.len() == 1 && told[0].contains(expected), "{expected}: {told:?}");
        let pool = damaged.assert_nothing_is_overwritten();
        assert!(pool.set_aside_count() >= 1, "{expected}");
        assert!(pool.set_aside().iter().any(|v| v.what.contains(expected)), "{expected}");
    }
}

/// Zeros mean free chunks that hold zeros. What holds something else is not taken for one.
#[test]
fn a_page_of_state_words_that_became_zeros_costs_no_content() {
    let damaged = Damaged::new();
    let page = damaged.chunks[WHOLE as usize - 1].state() & !4095;
    let lost = damaged.chunks.iter().filter(|chunk| chunk.state() & !4095 == page).count();
    assert!(lost > 100, "{lost}");
    damaged.edit(page, 4096, |bytes| bytes.fill(0));
    let pool = damaged.assert_nothing_is_overwritten();
    assert!(pool.set_aside_count() > 0);
    assert_eq!(pool.set_aside().len() as u64, pool.set_aside_count().min(100));
}

#[test]
fn a_run_that_became_longer_frees_no_others() {
    let damaged = Damaged::new();
    // Its neighbour behind is in use.
    let (slot, chunk) = (20, damaged.chunks[20]);
    assert_eq!(damaged.chunks[21], ChunkId(chunk.0 + 1));
    damaged.edit(chunk.state() + 4, 1, |byte| byte[0] = 3);
    assert_eq!(damaged.told().len(), 1);
    let (pool, slots) = damaged.open();
    slots.clear(slot).unwrap();
    slots.heap().quiesce().unwrap();
    assert_eq!(pool.set_aside_count(), 1);
    assert!(slots.get(21) == Some(pattern(21, len(21))));
    drop((slots, pool));
    damaged.assert_nothing_is_overwritten_but(slot);
}

impl Damaged {
    fn assert_nothing_is_overwritten_but(&self, gone: u64) {
        let (_pool, slots) = self.open();
        for slot in (0..=RUN).filter(|&slot| slot != gone) {
            assert!(slots.get(slot) == Some(pattern(slot, len(slot))), "slot {slot}");
        }
    }
}

/// Bitmaps are sealed when a pool is closed: what changes of them at rest is noticed before a block
/// is given out.
#[test]
fn a_bitmap_that_changed_at_rest_gives_out_no_block() {
    type Change = fn(&mut [u8]);
    let changes: [Change; 4] = [
        |page| page.fill(0),
        |page| page.iter_mut().step_by(256).for_each(|byte| *byte ^= 1 << 3),
        |page| page.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 37) as u8),
        // What the chunks had when they were half full, for instance.
        |page| page.chunks_mut(256).for_each(|bitmap| bitmap[4..8].fill(0)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let damaged = Damaged::new();
        let page = damaged.chunks[WHOLE as usize + 3].bitmap() & !4095;
        damaged.edit(page, 4096, change);
        let pool = damaged.assert_nothing_is_overwritten();
        let told = pool.set_aside();
        assert!(
            told.iter().any(|v| v.what.contains("does not fit its seal")),
            "{number}: {told:?}"
        );
    }
}

#[test]
fn two_bitmaps_that_were_exchanged_give_out_no_block() {
    let damaged = Damaged::new();
    let (first, last) = (damaged.chunks[WHOLE as usize], damaged.chunks[RUN as usize - 1]);
    assert_ne!(first, last);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    damaged.edit(first.bitmap(), 256, |bytes| one = bytes.to_vec());
    damaged.edit(last.bitmap(), 256, |bytes| other = bytes.to_vec());
    damaged.edit(first.bitmap(), 256, |bytes| bytes.copy_from_slice(&other));
    damaged.edit(last.bitmap(), 256, |bytes| bytes.copy_from_slice(&one));
    let pool = damaged.assert_nothing_is_overwritten();
    assert!(pool.set_aside_count() > 0);
}

#[test]
fn a_block_that_is_freed_twice_is_told_and_its_chunk_set_aside() {
    let damaged = Damaged::new();
    let (pool, slots) = damaged.open();
    let block = slots.content(WHOLE + 7).unwrap().0 - 16;
    slots.clear(WHOLE + 7).unwrap();
    slots.heap().quiesce().unwrap();
    assert_eq!(pool.set_aside_count(), 0);
    let mut lane = slots.heap().enter().prepare_to_write();
    let suspect = lane.suspect(block);
    lane.fence();
    lane.retire(suspect);
    drop(lane);
    slots.heap().quiesce().unwrap();
    let told = pool.set_aside();
    assert!(told.len() == 1 && told[0].what.contains("is not allocated"), "{told:?}");
    drop((slots, pool));
    damaged.assert_nothing_is_overwritten_but(WHOLE + 7);
}

#[test]
fn bodies_without_a_head_are_one_violation() {
    let damaged = Damaged::new();
    damaged.edit(damaged.chunks[RUN as usize].state(), 8, |word| {
        word.copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0])
    });
    let told = damaged.told();
    assert!(told.len() == 1 && told[0].contains("are bodies without a head"), "{told:?}");
}

#[test]
fn a_lost_copy_of_the_superblock_is_a_violation() {
    for (copy, name) in [(0, "copy 1"), (4096, "copy 2")] {
        for change in [0_u8, 0xa5] {
            let damaged = Damaged::new();
            damaged.edit(copy, 4096, |page| page.fill(change));
            let told = damaged.told();
            assert!(told.len() == 1 && told[0].contains(name), "{told:?}");
            assert_eq!(damaged.told(), [""; 0], "opening writes it anew");
        }
    }
}

#[test]
fn a_damaged_root_entry_is_told_and_the_rest_is_checked() {
    let damaged = Damaged::new();
    damaged.edit(8192 + 70, 1, |byte| byte[0] ^= 1);
    damaged.edit(damaged.chunks[5].state(), 1, |byte| byte[0] = 99);
    let told = damaged.told();
    assert!(told.len() == 2 && told[0].contains("root entry 1"), "{told:?}");
    assert!(told[1].contains("unknown kind 99"), "{told:?}");
}
