//! Creating and opening a pool file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    CWD, FlockOperation, MemfdFlags, OFlags, RenameFlags, flock, memfd_create, renameat_with,
};
use rustix::io::Errno;

use super::layout::CHUNK_LEN;
use super::space::reserve::RESERVE_BYTES_DEFAULT;
use super::superblock::Superblock;
use super::{Guarantee, Pool, check_size_max};
use crate::medium::isa::{self, FlushInstruction};
use crate::medium::mapped::mapping::{Access, Mapping};
use crate::medium::{backing, detect};
use crate::{Backing, Durability, Emulated, Emulation, Error, Latency, Mapped, Result};

/// Default of [`Options::size_max`]: 64 GiB of address range, none of it used before it is needed.
const SIZE_MAX_DEFAULT: u64 = 64 << 30;
/// Name of an anonymous pool in memory, for messages.
const IN_MEMORY: &str = "(anonymous memory)";
/// Interval at which a waiting opener tries the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Properties of a new pool, on any medium.
#[derive(Clone, Debug)]
pub struct Format {
    /// Length in bytes beyond which the pool does not grow.
    pub size_max: u64,
    /// Identity of the pool. Structures recognise their own content by it, so a medium that is
    /// formatted again needs another one.
    pub uuid: [u8; 16],
    /// Backing and guarantee.
    pub guarantee: Guarantee,
}

impl Format {
    /// A pool of at most `size_max` bytes, with the guarantee of plain memory and no identity.
    pub fn new(size_max: u64) -> Self {
        Format { size_max, uuid: [0; 16], guarantee: Guarantee::default() }
    }
}

/// Builder for creating and opening pool files; see [`Pool::options`].
#[derive(Clone, Debug)]
pub struct Options {
    size_max: u64,
    durability: Durability,
    emulation: Emulation,
    flush_instruction: Option<FlushInstruction>,
    write_disturbance: bool,
    private: bool,
    reserve_bytes: u64,
    wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults: at most 64 GiB, durability `process`, no emulation, no waiting for the lock.
    pub fn new() -> Self {
        Options {
            size_max: SIZE_MAX_DEFAULT,
            durability: Durability::Process,
            emulation: Emulation::None,
            flush_instruction: None,
            write_disturbance: false,
            private: false,
            reserve_bytes: RESERVE_BYTES_DEFAULT,
            wait: Duration::ZERO,
        }
    }

    /// Length in bytes beyond which a new pool does not grow. An existing pool keeps its own.
    ///
    /// It includes the pool's metadata: 16.6 MiB of each 4 GiB that are begun
    /// ([`METADATA_LEN`](crate::pool::layout::METADATA_LEN)). So a pool of 20 MiB holds 3.4 MiB of
    /// values. On the file system metadata take space only as they are used: 264 bytes for each 64
    /// KiB of values.
    pub fn size_max(mut self, bytes: u64) -> Self {
        self.size_max = bytes;
        self
    }

    /// Sets the kind of crash that a returned call survives. A guarantee that the backing cannot
    /// give is an error.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Treats DRAM as persistent memory, for research and tests.
    pub fn emulation(mut self, emulation: Emulation) -> Self {
        self.emulation = emulation;
        self
    }

