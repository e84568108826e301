//! A client's side of the protocol, as far as tests need it.

use std::sync::Arc;

use remanent_nbd::{Export, Exports, Progress, Session};

pub(super) const FIXED: u32 = 1;
pub(super) const NO_ZEROES: u32 = 2;

pub(super) const EXPORT_NAME: u32 = 1;
pub(super) const ABORT: u32 = 2;
pub(super) const LIST: u32 = 3;
pub(super) const STARTTLS: u32 = 5;
pub(super) const INFO: u32 = 6;
pub(super) const GO: u32 = 7;
pub(super) const STRUCTURED_REPLY: u32 = 8;
pub(super) const LIST_META_CONTEXT: u32 = 9;
pub(super) const SET_META_CONTEXT: u32 = 10;

pub(super) const ACK: u32 = 1;
pub(super) const REP_SERVER: u32 = 2;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
pub(super) const ERR_UNSUP: u32 = 0x8000_0001;
pub(super) const ERR_INVALID: u32 = 0x8000_0003;
pub(super) const ERR_UNKNOWN: u32 = 0x8000_0006;
pub(super) const ERR_TOO_BIG: u32 = 0x8000_0009;

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISC: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const CACHE: u16 = 5;
pub(super) const WRITE_ZEROES: u16 = 6;
pub(super) const BLOCK_STATUS: u16 = 7;

pub(super) const FUA: u16 = 1;
pub(super) const NO_HOLE: u16 = 2;
pub(super) const DF: u16 = 4;
pub(super) const REQ_ONE: u16 = 8;
pub(super) const FAST_ZERO: u16 = 16;

pub(super) const EPERM: u32 = 1;
pub(super) const EIO: u32 = 5;
pub(super) const ENOMEM: u32 = 12;
pub(super) const EINVAL: u32 = 22;
pub(super) const ENOSPC: u32 = 28;
pub(super) const EOVERFLOW: u32 = 75;
pub(super) const ENOTSUP: u32 = 95;
pub(super) const ESHUTDOWN: u32 = 108;

pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    [b"IHAVEOPT", &option.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}

/// A string behind its length.
pub(super) fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

/// The data of `GO` and `INFO`.
pub(super) fn export_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = string(name.as_bytes());
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// The data of options about contexts.
pub(super) fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query.as_bytes())));
    data
}

