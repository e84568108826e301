//! What is accepted of a client.
//!
//! | item from a client | limit | beyond it |
//! |---|---|---|
//! | payload of a write, length of a read | 32 MiB | `EINVAL`, and the payload is skipped |
//! | other ranges | 32 bits | |
//! | data of an option | 64 KiB | `TOO_BIG`; a disconnect beyond 16 MiB |
//! | name of an export, query of contexts | 4096 bytes | `TOO_BIG`, `INVALID` |
//! | options | 1024 | disconnect |
//! | silence during the negotiation | 60 s | disconnect |

use std::time::Duration;

/// Maximal length of a read, or of a write's payload, in bytes.
pub const REQUEST_LEN_MAX: u32 = 32 << 20;
/// Maximal length of an export's name in bytes; the protocol's limit for every string.
pub const NAME_LEN_MAX: usize = 4096;

/// Upper limit of the smallest block in the protocol.
pub(crate) const BLOCK_SIZE_MIN_MAX: u32 = 64 << 10;
/// Maximal length of an option's data in bytes: a list of contexts may be longer than a name.
pub(crate) const OPTION_LEN_MAX: u32 = 64 << 10;
/// Maximal length of an option's data that is skipped; more data end the connection.
pub(crate) const OPTION_LEN_SKIPPED_MAX: u32 = 16 << 20;
/// Maximal number of options; a complete negotiation takes about five.
pub(crate) const OPTIONS_MAX: u32 = 1024;
/// Maximal silence of a client that has not chosen an export.
pub(crate) const NEGOTIATION_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Maximal number of pieces in one reply; clients ask again for the rest.
pub(crate) const PIECES_MAX: usize = 4096;
/// Maximal length of an error's message in bytes.
pub(crate) const MESSAGE_LEN_MAX: usize = 1024;