    /// Sets the instruction that writes lines back, for comparisons with measurements on older
    /// CPUs. Default: the best one that the CPU has. It has no effect if the backing needs no flush
    /// instruction.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.flush_instruction = Some(instruction);
        self
    }

    /// Declares that a power failure may leave garbage, in any word, in a line that is being
    /// written. A pool remembers this from its creation. For an existing pool the declaration holds
    /// while it is open.
    ///
    /// Structures then use a form that survives this, or refuse to be created and opened with
    /// [`Error::Disturbed`]. The pool makes a double write of its own lines, so growing, creating
    /// and removing are slower.
    pub fn write_disturbance(mut self, declared: bool) -> Self {
        self.write_disturbance = declared;
        self
    }

    /// Requires that the file belongs to the calling user alone: a regular file, with one name,
    /// which the path names without a symbolic link, and which nobody else may write. Use it for
    /// paths in directories where others may put files, such as `/dev/shm`.
    ///
    /// The opened file itself is checked, and not what the path named a moment before. Others must
    /// not be able to rename the caller's files in the directory: if they may write to it, it must
    /// be sticky.
    pub fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Sets the bytes of free space that keep their memory or disk space for the next use; 4 MiB by
    /// default. Free space beyond that goes back to the file system when it is freed; all of it
    /// does when the file system is full.
    ///
    /// With a larger reserve, a pool whose values come and go in large numbers asks the file system
    /// less often. The setting holds for this opening.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// Sets how long to wait for another process to release the pool.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Creates a pool file that only its owner may access (mode 0600). The file appears under its
    /// name when it is complete.
    ///
    /// # Errors
    ///
    /// When the file exists, or the backing cannot give the requested guarantee. Under
    /// [`Emulation::Latency`] use [`create_emulated`](Options::create_emulated).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.refuse_latency(path.as_ref())?;
        self.create_on(path.as_ref(), |mapped| mapped)
    }

    /// Creates a pool in anonymous memory: for indexes that are rebuilt, and for tests.
    ///
    /// It holds the same structures, without a flush or a fence, and nobody else can open it. Like
    /// a file in tmpfs it takes memory as it is filled, up to `size_max`, and gives freed memory
    /// back; the system counts it as shared memory of this process. It ends when the last handle is
    /// dropped, or with the process. It gets huge pages under the same conditions as tmpfs.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    ///
    /// let pool = Pool::options().size_max(1 << 30).create_in_memory()?;
    /// assert!(pool.info()?.roots.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for durability `Power`, and under [`Emulation::Latency`]; the
    /// system's error if it gives no memory or no descriptor.
    pub fn create_in_memory(&self) -> Result<Pool> {
        let path = Path::new(IN_MEMORY);
        self.refuse_latency(path)?;
        check_size_max(self.size_max, path)?;
        let (mapped, guarantee) = self.map(memory_file()?, path, Access::Shared, self.size_max)?;
        self.format(mapped, guarantee)
    }

    /// Opens a pool file, in whatever state a crash left it.
    ///
    /// # Errors
    ///
    /// When it is not a pool, of another version, truncated, locked, or cannot give the requested
    /// guarantee.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.refuse_latency(path.as_ref())?;
        self.open_with(path.as_ref(), Access::Shared, |mapped| mapped)
    }

    /// Opens a pool file for inspection: the file does not change, whatever is done to the pool.
    ///
    /// Stores, including those of recovery, go to private copies of the pages, and end with this
    /// process. So a pool can be checked as a crash left it, even on a read-only file system or
    /// with permission to read only. Any number of processes may inspect a pool at the same time,
    /// but not while it is open for use. Inspection takes memory for the pages that recovery stores
    /// to.
    ///
    /// Durability and emulation of these options are ignored. [`PoolInfo::opens`](crate::PoolInfo)
    /// counts the inspection.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("example.pool");
    /// drop(Pool::options().create(&path)?);
    /// let before = std::fs::read(&path)?;
    /// let pool = Pool::options().inspect(&path)?;
    /// assert!(pool.check()?.violations.is_empty());
    /// drop(pool);
    /// assert_eq!(std::fs::read(&path)?, before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`open`](Options::open); [`Error::Unsupported`] on a devdax device, which cannot be
    /// mapped privately. [`Error::Inspected`] from operations that would make the pool grow.
    pub fn inspect(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        if is_device(path) {
            return Err(Error::Unsupported {
                path: path.to_owned(),
                asked: "an inspection",
                reason: "a devdax device cannot be mapped privately; use `open`, which recovers it"
                    .to_owned(),
            });
        }
        let options =
            Options { durability: Durability::Process, emulation: Emulation::None, ..self.clone() };
        options.open_with(path, Access::Private, |mapped| mapped)
    }

    /// Opens a pool file, or creates it if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Options::open) and [`create`](Options::create).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        match self.open(path.as_ref()) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                match self.create(path.as_ref()) {
                    // Another process was quicker; its pool serves as well.
                    Err(Error::Io { source, .. })
                        if source.kind() == io::ErrorKind::AlreadyExists =>
                    {
                        self.open(path.as_ref())
                    }
                    created => created,
                }
            }
            opened => opened,
        }
    }

    /// Creates a pool file whose accesses take the time of an [`Emulation::Latency`].
    ///
    /// # Errors
    ///
    /// Those of [`create`](Options::create); a different emulation in the options.
    pub fn create_emulated(&self, path: impl AsRef<Path>) -> Result<Pool<Emulated>> {
        let latency = self.latency(path.as_ref())?;
        self.create_on(path.as_ref(), |mapped| Emulated::new(mapped, latency))
    }

    /// Opens a pool file whose accesses take the time of an [`Emulation::Latency`].
    ///
    /// # Errors
    ///
    /// Those of [`open`](Options::open); a different emulation in the options.
    pub fn open_emulated(&self, path: impl AsRef<Path>) -> Result<Pool<Emulated>> {
        let latency = self.latency(path.as_ref())?;
        self.open_with(path.as_ref(), Access::Shared, |mapped| Emulated::new(mapped, latency))
    }

    /// Like [`create_in_memory`](Options::create_in_memory), with accesses that take the time of an
    /// [`Emulation::Latency`].
    ///
    /// # Errors
    ///
    /// Those of [`create_in_memory`](Options::create_in_memory); a different emulation in the
    /// options.
    pub fn create_emulated_in_memory(&self) -> Result<Pool<Emulated>> {
        let path = Path::new(IN_MEMORY);
        let latency = self.latency(path)?;
        check_size_max(self.size_max, path)?;
        let (mapped, guarantee) = self.map(memory_file()?, path, Access::Shared, self.size_max)?;
        self.format(Emulated::new(mapped, latency), guarantee)
    }

    fn latency(&self, path: &Path) -> Result<Latency> {
        match self.emulation {
            Emulation::Latency(latency) => Ok(latency),
            Emulation::None | Emulation::Nvram => Err(Error::Unsupported {
                path: path.to_owned(),
                asked: "an emulated medium",
                reason: "no latency was given; set `Emulation::Latency`".to_owned(),
            }),
        }
    }

    fn refuse_latency(&self, path: &Path) -> Result<()> {
        match self.emulation {
            Emulation::None | Emulation::Nvram => Ok(()),
            Emulation::Latency(_) => Err(Error::Unsupported {
                path: path.to_owned(),
                asked: "emulated latency on the plain medium",
                reason: "use `create_emulated` or `open_emulated`".to_owned(),
            }),
        }
    }

    fn create_on<M: crate::Medium>(
        &self,
        path: &Path,
        wrap: impl FnOnce(Mapped) -> M,
    ) -> Result<Pool<M>> {
        if !self.private && is_device(path) {
            let file = self.open_file(path, Access::Shared)?;
            self.lock(&file, path, Access::Shared)?;
            let (mapped, guarantee) = self.map(file, path, Access::Shared, 0)?;
            return self.format(wrap(mapped), guarantee);
        }
        check_size_max(self.size_max, path)?;
        if self.private {
            check_directory(path)?;
        }
        // Written under another name and renamed, so that a crash leaves no incomplete pool under
        // this name.
        let temporary = temporary_path(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| Error::io("create", path, e))?;
        let made = self.lock(&file, path, Access::Shared).and_then(|()| {
            let (mapped, guarantee) = self.map(file, path, Access::Shared, self.size_max)?;
            let pool = self.format(wrap(mapped), guarantee)?;
            renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE)
                .map_err(|e| Error::io("create", path, e))?;
            self.sync_directory(path)?;
            Ok(pool)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        made
    }

    fn open_with<M: crate::Medium>(
        &self,
        path: &Path,
        access: Access,
        wrap: impl FnOnce(Mapped) -> M,
    ) -> Result<Pool<M>> {
        if self.private {
            check_directory(path)?;
        }
        let mut file = self.open_file(path, access)?;
        self.lock(&file, path, access)?;
        while !is_still_at(&file, path) {
            // The file was removed, and perhaps created anew, during the wait for the lock.
            file = self.open_file(path, access)?;
            self.lock(&file, path, access)?;
        }
        let size_max = stored_size_max(&file, path, access)?;
        let (mapped, guarantee) = self.map(file, path, access, size_max)?;
        let pool = Pool::recover_with(wrap(mapped), guarantee);
        pool.map(|pool| self.with_reserve(pool)).map_err(|error| name_file(error, path))
    }

    fn with_reserve<M: crate::Medium>(&self, pool: Pool<M>) -> Pool<M> {
        pool.set_reserve_bytes(self.reserve_bytes);
        pool
    }

    fn map(
        &self,
        file: File,
        path: &Path,
        access: Access,
        reserved: u64,
    ) -> Result<(Mapped, Guarantee)> {
        let backing = detect::detect(&file, path)?;
        backing::permit(backing, self.durability, self.emulation, path)?;
        if self.flush_instruction.is_some_and(|instruction| !isa::has(instruction)) {
            return Err(Error::Unsupported {
                path: path.to_owned(),
                asked: "a flush instruction",
                reason: "this CPU does not have it".to_owned(),
            });
        }
        let guarantee = Guarantee {
            path: path.to_owned(),
            backing,
            durability: self.durability,
            emulation: self.emulation,
            write_disturbance: self.write_disturbance,
        };
        let mapping = Mapping::new(file, path, backing, access, reserved)?.holding_lock();
        Ok((
            Mapped::new(mapping, self.durability, self.emulation, self.flush_instruction),
            guarantee,
        ))
    }

    fn format<M: crate::Medium>(&self, medium: M, guarantee: Guarantee) -> Result<Pool<M>> {
        let device_len = (guarantee.backing == Backing::Dax).then(|| medium.len());
        let size_max = match device_len {
            Some(len) if len >= CHUNK_LEN => self.size_max.min(len),
            _ => self.size_max,
        };
        let format = Format { size_max, uuid: random_uuid(), guarantee };
        Pool::format(medium, &format).map(|pool| self.with_reserve(pool))
    }

    fn open_file(&self, path: &Path, access: Access) -> Result<File> {
        let mut options = OpenOptions::new();
        // Without waiting, in case the path is not a file but a pipe, for example.
        options.read(true).write(access == Access::Shared);
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        if !self.private {
            return options.open(path).map_err(|e| Error::io("open", path, e));
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = options.custom_flags(flags.bits() as i32).open(path).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::LOOP) => Error::NotPrivate {
                    path: path.to_owned(),
                    reason: "it is a symbolic link, which may lead anywhere".to_owned(),
                },
                _ => Error::io("open", path, error),
            }
        })?;
        check_own(&file, path)?;
        Ok(file)
    }

    /// Takes the lock, waiting as long as allowed: exclusively, or shared with others that inspect
    /// the pool.
    fn lock(&self, file: &File, path: &Path, access: Access) -> Result<()> {
        let operation = match access {
            Access::Shared => FlockOperation::NonBlockingLockExclusive,
            Access::Private => FlockOperation::NonBlockingLockShared,
        };
        let start = Instant::now();
        loop {
            match flock(file, operation) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if start.elapsed() < self.wait => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Locked { path: path.to_owned(), holder: holder(file) });
                }
                Err(e) => return Err(Error::io("lock", path, e)),
            }
        }
        Ok(())
    }

    /// Makes the new name itself survive a power loss.
    fn sync_directory(&self, path: &Path) -> Result<()> {
        if self.durability == Durability::Process {
            return Ok(());
        }
        let synced = File::open(parent(path)).and_then(|directory| directory.sync_all());
        synced.map_err(|e| Error::io("make durable the directory of", path, e))
    }
}

