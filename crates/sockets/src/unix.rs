//! Unix sockets. Their files outlive a server that is killed, and are replaced by the next one.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A listening socket and its file.
#[derive(Debug)]
pub struct UnixListener {
    listener: std::os::unix::net::UnixListener,
    file: SocketFile,
}

/// The file of a listening socket. Dropping this removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, which tell the file from one that another server has put in its place.
    identity: (u64, u64),
}

impl UnixListener {
    /// Listens on a path. A socket file there on which nobody listens is replaced.
    ///
    /// The socket is non-blocking.
    ///
    /// # Errors
    ///
    /// When the system refuses the path, or another server listens on it.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = match std::os::unix::net::UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
                fs::remove_file(path)?;
                std::os::unix::net::UnixListener::bind(path)?
            }
            bound => bound?,
        };
        listener.set_nonblocking(true)?;
        let identity = SocketFile::identity(path)?;
        Ok(UnixListener { listener, file: SocketFile { path: path.to_owned(), identity } })
    }

    /// The socket and its file. The file is removed when the second part is dropped.
    #[must_use]
    pub fn into_parts(self) -> (std::os::unix::net::UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Whether a file is a socket that nobody listens on.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let connected = std::os::unix::net::UnixStream::connect(path);
    is_socket && connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

impl SocketFile {
    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Self::identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // Best effort: the next server replaces a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}
