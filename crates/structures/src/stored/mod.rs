//! Types of keys and values.

mod composite;
#[cfg(feature = "serde")]
mod encoded;
mod part;
mod plain;
#[cfg(feature = "serde")]
mod serde_name;

#[cfg(feature = "serde")]
pub use encoded::{Encoded, EncodingError};
pub use part::{Part, PartWriter};

/// What the expansions of the derives name.
pub(crate) mod private {
    pub use super::composite::{
        name_with_shape, read_form, shape_of_enum, shape_of_struct, with_form,
    };
    pub use super::part::sum;
}

use remanent_pmem::Medium;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A type that is stored as bytes: what a map can have as a value.
///
/// | types | stored as |
/// |---|---|
/// | `u8` to `u64`, `i8` to `i64` | little-endian |
/// | `[u8; N]`, `[u8]`, `Vec<u8>`, `str`, `String` | their bytes |
/// | structs, and enums without fields, by `#[derive(Stored)]` | as [`Part`] says |
/// | tuples of up to four, `Option`, `()` | as [`Part`] says |
/// | `bool`, `char`, `u128`, `i128`, `f32`, `f64` | as [`Part`] says |
/// | any type that serde can serialize, as `Encoded` (feature `serde`) | postcard's encoding |
///
/// `usize` and `isize` are not stored, because their length depends on the machine: use `u64` or
/// `i64`.
///
/// A map's type includes [`type_name`](Stored::type_name), and is compared when the map is opened.
/// The name of a derived type ends with a hash of its fields and their types. So a map whose values
/// were stored by an earlier version of a struct is refused with
/// [`WrongType`](remanent_pmem::Error::WrongType) instead of being misread.
///
/// What is read from the medium is checked. A `str` that is not UTF-8 any more is replaced by the
/// empty string, and a damaged value of a derived type by one of zeros and empty parts. This
/// happens only after damage, which maps with checksums, the default, report as an error first.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{HashMap, Stored};
///
/// #[derive(Clone, Debug, PartialEq, Stored)]
/// enum Plan {
///     Free,
///     Paid,
/// }
///
/// #[derive(Clone, Debug, PartialEq, Stored)]
/// struct Session {
///     user: u64,
///     plan: Plan,
///     agent: String,
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let sessions: HashMap<str, Session> = HashMap::create(&pool, "sessions")?;
/// let session = Session { user: 7, plan: Plan::Paid, agent: "curl".to_owned() };
/// sessions.insert("token", &session)?;
/// assert_eq!(sessions.get("token")?, Some(session));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored in a map: it is not `Stored`",
    label = "has no stored form",
    note = "structs, and enums whose variants have no fields, get one by \
            `#[derive(Clone, Stored)]`",
    note = "a value of any other type that serde can serialize is stored as an `Encoded<T>`, with \
            the feature `serde`",
    note = "instead of `usize` and `isize`, whose length depends on the machine, use `u64` and \
            `i64`; instead of a reference the owned type, such as `String` or `Vec<u8>`"
)]
pub trait Stored: ToOwned {
    /// The name that the type of a root contains.
    fn type_name() -> String;

    /// Length in bytes, if all values have the same length.
    const LEN: Option<u32>;

    /// Passes the stored form to `use_bytes`. This is called in the middle of operations, and may
    /// not panic: the pool would lose the memory that was allocated for a new entry.
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;

    /// Passes the value with the stored form `bytes` to `use_value`.
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R;

    /// Length of the stored form in bytes.
    fn stored_len(&self) -> u64 {
        self.with_bytes(|bytes| bytes.len() as u64)
    }
}

/// A [`Stored`] type that can be hashed, and compared in its place on the medium: what a map can
/// have as a key.
///
/// Two keys are the same when their stored forms are. So the floating-point numbers `0.0` and
/// `-0.0` are different keys, and a `NaN` is found by its own bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a map: it is not a `Key`",
    label = "cannot be looked up by its stored form",
    note = "a type with `#[derive(Stored)]` becomes one by `#[derive(Clone, Stored, Key)]`"
)]
pub trait Key: Stored {
    /// Binary logarithm of the number of buckets in a map's first segment. It is part of the format
    /// and may not change. The default fills a chunk. Tests set less, so that a map of few entries
    /// grows.
    #[doc(hidden)]
    const BUCKET_BITS: u32 = 13;

    /// Binary logarithm of the number of buckets in a segment of an extendible map, at least 2. It
    /// is part of the format and may not change. Tests set less than the default, so that a map of
    /// few entries grows.
    #[doc(hidden)]
    const SEGMENT_BITS: u32 = 7;

    /// Slots that a bucket of an extendible map may use, as bits. As above.
    #[doc(hidden)]
    const BUCKET_SLOTS: u32 = 0b111_1111;

    /// A hash of 64 well-mixed bits. It is part of the format and may not change.
    fn hash(&self, seed: u64) -> u64 {
        self.with_bytes(|bytes| xxh3_64_with_seed(bytes, seed))
    }

    /// Whether the key stored at `offset`, which has this key's length, is this one.
    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        self.with_bytes(|bytes| medium.equals(offset, bytes))
    }
}

/// A [`Key`] that has an order, and a form in bytes that has the same order.
///
/// Integers are ordered as numbers, bytes and text byte by byte. Tuples and derived types have the
/// order of a derived `Ord`: by the first part, then by the second, and so on; enums by their
/// variants. Floating-point numbers have the total order of IEEE 754, in which `-0.0` comes before
/// `0.0` and each `NaN` at one of the ends.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{BlinkTree, Key, OrderedKey, Stored};
///
/// #[derive(Clone, Debug, PartialEq, Stored, Key, OrderedKey)]
/// struct Point {
///     series: String,
///     unix_ms: i64,
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let points: BlinkTree<Point, f64> = BlinkTree::create(&pool, "points")?;
/// let at = |series: &str, unix_ms| Point { series: series.to_owned(), unix_ms };
/// points.insert(&at("load", 20), &0.7)?;
/// points.insert(&at("load", -10), &0.5)?;
/// points.insert(&at("heat", 30), &21.5)?;
/// let of_load = points.range(at("load", i64::MIN)..=at("load", i64::MAX));
/// let values: remanent_structures::Result<Vec<f64>> =
///     of_load.map(|entry| Ok(entry?.1)).collect();
/// assert_eq!(values?, [0.5, 0.7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of an ordered map: it is not an `OrderedKey`",
    label = "its stored form has no order",
    note = "a type with `#[derive(Stored, Key)]` becomes one by \
            `#[derive(Clone, Stored, Key, OrderedKey)]`"
)]
pub trait OrderedKey: Key {
    /// The most entries that a node of a tree has. It is part of the format and may not change. The
    /// default is more than any node has room for. Tests set less, so that a tree of few entries
    /// grows.
    #[doc(hidden)]
    const NODE_ENTRIES_MAX: usize = usize::MAX;

    /// Passes the ordered form to `use_bytes`. It has the length of the stored form.
    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;

    /// Passes the key whose ordered form is `bytes` to `use_key`.
    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R;
}
