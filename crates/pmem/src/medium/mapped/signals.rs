//! Signals that end a process where an error would do.

/// Lets a file that would grow beyond the limit of the process (`ulimit -f`) be an error, which operations answer as they
/// answer a full file system. Without this, SIGXFSZ ends the process.
///
/// It holds for the whole process, so the program decides, not the library: call it before the first pool is opened.
pub fn ignore_file_size_signal() {
    // SAFETY: to ignore a signal installs no code, and SIGXFSZ may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
