//! Blocks in memory: our disk, the paper's, and what they are compared with in one process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use remanent_blockdev::Disk;
use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
use remanent_pmem::{Emulation, Medium, Pool};

use crate::cleanup::Scratch;
use crate::memory::area::Area;
use crate::memory::pool;
use crate::report::{Ground, backing_of};

/// Bytes of a block.
pub(crate) const BLOCK_LEN: u64 = remanent_blockdev::BLOCK_LEN;

/// Blocks under test, shared by the threads of a run. Offsets and lengths are multiples of
/// [`BLOCK_LEN`].
pub(crate) trait Blocks: Send + Sync {
    /// Writes blocks.
    ///
    /// # Errors
    ///
    /// Where the contender reports one.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads blocks.
    ///
    /// # Errors
    ///
    /// As for `write`.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// Blocks with their name and their guarantee.
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) ground: Ground,
    pub(crate) blocks: Box<dyn Blocks>,
    /// Removed after the blocks are gone.
    _scratch: Scratch,
}

/// A kind of contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Our [`Disk`].
    Disk,
    /// The paper's device, with a named policy.
    Nvramdisk(&'static str, Policy),
    /// libpmemblk.
    #[cfg(has_pmemblk)]
    Pmemblk,
    /// A copy past the cache and one fence: a lower bound for every durable write. It can be torn.
    Streamed,
    /// A copy into a mapping, which the paper calls a ramdisk.
    Copied,
    /// `pwrite` to a file of a tmpfs.
    File,
}

impl Kind {
    /// Name in rows.
    pub(crate) fn name(self) -> String {
        match self {
            Kind::Disk => "remanent disk".to_owned(),
            Kind::Nvramdisk(policy, _) => format!("nvramdisk {policy}"),
            #[cfg(has_pmemblk)]
            Kind::Pmemblk => "libpmemblk".to_owned(),
            Kind::Streamed => "NT copy + fence".to_owned(),
            Kind::Copied => "memcpy".to_owned(),
            Kind::File => "tmpfs pwrite".to_owned(),
        }
    }

    /// Makes one of `len` bytes in `directory`, of which every block has been written.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn create(self, directory: &Path, len: u64) -> Result<Contender> {
        let scratch = Scratch::new(directory)?;
        let (blocks, ground) = self.make(scratch.path(), len)?;
        let bytes = vec![1; 1 << 20];
        for offset in (0..len).step_by(bytes.len()) {
            let written = blocks.write(offset, &bytes);
            written.with_context(|| format!("{} has no room for {len} bytes", self.name()))?;
        }
        Ok(Contender { name: self.name(), ground, blocks, _scratch: scratch })
    }

    fn make(self, directory: &Path, len: u64) -> Result<(Box<dyn Blocks>, Ground)> {
        Ok(match self {
            Kind::Disk => {
                let pool = pool(directory, len)?;
                let disk = Disk::create(&pool, "disk", len)?;
                (Box::new(disk), Ground::of_pool(&pool))
            }
            Kind::Nvramdisk(_, policy) => {
                let pool = pool(directory, len)?;
                let disk = Nvramdisk::create(&pool, "disk", len, policy)?;
                let ground = Ground::of_pool(&pool);
                let is_ordered = policy != Policy::ASYNC;
                (Box::new(disk), if is_ordered { ground } else { without_promise(ground) })
            }
            #[cfg(has_pmemblk)]
            Kind::Pmemblk => {
                let path = directory.join("pmemblk.pool");
                let blocks = super::pmemblk::Pmemblk::create(&path, len)?;
                (Box::new(blocks), Ground::nvram_at(&path)?)
            }
            Kind::Streamed => {
                let area = Area::new(directory, len)?;
                let promise = "durable on return, but a block can be torn; DRAM standing in for \
                               persistent memory";
                let ground = Ground { promise: promise.to_owned(), ..area.ground() };
                (Box::new(Streamed(area)), ground)
            }
            Kind::Copied => {
                let area = Area::new(directory, len)?;
                let ground = without_promise(area.ground());
                (Box::new(Copied(area)), ground)
            }
            Kind::File => {
                let path = directory.join("blocks");
                let mut options = OpenOptions::new();
                let file = options.create_new(true).read(true).write(true).open(&path)?;
                let promise = "a write survives the death of the process, and can be torn";
                let ground = Ground::new(backing_of(&path)?, "process", "none", promise);
                (Box::new(file), ground)
            }
        })
    }
}

fn pool(directory: &Path, len: u64) -> Result<Pool> {
    let options = pool::options(Emulation::Nvram).size_max(2 * len + (1 << 30));
    Ok(options.create(directory.join("disk.pool"))?)
}

fn without_promise(ground: Ground) -> Ground {
    let promise = "survives the death of the process, and no loss of power; a block can be torn";
    Ground { emulation: "none".to_owned(), promise: promise.to_owned(), ..ground }
}

impl Blocks for Disk {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(Disk::write(self, offset, bytes)?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(Disk::read(self, offset, bytes)?)
    }
}

impl Blocks for Nvramdisk {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(Nvramdisk::write(self, offset, bytes)?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(Nvramdisk::read(self, offset, bytes)?)
    }
}

struct Streamed(Area);

impl Blocks for Streamed {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.medium().write_streaming(self.0.place(1, offset), bytes);
        self.0.medium().fence();
        Ok(())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.medium().read(self.0.place(1, offset), bytes);
        Ok(())
    }
}

struct Copied(Area);

impl Blocks for Copied {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.medium().write(self.0.place(1, offset), bytes);
        Ok(())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.medium().read(self.0.place(1, offset), bytes);
        Ok(())
    }
}

impl Blocks for File {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.read_exact_at(bytes, offset)?)
    }
}
