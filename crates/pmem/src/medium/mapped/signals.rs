//! Signals that end a process where an error would do.

/// Makes exceeding the process's file size limit (`ulimit -f`) an error, which operations report
/// like a full file system. Without this call SIGXFSZ ends the process.
///
/// The call affects the whole process, so the program decides, not the library. Call it before the
/// first pool is opened.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no code, and SIGXFSZ may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