/// A request; its cookie is made of its other fields.
pub(super) fn request(command: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie(command, offset).to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

pub(super) fn write(flags: u16, offset: u64, payload: &[u8]) -> Vec<u8> {
    [request(WRITE, flags, offset, payload.len() as u32), payload.to_vec()].concat()
}

fn cookie(command: u16, offset: u64) -> u64 {
    u64::from(command) << 48 ^ offset ^ 0xC00C_1E00
}

/// Reads numbers and bytes from what a server has sent.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.split_off(..len).unwrap_or_else(|| panic!("{len} bytes in {:?}", self.0))
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().expect("2 bytes"))
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().expect("4 bytes"))
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().expect("8 bytes"))
    }

    /// A reply to an option: to which, of what type, and its data.
    pub(super) fn option_reply(&mut self) -> (u32, u32, &'a [u8]) {
        assert_eq!(self.u64(), 0x3_e889_0455_65a9);
        let (option, reply, len) = (self.u32(), self.u32(), self.u32());
        (option, reply, self.bytes(len as usize))
    }

    /// A reply to a request that is not structured: the error, after the cookie was compared.
    pub(super) fn simple_reply(&mut self, command: u16, offset: u64) -> u32 {
        assert_eq!(self.u32(), 0x6744_6698, "not a simple reply");
        let error = self.u32();
        assert_eq!(self.u64(), cookie(command, offset));
        error
    }

    /// All chunks of a structured reply.
    pub(super) fn chunks(&mut self, command: u16, offset: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        loop {
            assert_eq!(self.u32(), 0x668e_33ef, "not a chunk");
            let (flags, kind) = (self.u16(), self.u16());
            assert_eq!(self.u64(), cookie(command, offset));
            let len = self.u32();
            let mut payload = Reader(self.bytes(len as usize));
            chunks.push(payload.chunk(kind));
            assert_eq!(payload.0, b"", "the payload is longer than its content");
            match flags {
                0 => {}
                1 => return chunks,
                _ => panic!("unknown flags {flags}"),
            }
        }
    }

    fn chunk(&mut self, kind: u16) -> Chunk {
        match kind {
            0 => Chunk::None,
            1 => Chunk::Data(self.u64(), std::mem::take(&mut self.0).to_vec()),
            2 => Chunk::Hole(self.u64(), self.u32()),
            5 => {
                let id = self.u32();
                let mut pieces = Vec::new();
                while !self.0.is_empty() {
                    pieces.push((self.u32(), self.u32()));
                }
                Chunk::Status(id, pieces)
            }
            0x8001 => {
                let (error, len) = (self.u32(), self.u16());
                let message = self.bytes(len.into()).to_vec();
                Chunk::Error(error, String::from_utf8(message).expect("UTF-8"))
            }
            _ => panic!("unknown type of chunk {kind}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    None,
    Data(u64, Vec<u8>),
    Hole(u64, u32),
    Status(u32, Vec<(u32, u32)>),
    Error(u32, String),
}

/// Gives `bytes` to a session in pieces; returns its replies and how it ended.
pub(super) fn feed(
    session: &mut Session,
    mut bytes: &[u8],
    piece_len: usize,
) -> (Vec<u8>, Progress) {
    let mut replies = Vec::new();
    loop {
        let progress = session.run();
        replies.extend_from_slice(session.output());
        session.sent();
        match progress {
            Progress::Yield => continue,
            Progress::Close => return (replies, progress),
            Progress::Read if bytes.is_empty() => return (replies, progress),
            Progress::Read => {}
        }
        let room = session.room();
        let piece = bytes.split_off(..room.len().min(piece_len).min(bytes.len()));
        let piece = piece.expect("it is not longer");
        room[..piece.len()].copy_from_slice(piece);
        session.received(piece.len());
    }
}

/// A client of a session, which has been greeted.
pub(super) struct Client(pub(super) Session);

impl Client {
    /// Has sent its flags.
    pub(super) fn new(exports: Exports, flags: u32) -> Self {
        let mut session = Session::new(Arc::new(exports));
        assert_eq!(session.output(), b"NBDMAGICIHAVEOPT\0\x03");
        session.sent();
        let mut client = Client(session);
        assert_eq!(client.send(&flags.to_be_bytes()), (Vec::new(), Progress::Read));
        client
    }

    /// Has chosen the one export.
    pub(super) fn transmitting(export: impl Export + 'static, is_structured: bool) -> Self {
        let mut exports = Exports::new();
        exports.add("disk", Arc::new(export)).expect("a good name");
        let mut client = Client::new(exports, FIXED | NO_ZEROES);
        let mut bytes = Vec::new();
        if is_structured {
            bytes.extend(option(STRUCTURED_REPLY, b""));
            bytes.extend(option(SET_META_CONTEXT, &context_data("", &["base:allocation"])));
        }
        bytes.extend(option(GO, &export_data("disk", &[])));
        client.send(&bytes);
        assert!(!client.0.is_negotiating());
        client
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> (Vec<u8>, Progress) {
        feed(&mut self.0, bytes, usize::MAX)
    }

    /// Sends what does not end the connection.
    pub(super) fn exchange(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (replies, progress) = self.send(bytes);
        assert_eq!(progress, Progress::Read);
        replies
    }

    /// Sends an option; its replies' types and data.
    pub(super) fn negotiate(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let replies = self.exchange(&option(code, data));
        let mut reader = Reader(&replies);
        let mut found = Vec::new();
        while !reader.0.is_empty() {
            let (to, reply, data) = reader.option_reply();
            assert_eq!(to, code);
            found.push((reply, data.to_vec()));
        }
        found
    }

    /// The error, or 0, that a request is answered with, structured or not.
    pub(super) fn error(&mut self, bytes: &[u8]) -> u32 {
        let replies = self.exchange(bytes);
        let mut reader = Reader(bytes);
        reader.bytes(6);
        let (command, _, offset) = (reader.u16(), reader.u64(), reader.u64());
        if replies.starts_with(&0x6744_6698_u32.to_be_bytes()) {
            return Reader(&replies).simple_reply(command, offset);
        }
        match &Reader(&replies).chunks(command, offset)[..] {
            [Chunk::Error(error, message)] => {
                assert!(!message.is_empty(), "people want to know why");
                *error
            }
            chunks => {
                assert!(!chunks.iter().any(|chunk| matches!(chunk, Chunk::Error(..))));
                0
            }
        }
    }

    pub(super) fn chunks(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> Vec<Chunk> {
        let replies = self.exchange(&request(command, flags, offset, len));
        Reader(&replies).chunks(command, offset)
    }
}
