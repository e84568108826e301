//! Where the pool of a server lies that was told of none.

use std::path::{Path, PathBuf};

/// A file in memory that outlives the process, one for each user.
///
/// `/dev/shm` where there is one: it survives the process, not a restart of the machine, and
/// persisting costs nothing. Else the user's run-time directory, else the directory for temporary
/// files, which is a disk on most machines and then survives as much as durability `process` says.
///
/// The directory may be open to everyone, so the file is to be opened with
/// [`Options::private`](remanent::pmem::Options::private): what somebody else put there is not our pool.
pub(crate) fn path() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() {
        shared_memory.join(format!("remanent-{user}.pool"))
    } else if let Some(directory) = std::env::var_os("XDG_RUNTIME_DIR") {
        Path::new(&directory).join("remanent.pool")
    } else {
        std::env::temp_dir().join(format!("remanent-{user}.pool"))
    }
}
