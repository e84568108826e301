//! Trees in memory with records whose words were changed: each answer is right or an error, and
//! comes after a bounded number of steps, which are counted.

use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use remanent_pmem::Pool;
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_structures::{BlinkTree, Error, MapOptions};

use crate::support::memory::Memory;

const SIZE: u64 = 24 << 20;
/// Where the tree's header lies, and what follows is of the tree.
const FIRST: u64 = ChunkId(DATA_FIRST).offset();
const KEYS: u64 = 20;
/// Words that one operation may read, whatever is damaged.
const STEPS: u64 = 200_000;
/// The upper half of a record's first word.
const RECORD_TAG: u64 = 0x5245_4344;
/// The same of an inner node.
const INNER_TAG: u64 = 0x494e_4e52;

type Tree = BlinkTree<str, [u8], Arc<Memory>>;

fn key(number: u64) -> String {
    format!("key {number:05}")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 1 + number as usize % 40]
}

fn fill(tree: &Tree) {
    for number in 0..KEYS {
        assert!(tree.insert(&key(number), &value(number)).unwrap());
    }
}

/// A closed pool with a tree of records.
fn closed() -> Arc<Memory> {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
    fill(&Tree::create(&pool, "tree").unwrap());
    memory
}

/// The words of all records that have something to say: heads, keys and values.
fn words_of_records(memory: &Memory) -> Vec<u64> {
    let mut words = Vec::new();
    for at in memory.used(FIRST) {
        if memory.word(at) >> 32 == RECORD_TAG && at % 32 == 0 {
            let value_len = memory.word(at + 8) & 0xffff_ffff;
            let end = at + 32 + value_len;
            words.extend((at..end).step_by(8));
        }
    }
    assert!(words.len() as u64 >= 5 * KEYS);
    words
}

/// Whether the bit is padding: behind the last byte of a key or of a value.
fn is_padding(memory: &Memory, at: u64, bit: u32) -> bool {
    let record = (0..).map(|back| at - back * 8).find(|&at| memory.word(at) >> 32 == RECORD_TAG);
    let record = record.unwrap();
    let byte = at + u64::from(bit / 8) - record;
    let key_len = memory.word(record) & 0xffff;
    let value_len = memory.word(record + 8) & 0xffff_ffff;
    let value_at = 16 + key_len.next_multiple_of(8);
    (16 + key_len..value_at).contains(&byte) || byte >= value_at + value_len
}

/// Asks for everything, and tells which answers are not right though no error says so.
fn wrong_answers(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for number in 0..KEYS {
        match tree.get(&key(number)) {
            Ok(found) if found.as_deref() != Some(&value(number)[..]) => {
                wrong.push(format!("get {number}: {found:?}"));
            }
            _ => {}
        }
    }
    let mut seen = 0;
    let scanned = tree.ascend(.., |found, of| {
        if *found != *key(seen) || *of != value(seen)[..] {
            wrong.push(format!("entry {seen}: {found:?}"));
        }
        seen += 1;
        ControlFlow::Continue(())
    });
    if scanned.is_ok() && seen != KEYS {
        wrong.push(format!("{seen} entries"));
    }
    wrong
}

/// Entries that are still there though `clear` says that all are removed.
fn left_by_clear(tree: &Tree) -> u64 {
    let mut left = 0;
    if tree.clear().is_ok() {
        // Whatever it meets on its way, what it has visited is there.
        let _ = tree.ascend(.., |_, _| {
            left += 1;
            ControlFlow::Continue(())
        });
    }
    left
}

#[test]
fn a_flipped_bit_of_a_record_is_never_silent() {
    let memory = closed();
    let mut failures = Vec::new();
    let mut flips = 0;
    for (index, at) in words_of_records(&memory).into_iter().enumerate() {
        // Every seventh, another each time.
        for bit in (index as u32 % 7..64).step_by(7) {
            if is_padding(&memory, at, bit) {
                continue;
            }
            memory.mark();
            memory.damage(at, memory.word(at) ^ 1 << bit);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                memory.bound(STEPS);
                let pool = Pool::recover(Arc::clone(&memory)).unwrap();
                let tree = Tree::open(&pool, "tree").unwrap();
                memory.bound(STEPS);
                let wrong = wrong_answers(&tree);
                memory.bound(STEPS);
                let is_content = tree.check().is_ok_and(|violations| violations.is_empty());
                memory.bound(STEPS);
                let left = left_by_clear(&tree);
                memory.bound(u64::MAX);
                (wrong, is_content, left)
            }));
            match ended {
                Ok((wrong, is_content, left)) if !wrong.is_empty() || is_content || left > 0 => {
                    failures.push(format!("{at:#x} bit {bit}: {wrong:?}, {is_content}, {left}"));
                }
                Ok(_) => {}
                Err(_) => failures.push(format!("{at:#x} bit {bit}: a panic")),
            }
            memory.bound(u64::MAX);
            memory.put_back();
            flips += 1;
        }
    }
    assert!(flips > 500, "{flips}");
    assert_eq!(failures, [""; 0]);
}

