//! The versions that the server reports: the version of Redis that it follows, and its own.

/// The version of Redis that the server follows in its commands, answers and error texts.
///
/// Clients decide by it what they may send. It is not the server's own version.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// The server's own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
