//! The Redis serialisation protocol, versions 2 and 3, apart from the sockets that carry it.
//!
//! [`Parser`] turns bytes into requests without copying them, however they were split on the way;
//! [`Output`] encodes the answers of one connection.

mod inline;
mod number;
mod output;
mod parser;

pub use number::{format_f64, parse_cursor, parse_f64, parse_f64_limit, parse_i64, parse_u64};
pub use output::{Output, OutputFailure, Protocol};
pub use parser::{Limits, Parser, Request, Span};

use std::io::Write;

/// Why a connection's bytes are no request; the connection is closed after the client was told.
///
/// The texts are those of Redis, without its prefix `ERR Protocol error: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// An inline request that does not end.
    #[error("too big inline request")]
    InlineTooBig,
    /// A quote in an inline request that is not closed, or is followed by no space.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line after `*` does not end.
    #[error("too big mbulk count string")]
    CountTooLong,
    /// The line after `*` is no number, or more arguments than are allowed.
    #[error("invalid multibulk length")]
    InvalidCount,
    /// More arguments than a client may send before it has authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// The line after `$` does not end.
    #[error("too big bulk count string")]
    BulkTooLong,
    /// An argument does not begin with `$`.
    #[error("expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    /// The line after `$` is no number, or a longer argument than is allowed.
    #[error("invalid bulk length")]
    InvalidBulk,
    /// A longer argument than a client may send before it has authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulk,
    /// All arguments together are longer than is allowed.
    #[error("too big request")]
    RequestTooBig,
    /// The system has no memory for the positions of the arguments.
    #[error("out of memory")]
    NoMemory,
}

/// Encodes a request as clients send it, at the end of `bytes`.
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
