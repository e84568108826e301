//! An ordered map with any of its words changed: answers or clear errors, and soon.
//!
//! `cargo +nightly fuzz run trees_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_pmem::Pool;
use remanent_structures::papers::BpTree;
use remanent_structures::{BlinkTree, Map, OrderedKey, OrderedMap, Result, Stored};

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    BlinkWords,
    BlinkRecords,
    BpWords,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kind: Kind,
    /// Number of entries: some thousand make three levels.
    count: u16,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

/// The most entries: the slowest question visits each.
const ENTRIES_MAX: u64 = 4096;
/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 12;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(path)?;
    let bytes = |number: u64| format!("a common beginning {number:06}").into_bytes();
    macro_rules! exercise {
        ($tree:ty, $key:expr, $value:expr) => {{
            let tree = <$tree>::create(&pool, "tree")?;
            for number in 0..u64::from(input.count) % ENTRIES_MAX {
                tree.insert($key(number).as_ref(), $value(number).as_ref())?;
            }
            drop(tree);
            change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
            drop(pool);
            let pool = options().open(path)?;
            ask(&<$tree>::open(&pool, "tree")?, input.first, $key, $value);
            Ok(())
        }};
    }
    match input.kind {
        Kind::BlinkWords => exercise!(BlinkTree<u64, u64>, Word, Word),
        Kind::BlinkRecords => exercise!(BlinkTree<[u8], [u8]>, bytes, bytes),
        Kind::BpWords => exercise!(BpTree<u64, u64>, Word, Word),
    }
}

/// A number that has `AsRef`, as bytes have.
#[derive(Clone, Copy)]
struct Word(u64);

impl AsRef<u64> for Word {
    fn as_ref(&self) -> &u64 {
        &self.0
    }
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
fn ask<K, V, BK, BV>(
    tree: &impl OrderedMap<K, V>,
    first: u8,
    key: impl Fn(u64) -> BK,
    value: impl Fn(u64) -> BV,
) where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    BK: AsRef<K>,
    BV: AsRef<V>,
{
    let (low, high) = (key(20), key(90));
    let part = (Bound::Included(low.as_ref()), Bound::Excluded(high.as_ref()));
    let go_on = |_: &K, _: &V| ControlFlow::Continue(());
    for question in (0..10).map(|number| (first % 10 + number) % 10) {
        let _ = match question {
            0 => (0..20).try_for_each(|n| tree.get_with(key(n * 5).as_ref(), |_| ()).map(drop)),
            1 => tree.ascend(.., go_on),
            2 => tree.ascend(part, go_on),
            3 => tree.descend(.., go_on),
            4 => tree.descend(part, go_on),
            5 => tree.len().map(drop),
            6 => tree.check().map(drop),
            7 => {
                (0..90).try_for_each(|n| tree.put(key(n).as_ref(), value(n + 1).as_ref()).map(drop))
            }
            8 => (0..40).try_for_each(|n| tree.discard(key(2 * n).as_ref()).map(drop)),
            _ => tree.clear().map(drop),
        };
    }
}
