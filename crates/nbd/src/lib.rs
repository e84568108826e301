//! Network block devices: exports that NBD clients read and write over Unix sockets and TCP.
//!
//! The protocol ([`Session`]) contains no networking: bytes in, replies out. [`Server`] carries the
//! bytes. What is served implements [`Export`]; a server has several, by name ([`Exports`]).
//!
//! The client and the server first agree on what is served and how, then requests and replies go
//! to and fro until the client disconnects. All numbers are big-endian.
//!
//! # Negotiation
//!
//! The server greets, the client answers with flags, and sends options until one of them begins the
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
//!               size 8 │ transmission flags 2 │ 124 zero bytes, unless both sides do without
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
//! `LIST`, `GO`, `INFO` and the options about contexts have any number of such replies, then an
//! `ACK`; `ABORT` and `STRUCTURED_REPLY` have the `ACK` alone. What else there is, TLS included, is
//! answered as unsupported.
//!
//! # Transmission
//!
//! ```text
//! request       0x25609513 4 │ flags 2 │ command 2 │ cookie 8 │ offset 8 │ len 4 │ payload of WRITE
//!
//! simple reply  0x67446698 4 │ error 4 │ cookie 8 │ what was read
//!
//! chunk         0x668e33ef 4 │ flags 2: last 1 │ type 2 │ cookie 8 │ len 4 │ payload
//!   none        no payload
//!   data        offset 8 │ bytes
//!   hole        offset 8 │ len 4
//!   status      context id 4 │ n × (len 4 │ flags 4: hole 1, reads as zeroes 2)
//!   error       error 4 │ message len 2 │ message
//! ```
//!
//! Once a client has asked for structured replies, `READ` and `BLOCK_STATUS` and all errors are
//! answered in chunks; successes of the others have nothing to structure and stay simple.
//!
//! # Order and durability
//!
//! A connection's requests are executed one after the other, in the order in which they came, and
//! so are their replies. [`Export`] promises that a write is durable when it returns, so a reply
//! to a write is a promise to the client already: `FUA` adds nothing to it, `FLUSH` calls
//! [`Export::flush`] for exports that count or log, and several connections see one state.
//!
//! # Limits
//!
//! | what a client may send | limit | beyond it |
//! |---|---|---|
//! | payload of a write, length of a read | 32 MiB | `EINVAL`, and the payload is skipped |
//! | other ranges | what 32 bits can say | |
//! | data of an option | 64 KiB | `TOO_BIG`; a disconnect beyond 16 MiB |
//! | name of an export, query of contexts | 4096 bytes | `TOO_BIG`, `INVALID` |
//! | options | 1024 | disconnect |
//! | silence during the negotiation | 60 s | disconnect |
//!
//! Buffers grow with what has arrived, not with what was announced.
//!
//! # Sockets
//!
//! A connection is a thread that receives, executes and sends with blocking calls. NBD clients are few
//! and stay, so threads are affordable; and a client that waits for each reply before it sends the
//! next request pays for every system call between the two. Blocking, there are two: one receives,
//! one sends. Beneath tokio the same session answered such a client's reads a tenth more slowly, and
//! its writes by half; to a client with sixteen requests under way it made no difference.
//!
//! Whatever a client has sent by the time its thread looks is executed at once and answered with one
//! call. A payload goes to the export from where it was received, and an export reads into the reply.
//!
//! An idle connection sleeps. A thread stays awake for two things: for 20 µs for the rest of a
//! message that has begun to arrive, since clients send the head of a write before its payload, and
//! going to sleep in between takes longer than all else; and for [`Config::poll`] for the next request, if the one
//! before came about as soon. Between two looks it lets others have its core. When it is not to look, it sleeps at once.
//! Were it to let others have the core first, more requests would be executed together; but where something else wants the
//! core, a client that sends one request at a time would wait three times as long.
#![forbid(unsafe_code)]

mod buffer;
mod connection;
mod export;
mod options;
mod requests;
mod server;
mod session;
mod wire;

pub use export::{Allocation, Export, ExportError, Exports, ExportsError};
pub use server::{BindError, Config, Server};
pub use session::{Progress, Session};
pub use wire::{NAME_LEN_MAX, REQUEST_LEN_MAX};
