//! Ranges of keys that ordered maps take, and the range of the keys that begin with a prefix.

use std::borrow::Borrow;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::stored::OrderedKey;

/// A range of keys `K`, which the methods of an ordered map take.
///
/// Rust's ranges are ranges of keys, and so is a pair of [`Bound`]s. Their bounds are keys, or
/// values that [borrow](Borrow) as one: `&str` and `String` where keys are `str`; `&[u8]`,
/// `Vec<u8>` and arrays of bytes where they are `[u8]`. [`RangeBounds`] itself cannot express that
/// for keys without a fixed size.
///
/// A byte string such as `b"a"` is a reference to an array, which does not borrow as `[u8]`: write
/// `*b"a"..*b"c"` or `&b"a"[..]..&b"c"[..]`.
///
/// A range whose start lies behind its end is empty. It is no error and does not panic.
///
/// ```
/// use std::ops::Bound;
///
/// use remanent_pmem::Pool;
/// use remanent_structures::BlinkTree;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let words: BlinkTree<str, u64> = BlinkTree::create(&pool, "words")?;
/// for word in ["ant", "bee", "cat", "dog"] {
///     words.insert(word, &(word.len() as u64))?;
/// }
/// assert_eq!(words.range("b".."d").count(), 2);
/// assert_eq!(words.range("bee".to_owned()..).count(), 3);
/// assert_eq!(words.range((Bound::Excluded("bee"), Bound::Unbounded)).count(), 2);
/// assert_eq!(words.range(..).count(), 4);
/// assert_eq!(words.range("d".."b").count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no range of keys of type `{K}`",
    label = "its bounds do not borrow as `{K}`",
    note = "the bounds of a range are of the map's key type, or borrow as it: `&str` and `String` \
            for `str`, `&[u8]` and `Vec<u8>` for `[u8]`"
)]
pub trait KeyRange<K: ?Sized> {
    /// Where the range begins, and where it ends.
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>);
}

impl<K: ?Sized> KeyRange<K> for RangeFull {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! key_ranges {
    ($($range:ty),*) => {$(
        impl<K: ?Sized, Q: Borrow<K>> KeyRange<K> for $range {
            #[inline]
            fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
                let (start, end) = (
                    RangeBounds::<Q>::start_bound(self),
                    RangeBounds::<Q>::end_bound(self),
                );
                (start.map(Q::borrow), end.map(Q::borrow))
            }
        }
    )*};
}

key_ranges!(
    Range<Q>,
    RangeFrom<Q>,
    RangeTo<Q>,
    RangeInclusive<Q>,
    RangeToInclusive<Q>,
    (Bound<Q>, Bound<Q>)
);

/// A key that can begin with another one: text and bytes.
pub trait PrefixKey: OrderedKey {
    /// The type of a prefix.
    type Prefix: ?Sized;

    /// The range of the keys that begin with `prefix`: from the prefix itself up to the least key
    /// that is greater than all of them.
    fn prefix_range(prefix: &Self::Prefix) -> (Bound<Self::Owned>, Bound<Self::Owned>);
}

impl PrefixKey for [u8] {
    type Prefix = [u8];

    fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        // No byte is greater than 255, so the last byte that is less gets its successor.
        let len = prefix.iter().rposition(|&byte| byte < u8::MAX).map_or(0, |last| last + 1);
        let mut after = prefix[..len].to_vec();
        let end = match after.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(after)
            }
            None => Bound::Unbounded,
        };
        (Bound::Included(prefix.to_vec()), end)
    }
}

impl PrefixKey for str {
    type Prefix = str;

    fn prefix_range(prefix: &str) -> (Bound<String>, Bound<String>) {
        // Text has the order of its characters. No character is greater than `char::MAX`, so the
        // last one that is less gets its successor.
        let mut after = prefix.to_owned();
        let end = loop {
            match after.pop() {
                Some(char::MAX) => {}
                Some(last) => {
                    after.extend((last..=char::MAX).nth(1));
                    break Bound::Excluded(after);
                }
                None => break Bound::Unbounded,
            }
        };
        (Bound::Included(prefix.to_owned()), end)
    }
}

impl PrefixKey for Vec<u8> {
    type Prefix = [u8];

    fn prefix_range(prefix: &[u8]) -> (Bound<Self>, Bound<Self>) {
        <[u8]>::prefix_range(prefix)
    }
}

impl PrefixKey for String {
    type Prefix = str;

    fn prefix_range(prefix: &str) -> (Bound<Self>, Bound<Self>) {
        str::prefix_range(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_prefix_of_bytes() {
        let end = |prefix: &[u8]| <[u8]>::prefix_range(prefix).1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\x00"), Bound::Excluded(b"\x01".to_vec()));
        assert_eq!(end(b"\xff\xff"), Bound::Unbounded);
        assert_eq!(end(b""), Bound::Unbounded);
    }

    #[test]
    fn what_follows_a_prefix_of_text() {
        let end = |prefix: &str| str::prefix_range(prefix).1;
        let excluded = |text: &str| Bound::Excluded(text.to_owned());
        assert_eq!(end("ab"), excluded("ac"));
        assert_eq!(end("a\u{7f}"), excluded("a\u{80}"));
        // Surrogates are no characters.
        assert_eq!(end("a\u{d7ff}"), excluded("a\u{e000}"));
        assert_eq!(end("a\u{10ffff}"), excluded("b"));
        assert_eq!(end("\u{10ffff}\u{10ffff}"), Bound::Unbounded);
        assert_eq!(end(""), Bound::Unbounded);
    }
}
