//! The transmission: requests and their replies.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::buffer::Output;
use crate::export::{Allocation, Export, ExportError};
use crate::limits::{MESSAGE_LEN_MAX, PIECES_MAX, REQUEST_LEN_MAX};
use crate::options::CONTEXT_ID;
use crate::session::Step;
use crate::wire::{
    CHUNK_HEAD_LEN, Errno, Request, chunk, chunk_head, command, flag, put_simple_reply,
    transmission,
};

/// Holes shorter than this are sent as zeroes, because a chunk for each would be longer. This also
/// bounds how much longer than its data a reply can be.
const HOLE_LEN_MIN: u64 = 4096;
/// Maximal number of bytes between a chunk's head and its data: offset, and length of a hole.
const PIECE_HEAD_LEN_MAX: usize = 12;

/// Flags of a piece of a range.
const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 1 << 1;

/// The result of the negotiation, and the export.
pub(super) struct Transmission {
    export: Arc<dyn Export>,
    /// Bytes of the export, a multiple of the smallest block.
    size: u64,
    /// The smallest block minus one.
    block_mask: u64,
    /// Transmission flags, as sent to the client.
    flags: u16,
    is_structured: bool,
    has_context: bool,
    /// Pieces of the present range; allocated once for all requests.
    pieces: Vec<(u64, Allocation)>,
}

/// The reason for a failed request, with a text for people.
struct Failure {
    errno: Errno,
    message: Cow<'static, str>,
}

const fn failure(errno: Errno, message: &'static str) -> Failure {
    Failure { errno, message: Cow::Borrowed(message) }
}

impl Transmission {
    /// A transmission for a client that has chosen `export` and got `flags`.
    pub(super) fn new(export: Arc<dyn Export>, flags: u16, has_context: bool) -> Self {
        let block_mask = u64::from(export.block_size_min()) - 1;
        Transmission {
            // An incomplete last block could never be reached.
            size: export.size() & !block_mask,
            block_mask,
            flags,
            is_structured: flags & transmission::SEND_DF != 0,
            has_context,
            pieces: Vec::new(),
            export,
        }
    }

    /// Bytes of the export, as sent to the client.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Capabilities of the export, as sent to the client.
    pub(super) fn flags(&self) -> u16 {
        self.flags
    }

    /// Executes the request at the beginning of `arrived`, if it is complete.
    pub(super) fn step(&mut self, arrived: &[u8], output: &mut Output) -> Step {
        let Some(head) = arrived.first_chunk() else { return Step::Wanted(Request::LEN) };
        // If a request does not begin where it should, the rest of the stream cannot be understood.
        let Some(request) = Request::parse(head) else { return Step::Close };
        if request.command == command::DISC {
            return Step::Close;
        }
        let payload_len = request.payload_len();
        if let Err(failure) = self.check(&request) {
            self.put_failure(&request, &failure, output);
            return Step::Done { used: Request::LEN, skipped: payload_len };
        }
        let used = Request::LEN + payload_len as usize;
        let Some(payload) = arrived.get(Request::LEN..used) else { return Step::Wanted(used) };
        let first = output.len();
        if let Err(error) = self.execute(&request, payload, output) {
            output.truncate(first);
            self.put_failure(&request, &error.in_reply_to(&request), output);
        }
        Step::Done { used, skipped: 0 }
    }

    /// Refuses requests that must not reach the export.
    fn check(&self, request: &Request) -> Result<(), Failure> {
        let accepted = flag::FUA
            | match request.command {
                command::READ if self.is_structured => flag::DF,
                command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
                command::BLOCK_STATUS => flag::REQ_ONE,
                _ => 0,
            };
        if request.has(!accepted) {
            return Err(failure(Errno::Inval, "the command has a flag that it does not know"));
        }
        let writes = match request.command {
            command::WRITE | command::WRITE_ZEROES | command::TRIM => true,
            command::READ | command::CACHE => false,
            command::BLOCK_STATUS if self.has_context => false,
            command::BLOCK_STATUS => {
                return Err(failure(Errno::Inval, "no context was chosen, so there is no status"));
            }
            command::FLUSH if request.offset == 0 && request.len == 0 => return Ok(()),
            command::FLUSH => return Err(failure(Errno::Inval, "a flush has no range")),
            _ => return Err(failure(Errno::Inval, "there is no such command")),
        };
        if writes && self.flags & transmission::READ_ONLY != 0 {
            return Err(ExportError::ReadOnly.in_reply_to(request));
        }
        self.check_range(request)
    }

