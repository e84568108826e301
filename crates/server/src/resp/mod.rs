//! The Redis serialisation protocol, versions 2 and 3, without sockets.
//!
//! [`Parser`] turns bytes into requests without copying them, however the bytes were split on the
//! way. [`Output`] encodes the answers of one connection.

mod inline;
mod number;
mod output;
mod parser;
mod peek;

pub use number::{format_f64, parse_cursor, parse_f64, parse_f64_limit, parse_i64, parse_u64};
pub use output::{Output, OutputFailure, Protocol};
pub use parser::{Limits, Parser, Request, Span};
pub(crate) use peek::peek;

use std::io::Write;

/// Why bytes are no request. The client gets the error, and the connection is closed.
///
/// The texts are those of Redis, without its prefix `ERR Protocol error: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// An inline request is longer than allowed and has not ended.
    #[error("too big inline request")]
    InlineTooBig,
    /// A quote in an inline request is not closed, or the closing quote is not followed by a space.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line after `*` is longer than allowed and has not ended.
    #[error("too big mbulk count string")]
    CountTooLong,
    /// The line after `*` is no number, or announces more arguments than allowed.
    #[error("invalid multibulk length")]
    InvalidCount,
    /// The request has more arguments than a client may send before it has authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// The line after `$` is longer than allowed and has not ended.
    #[error("too big bulk count string")]
    BulkTooLong,
    /// An argument does not begin with `$`.
    #[error("expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    /// The line after `$` is no number, or announces a longer argument than allowed.
    #[error("invalid bulk length")]
    InvalidBulk,
    /// An argument is longer than a client may send before it has authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulk,
    /// The arguments together are longer than allowed.
    #[error("too big request")]
    RequestTooBig,
    /// The system has no memory for the positions of the arguments.
    #[error("out of memory")]
    NoMemory,
}

/// Appends a request to `bytes`, encoded as clients send it.
///
/// ```
/// let mut bytes = Vec::new();
/// remanent_server::resp::encode_request(&mut bytes, &[b"GET", b"key"]);
/// assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
/// ```
pub fn encode_request<A: AsRef<[u8]>>(bytes: &mut Vec<u8>, arguments: &[A]) {
    write!(bytes, "*{}\r\n", arguments.len()).expect("a vector takes every byte");
    for argument in arguments.iter().map(AsRef::as_ref) {
        write!(bytes, "${}\r\n", argument.len()).expect("a vector takes every byte");
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}
