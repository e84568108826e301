//! The block device of the nvramdisk paper, as its authors describe it: what [`Disk`](crate::Disk) is compared with.
//!
//! A flat mapping table has a word for each logical block, the number of the block that holds it. A write goes to a block
//! of a pool of shadow blocks, whose number is fixed when the disk is made; then a record of the journal is written with the
//! fields VPN (the shadow block), L1 and L2 (the logical block, twice); then the table is changed; then L1 and L2
//! become null again, and the block that was overwritten is a shadow block. Each step is durable before the next, by the
//! ordering method that a [`Policy`] has for the region. That makes seven fences a block.
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
//! There is a record for each of 32 lanes, so that as many threads may write in parallel; the paper has one for
//! each write that is under way. Two writes to blocks whose entries share a line of the map wait for each other.
//!
//! What is not as in the paper: an entry of 0, for blocks that were never written and read as zeros, so that making a disk
//! needs no writing to its blocks; and requests in bytes, where a part of a block is written with the rest of it.
//!
//! # What a record means after a crash
//!
//! A field that was being written may hold anything, also something that looks right. With *M* for the entry of the map that
//! L2 means, if it means one:
//!
//! | L1 and L2 | found in | done, each durable before the next |
//! |---|---|---|
//! | both null | S0, S1, S2 | nothing |
//! | the same, not null | S6, S7, S8 | redo: *M* := VPN; L1 := null; L2 := null |
//! | L2 null | S3, S4 | undo: L1 := null |
//! | L1 null | S10, S11 | redo, of which nothing is left: L2 := null |
//! | different, and *M* is VPN | S9 | redo, of which nothing is left: L1 := null; L2 := null |
//! | different, and *M* is not VPN | S5 | undo: L2 := null; L1 := null |
//!
//! **The map is written where L1 and L2 agree, and nowhere else.** The paper leaves open how S9 is told from S5, since in
//! both one replica is garbage and the other the logical block, and which logical block S11 redoes, since it has none. Neither
//! has to be known to leave the map right: when L1 is being reset the map has been changed, durably, and when L2 is
//! being set it has not.
//!
//! *Which of the two it was* has to be known for the order of the resets. If the right one of the two were overwritten first,
//! a second crash could leave garbage in both, and that might be the same. VPN tells. It is durable from S2
//! to S0, and until S7 no entry of the map has it, since it is a free block: in S5, whatever logical block the garbage
//! in L2 looks like, its entry is not VPN. From S8 on the entry of the logical block is, and in S9 L2 means that one.
//! Two records that are under way never mean the same logical block, and entries that are garbage (S7) get their word
//! back before other records are looked at.
//!
//! *Garbage that looks right* (X is what the field being written holds) makes a state look like a neighbour, with whose
//! outcome nothing is wrong, since nobody was answered before S0:
//!
//! | state | X | looks like | ends with |
//! |---|---|---|---|
//! | S1 | any | S0, S2 | old: VPN decides nothing while L1 and L2 are null |
//! | S3 | null; lba; another | S2; S4; S3 | old |
//! | S5 | null; lba; another | S4; **S6**; S5 | old; **new**; old. The block and VPN are durable in S5 as in S6 |
//! | S7 | any | S7 | new: the entry is not looked at |
//! | S9 | null; lba; another | S10; S8; S9 | new; it is no harm to write the entry again |
//! | S11 | null; any | S0; S10 | new: L2 alone decides nothing |
//!
//! So no coincidence mixes blocks. Reset in the order of the table, L1 and L2 are again never garbage at once, and every
//! state in between is one of the above, so that recovery may be crashed, too. A field that is null already is not written:
//! beside garbage it would be a second one. The tests of `recover.rs` go through all of this, for every X and any
//! number of crashes.
//!
//! *The limit* is the paper's own: the proof takes garbage to be in the word that is being written. Where a whole line may be
//! disturbed, as with an explicit cache flush ([`Method::CacheFlush`](remanent_pmem::order::Method), the paper's section
//! 6.2), records and blocks survive, for they have lines of their own. The map does not: entries of other blocks share the
//! line, and nothing has a copy of them. In user space that goes for two more of the methods: write-through and uncached pages
//! are imitated there by flushes of lines, so that of the paper's policies P4 alone masks what it does not write. So pools that are declared to lie on such media refuse it. [`Disk`](crate::Disk) is
//! for them.
//!
//! # What opening costs
//!
//! Which blocks are free is known in memory alone, and found by reading the whole map: 8 bytes for each 4 KiB of the disk,
//! and a bit for each. [`Disk`](crate::Disk) opens in the same time whatever its size.

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

/// Which ordering method is used for what.
///
/// On memory that needs no flush, or has to be written back by pages, the methods do what is needed there:
/// [`Medium::write_ordered`].
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
    /// Blocks past the cache, the map written through, the journal uncached.
    pub const P1: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::Uncacheable);
    /// Blocks past the cache, map and journal written through.
    pub const P2: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::WriteThrough);
    /// Blocks and journal past the cache, the map written through: the paper's choice.
    pub const P3: Policy =
        Policy::new(Method::NonTemporal, Method::WriteThrough, Method::NonTemporal);
    /// Everything past the cache.
    pub const P4: Policy = Policy::of(Method::NonTemporal);
    /// Everything written through.
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

/// What the opening of an [`Nvramdisk`] found in its journal: writes that a crash had interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Those of which nothing is left.
    pub undone: u64,
    /// Those that have happened.
    pub redone: u64,
}

/// The block device of the nvramdisk paper, in a pool.
///
/// A write of one block is atomic, and durable when it returns; a longer one is such a write for each block, one
/// after the other. See [the module](self) for how, and [`Disk`](crate::Disk) for what to use.
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
/// Clones share one disk. All methods may be called by any number of threads.
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
    /// Makes a disk of `size` bytes under a new root, which reads as zeros. Takes all its space at once.
    ///
    /// # Errors
    ///
    /// When `size` is not a multiple of 4096 or too large, the root exists, the pool is full, or it is declared to have
    /// write disturbance.
    pub fn create(pool: &Pool<M>, name: &str, size: u64, policy: Policy) -> Result<Self> {
        recover::check_size(size)?;
        let fill = |heap| Device::format(heap, size).map_err(crate::Error::into_pool);
        Self::resume(pool.create_root_with(name, fill)?, policy)
    }

    /// Opens the disk under a root. The policy is that of this handle; nothing on the medium depends on it.
    ///
    /// # Errors
    ///
    /// When there is none, or it is damaged.
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

    /// What the first opening in this process found in the journal.
    pub fn recovered(&self) -> Recovered {
        self.device.recovered()
    }

    /// Reads any range. Takes no lock.
    ///
    /// Each block is read as one write has left it; different blocks may be of different writes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), or when the map is damaged or the medium faulty.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.read(offset, bytes)
    }

    /// Writes any range, block after block: each is atomic, and all are durable when this returns. What a
    /// request has of a block only in part is written with the rest of that block.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), and nothing was changed; or when the map is damaged or the medium
    /// faulty.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.write(offset, bytes, self.policy)
    }

    /// Proves that the map, the journal and the free shadow blocks agree. Writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the disk is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.device.check()
    }

    /// Where its words and blocks lie, for tests that forge them.
    #[doc(hidden)]
    pub fn places(&self) -> &Places {
        &self.device.places
    }
}