    fn check_range(&self, request: &Request) -> Result<(), Failure> {
        let end = request.offset.checked_add(request.len.into());
        if end.is_none_or(|end| end > self.size) {
            return Err(ExportError::OutOfRange.in_reply_to(request));
        }
        if (request.offset | u64::from(request.len)) & self.block_mask != 0 {
            return Err(failure(Errno::Inval, "the range is not aligned to the smallest block"));
        }
        match request.command {
            command::READ | command::WRITE if request.len > REQUEST_LEN_MAX => {
                let errno = if request.has(flag::DF) { Errno::Overflow } else { Errno::Inval };
                Err(failure(errno, "a read or a write has at most 32 MiB"))
            }
            command::WRITE_ZEROES
                if request.has(flag::FAST_ZERO)
                    && !self.export.is_zeroing_fast(!request.has(flag::NO_HOLE)) =>
            {
                Err(failure(Errno::NotSup, "writing zeroes would be as fast"))
            }
            command::BLOCK_STATUS if request.len == 0 => {
                Err(failure(Errno::Inval, "an empty range has no status"))
            }
            _ => Ok(()),
        }
    }

    fn execute(
        &mut self,
        request: &Request,
        payload: &[u8],
        output: &mut Output,
    ) -> Result<(), ExportError> {
        let (offset, len) = (request.offset, u64::from(request.len));
        match request.command {
            command::READ if self.is_structured => return self.read_structured(request, output),
            command::BLOCK_STATUS => return self.block_status(request, output),
            // A success, which is replaced if the request fails.
            _ => put_simple_reply(output, request.cookie, 0),
        }
        match request.command {
            command::FLUSH => self.export.flush(),
            _ if len == 0 => Ok(()),
            command::READ => self.export.read(offset, output.extend(request.len as usize)),
            command::WRITE => self.export.write(offset, payload),
            command::WRITE_ZEROES => {
                self.export.write_zeroes(offset, len, !request.has(flag::NO_HOLE))
            }
            command::TRIM => self.export.trim(offset, len),
            // The content is in memory already.
            _ => Ok(()),
        }
    }

    /// Reads into chunks: data, and holes unless the client wants one piece.
    fn read_structured(
        &mut self,
        request: &Request,
        output: &mut Output,
    ) -> Result<(), ExportError> {
        let Request { cookie, offset, len, .. } = *request;
        if len == 0 {
            output.put(&chunk_head(cookie, chunk::DONE, chunk::NONE, 0));
            return Ok(());
        }
        self.pieces.clear();
        if request.has(flag::DF) {
            self.pieces.push((len.into(), Allocation::Data));
        } else {
            self.find_holes(offset, len.into());
        }
        output.reserve(len as usize + self.pieces.len() * (CHUNK_HEAD_LEN + PIECE_HEAD_LEN_MAX));
        let mut offset = offset;
        for (index, &(len, allocation)) in self.pieces.iter().enumerate() {
            let is_last = index + 1 == self.pieces.len();
            let flags = if is_last { chunk::DONE } else { 0 };
            if allocation == Allocation::Data {
                output.put(&chunk_head(cookie, flags, chunk::DATA, 8 + len as u32));
                output.put(&offset.to_be_bytes());
                self.export.read(offset, output.extend(len as usize))?;
            } else {
                output.put(&chunk_head(cookie, flags, chunk::HOLE, 12));
                output.put(&offset.to_be_bytes());
                output.put(&(len as u32).to_be_bytes());
            }
            offset += len;
        }
        Ok(())
    }

