//! Plain files in a pool: bytes that are written in place, and are durable after a sync.
//!
//! A [`File`] is for content with its own protection against torn writes, such as a rollback
//! journal or a log of a database. A file gives its content no shadow blocks, no checksums and no
//! journal, as a [`Disk`](crate::Disk) gives its blocks.
//!
//! # After a crash
//!
//! - **Length and presence** are those of the last [`sync`](File::sync), [`set_len`](File::set_len)
//!   or [`set_present`](File::set_present) that returned, or of one that was in flight. This also
//!   holds if only the process died: bytes that were appended after the last `sync` are cut off.
//! - **Synced bytes** are there, unless they were written again since. In bytes that were written
//!   since, each aligned word of 8 bytes is old or new.
//! - **The length is never durable before the bytes.** All bytes within the length were written in
//!   this life of the file, or are the zeros of a gap. Content of earlier lives behind the end is
//!   never visible.
//! - **Write disturbance** (assumption 8 of `docs/model.md`) may leave garbage in lines of 64 bytes
//!   that were being written, including their earlier content. Metadata survive that. Content
//!   survives if lines with synced bytes are written only as a whole, by sectors, for example.
//!
//! # Fences
//!
//! | operation | fences |
//! |---|---|
//! | read; write | 0 |
//! | sync | 1; 2 if the file has become longer: the data, then the length |
//! | set the length, or the presence | 1; 1 more if data behind the last synced end are kept |
//! | taking an extent from the pool | 3 |
//!
//! A length with a checksum of the appended bytes would save the second fence, and cost more time
//! to compute than the fence takes. Extents double, from 64 KiB to 256 MiB. They belong to the file
//! until it is removed, so the next journal in the file takes none.

mod check;
mod layout;
mod ops;
mod pair;
mod recover;

use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::pool::{RootInfo, RootObject};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

use crate::Result;
use ops::Body;

/// A plain file in a pool: written in place, durable after a sync.
///
/// ```
/// use remanent_blockdev::file::File;
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let file = File::create(&pool, "journal")?;
/// file.write(8, b"records")?; // makes the file longer; bytes 0 to 7 are zeros
/// file.write(0, b"a header")?;
/// file.sync()?; // from here on everything survives
///
/// let mut bytes = [0; 100];
/// assert_eq!(file.read(4, &mut bytes)?, 11);
/// assert_eq!(&bytes[..11], b"aderrecords");
///
/// file.set_present(false)?; // deleted, for one fence; its space is kept
/// assert!(!file.is_present() && file.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share one file. Any number of threads may call all methods. Writers wait for each other;
/// readers wait for nobody. A reader of bytes that are being written gets a mixture of old and new
/// bytes. Dropping the last clone syncs the file.
#[derive(Debug)]
pub struct File<M: Medium = Mapped> {
    body: Arc<Body<M>>,
}

impl<M: Medium> Clone for File<M> {
    fn clone(&self) -> Self {
        File { body: Arc::clone(&self.body) }
    }
}

impl<M: Medium> File<M> {
    /// Whether the root is a file.
    pub fn is_one(root: &RootInfo) -> bool {
        root.root_type == <Body<M> as RootObject<M>>::root_type()
    }

    /// Creates an empty file, present, under a new root. It takes 64 KiB of the pool at once, and
    /// more when it is written.
    ///
    /// # Errors
    ///
    /// When the root exists, the name is not valid for a root, or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(File { body: pool.create_root::<Body<M>>(name)? })
    }

    /// Opens the file under a root. This takes the same time for any length, and reads one pair for
    /// each seven extents.
    ///
    /// # Errors
    ///
    /// When there is no file under this root, or it is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(File { body: pool.open_root::<Body<M>>(name)? })
    }

    /// Removes a file and gives its space back. Takes time in proportion to the pool.
    ///
    /// # Errors
    ///
    /// When there is no root of that name, the root is not a file, or the file is open.
    pub fn remove(pool: &Pool<M>, name: &str) -> Result<()> {
        let root = pool.roots()?.into_iter().find(|root| root.name == name);
        let expected = <Body<M> as RootObject<M>>::root_type();
        match root {
            // Any layout: files of older versions can be removed, too.
            Some(root) if root.root_type.name != expected.name => {
                let (name, found) = (name.to_owned(), root.root_type);
                Err(PoolError::WrongType { name, found, expected }.into())
            }
            _ => Ok(pool.remove_root(name)?),
        }
    }

    /// Bytes of the file, including those that are not synced.
    pub fn len(&self) -> u64 {
        self.body.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the pool that its extents take.
    pub fn allocated(&self) -> u64 {
        self.body.capacity()
    }

    /// Reads from `offset` on. Returns the number of bytes read, which is smaller than requested at
    /// the end of the file.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.body.read(offset, bytes)
    }

    /// Writes in place, at any offset. Writing beyond the end makes the file longer; a gap reads as
    /// zeros.
    ///
    /// Nothing of it is durable before the next [`sync`](File::sync).
    ///
    /// # Errors
    ///
    /// When the pool is full; [`FileTooLong`](crate::Error::FileTooLong) when the file would need
    /// more than 98 extents. With 98 extents it may have 20 GiB and more, unless the pool has only
    /// small pieces left. In both cases nothing was changed.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.body.write(offset, bytes)
    }

    /// Makes everything durable that any thread wrote before, and the length.
    ///
    /// Data of another thread are written once more, because a fence covers only the stores of its
    /// own thread. So `sync` costs least in the thread that writes.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. Nothing is then guaranteed.
    pub fn sync(&self) -> Result<()> {
        self.body.sync()
    }

    /// Sets the length, durably when it returns. Added bytes read as zeros. Bytes below the new
    /// length stay unchanged; those behind the last synced end become durable.
    ///
    /// # Errors
    ///
    /// Those of [`write`](File::write).
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.body.set_len(len)
    }

    /// Whether the file is marked as present. A new file is.
    pub fn is_present(&self) -> bool {
        self.body.is_present()
    }

    /// Marks the file as present or not, durably when it returns. This is for programs that create
    /// and delete a file often.
    ///
    /// A file that becomes not present loses its content: its length is 0. It keeps its space. The
    /// mark has no other effect: writing to a file that is not present makes it longer, and it
    /// stays not present.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn set_present(&self, present: bool) -> Result<()> {
        self.body.set_present(present)
    }

    /// Places of the file's lines, for tests that damage them.
    #[doc(hidden)]
    pub fn lines(&self) -> crate::Lines {
        self.body.lines()
    }

    /// Proves that the metadata are complete and that the extents belong to the file. Writers wait
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. Damage of the file is in the result, and not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.body.check()
    }
}
