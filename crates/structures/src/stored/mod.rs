//! What can be a key or a value.

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
/// | with the feature `serde`, any type that has serde's `Serialize` and `Deserialize`, in `Encoded` | as postcard encodes them |
/// | structs and enums without fields, by `#[derive(Stored)]`; tuples of up to four; `bool`, `char`, `u128`, `i128`, `f32`, `f64`, `()`, `Option` | as [`Part`] says |
///
/// `usize` and `isize` are not among them, since their length depends on the machine: use `u64` or `i64`.
///
/// A map's type, which is compared when it is opened, has [`type_name`](Stored::type_name) in it. That of a derived type ends
/// with a hash of its fields and of their types. So a map whose values were stored by an earlier version of a struct is
/// refused with [`WrongType`](remanent_pmem::Error::WrongType), not misread.
///
/// What comes back from the medium is checked. A `str` that is not UTF-8 any more is replaced by the empty string, and a
/// value of a derived type that is damaged by one of zeros and empty parts. Only damage can bring that about, and maps with
/// checksums, which are the default, report it as an error first.
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
    note = "structs, and enums whose variants have no fields, get one by `#[derive(Clone, Stored)]`",
    note = "a value of any other type that serde can serialize is stored as an `Encoded<T>`, with the feature `serde`",
    note = "instead of `usize` and `isize`, whose length depends on the machine, use `u64` and `i64`; \
            instead of a reference the owned type, such as `String` or `Vec<u8>`"
)]
pub trait Stored: ToOwned {
    /// Name that a root's type is made of.
    fn type_name() -> String;

    /// Length in bytes, when all values have the same.
    const LEN: Option<u32>;

    /// Passes the stored form to `use_bytes`. Called in the middle of operations, so it may not
    /// panic: the memory that a new entry was to have would be lost to the pool.
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;

    /// Passes the value that `bytes` stand for to `use_value`.
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R;

    /// Length of the stored form in bytes.
    fn stored_len(&self) -> u64 {
        self.with_bytes(|bytes| bytes.len() as u64)
    }
}

/// A [`Stored`] type that can be hashed and compared where it lies: what a map can have as a key.
///
/// Two keys are the same when their stored forms are. Of floating-point numbers that tells `0.0` from `-0.0`, and finds a `NaN`
/// by its own bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a map: it is not a `Key`",
    label = "cannot be looked up by its stored form",
    note = "a type with `#[derive(Stored)]` becomes one by `#[derive(Clone, Stored, Key)]`"
)]
pub trait Key: Stored {
    /// Binary logarithm of the number of buckets in a map's first segment. Part of the format: it may
    /// not change. The default fills a chunk; tests set less, to see a map of few entries grow.
    #[doc(hidden)]
    const BUCKET_BITS: u32 = 13;

    /// A hash of 64 well-mixed bits. Part of the format: it may not change.
    fn hash(&self, seed: u64) -> u64 {
        self.with_bytes(|bytes| xxh3_64_with_seed(bytes, seed))
    }

    /// Whether the key stored at `offset`, of this key's length, is this one.
    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        self.with_bytes(|bytes| medium.equals(offset, bytes))
    }
}

/// A [`Key`] that has an order, and a form in bytes that has the same order.
///
/// Integers are ordered as numbers, bytes and text byte by byte. Tuples and derived types have the order of their derived
/// `Ord`: by their first part, then by the second, and so on; enums by their variants. Floating-point numbers are in the total
/// order of IEEE 754, in which `-0.0` comes before `0.0` and each `NaN` at one of the ends.
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
/// let values: Vec<f64> = of_load.map(|entry| Ok(entry?.1)).collect::<remanent_structures::Result<_>>()?;
/// assert_eq!(values, [0.5, 0.7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of an ordered map: it is not an `OrderedKey`",
    label = "its stored form has no order",
    note = "a type with `#[derive(Stored, Key)]` becomes one by `#[derive(Clone, Stored, Key, OrderedKey)]`"
)]
pub trait OrderedKey: Key {
    /// Entries that a node of a tree has at most. Part of the format: it may not change. Tests set less than the
    /// default, which is more than any node has room for, to see a tree of few entries grow.
    #[doc(hidden)]
    const NODE_ENTRIES_MAX: usize = usize::MAX;

    /// Passes the ordered form to `use_bytes`. It has the length of the stored form.
    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;

    /// Passes the key whose ordered form is `bytes` to `use_key`.
    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R;
}
