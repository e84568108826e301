//! Listening sockets of Remanent's servers, whatever is said on them.
//!
//! [`listen_tcp`] and [`UnixListener`] bind without waiting for what a former server has left; [`Spare`] answers connections
//! that the process has no descriptor for.
#![forbid(unsafe_code)]

mod spare;
mod tcp;
mod unix;

use std::time::Duration;

pub use spare::Spare;
pub use tcp::{listen_tcp, prepare_tcp};
pub use unix::{SocketFile, UnixListener};

/// How long a server waits before it accepts again, after the system refused a connection for want of something.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
