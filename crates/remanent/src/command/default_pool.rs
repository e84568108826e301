//! Where the pool of a server lies that was told of none.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// A file in memory that outlives the process, one for each user.
///
/// `/dev/shm` where there is one: it survives the process, not a restart of the machine, and
/// persisting costs nothing. Else the user's run-time directory, else the directory for temporary
/// files, which is a disk on most machines and then survives as much as durability `process` says.
pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let shared_memory = Path::new("/dev/shm");
    let path = if shared_memory.is_dir() {
        shared_memory.join(format!("remanent-{user}.pool"))
    } else if let Some(directory) = std::env::var_os("XDG_RUNTIME_DIR") {
        Path::new(&directory).join("remanent.pool")
    } else {
        std::env::temp_dir().join(format!("remanent-{user}.pool"))
    };
    refuse_strangers(&path, user)?;
    Ok(path)
}

/// The directory may be open to everyone: what somebody else put there is not our pool.
fn refuse_strangers(path: &Path, user: u32) -> anyhow::Result<()> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    if !metadata.is_file() || metadata.uid() != user {
        bail!(
            "the default pool {} is not a file of yours but of user {}; choose another with --pool",
            path.display(),
            metadata.uid()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_file_of_ours_is_refused() -> anyhow::Result<()> {
        let user = rustix::process::getuid().as_raw();
        let directory = tempfile::tempdir()?;
        let own = directory.path().join("own.pool");
        refuse_strangers(&own, user)?;
        std::fs::write(&own, "")?;
        refuse_strangers(&own, user)?;
        assert!(refuse_strangers(&own, user + 1).is_err(), "another user's file");
        let link = directory.path().join("link.pool");
        std::os::unix::fs::symlink(&own, &link)?;
        assert!(refuse_strangers(&link, user).is_err(), "a link may lead anywhere");
        Ok(())
    }
}