/// Refuses a file that somebody else created, may change, or could have led us to.
fn check_own(file: &File, path: &Path) -> Result<()> {
    let metadata = file.metadata().map_err(|e| Error::io("look at", path, e))?;
    let user = rustix::process::geteuid().as_raw();
    let reason = if !metadata.is_file() {
        "it is no regular file".to_owned()
    } else if metadata.uid() != user {
        format!("it belongs to user {}, and you are user {user}", metadata.uid())
    } else if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        format!("others may write it (mode {:03o})", metadata.mode() & 0o777)
    } else if metadata.nlink() != 1 {
        format!("it has {} names", metadata.nlink())
    } else {
        return Ok(());
    };
    Err(Error::NotPrivate { path: path.to_owned(), reason })
}

/// Refuses a directory in which others may rename and remove the files of this user.
fn check_directory(path: &Path) -> Result<()> {
    let directory = parent(path);
    let metadata = std::fs::metadata(directory).map_err(|e| Error::io("look at", directory, e))?;
    let user = rustix::process::geteuid().as_raw();
    let reason = if metadata.uid() != user && metadata.uid() != 0 {
        format!("its directory belongs to user {}, and you are user {user}", metadata.uid())
    } else if metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0 {
        "others may rename files in its directory, which is not sticky".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::NotPrivate { path: path.to_owned(), reason })
}

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether `path` still names the file that was opened.
fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(opened), Ok(named)) => (opened.dev(), opened.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// An anonymous file in memory, which grows and is mapped like any file.
fn memory_file() -> Result<File> {
    let memory = memfd_create("remanent", MemfdFlags::CLOEXEC);
    memory.map(File::from).map_err(|e| Error::io("create", Path::new(IN_MEMORY), e))
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// A unique name, because two threads or processes may create the same pool at once.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:032x}.new", u128::from_le_bytes(random_uuid())));
    path.with_file_name(name)
}

/// The address range that the pool in `file` was created for.
fn stored_size_max(file: &File, path: &Path, access: Access) -> Result<u64> {
    let backing = detect::detect(file, path)?;
    let file = file.try_clone().map_err(|e| Error::io("open", path, e))?;
    let mapping = Mapping::new(file, path, backing, access, CHUNK_LEN)?;
    let header = Mapped::new(mapping, Durability::Process, Emulation::None, None);
    let superblock = Superblock::read(&header).map_err(|error| name_file(error, path))?;
    Ok(superblock.size_max)
}

/// Puts the file's name into errors from below the level of files.
fn name_file(error: Error, path: &Path) -> Error {
    match error {
        Error::NotAPool { reason, .. } => Error::NotAPool { path: path.to_owned(), reason },
        other => other,
    }
}

/// The process that holds the lock on `file`, according to the kernel's list. If several hold it
/// and this process is one of them, it is this process.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    // One line a lock: "1: FLOCK  ADVISORY  WRITE 4242 00:1a:5 0 EOF".
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holders = locks.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(5) == Some(&wanted.as_str())).then(|| fields[4].parse().ok())?
    });
    holders.max_by_key(|&pid| pid == std::process::id())
}

/// A random UUID, version 4.
fn random_uuid() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut uuid = [0; 16];
    let (high, low) = uuid.split_at_mut(8);
    high.copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    low.copy_from_slice(&RandomState::new().hash_one(Instant::now()).to_le_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
