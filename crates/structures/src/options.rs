//! Options that a map is created with and keeps.

/// Options of a new map; see [`HashMap::create_with`](crate::HashMap::create_with).
///
/// The map stores its options. Opening it reads them from the pool.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{HashMap, MapOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let options = MapOptions::new().checksums(false);
/// let map: HashMap<str, str> = HashMap::create_with(&pool, "plain", &options)?;
/// map.insert("key", "value")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOptions {
    has_checksums: bool,
}

impl MapOptions {
    /// The defaults: with checksums.
    pub const fn new() -> Self {
        MapOptions { has_checksums: true }
    }

    /// Whether an entry has a checksum over key and value, which is compared whenever the entry is
    /// read. Entries whose values have a fixed size of at most 8 bytes have none in either case.
    ///
    /// Checksums cost the time to hash what is read. They take 8 bytes in an entry with a key of
    /// 4,096 bytes or more, or with a value of 512 KiB or more, and no space in others.
    pub const fn checksums(mut self, has_checksums: bool) -> Self {
        self.has_checksums = has_checksums;
        self
    }

    pub(crate) const fn has_checksums(self) -> bool {
        self.has_checksums
    }
}

impl Default for MapOptions {
    fn default() -> Self {
        Self::new()
    }
}
