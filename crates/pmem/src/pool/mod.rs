//! The pool: one file that is consistent the moment it is opened.

mod aside;
pub mod check;
mod directory;
mod double_write;
#[cfg(test)]
mod format_document;
pub mod layout;
mod options;
mod registry;
pub(crate) mod root_type;
mod roots;
mod seal;
pub(crate) mod space;
mod superblock;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use options::{Format, Options};
pub use root_type::RootType;
pub use roots::{RootInfo, RootObject};

use self::aside::Aside;
use self::layout::{CHUNK_LEN, ChunkId, DATA_FIRST, METADATA_LEN, RootId, SIZE_LIMIT, SIZE_MIN};
use self::registry::Registry;
use self::space::reserve::Reserve;
use self::space::search::Search;
use self::superblock::Superblock;
use crate::heap::reclamation::Reclamation;
use crate::medium::Medium;
use crate::sync::PauseMutex;
use crate::violation::Violation;
use crate::{Backing, Durability, Emulation, Error, Mapped, Result};

/// A pool of persistent memory.
///
/// A pool holds structures under named roots, and their space. Opening it takes the same time
/// whatever it holds. Clones share one pool. The pool is closed when the last clone and the last
/// structure opened from it are dropped.
///
/// ```
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().size_max(1 << 30).create(&path)?;
/// assert_eq!(pool.info()?.roots.len(), 0);
/// drop(pool);
/// let pool = Pool::options().open(&path)?;
/// assert!(pool.info()?.was_clean);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pool<M: Medium = Mapped>(Arc<Inner<M>>);

impl<M: Medium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Pool(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<M: Medium> {
    medium: M,
    superblock: PauseMutex<Superblock>,
    search: PauseMutex<Search>,
    /// Roots that are open in this process.
    registry: PauseMutex<Registry>,
    /// Roots with a heap in this process: those that are open, and those whose last operations are
    /// being completed.
    heaps: PauseMutex<HashSet<RootId>>,
    /// When heaps free retired blocks.
    reclamation: PauseMutex<Reclamation>,
    aside: Aside,
    /// Held during a double write of the pool's own lines.
    double_write: PauseMutex<()>,
    version: u32,
    size_max: u64,
    was_clean: bool,
    guarantee: Guarantee,
    /// What opening found wrong with a superblock copy that no crash leaves so. The copy has been
    /// rewritten.
    lost_superblock: Option<Violation>,
}

/// The guarantee of a pool, and its backing.
#[derive(Clone, Debug, PartialEq)]
pub struct Guarantee {
    /// The pool file; empty if the medium is not a file.
    pub path: PathBuf,
    /// The backing.
    pub backing: Backing,
    /// The kind of crash that a returned call survives for certain.
    pub durability: Durability,
    /// Whether DRAM emulates persistent memory.
    pub emulation: Emulation,
    /// Whether a line that is being written when the power fails may hold garbage afterwards; see
    /// [`Options::write_disturbance`].
    pub write_disturbance: bool,
}

impl Default for Guarantee {
    fn default() -> Self {
        Guarantee {
            path: PathBuf::new(),
            backing: Backing::Memory,
            durability: Durability::Process,
            emulation: Emulation::None,
            write_disturbance: false,
        }
    }
}

/// Description of a pool and its roots.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Backing and guarantee.
    pub guarantee: Guarantee,
    /// Identity: the 16 bytes of a random (version 4) UUID.
    pub uuid: [u8; 16],
    /// Version of the format.
    pub format_version: u32,
    /// Length of the file in bytes, holes included.
    pub size: u64,
    /// Length in bytes beyond which the file does not grow.
    pub size_max: u64,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// Durability at creation; that of this opening is in `guarantee`.
    pub created_durability: Durability,
    /// Number of times it was opened.
    pub opens: u64,
    /// Whether it was closed properly before this opening.
    pub was_clean: bool,
    /// Its roots.
    pub roots: Vec<RootInfo>,
}

impl Pool<Mapped> {
    /// Options for creating and opening a pool file.
    pub fn options() -> Options {
        Options::new()
    }
}