    /// Fills `pieces` with the data and the holes of a range.
    ///
    /// If another client changes the range meanwhile, it reads as before or after the change: a
    /// hole was a hole when it was found, and data are read later.
    fn find_holes(&mut self, offset: u64, len: u64) {
        let pieces = &mut self.pieces;
        let mut rest = len;
        let visited = self.export.status(offset, len, &mut |len, allocation| {
            let len = len.min(rest);
            rest -= len;
            if allocation == Allocation::Data {
                fill_short_hole(pieces);
                push(pieces, len, Allocation::Data);
            } else {
                push(pieces, len, Allocation::Hole);
            }
            if rest == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if visited.is_err() {
            // Reading will report whether the bytes are damaged.
            pieces.clear();
            rest = len;
        }
        if rest > 0 || pieces.len() > 1 {
            fill_short_hole(pieces);
        }
        push(pieces, rest, Allocation::Data);
    }

    /// Describes a range in pieces; the last one may end before the range.
    fn block_status(&self, request: &Request, output: &mut Output) -> Result<(), ExportError> {
        let pieces_max = if request.has(flag::REQ_ONE) { 1 } else { PIECES_MAX };
        let first = output.len();
        output.extend(CHUNK_HEAD_LEN);
        output.put(&CONTEXT_ID.to_be_bytes());
        let mut rest = u64::from(request.len);
        let mut pieces = 0;
        let mut pending = (0, Allocation::Data);
        self.export.status(request.offset, rest, &mut |len, allocation| {
            let len = len.min(rest);
            if len > 0 && pending.0 > 0 && pending.1 != allocation {
                put_piece(output, pending);
                pieces += 1;
                pending.0 = 0;
                if pieces == pieces_max {
                    return ControlFlow::Break(());
                }
            }
            if len > 0 {
                pending = (pending.0 + len, allocation);
            }
            rest -= len;
            if rest == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if pending.0 > 0 {
            put_piece(output, pending);
            pieces += 1;
        }
        if pieces == 0 {
            put_piece(output, (rest, Allocation::Data));
        }
        let len = output.len() - first - CHUNK_HEAD_LEN;
        let head = chunk_head(request.cookie, chunk::DONE, chunk::BLOCK_STATUS, len as u32);
        output.patch(first, &head);
        Ok(())
    }

    fn put_failure(&self, request: &Request, failure: &Failure, output: &mut Output) {
        let Failure { errno, message } = failure;
        if !self.is_structured {
            put_simple_reply(output, request.cookie, *errno as u32);
            return;
        }
        let message = &message[..message.floor_char_boundary(MESSAGE_LEN_MAX)];
        let len = 6 + message.len() as u32;
        output.put(&chunk_head(request.cookie, chunk::DONE, chunk::ERROR, len));
        output.put(&(*errno as u32).to_be_bytes());
        output.put(&(message.len() as u16).to_be_bytes());
        output.put(message.as_bytes());
    }
}

impl fmt::Debug for Transmission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transmission")
            .field("size", &self.size)
            .field("flags", &self.flags)
            .field("has_context", &self.has_context)
            .finish_non_exhaustive()
    }
}

impl ExportError {
    /// The failure that the client gets in reply to this request.
    fn in_reply_to(self, request: &Request) -> Failure {
        let grows = matches!(request.command, command::WRITE | command::WRITE_ZEROES);
        let errno = match &self {
            ExportError::ReadOnly => Errno::Perm,
            ExportError::NoSpace => Errno::NoSpace,
            ExportError::OutOfRange if grows => Errno::NoSpace,
            ExportError::OutOfRange => Errno::Inval,
            ExportError::Unsupported => Errno::NotSup,
            ExportError::NoMemory => Errno::NoMem,
            ExportError::ShuttingDown => Errno::Shutdown,
            ExportError::Failed(_) => {
                tracing::warn!(
                    offset = request.offset,
                    len = request.len,
                    "an export failed: {self}"
                );
                Errno::Io
            }
        };
        Failure { errno, message: Cow::Owned(self.to_string()) }
    }
}

/// Turns a hole at the end that is too short for a chunk into data.
fn fill_short_hole(pieces: &mut Vec<(u64, Allocation)>) {
    let short = pieces.pop_if(|(len, kind)| *kind == Allocation::Hole && *len < HOLE_LEN_MIN);
    if let Some((len, _)) = short {
        push(pieces, len, Allocation::Data);
    }
}

/// Appends a piece, or lengthens the last one if it is of the same kind.
fn push(pieces: &mut Vec<(u64, Allocation)>, len: u64, allocation: Allocation) {
    match pieces.last_mut() {
        _ if len == 0 => {}
        Some(last) if last.1 == allocation => last.0 += len,
        _ => pieces.push((len, allocation)),
    }
}

fn put_piece(output: &mut Output, (len, allocation): (u64, Allocation)) {
    let state = match allocation {
        Allocation::Data => 0,
        Allocation::Zero => STATE_ZERO,
        Allocation::Hole => STATE_HOLE | STATE_ZERO,
    };
    output.put(&(len as u32).to_be_bytes());
    output.put(&state.to_be_bytes());
}
