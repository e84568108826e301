//! Plain files in a pool: bytes that are written in place, and durable when they are synced.
//!
//! A [`File`] is for what brings its own protection against torn writes, and wants it once: a rollback journal, a log, of
//! a database. What a [`Disk`](crate::Disk) does for its blocks, shadows, checksums and a journal, a file does not.
//!
//! # What a crash leaves
//!
//! - The length and the mark of presence are those of the last [`sync`](File::sync), [`set_len`](File::set_len) or
//!   [`set_present`](File::set_present) that has returned, or of one that was in progress. So they are, too, when only the
//!   process dies: what was appended after the last `sync` is cut off.
//! - Bytes that were synced are there, unless they were written again since. Bytes that were written since are old or new,
//!   each aligned word of 8 bytes on its own.
//! - The length never comes before the bytes: what a crash leaves within the length was written to this life of the file,
//!   or is a gap's zeros. What earlier lives of the file have left behind its end is never seen.
//! - On a medium with write disturbance (assumption 8 of `docs/model.md`) lines of 64 bytes that were being written may
//!   hold garbage, what lay in them before included. A file's metadata survive that. For content: write lines that
//!   have synced bytes only as a whole, by sectors, say.
//!
//! # What it costs
//!
//! | operation | fences |
//! |---|---|
//! | read; write | 0 |
//! | sync | 1; 2 where the file has become longer: the data, then the length |
//! | set the length, or whether it is present | 1; 1 more where data behind the last synced end are to be kept |
//! | taking an extent from the pool | 3 |
//!
//! A length that carries a checksum of what was appended would save the second fence, and cost more time than that to
//! compute. Extents double, from 64 KiB to 256 MiB. They stay the file's until it is removed, so that the next journal in
//! it takes none.

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

/// A plain file in a pool: written in place, durable when it is synced.
///
/// ```
/// use remanent_blockdev::file::File;
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let file = File::create(&pool, "journal")?;
/// file.write(8, b"records")?; // makes it longer; bytes 0 to 7 are zeros
/// file.write(0, b"a header")?;
/// file.sync()?; // from here on all of it survives
///
/// let mut bytes = [0; 100];
/// assert_eq!(file.read(4, &mut bytes)?, 11);
/// assert_eq!(&bytes[..11], b"aderrecords");
///
/// file.set_present(false)?; // gone, for one fence; its space is kept
/// assert!(!file.is_present() && file.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share one file. All methods may be called by any number of threads: writers wait for each other, readers for
/// nobody. A reader of bytes that are being written gets some of them as they were and some as they will be. When the
/// last clone is dropped the file is synced.
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

    /// Makes an empty file, present, under a new root. It takes 64 KiB of the pool, and more as it is written.
    ///
    /// # Errors
    ///
    /// When the root exists, its name cannot be one, or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(File { body: pool.create_root::<Body<M>>(name)? })
    }

    /// Opens the file under a root: takes the same time for any length, and reads a line for each seven extents.
    ///
    /// # Errors
    ///
    /// When there is none, or it is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(File { body: pool.open_root::<Body<M>>(name)? })
    }

    /// Removes a file and gives its space back, in time proportional to the pool.
    ///
    /// # Errors
    ///
    /// When there is none of that name, the root is something else, or it is open.
    pub fn remove(pool: &Pool<M>, name: &str) -> Result<()> {
        let root = pool.roots()?.into_iter().find(|root| root.name == name);
        let expected = <Body<M> as RootObject<M>>::root_type();
        match root {
            // Of any layout: an older version's is removed, too.
            Some(root) if root.root_type.name != expected.name => {
                let (name, found) = (name.to_owned(), root.root_type);
                Err(PoolError::WrongType { name, found, expected }.into())
            }
            _ => Ok(pool.remove_root(name)?),
        }
    }

    /// Bytes of the file, those included that are not synced.
    pub fn len(&self) -> u64 {
        self.body.len()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the pool that its extents take.
    pub fn allocated(&self) -> u64 {
        self.body.capacity()
    }

    /// Reads from `offset` on, and returns how many bytes there were: fewer than asked for at the end of the file.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.body.read(offset, bytes)
    }

    /// Writes in place, at any offset. Beyond the end the file becomes longer, and a gap reads as zeros.
    ///
    /// Nothing of it is durable before the next [`sync`](File::sync).
    ///
    /// # Errors
    ///
    /// When the pool is full; [`FileTooLong`](crate::Error::FileTooLong) when the file would have more than 98 extents,
    /// with which it may be 20 GiB long and more unless the pool has only small pieces left. Nothing was changed then.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.body.write(offset, bytes)
    }

    /// Makes everything durable that was written before, by any thread, and the length.
    ///
    /// What another thread has written is written once more: a fence is for the thread's own stores. So it costs least
    /// where the thread that writes syncs.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: then nothing is promised.
    pub fn sync(&self) -> Result<()> {
        self.body.sync()
    }

    /// Gives the file another length, durably when it returns. What is added reads as zeros. What lies below is not
    /// changed, and durable as far as it lies behind the last synced end.
    ///
    /// # Errors
    ///
    /// As for [`write`](File::write).
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.body.set_len(len)
    }

    /// Whether the file is marked as present. It is when it was just created.
    pub fn is_present(&self) -> bool {
        self.body.is_present()
    }

    /// Marks the file as present or not, durably when it returns: for who creates and deletes a file often.
    ///
    /// A file that is not present any more has lost its content: its length is 0. Its space is kept. The mark is for
    /// the caller: who writes to a file that is not present makes it longer, and not present.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn set_present(&self, present: bool) -> Result<()> {
        self.body.set_present(present)
    }

    /// Where the file's lines are: for tests that damage them.
    #[doc(hidden)]
    pub fn lines(&self) -> crate::Lines {
        self.body.lines()
    }

    /// Proves that the metadata are whole and the extents the file's own. Writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the file is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.body.check()
    }
}
