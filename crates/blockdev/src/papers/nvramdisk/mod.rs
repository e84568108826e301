//! The block device of the nvramdisk paper, as its authors describe it, for comparison with
//! [`Disk`](crate::Disk).
//!
//! A flat mapping table has a word for each logical block: the number of the block that holds it. A
//! fixed number of further blocks are shadow blocks. A write has these steps: the data are written
//! to a shadow block; a record of the journal is written, with the fields VPN (the shadow block)
//! and L1 and L2 (the logical block, twice); the table is changed; L1 and L2 become null again. The
//! replaced block is then a shadow block. Each step is durable before the next, by the ordering
//! method that a [`Policy`] has for the region. This takes seven fences for each block.
//!
//! | | VPN | L1 | L2 | map | written next |
//! |---|---|---|---|---|---|
//! | S0 | any | null | null | old | VPN; S1 while it is garbage |
//! | S2 | new | null | null | old | L1; S3 |
//! | S4 | new | lba | null | old | L2; S5 |
//! | S6 | new | lba | lba | old | the map; S7 |
//! | S8 | new | lba | lba | new | L1; S9 |
//! | S10 | new | null | lba | new | L2; S11 |
//!
//! There is a record for each of 32 lanes, so 32 threads may write in parallel; the paper has one
//! record for each write that is under way. Writes to two blocks whose entries share a line of the
//! map wait for each other.
//!
//! Two things differ from the paper. An entry of 0 stands for a block that was never written and
//! reads as zeros, so creating a disk does not write its blocks. And requests are in bytes: a part
//! of a block is written together with the rest of the block.
//!
//! # Meaning of a record after a crash
//!
//! A field that was being written may hold anything, including a plausible value. *M* is the entry
//! of the map that L2 names, if it names one:
//!
//! | L1 and L2 | found in | action, each durable before the next |
//! |---|---|---|
//! | both null | S0, S1, S2 | nothing |
//! | the same, not null | S6, S7, S8 | redo: *M* := VPN; L1 := null; L2 := null |
//! | L2 null | S3, S4 | undo: L1 := null |
//! | L1 null | S10, S11 | redo, which is already done: L2 := null |
//! | different, and *M* is VPN | S9 | redo, which is already done: L1 := null; L2 := null |
//! | different, and *M* is not VPN | S5 | undo: L2 := null; L1 := null |
//!
//! **The map is written only if L1 and L2 agree.** The paper leaves two questions open: how to
//! distinguish S9 from S5, since in both one of L1 and L2 is garbage and the other is the logical
//! block; and which logical block S11 redoes, since it names none. The answers do not matter for
//! the map: when L1 is being reset the map is already changed, durably, and when L2 is being set it
//! is not yet changed.
//!
//! *S5 or S9* matters for the order of the resets. If the valid one of the two fields were
//! overwritten first, a second crash could leave garbage in both, and the two might agree. VPN
//! decides between them. It is durable from S2 to S0. Until S7 no entry of the map is VPN, because
//! it is a free block; so in S5 the entry of whatever logical block the garbage in L2 names is not
//! VPN. From S8 on the entry of the logical block is VPN, and in S9 L2 names this logical block.
//! Two records that are under way never name the same logical block, and entries that are garbage
//! (S7) are restored before other records are examined.
//!
//! *Plausible garbage* (X is the content of the field that is being written) makes a state look
//! like a neighbouring one. The outcome of that one is right, too, because no write is acknowledged
//! before S0:
//!
//! | state | X | looks like | ends with |
//! |---|---|---|---|
//! | S1 | any | S0, S2 | old: VPN decides nothing while L1 and L2 are null |
//! | S3 | null; lba; another | S2; S4; S3 | old |
//! | S5 | null; lba; another | S4; **S6**; S5 | old; **new**; old |
//! | S7 | any | S7 | new: the entry is not looked at |
//! | S9 | null; lba; another | S10; S8; S9 | new; writing the entry again does no harm |
//! | S11 | null; any | S0; S10 | new: L2 alone decides nothing |
//!
//! In S5 the block and VPN are durable, as they are in S6.
//!
//! So no coincidence mixes blocks. Resets in the order of the table never make L1 and L2 garbage at
//! the same time, and every state in between is one of the above. So recovery may crash, too. A
//! field that is already null is not written, because writing it could make it garbage beside the
//! other. The tests of `recover.rs` go through all of this, for every X and any number of crashes.
//!
//! *The limit* is the paper's own: the proof assumes garbage only in the word that is being
//! written. A whole line may be disturbed by an explicit cache flush
//! ([`Method::CacheFlush`](remanent_pmem::order::Method), the paper's section 6.2). Records and
//! blocks survive that, because they have lines of their own. The map does not: entries of other
//! blocks share the line, and have no copy. In user space two more of the methods have this effect:
//! write-through and uncached pages are imitated by flushes of lines. Of the paper's policies only
//! P4 masks the words that it does not write. So pools that are declared to lie on such media
//! refuse this device; use [`Disk`](crate::Disk) there.
//!
//! # Time to open
//!
//! The set of free blocks is in memory alone. Opening computes it from the whole map: it reads 8
//! bytes, and sets a bit, for each 4 KiB of the disk. [`Disk`](crate::Disk) opens in the same time
//! whatever its size.

