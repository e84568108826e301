//! The default path of a server's pool.

use std::path::{Path, PathBuf};

/// A file in memory that outlives the process, one for each user.
///
/// `/dev/shm` if it exists: it survives the process but not a restart of the machine, and
/// persisting costs nothing. Otherwise the user's run-time directory. Otherwise the directory for
/// temporary files, which is a disk on most machines; there durability `process` holds as usual.
///
/// Everybody may write to these directories, so open the file with
/// [`Options::private`](remanent::pmem::Options::private): a file of somebody else is not our pool.
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
