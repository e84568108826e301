//! How a pool file is created and opened.

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
/// What messages call a pool in memory that has no name.
const IN_MEMORY: &str = "(anonymous memory)";
/// How often a waiting opener tries the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// What a new pool is to be, on any medium.
#[derive(Clone, Debug)]
pub struct Format {
    /// Length in bytes beyond which the pool does not grow.
    pub size_max: u64,
    /// Identity of the pool. What structures recognise as their own depends on it, so a medium that
    /// is formatted again wants another one.
    pub uuid: [u8; 16],
    /// What it lies on and promises.
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
    /// It contains the pool's metadata, which no value can use: 16.6 MiB of each 4 GiB that are begun
    /// ([`METADATA_LEN`](crate::pool::layout::METADATA_LEN)), so that a pool of 20 MiB holds 3.4 MiB. Of the file system
    /// metadata takes space only as far as it is used: 264 bytes for each 64 KiB of values.
    pub fn size_max(mut self, bytes: u64) -> Self {
        self.size_max = bytes;
        self
    }

    /// What is to survive once a call has returned. What the backing cannot give is an error.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Treats DRAM as persistent memory, for research and tests.
    pub fn emulation(mut self, emulation: Emulation) -> Self {
        self.emulation = emulation;
        self
    }

    /// Writes lines back with this instruction, for research, where it is done by an instruction at all: to compare
    /// with what was measured on CPUs that had no better one. Else it is the best that the CPU has.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.flush_instruction = Some(instruction);
        self
    }

    /// Declares that the medium may leave garbage, in any word, in a line that was being written when the
    /// power failed. A pool remembers it from its creation; an existing one may be declared so while it
    /// is open.
    ///
    /// Structures then use a form that survives it, or refuse to be created and opened with
    /// [`Error::Disturbed`]. The pool writes the lines that it keeps of itself twice, which makes growing, creating and
    /// removing slower.
    pub fn write_disturbance(mut self, declared: bool) -> Self {
        self.write_disturbance = declared;
        self
    }

    /// Opens a file of the calling user's own only: a regular file that the path names itself, not through a symbolic
    /// link, that has no other name, and that nobody else may write. For paths in directories where others may put
    /// files, such as `/dev/shm`.
    ///
    /// What was opened is looked at, not what the path named a moment before. The directory must be one in which
    /// others cannot rename the caller's files: theirs to write only if it is sticky.
    pub fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Bytes of free space that keep their memory or disk space for the next use, by default 4 MiB; what is free beyond
    /// that goes back to the file system when it is freed, and all of it when the file system is full.
    ///
    /// With more, a pool whose values come and go in large numbers asks the file system less often. It counts in this
    /// opening alone.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// How long to wait for another process to release the pool.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Creates a pool file, for its owner alone (mode 0600). It appears under its name only when it is
    /// whole.
    ///
    /// # Errors
    ///
    /// When the file exists, or the backing cannot give what was asked for. Under
    /// [`Emulation::Latency`] use [`create_emulated`](Options::create_emulated).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.refuse_latency(path.as_ref())?;
        self.create_on(path.as_ref(), |mapped| mapped)
    }

    /// Creates a pool in memory that has no name and ends with the pool: for indexes that are rebuilt, and for tests.
    ///
    /// The same structures live in it, without a flush or a fence, and nobody else can open it. It takes memory as it
    /// is filled, up to `size_max`, and gives back what is freed, as a file in tmpfs does; the system counts it as shared
    /// memory of this process. All of it is gone when the last handle is dropped, or the process ends. Whether it gets
    /// huge pages is decided as for tmpfs.
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
    /// [`Error::Unsupported`] for durability `Power`, and under [`Emulation::Latency`]; what the system reports when it
    /// gives no memory or no descriptor.
    pub fn create_in_memory(&self) -> Result<Pool> {
        let path = Path::new(IN_MEMORY);
        self.refuse_latency(path)?;
        check_size_max(self.size_max, path)?;
        let (mapped, guarantee) = self.map(memory_file()?, path, Access::Shared, self.size_max)?;
        self.format(mapped, guarantee)
    }

    /// Opens a pool file, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When it is no pool, of another version, truncated, locked, or cannot give what was asked for.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.refuse_latency(path.as_ref())?;
        self.open_with(path.as_ref(), Access::Shared, |mapped| mapped)
    }

    /// Opens a pool file for inspection: nothing in the file changes, whatever is done to the pool.
    ///
    /// Stores, those of recovery among them, go to private copies of the pages that they touch, and end with
    /// this process. So a pool can be checked as a crash left it, also one on a read-only file system or one
    /// that the caller may only read. Any number of processes may inspect a pool at once; none may while
    /// it is open for use. Takes memory for the pages that recovery stores to.
    ///
    /// The durability and the emulation asked for are ignored. [`PoolInfo::opens`](crate::PoolInfo) counts the inspection.
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
    /// As for [`open`](Options::open); [`Error::Unsupported`] on a devdax device, which cannot be mapped
    /// privately. [`Error::Inspected`] from whatever would make the pool grow.
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

    /// Opens a pool file, or creates it when there is none.
    ///
    /// # Errors
    ///
    /// As for [`open`](Options::open) and [`create`](Options::create).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        match self.open(path.as_ref()) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                match self.create(path.as_ref()) {
                    // Another process was quicker: what it made is as good.
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

    /// Creates a pool file whose accesses cost what an [`Emulation::Latency`] says.
    ///
    /// # Errors
    ///
    /// As for [`create`](Options::create), and when the emulation is another one.
    pub fn create_emulated(&self, path: impl AsRef<Path>) -> Result<Pool<Emulated>> {
        let latency = self.latency(path.as_ref())?;
        self.create_on(path.as_ref(), |mapped| Emulated::new(mapped, latency))
    }

    /// Opens a pool file whose accesses cost what an [`Emulation::Latency`] says.
    ///
    /// # Errors
    ///
    /// As for [`open`](Options::open), and when the emulation is another one.
    pub fn open_emulated(&self, path: impl AsRef<Path>) -> Result<Pool<Emulated>> {
        let latency = self.latency(path.as_ref())?;
        self.open_with(path.as_ref(), Access::Shared, |mapped| Emulated::new(mapped, latency))
    }

    /// As [`create_in_memory`](Options::create_in_memory), with accesses that cost what an [`Emulation::Latency`] says.
    ///
    /// # Errors
    ///
    /// As for [`create_in_memory`](Options::create_in_memory), and when the emulation is another one.
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
        // Written under another name and renamed: a crash leaves no half pool under this one.
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
            // Removed, and perhaps made anew, while the lock was waited for.
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
        // No waiting, should it be something else than a file: a pipe, say.
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

    /// Takes the lock, waiting as long as allowed: for itself, or together with others who inspect the pool.
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

