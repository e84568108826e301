//! What a map is created with, and keeps.

/// How a new map is made; see [`HashMap::create_with`](crate::HashMap::create_with).
///
/// The map keeps them: whoever opens it finds them in the pool.
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

    /// Whether entries that are more than words have a checksum over key and value, which is compared whenever they are
    /// read. It takes no space of its own, but eight bytes of entries with keys of 4,096 bytes or more, or values of 512 KiB
    /// or more, and the time to hash what is read.
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
