//! The versions that the server reports: that of Redis which it follows, and its own.

/// The Redis version whose commands, answers and error texts are those of this server.
///
/// Clients choose by it what they may send; it is not this server's own version.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// This server's own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