/// Refuses a file that somebody else made, or could lead us to or change.
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

/// Refuses a directory in which others may rename and remove what is not theirs.
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

/// The directory that a file lies in.
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

/// Memory that is grown and mapped as a file, and has no name.
fn memory_file() -> Result<File> {
    let memory = memfd_create("remanent", MemfdFlags::CLOEXEC);
    memory.map(File::from).map_err(|e| Error::io("create", Path::new(IN_MEMORY), e))
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// A name that nobody else uses: two threads, or processes, may create the same pool at once.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:032x}.new", u128::from_le_bytes(random_uuid())));
    path.with_file_name(name)
}

/// How much address range the pool in `file` was created for.
fn stored_size_max(file: &File, path: &Path, access: Access) -> Result<u64> {
    let backing = detect::detect(file, path)?;
    let file = file.try_clone().map_err(|e| Error::io("open", path, e))?;
    let mapping = Mapping::new(file, path, backing, access, CHUNK_LEN)?;
    let header = Mapped::new(mapping, Durability::Process, Emulation::None, None);
    let superblock = Superblock::read(&header).map_err(|error| name_file(error, path))?;
    Ok(superblock.size_max)
}

/// Puts the file's name into errors that were found below the level of files.
fn name_file(error: Error, path: &Path) -> Error {
    match error {
        Error::NotAPool { reason, .. } => Error::NotAPool { path: path.to_owned(), reason },
        other => other,
    }
}

/// The process that holds the lock on `file`, as the kernel lists it; this one, if it is among
/// several.
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