/// Searches are led by heads of separators. One that has changed may lead them past their key,
/// where they find nothing.
#[test]
fn a_flipped_bit_of_a_node_hides_no_key_silently() {
    let memory = Arc::new(Memory::new(SIZE));
    const KEYS: u64 = 300;
    {
        let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
        let tree = Tree::create(&pool, "tree").unwrap();
        (0..KEYS).for_each(|number| assert!(tree.insert(&key(number), b"value").unwrap()));
    }
    let is_node = |at: &u64| memory.word(*at) >> 32 == INNER_TAG && at.is_multiple_of(64);
    let nodes: Vec<u64> = memory.used(FIRST).into_iter().filter(is_node).collect();
    assert!(!nodes.is_empty());
    let (mut hidden, mut doubled, mut skipped, mut told, mut left) = (0, 0, 0, 0, 0);
    let mut unnoticed = Vec::new();
    for at in nodes.iter().flat_map(|node| (node + 64..node + 512).step_by(8)) {
        for bit in (at as u32 / 8 % 3..64).step_by(3) {
            memory.mark();
            memory.damage(at, memory.word(at) ^ 1 << bit);
            let pool = Pool::recover(Arc::clone(&memory)).unwrap();
            if let Ok(tree) = Tree::open(&pool, "tree") {
                let read = (0..KEYS).map(|number| tree.get(&key(number)));
                let missed = read.filter(|found| matches!(found, Ok(None))).count();
                let erred = (0..KEYS).filter(|number| tree.get(&key(*number)).is_err()).count();
                let again = (0..KEYS).map(|number| tree.insert(&key(number), b"again"));
                doubled += again.filter(|inserted| matches!(inserted, Ok(true))).count();
                let mut scanned = 0;
                let range = (Bound::Included("key 00007"), Bound::Excluded("key 00009"));
                let told_all = tree.ascend(range, |_, _| {
                    scanned += 1;
                    ControlFlow::Continue(())
                });
                let has_missed = told_all.is_ok() && scanned != 2;
                skipped += usize::from(has_missed);
                hidden += missed;
                told += erred;
                let is_content = tree.check().is_ok_and(|violations| violations.is_empty());
                if is_content && (missed + erred > 0 || told_all.is_err() || has_missed) {
                    unnoticed.push(format!("{at:#x} bit {bit}"));
                }
                left += left_by_clear(&tree);
            }
            drop(pool);
            memory.put_back();
        }
    }
    assert_eq!(unnoticed, [""; 0]);
    assert_eq!((hidden, doubled, skipped, left), (0, 0, 0, 0));
    assert!(told > 1_000, "{told}");
}

/// Links of ones lead so far that nothing can be added to them.
#[test]
fn words_of_ones_are_told() {
    let memory = Arc::new(Memory::new(SIZE));
    const KEYS: u64 = 300;
    {
        let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
        let tree = Tree::create(&pool, "tree").unwrap();
        (0..KEYS).for_each(|number| assert!(tree.insert(&key(number), b"value").unwrap()));
    }
    let mut told = 0;
    for at in memory.used(FIRST) {
        memory.mark();
        memory.damage(at, u64::MAX);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            memory.bound(20 * STEPS);
            let pool = Pool::recover(Arc::clone(&memory)).unwrap();
            let Ok(tree) = Tree::open(&pool, "tree") else { return true };
            let is_content = tree.check().is_ok_and(|violations| violations.is_empty());
            (0..KEYS).step_by(7).for_each(|number| _ = tree.get(&key(number)));
            _ = tree.ascend(.., |_, _| ControlFlow::Continue(()));
            _ = tree.insert(&key(KEYS), b"value");
            _ = tree.clear();
            !is_content
        }));
        memory.bound(u64::MAX);
        told += u64::from(ended.unwrap_or_else(|_| panic!("ones at {at:#x}")));
        memory.put_back();
    }
    assert!(told > 100, "{told}");
}

/// Where a record's value has these eight bytes.
fn find(memory: &Memory, bytes: &[u8; 8]) -> u64 {
    let is_found = |at: &u64| memory.word(*at).to_le_bytes() == *bytes;
    memory.used(FIRST).into_iter().find(is_found).unwrap()
}

