//! The mapped pool file: one reserved address range, in which the file grows.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, FileType, FlockOperation, fallocate, fdatasync, flock, fstat, ftruncate,
};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap,
};

use super::sigbus;
use crate::error::{Error, Result, StorageLimit};
use crate::medium::backing::Backing;
use crate::medium::units::{HUGE_LEN, PAGE_LEN};

/// How often room is asked for at the most while signals come.
const ATTEMPTS: usize = 100;

/// Where stores to a mapping go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To the file: everybody who has it sees them.
    Shared,
    /// To private copies of the pages: only this process sees them, and the file never changes.
    Private,
}

/// A mapping of `reserved` bytes of a file, of which the first `len` exist.
///
/// The whole range is mapped at once, at an address aligned to a huge page. Growing only lengthens
/// the file, so no address changes and no pointer becomes invalid.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    reserved: u64,
    /// Address and length of the reservation around the mapping, which exists for the alignment.
    slack: (usize, usize),
    len: AtomicU64,
    file: File,
    path: PathBuf,
    backing: Backing,
    access: Access,
    /// Whether the pool's lock is released with this mapping.
    holds_lock: bool,
}

// SAFETY: the mapping is plain shared memory; all access to it goes through atomics or through
// copies whose callers promise exclusion.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `reserved` bytes of `file`. Its present length is accessible.
    pub(crate) fn new(
        file: File,
        path: &Path,
        backing: Backing,
        access: Access,
        reserved: u64,
    ) -> Result<Self> {
        let len = file_len(&file, path, backing)?;
        let reserved = reserved.max(len).next_multiple_of(PAGE_LEN);
        let flags = match (access, backing) {
            (Access::Private, _) => MapFlags::PRIVATE | MapFlags::NORESERVE,
            (Access::Shared, Backing::Dax) => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            (Access::Shared, _) => MapFlags::SHARED | MapFlags::NORESERVE,
        };
        let slack = reserve(reserved as usize + HUGE_LEN as usize)
            .map_err(|e| Error::io("reserve addresses for", path, e))?;
        let aligned = slack.0.next_multiple_of(HUGE_LEN as usize);
        // SAFETY: the replaced range lies inside the range just reserved, which nobody else knows.
        let mapped = unsafe {
            mmap(
                aligned as *mut _,
                reserved as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                flags | MapFlags::FIXED,
                file.as_fd(),
                0,
            )
        };
        let address = mapped.map_err(|e| {
            unmap(slack);
            Error::io("map", path, e)
        })?;
        let base = NonNull::new(address.cast::<u8>()).expect("mmap never returns a null address");
        if backing == Backing::Memory && access == Access::Shared {
            // SAFETY: advice changes no content. The kernel follows it if the administrator allows
            // huge pages in tmpfs (`shmem_enabled`), and ignores it otherwise.
            let _ = unsafe { madvise(address, reserved as usize, Advice::LinuxHugepage) };
        }
        Ok(Mapping {
            base,
            reserved,
            slack,
            len: AtomicU64::new(len),
            file,
            path: path.to_owned(),
            backing,
            access,
            holds_lock: false,
        })
    }

    /// The same mapping, which now also releases the file's lock.
    pub(crate) fn holding_lock(mut self) -> Self {
        self.holds_lock = true;
        self
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(crate) fn len(&self) -> u64 {
        // Acquire: partner of the Release in `grow`; a thread that sees the length may access the
        // bytes.
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of storage that the file occupies.
    pub(crate) fn physical_len(&self) -> Result<u64> {
        let stat = fstat(&self.file).map_err(|e| Error::io("inspect", &self.path, e))?;
        Ok(stat.st_blocks as u64 * 512)
    }

    /// Lengthens the file to `len` bytes, durably after the next [`sync_file`](Mapping::sync_file).
    pub(crate) fn grow(&self, len: u64) -> Result<()> {
        let present = self.len();
        if len <= present {
            return Ok(());
        }
        if self.access == Access::Private {
            return Err(Error::Inspected { path: self.path.clone() });
        }
        if len > self.reserved {
            let (needed, size_max) = (len - present, self.reserved);
            return Err(Error::Full { needed, size: present, size_max });
        }
        let found =
            fstat(&self.file).map_err(|e| Error::io("inspect", &self.path, e))?.st_size as u64;
        if found < present {
            // A truncated file must not grow again: it would hold zeros that look like written
            // data.
            let what =
                format!("the file ends here but had {present} bytes: it was truncated while open");
            return Err(Error::corrupt(found, what));
        }
        ftruncate(&self.file, len).map_err(|e| self.refused("grow", len - present, e))?;
        // Release: partner of the Acquire in `len`.
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Fills the holes of a range, so that a store to it cannot meet a full file system.
    pub(crate) fn commit(&self, offset: u64, len: u64) -> Result<()> {
        if self.access == Access::Private {
            return Ok(());
        }
        // `KEEP_SIZE`: a truncated file stays truncated, so that its next access is an error and
        // does not read zeros.
        let allocate = || fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len);
        // Some kernels break off at any signal, in files that lie in memory, and begin anew.
        // Signals may come again and again.
        let mut attempts = (0..ATTEMPTS).map(|_| allocate());
        let done = attempts.find(|done| *done != Err(Errno::INTR)).unwrap_or_else(allocate);
        match done {
            Ok(()) => Ok(()),
            // A file system without preallocation: the first store to a page allocates it.
            Err(Errno::OPNOTSUPP | Errno::NODEV) => Ok(()),
            Err(e) => Err(self.refused("allocate space for", len, e)),
        }
    }

    fn refused(&self, action: &'static str, needed: u64, errno: Errno) -> Error {
        match StorageLimit::of(errno) {
            Some(limit) => Error::StorageFull { needed, path: self.path.clone(), limit },
            None => Error::io(action, &self.path, errno),
        }
    }

    /// Punches a hole: the range reads as zero and takes no space. Durable after the next
    /// [`sync_file`](Mapping::sync_file).
    pub(crate) fn release(&self, offset: u64, len: u64) -> bool {
        if self.access == Access::Private {
            return false;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset, len).is_ok()
    }

    /// Makes the file's metadata durable: its length, its holes, and its allocated space.
    pub(crate) fn sync_file(&self) -> Result<(), Errno> {
        match fdatasync(&self.file) {
            // A devdax device has a fixed length and no holes, and refuses to be synced.
            Err(Errno::INVAL) => Ok(()),
            synced => synced,
        }
    }

    /// Writes back the pages of a range and waits for them.
    pub(crate) fn sync(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let start = offset & !(PAGE_LEN - 1);
        let end = (offset + len).next_multiple_of(PAGE_LEN).min(self.reserved);
        // SAFETY: the caller passes a range inside the pool, so `start` is inside the mapping.
        let address = unsafe { self.base.as_ptr().add(start as usize) };
        // SAFETY: the range lies inside the mapping, which lives as long as `self`.
        unsafe { msync(address.cast(), (end - start) as usize, MsyncFlags::SYNC) }
    }

    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        sigbus::unregister(self.base.as_ptr());
        unmap(self.slack);
        if self.holds_lock {
            // Closing the file is not enough: a forked child that has not yet executed its program
            // shares the file, and would hold the lock a little longer.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Reserves addresses without memory behind them.
fn reserve(len: usize) -> Result<(usize, usize), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for, so no existing mapping is replaced.
    let address = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
    Ok((address as usize, len))
}

fn unmap((address, len): (usize, usize)) {
    // SAFETY: the range was reserved by `reserve`, and nothing borrows from what was mapped into
    // it.
    let unmapped = unsafe { munmap(address as *mut _, len) };
    debug_assert!(unmapped.is_ok(), "unmapping our own range cannot fail");
}

fn file_len(file: &File, path: &Path, backing: Backing) -> Result<u64> {
    let stat = fstat(file).map_err(|e| Error::io("inspect", path, e))?;
    // A new file on a DAX file system also has no length, so check for a device.
    if backing == Backing::Dax && FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
    {
        return device_len(stat.st_rdev, path);
    }
    Ok(stat.st_size as u64)
}

/// Length of a devdax device, which `stat` does not report.
fn device_len(device: u64, path: &Path) -> Result<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let attribute = format!("/sys/dev/char/{major}:{minor}/size");
    let text = std::fs::read_to_string(&attribute).map_err(|e| Error::io("size", path, e))?;
    text.trim().parse().map_err(|_| Error::NotAPool {
        path: path.to_owned(),
        reason: format!("{attribute} holds {text:?}, not a size"),
    })
}

/// Whether the kernel grants `MAP_SYNC` for this file. Only DAX file systems do.
pub(crate) fn supports_map_sync(file: &File) -> bool {
    // SAFETY: no address is asked for, so no existing mapping is replaced.
    let trial = unsafe {
        mmap(
            ptr::null_mut(),
            PAGE_LEN as usize,
            ProtFlags::READ,
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            file.as_fd(),
            0,
        )
    };
    let Ok(address) = trial else { return false };
    // SAFETY: just mapped, and nothing refers to it.
    let unmapped = unsafe { munmap(address, PAGE_LEN as usize) };
    unmapped.is_ok()
}
