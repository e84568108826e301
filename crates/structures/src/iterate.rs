//! Copies of a map's entries, fetched some at a time.

use std::collections::VecDeque;
use std::iter;

use crate::Result;
use crate::stored::{Key, Stored};

/// Entries that are fetched at a time.
const BATCH: usize = 64;

/// Copies of the entries that `scan` visits from one cursor to the next, until it answers 0 or fails.
pub(crate) fn copies<'m, K: Key + ?Sized + 'm, V: Stored + ?Sized + 'm>(
    scan: impl Fn(u64, usize, &mut dyn FnMut(&K, &V)) -> Result<u64> + 'm,
) -> impl Iterator<Item = Result<(K::Owned, V::Owned)>> + 'm {
    let mut next_cursor = Some(0);
    let mut entries = VecDeque::new();
    iter::from_fn(move || {
        loop {
            if let Some(entry) = entries.pop_front() {
                return Some(Ok(entry));
            }
            let scanned = scan(next_cursor.take()?, BATCH, &mut |key, value| {
                entries.push_back((key.to_owned(), value.to_owned()));
            });
            match scanned {
                Ok(next) => next_cursor = (next != 0).then_some(next),
                Err(error) => return Some(Err(error)),
            }
        }
    })
}
