//! Listening sockets of Remanent's servers, whatever protocol they speak.
//!
//! [`listen_tcp`] and [`UnixListener`] bind to an address even if an earlier server has left
//! connections or a socket file there. [`Spare`] answers connections for which the process has no
//! file descriptor left.
#![forbid(unsafe_code)]

mod spare;
mod tcp;
mod unix;

use std::time::Duration;

pub use spare::Spare;
pub use tcp::{listen_tcp, prepare_tcp};
pub use unix::{SocketFile, UnixListener};

/// Pause before a server accepts again, after accepting failed because the system lacked something.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