impl<M: Medium> Pool<M> {
    /// Creates a pool on a medium, overwriting its content.
    ///
    /// # Errors
    ///
    /// When the medium cannot grow to the smallest pool ([`SIZE_MIN`], nearly all of it holes);
    /// [`Error::TooSmall`] when `size_max` is below that; when `size_max` is more than
    /// [`SIZE_LIMIT`].
    pub fn format(medium: M, format: &Format) -> Result<Self> {
        let end = ChunkId(DATA_FIRST);
        if format.size_max < SIZE_MIN {
            return Err(Error::TooSmall {
                size_max: format.size_max,
                metadata: METADATA_LEN,
                size_min: SIZE_MIN,
            });
        }
        check_size_max(format.size_max, &format.guarantee.path)?;
        medium.grow(end.offset())?;
        medium.commit(0, CHUNK_LEN)?;
        medium.write_zeros(0, CHUNK_LEN);
        double_write::forget(&medium);
        // Flush and fence: no old superblock or root survives beside the new ones.
        // Redundant fence: but for a crash in here on a device that held a pool before.
        medium.persist(0, CHUNK_LEN);
        // Sync: the length is durable before the superblock relies on it.
        medium.sync_file()?;
        let mut superblock = Superblock {
            version: layout::FORMAT_VERSION,
            uuid: format.uuid,
            durability: format.guarantee.durability,
            sequence: 0,
            size_max: format.size_max,
            size: end.offset(),
            created_unix_s: medium.unix_s(),
            write_disturbance: format.guarantee.write_disturbance,
            clean: false,
            first_chunk: DATA_FIRST,
            opens: 1,
        };
        superblock.write(&medium);
        Ok(Self::assemble(medium, superblock, format.guarantee.clone(), true, None))
    }

    /// Opens the pool on a medium, in whatever state a crash left it.
    ///
    /// # Errors
    ///
    /// [`Error::NotAPool`], [`Error::Version`], or [`Error::Corrupt`] when the file is shorter than
    /// its superblock says.
    pub fn recover(medium: M) -> Result<Self> {
        Self::recover_with(medium, Guarantee::default())
    }

    fn recover_with(medium: M, mut guarantee: Guarantee) -> Result<Self> {
        if medium.len() >= CHUNK_LEN {
            // Flush and fence: superblocks and roots that a killed process left in the caches
            // alone, before the older superblock is overwritten and anything is decided by a root's
            // state.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.persist(0, CHUNK_LEN);
        }
        // Sync: the file's length and holes as a killed process left them, before anything is
        // decided by them.
        // Redundant: but where a process was killed before, and the power fails later.
        medium.sync_file()?;
        let (mut superblock, lost_superblock) = Superblock::read_fitting(&medium)?;
        guarantee.write_disturbance |= superblock.write_disturbance;
        // With write disturbance a crash may leave anything in the copy that was being written.
        let lost_superblock = lost_superblock.filter(|_| !guarantee.write_disturbance);
        double_write::recover(&medium, guarantee.write_disturbance);
        let was_clean = superblock.clean;
        if !was_clean {
            // Flush: the same for state words. Fenced with the superblock below.
            // Redundant: but where a process was killed before, and the power fails later.
            layout::state_words(superblock.size).for_each(|(at, len)| medium.flush(at, len));
        }
        superblock.clean = false;
        superblock.opens += 1;
        superblock.write(&medium);
        let pool = Self::assemble(medium, superblock, guarantee, was_clean, lost_superblock);
        pool.recover_directories()?;
        pool.recover_roots()?;
        match pool.medium().fault() {
            Some(fault) => Err(Error::Medium(fault)),
            None => Ok(pool),
        }
    }

