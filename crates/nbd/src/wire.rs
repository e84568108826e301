//! Numbers and fixed layouts of the protocol; the crate's documentation draws them.

use crate::buffer::Output;

/// The most efficient block size: a page.
pub(super) const BLOCK_SIZE_PREFERRED: u32 = 4096;

pub(super) const GREETING_MAGIC: &[u8; 8] = b"NBDMAGIC";
pub(super) const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the greeting, and the client's in answer.
pub(super) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Capabilities of an export, sent at the end of the negotiation.
pub(super) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of a client.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub(super) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub(crate) const ERR_INVALID: u32 = 1 << 31 | 3;
    pub(crate) const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub(crate) const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Types of information about an export.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Flags of a request.
pub(super) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Commands of requests.
pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Types of chunks.
pub(super) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 1 << 15 | 1;
    /// The flag of a reply's last chunk.
    pub(crate) const DONE: u16 = 1;
}

/// Error numbers of failed requests, as they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Errno {
    Perm = 1,
    Io = 5,
    NoMem = 12,
    Inval = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSup = 95,
    Shutdown = 108,
}

/// The head of an option: its number, and the length of its data.
pub(super) struct OptionHead {
    pub(super) option: u32,
    pub(super) len: u32,
}

impl OptionHead {
    pub(super) const LEN: usize = 16;

    /// Decodes a head; `None` if the magic is wrong.
    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let is_option = fields.bytes(8)? == OPTION_MAGIC;
        let head = OptionHead { option: fields.u32()?, len: fields.u32()? };
        is_option.then_some(head)
    }
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) command: u16,
    /// Chosen by the client, and returned to it with the reply.
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Request {
    pub(super) const LEN: usize = 28;

    /// Decodes a request; `None` if the magic is wrong.
    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let is_request = fields.u32()? == REQUEST_MAGIC;
        let request = Request {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        };
        is_request.then_some(request)
    }

    /// Bytes of payload behind the request.
    pub(super) fn payload_len(&self) -> u32 {
        if self.command == command::WRITE { self.len } else { 0 }
    }

    /// Whether the client has set `flag`.
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Decodes numbers and strings one after the other; `None` if the bytes end too early.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A string that follows the 32 bits of its length.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// Appends a reply to an option, with its data in parts.
pub(super) fn put_option_reply(output: &mut Output, option: u32, reply: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    output.put(&OPTION_REPLY_MAGIC.to_be_bytes());
    for number in [option, reply, len as u32] {
        output.put(&number.to_be_bytes());
    }
    for part in parts {
        output.put(part);
    }
}

/// Appends the head of a simple reply; after a success the read bytes follow.
pub(super) fn put_simple_reply(output: &mut Output, cookie: u64, error: u32) {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    output.put(&head);
}

/// Bytes of a chunk's head.
pub(super) const CHUNK_HEAD_LEN: usize = 20;

/// The head of a chunk with `len` bytes of payload.
pub(super) fn chunk_head(cookie: u64, flags: u16, kind: u16, len: u32) -> [u8; CHUNK_HEAD_LEN] {
    let mut head = [0; CHUNK_HEAD_LEN];
    head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&len.to_be_bytes());
    head
}