mod check;
mod layout;
mod ops;
mod recover;

use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::order::Method;
use remanent_pmem::{Mapped, Medium, Pool};

use self::ops::Device;
use crate::Result;

#[doc(hidden)]
pub use self::layout::Places;

/// The ordering method for each region.
///
/// On memory that needs no flush, or is written back by pages, each method does what is needed
/// there: see [`Medium::write_ordered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// For blocks.
    pub data: Method,
    /// For entries of the mapping table.
    pub map: Method,
    /// For fields of the journal.
    pub journal: Method,
}

impl Policy {
    /// Blocks past the cache, the map write-through, the journal uncached.
    pub const P1: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::Uncacheable);
    /// Blocks past the cache, map and journal write-through.
    pub const P2: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::WriteThrough);
    /// Blocks and journal past the cache, the map write-through: the paper's choice.
    pub const P3: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::NonTemporal);
    /// Everything past the cache.
    pub const P4: Policy = Policy::of(Method::NonTemporal);
    /// Everything write-through.
    pub const P5: Policy = Policy::of(Method::WriteThrough);
    /// Everything flushed explicitly.
    pub const P6: Policy = Policy::of(Method::CacheFlush);
    /// Nothing is ordered, and nothing survives a power failure: a baseline for measurements.
    pub const ASYNC: Policy = Policy::of(Method::Async);

    /// A method for each region.
    pub const fn new(data: Method, map: Method, journal: Method) -> Self {
        Policy { data, map, journal }
    }

    /// One method for everything.
    pub const fn of(method: Method) -> Self {
        Policy::new(method, method, method)
    }
}

/// The paper's choice, [`Policy::P3`].
impl Default for Policy {
    fn default() -> Self {
        Policy::P3
    }
}

/// Interrupted writes that opening an [`Nvramdisk`] found in its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Writes that were undone.
    pub undone: u64,
    /// Writes that were completed.
    pub redone: u64,
}

/// The block device of the nvramdisk paper, in a pool.
///
/// A write of one block is atomic, and durable when it returns. A longer write is a sequence of
/// such writes. [The module](self) explains how. Programs should use [`Disk`](crate::Disk).
///
/// ```
/// use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let disk = Nvramdisk::create(&pool, "disk", 1 << 20, Policy::P3)?;
/// disk.write(4096, &[7; 8192])?;
/// let mut bytes = [0; 512];
/// disk.read(8192, &mut bytes)?;
/// assert_eq!(bytes, [7; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share one disk. Any number of threads may call all methods.
#[derive(Debug)]
pub struct Nvramdisk<M: Medium = Mapped> {
    device: Arc<Device<M>>,
    policy: Policy,
}

impl<M: Medium> Clone for Nvramdisk<M> {
    fn clone(&self) -> Self {
        Nvramdisk { device: Arc::clone(&self.device), policy: self.policy }
    }
}

impl<M: Medium> Nvramdisk<M> {
    /// Creates a disk of `size` bytes under a new root, which reads as zeros. It takes all its
    /// space at once.
    ///
    /// # Errors
    ///
    /// When `size` is not a multiple of 4096 or too large, the root exists, the pool is full, or
    /// the pool is declared to have write disturbance.
    pub fn create(pool: &Pool<M>, name: &str, size: u64, policy: Policy) -> Result<Self> {
        recover::check_size(size)?;
        let fill = |heap| Device::format(heap, size).map_err(crate::Error::into_pool);
        Self::resume(pool.create_root_with(name, fill)?, policy)
    }

    /// Opens the disk under a root. The policy holds for this handle; nothing on the medium depends
    /// on it.
    ///
    /// # Errors
    ///
    /// When there is no such disk under this root, or it is damaged.
    pub fn open(pool: &Pool<M>, name: &str, policy: Policy) -> Result<Self> {
        Self::resume(pool.open_root::<Device<M>>(name)?, policy)
    }

    fn resume(device: Arc<Device<M>>, policy: Policy) -> Result<Self> {
        device.resume(policy)?;
        Ok(Nvramdisk { device, policy })
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// The policy of this handle.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Interrupted writes that the first opening in this process found in the journal.
    pub fn recovered(&self) -> Recovered {
        self.device.recovered()
    }

    /// Reads any range, without a lock.
    ///
    /// Each block is read as one write left it; different blocks may be of different writes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange); the map is damaged or the medium faulty.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.read(offset, bytes)
    }

    /// Writes any range, block by block. Each block is atomic, and all are durable when this
    /// returns. A block that is only partly in the range is written together with its rest.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), and nothing was changed; or the map is
    /// damaged or the medium faulty.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.write(offset, bytes, self.policy)
    }

    /// Proves that the map, the journal and the free shadow blocks agree. Writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. Damage of the disk is in the result, and not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.device.check()
    }

    /// Places of the disk's words and blocks, for tests that forge them.
    #[doc(hidden)]
    pub fn places(&self) -> &Places {
        &self.device.places
    }
}