    fn assemble(
        medium: M,
        superblock: Superblock,
        guarantee: Guarantee,
        was_clean: bool,
        lost_superblock: Option<Violation>,
    ) -> Self {
        let end = ChunkId((superblock.size / CHUNK_LEN) as u32);
        Pool(Arc::new(Inner {
            medium,
            search: PauseMutex::new(Search::new(
                superblock.first_data(),
                end,
                Reserve::new(guarantee.backing),
            )),
            registry: PauseMutex::default(),
            heaps: PauseMutex::new(HashSet::new()),
            reclamation: PauseMutex::new(Reclamation::default()),
            aside: Aside::default(),
            double_write: PauseMutex::new(()),
            version: superblock.version,
            size_max: superblock.size_max,
            superblock: PauseMutex::new(superblock),
            was_clean,
            guarantee,
            lost_superblock,
        }))
    }

    /// The medium under the pool.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        &self.0.medium
    }

    /// Backing and guarantee of the pool.
    pub fn guarantee(&self) -> &Guarantee {
        &self.0.guarantee
    }

    /// Whether the pool was closed properly before it was opened; true for a new one.
    pub fn was_clean(&self) -> bool {
        self.0.was_clean
    }

    /// Length in bytes beyond which the file does not grow.
    pub fn size_max(&self) -> u64 {
        self.0.size_max
    }

    /// Identity of the pool.
    pub fn uuid(&self) -> [u8; 16] {
        self.0.superblock.lock(self.medium()).uuid
    }

    /// Number of times the pool was opened, including this one.
    pub fn opens(&self) -> u64 {
        self.0.superblock.lock(self.medium()).opens
    }

    /// Sets when structures that are created or opened from here on free their retired blocks. Not
    /// stored in the pool.
    ///
    /// Small batches make every few operations free something; tests use this.
    pub fn set_reclamation(&self, reclamation: Reclamation) {
        *self.0.reclamation.lock(self.medium()) = reclamation;
    }

    pub(crate) fn reclamation(&self) -> Reclamation {
        *self.0.reclamation.lock(self.medium())
    }

    /// Describes the pool and its roots.
    ///
    /// # Errors
    ///
    /// When a root's entry is damaged.
    pub fn info(&self) -> Result<PoolInfo> {
        let superblock = self.0.superblock.lock(self.medium()).clone();
        Ok(PoolInfo {
            guarantee: self.guarantee().clone(),
            uuid: superblock.uuid,
            format_version: superblock.version,
            size: superblock.size,
            size_max: superblock.size_max,
            created_unix_s: superblock.created_unix_s,
            created_durability: superblock.durability,
            opens: superblock.opens,
            was_clean: self.0.was_clean,
            roots: self.roots()?,
        })
    }

    /// The pool file.
    pub fn path(&self) -> &Path {
        &self.0.guarantee.path
    }

    pub(crate) fn search(&self) -> &PauseMutex<Search> {
        &self.0.search
    }

    fn registry(&self) -> &PauseMutex<Registry> {
        &self.0.registry
    }

    pub(crate) fn heaps(&self) -> &PauseMutex<HashSet<RootId>> {
        &self.0.heaps
    }

    fn update_superblock(&self, update: impl FnOnce(&mut Superblock)) {
        let mut superblock = self.0.superblock.lock(self.medium());
        update(&mut superblock);
        // Redundant fence: Who takes chunks of the new space fences before using them.
        superblock.write(self.medium());
    }
}

/// Refuses a size that the format cannot describe.
fn check_size_max(size_max: u64, path: &Path) -> Result<()> {
    if size_max <= SIZE_LIMIT {
        return Ok(());
    }
    Err(Error::Unsupported {
        path: path.to_owned(),
        asked: "so large a `size_max`",
        reason: format!("{size_max} bytes were asked for, and a pool has at most {SIZE_LIMIT}"),
    })
}

impl<M: Medium> Drop for Inner<M> {
    /// Marks the pool as closed properly. Every heap is quiescent by now, because each holds a
    /// clone of the pool.
    fn drop(&mut self) {
        if self.medium.fault().is_none() && !std::thread::panicking() {
            let superblock = self.superblock.get_mut();
            superblock.clean = true;
            // Redundant: a pool that does not say that it was closed properly is recovered.
            superblock.write(&self.medium);
        }
    }
}
