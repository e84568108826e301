//! Values of any type that serde can serialize.

use std::fmt;
use std::marker::PhantomData;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;
use smallvec::SmallVec;

use super::Stored;
use super::serde_name::serde_name;

/// A value of any type with serde's `Serialize` and `Deserialize`, encoded as the bytes that are
/// stored. It can be the value of a map and the record of a log. Needs the feature `serde`.
///
/// A value is encoded before it is stored ([`new`](Encoded::new)), and decoded when the program
/// asks for it ([`decode`](Encoded::decode)). Both can fail, which the methods of a map cannot
/// report. So the map's methods pass the bytes on unchanged. The encoding is
/// [postcard](https://docs.rs/postcard)'s, which is compact and specified.
///
/// # When the type changes
///
/// The encoding contains no names and no types. So bytes that were encoded from another version of
/// `T` may fail to decode, or may decode to another value. serde cannot tell how a type is encoded.
/// So **whoever changes `T` gives `VERSION` another number.** The version and the name of `T` are
/// part of the map's type. A map that was made with another version is refused with
/// [`WrongType`](remanent_pmem::Error::WrongType). To read it, open it with the earlier type and
/// version, and copy its entries to a new map. An alias keeps the number beside the type:
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{Encoded, HashMap};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// enum Job {
///     Mail { to: String, text: String },
///     Resize { image: u64, widths: Vec<u32> },
/// }
///
/// /// Version 1: `Resize` has several widths.
/// type StoredJob = Encoded<Job, 1>;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let jobs: HashMap<u64, StoredJob> = HashMap::create(&pool, "jobs")?;
/// let job = Job::Resize { image: 7, widths: vec![320, 640] };
/// jobs.put(&1, &StoredJob::new(&job)?)?;
/// let found = jobs.get(&1)?.expect("it was put there");
/// assert_eq!(found.decode()?, job);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The name of `T` is that of its struct or enum. For other types it is what they are to serde: a
/// `Vec` of any element is a `sequence`. Only the versions distinguish maps of such types.
///
/// # What cannot be stored
///
/// Types that need a format with names: those with serde's attributes `flatten`, `untagged`, `tag`
/// or `skip_serializing_if`, and `serde_json::Value`. Some fail to encode, others to decode. Where
/// a field was skipped, another value may come back.
pub struct Encoded<T, const VERSION: u32 = 0> {
    bytes: SmallVec<[u8; 64]>,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Serialize + DeserializeOwned, const VERSION: u32> Encoded<T, VERSION> {
    /// Encodes a value.
    ///
    /// # Errors
    ///
    /// [`EncodingError::Encode`] when the type cannot be encoded, or its `Serialize` fails.
    pub fn new(value: &T) -> Result<Self, EncodingError> {
        let encoded = postcard::to_extend(value, SmallVec::new());
        let bytes = encoded.map_err(|error| EncodingError::Encode {
            type_name: Self::type_name(),
            reason: error.to_string(),
        })?;
        Ok(Encoded { bytes, value: PhantomData })
    }

    /// Decodes the value.
    ///
    /// ```
    /// use remanent_structures::{Encoded, EncodingError, Stored};
    ///
    /// let pair: Encoded<(u64, String)> = Encoded::new(&(7, "seven".to_owned()))?;
    /// assert_eq!(pair.decode()?, (7, "seven".to_owned()));
    /// // As if the last byte were lost.
    /// let shorter = &pair.bytes()[..pair.bytes().len() - 1];
    /// Encoded::<(u64, String)>::with_stored(shorter, |pair| assert!(pair.decode().is_err()));
    /// # Ok::<(), EncodingError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EncodingError::Decode`] when the bytes are not exactly one value of the type.
    pub fn decode(&self) -> Result<T, EncodingError> {
        let reason = match postcard::take_from_bytes(&self.bytes) {
            Ok((value, [])) => return Ok(value),
            Ok((_, rest)) => format!("{} bytes are left over", rest.len()),
            Err(error) => error.to_string(),
        };
        let (type_name, len) = (Self::type_name(), self.bytes.len());
        Err(EncodingError::Decode { type_name, len, reason })
    }
}

impl<T, const VERSION: u32> Encoded<T, VERSION> {
    /// The encoded value, as it is stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why a value is not encoded, or not decoded. Needs the feature `serde`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// A value cannot be encoded.
    #[error(
        "a value of {type_name} cannot be encoded: {reason}; a type that needs the names of its \
         fields in the format, for `flatten` or `untagged`, cannot be stored so"
    )]
    Encode {
        /// The type, with its version.
        type_name: String,
        /// What serde or the format says.
        reason: String,
    },
    /// Stored bytes are not an encoded value.
    #[error(
        "{len} stored bytes are no value of {type_name}: {reason}; they are damaged, or the type \
         was changed and its version was not: decode them with the type that they were encoded from"
    )]
    Decode {
        /// The type, with its version.
        type_name: String,
        /// Number of bytes.
        len: usize,
        /// What serde or the format says.
        reason: String,
    },
}

// A note of `Stored` mentions this type. So messages of the compiler are the same with the feature
// and without it.
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned, const VERSION: u32> Stored for Encoded<T, VERSION> {
    fn type_name() -> String {
        format!("Encoded<{}, {VERSION}>", serde_name::<T>())
    }

    const LEN: Option<u32> = None;

    #[inline]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.bytes)
    }

    #[inline]
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&Encoded { bytes: bytes.into(), value: PhantomData })
    }
}

impl<T, const VERSION: u32> Clone for Encoded<T, VERSION> {
    fn clone(&self) -> Self {
        Encoded { bytes: self.bytes.clone(), value: PhantomData }
    }
}

/// Values are equal that are encoded as the same bytes.
impl<T, const VERSION: u32> PartialEq for Encoded<T, VERSION> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T, const VERSION: u32> Eq for Encoded<T, VERSION> {}

impl<T, const VERSION: u32> fmt::Debug for Encoded<T, VERSION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encoded").field(&self.bytes()).finish()
    }
}
