//! Network block devices: exports that NBD clients read and write over Unix sockets and TCP.
//!
//! The protocol ([`Session`]) contains no networking: bytes in, replies out. [`Server`] moves the
//! bytes. Served devices implement [`Export`]. A server has several exports, by name ([`Exports`]).
//!
//! Client and server first negotiate the export and its options. Then the client sends requests and
//! the server replies, until the client disconnects. All numbers are big-endian.
//!
//! # Negotiation
//!
//! The server greets. The client answers with flags, and sends options until one of them begins the
//! transmission.
//!
//! ```text
//! greeting      "NBDMAGIC" 8 │ "IHAVEOPT" 8 │ flags 2: fixed newstyle 1, no zeroes 2
//! client        flags 4: as above
//!
//! option        "IHAVEOPT" 8 │ option 4 │ len 4 │ data
//! reply         0x0003e889045565a9 8 │ option 4 │ reply type 4 │ len 4 │ data
//!
//! EXPORT_NAME   data: name; answered, without the frame of a reply, by
//!               size 8 │ transmission flags 2 │ 124 zero bytes, unless both sides omit them
//! GO, INFO      data: name len 4 │ name │ count 2 │ count × information type 2
//!   INFO reply  0 2 │ size 8 │ transmission flags 2
//!               1 2 │ name          2 2 │ description
//!               3 2 │ block size min 4 │ preferred 4 │ max 4
//! LIST          no data
//!   SERVER      name len 4 │ name │ description
//! SET_META_CONTEXT, LIST_META_CONTEXT
//!               data: name len 4 │ name │ count 4 │ count × (query len 4 │ query)
//!   META        context id 4 │ "base:allocation"
//! ```
//!
//! `LIST`, `GO`, `INFO` and the options about contexts get any number of such replies, then an
//! `ACK`. `ABORT` and `STRUCTURED_REPLY` get only the `ACK`. All other options, including TLS, are
//! answered as unsupported.
//!
//! # Transmission
//!
//! ```text
//! request       0x25609513 4 │ flags 2 │ command 2 │ cookie 8 │ offset 8 │ len 4 │ bytes of WRITE
//!
//! simple reply  0x67446698 4 │ error 4 │ cookie 8 │ bytes read
//!
//! chunk         0x668e33ef 4 │ flags 2: last 1 │ type 2 │ cookie 8 │ len 4 │ payload
//!   none        no payload
//!   data        offset 8 │ bytes
//!   hole        offset 8 │ len 4
//!   status      context id 4 │ n × (len 4 │ flags 4: hole 1, reads as zeroes 2)
//!   error       error 4 │ message len 2 │ message
//! ```
//!
//! If a client has asked for structured replies, `READ`, `BLOCK_STATUS` and all errors are answered
//! in chunks. Successes of other requests have no content, and stay simple.
//!
//! # Order and durability
//!
//! A connection's requests are executed one after the other, in the order of their arrival, and
//! answered in this order. [`Export`] guarantees that a write is durable when it returns. So each
//! reply to a write already promises durability. `FUA` adds nothing. `FLUSH` calls
//! [`Export::flush`], for exports that count or log flushes. Several connections see one state.
//!
//! # Limits
//!
//! They stand in `limits.rs`, with what happens beyond them. The greatest request is
//! [`REQUEST_LEN_MAX`].
//!
//! Buffers grow with the bytes that have arrived, not with the announced length.
//!
//! # Sockets
//!
//! A connection is a thread that receives, executes and sends with blocking calls. NBD clients are
//! few and stay connected, so threads are affordable. A client that waits for each reply before it
//! sends the next request pays for every system call in between; with blocking calls there are two,
//! one to receive and one to send. On tokio the same session answered such a client's reads a tenth
//! more slowly, and its writes by half. With sixteen requests in flight it made no difference.
//!
//! A thread executes all requests that have arrived, and answers them with one call. A payload goes
//! to the export from the receive buffer, and an export reads into the reply.
//!
//! An idle connection sleeps. Before it sleeps, its thread polls in two cases. It polls for 20 µs
//! if a message has begun to arrive, because clients send the head of a write before its payload,
//! and sleeping in between takes longer than everything else. And it polls for [`Config::poll`] for
//! the next request, if the previous request arrived about as soon. Between two polls it yields its
//! core. With polling off, an idle connection sleeps immediately. If it yielded the core first,
//! more requests would be executed together; but if another program wants the core, a client that
//! sends one request at a time would wait three times as long.
#![forbid(unsafe_code)]

mod buffer;
mod connection;
mod export;
mod limits;
mod options;
mod requests;
mod server;
mod session;
mod wire;

pub use export::{Allocation, Export, ExportError, Exports, ExportsError};
pub use limits::{NAME_LEN_MAX, REQUEST_LEN_MAX};
pub use server::{BindError, Config, Server};
pub use session::{Progress, Session};