#[test]
fn a_changed_value_is_told_with_structure_and_offset() {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
    let tree = Tree::create(&pool, "scores").unwrap();
    tree.insert("key", b"of eight").unwrap();
    tree.insert("other", b"is whole").unwrap();
    let at = find(&memory, b"of eight");
    memory.damage(at, memory.word(at) ^ 1 << 9);
    let error = tree.get("key").unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("\"scores\"") && told.contains("offset 0x"), "{told}");
    assert!(tree.range(..).any(|entry| entry.is_err()));
    assert_eq!(tree.get("other").unwrap().as_deref(), Some(&b"is whole"[..]));
    assert_eq!(tree.get("absent").unwrap(), None);
    assert!(!tree.check().unwrap().is_empty());
}

#[test]
fn a_changed_key_makes_what_is_not_found_uncertain() {
    let memory = Arc::new(Memory::new(SIZE));
    {
        let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
        let tree = Tree::create(&pool, "scores").unwrap();
        tree.insert("the key1", b"its value").unwrap();
        tree.insert("the key2", b"is whole").unwrap();
    }
    let at = find(&memory, b"the key1");
    memory.damage(at, memory.word(at) ^ 1 << 9);
    let pool = Pool::recover(Arc::clone(&memory)).unwrap();
    let tree = Tree::open(&pool, "scores").unwrap();
    assert!(matches!(tree.get("the key1"), Err(Error::Corrupt { .. })));
    assert!(tree.insert("the key1", b"another").is_err(), "it is there already");
    assert_eq!(tree.get("the key2").unwrap().as_deref(), Some(&b"is whole"[..]));
    assert!(tree.discard("the key2").unwrap());
}

/// Leaves are emptied in parts, from key to key: one that belongs elsewhere must not lead there.
#[test]
fn clearing_takes_changed_keys_along() {
    const KEYS: u64 = 300;
    let decades = (0..KEYS).step_by(10).flat_map(|number| [1, 10, 40].map(|count| (number, count)));
    for ((number, count), first) in decades.flat_map(|case| [b'a', b'z'].map(|first| (case, first)))
    {
        let memory = Arc::new(Memory::new(SIZE));
        let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
        let tree = Tree::create(&pool, "tree").unwrap();
        (0..KEYS).for_each(|number| assert!(tree.insert(&key(number), b"value").unwrap()));
        // Words where the keys of records begin like this key: in eight bytes or, if those match
        // too few, in seven.
        let prefix = u64::from_le_bytes(key(number).as_bytes()[..8].try_into().unwrap());
        let is_key = |&at: &u64| {
            let differing = memory.word(at) ^ prefix;
            let is_like = if count > 10 { differing << 8 == 0 } else { differing == 0 };
            is_like && memory.word(at - 16) >> 32 == RECORD_TAG
        };
        let changed: Vec<u64> = memory.used(FIRST).into_iter().filter(is_key).take(count).collect();
        assert_eq!(changed.len(), count);
        for at in changed {
            memory.damage(at, memory.word(at) >> 8 << 8 | u64::from(first));
        }
        assert_eq!(tree.clear().unwrap(), KEYS, "{count} like {number} begin with {first}");
    }
}

/// The greatest key says where clearing ends, though nothing says that it has changed.
#[test]
fn clearing_does_not_end_early_for_a_changed_word() {
    const KEYS: u64 = 300;
    for changed in [0, 1, 1 << 40] {
        let memory = Arc::new(Memory::new(SIZE));
        let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
        let tree = BlinkTree::<u64, u64, _>::create(&pool, "tree").unwrap();
        let key = |number| 1_000_000_007 + number;
        (0..KEYS).for_each(|number| assert!(tree.insert(&key(number), &0).unwrap()));
        // Of the last leaf nothing but the greatest key is left.
        (KEYS - 20..KEYS - 1).for_each(|number| assert!(tree.discard(&key(number)).unwrap()));
        let is_greatest = |&at: &u64| memory.word(at) == key(KEYS - 1);
        for at in memory.used(FIRST).into_iter().filter(is_greatest) {
            memory.damage(at, changed);
        }
        assert_eq!(tree.clear().unwrap(), KEYS - 19, "{changed}");
    }
}

#[test]
fn a_tree_without_checksums_stays_one() {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap();
    let options = MapOptions::new().checksums(false);
    drop(Tree::create_with(&pool, "scores", &options).unwrap());
    let tree = Tree::open(&pool, "scores").unwrap();
    tree.insert("key", b"of eight").unwrap();
    let at = find(&memory, b"of eight");
    memory.damage(at, memory.word(at) ^ 1 << 9);
    assert_ne!(tree.get("key").unwrap().as_deref(), Some(&b"of eight"[..]));
    assert_eq!(tree.check().unwrap(), []);
}
