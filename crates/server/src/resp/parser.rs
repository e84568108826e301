//! Finding requests in a byte buffer, incrementally and without copying.

use memchr::memchr;

use super::{ProtocolError, inline, parse_i64};

/// Limits on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments, the command's name included.
    pub arguments: usize,
    /// Bytes of one argument.
    pub bulk_len: usize,
    /// Bytes of the request, framing included. Less than 4 GiB.
    pub request_len: usize,
    /// Bytes of an inline request or of a length line that has not ended.
    pub line_len: usize,
    /// Whether the client has authenticated. If it has not, it may send no more than authenticating
    /// needs.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            arguments: 1024 * 1024,
            bulk_len: 512 << 20,
            request_len: 1 << 30,
            line_len: 64 << 10,
            authenticated: true,
        }
    }
}

/// Arguments that Redis takes from a client that has not authenticated. Here the limit holds for
/// inline requests, too.
const UNAUTHENTICATED_ARGUMENTS: i64 = 10;
/// Bytes of an argument that Redis takes from a client that has not authenticated.
const UNAUTHENTICATED_BULK_LEN: i64 = 16 << 10;
/// Positions of arguments that stay allocated between requests.
const SPANS_KEPT: usize = 256;

/// The position of an argument, counted from the first byte of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Positions fit in 32 bits because [`Limits::request_len`] does.
    pub(super) fn new(start: usize, len: usize) -> Self {
        Span { start: start as u32, len: len as u32 }
    }
}

/// Finds requests in the bytes of one connection.
///
/// The caller owns the bytes. It calls [`parse`](Parser::parse) with all bytes that it has, from
/// the first byte of a request on, and calls it again with more until it returns the request's
/// length. Then it drops so many bytes. The parser looks at no byte twice, so a request of a
/// million arguments that arrives in small pieces costs no more than one that arrives at once.
///
/// ```
/// use remanent_server::resp::{Limits, Parser};
///
/// let mut parser = Parser::new(Limits::default());
/// let mut bytes = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nPI".to_vec();
/// let len = parser.parse(&mut bytes)?.expect("one whole request");
/// let request = parser.request(&mut bytes[..len]);
/// assert_eq!(request.iter().collect::<Vec<_>>(), [&b"GET"[..], b"key"]);
/// bytes.drain(..len);
/// assert_eq!(parser.parse(&mut bytes)?, None);
/// bytes.extend_from_slice(b"NG\r\n");
/// assert_eq!(parser.parse(&mut bytes)?, Some(6));
/// # Ok::<(), remanent_server::resp::ProtocolError>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    spans: Vec<Span>,
    /// Arguments of the present request that have not been found yet.
    missing: usize,
    /// Length of the argument that is arriving, once its length line was read.
    bulk_len: Option<usize>,
    /// Bytes of the present request that were parsed.
    position: usize,
}

impl Parser {
    /// A parser for a new connection.
    pub fn new(limits: Limits) -> Self {
        Parser { limits, spans: Vec::new(), missing: 0, bulk_len: None, position: 0 }
    }

    /// Sets whether the client has authenticated, which decides how much it may send.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.limits.authenticated = authenticated;
    }

    /// Looks for a whole request at the beginning of `input`.
    ///
    /// Returns its length, framing included, or `None` when more bytes are needed. An empty request
    /// (an empty line, or `*0`) has no arguments and gets no answer. An inline request is unquoted
    /// in place.
    ///
    /// # Errors
    ///
    /// When the bytes cannot become a request. The caller then closes the connection.
    pub fn parse(&mut self, input: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            match input.get(self.position) {
                None if self.position == 0 => return Ok(None),
                _ if input[0] != b'*' => return self.parse_inline(input),
                _ => {}
            }
            if !self.parse_count(input)? {
                return Ok(None);
            }
        }
        while self.missing > 0 {
            let Some(len) = self.parse_bulk_len(input)? else { return Ok(None) };
            let end = self.position + len;
            if input.len() < end + 2 {
                return Ok(None);
            }
            if self.spans.try_reserve(1).is_err() {
                return Err(ProtocolError::NoMemory);
            }
            self.spans.push(Span::new(self.position, len));
            self.missing -= 1;
            self.bulk_len = None;
            self.position = end + 2;
        }
        Ok(Some(std::mem::take(&mut self.position)))
    }

    /// The request that was found. `bytes` are as many as [`parse`](Parser::parse) returned.
    pub fn request<'a>(&'a self, bytes: &'a mut [u8]) -> Request<'a> {
        Request { bytes, spans: &self.spans }
    }

    /// Length that the present request has at least. While an argument arrives, this includes all
    /// of the argument.
    pub fn wanted(&self) -> usize {
        self.position + self.bulk_len.map_or(1, |len| len + 2)
    }

    /// Forgets the request that was found, unless the next one has begun.
    pub(crate) fn rest(&mut self) {
        if self.position == 0 && self.missing == 0 {
            self.forget();
        }
    }

    /// Bytes of memory that the positions of arguments take.
    pub(crate) fn memory_len(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    /// Reads the line that begins a request; false when it has not arrived in full.
    fn parse_count(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        self.forget();
        let line =
            Line { too_long: ProtocolError::CountTooLong, invalid: ProtocolError::InvalidCount };
        let Some((count, end)) = line.parse(input, 1, self.limits.line_len)? else {
            return Ok(false);
        };
        if count > self.limits.arguments as i64 {
            return Err(ProtocolError::InvalidCount);
        }
        if count > UNAUTHENTICATED_ARGUMENTS && !self.limits.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        self.missing = count.max(0) as usize;
        self.position = end;
        Ok(true)
    }

    /// Reads the length line of the next argument, unless it was read before; `None` when it has
    /// not arrived in full.
    fn parse_bulk_len(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.bulk_len.is_some() {
            return Ok(self.bulk_len);
        }
        match input.get(self.position) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
        }
        let line =
            Line { too_long: ProtocolError::BulkTooLong, invalid: ProtocolError::InvalidBulk };
        let Some((len, end)) = line.parse(input, self.position + 1, self.limits.line_len)? else {
            return Ok(None);
        };
        if !(0..=self.limits.bulk_len as i64).contains(&len) {
            return Err(ProtocolError::InvalidBulk);
        }
        if len > UNAUTHENTICATED_BULK_LEN && !self.limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulk);
        }
        if end + len as usize + 2 > self.limits.request_len {
            return Err(ProtocolError::RequestTooBig);
        }
        self.position = end;
        self.bulk_len = Some(len as usize);
        Ok(self.bulk_len)
    }

    /// Parses a request that is a line of words, as a person types it.
    fn parse_inline(&mut self, input: &mut [u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(found) = memchr(b'\n', &input[self.position..]) else {
            if input.len() > self.limits.line_len {
                return Err(ProtocolError::InlineTooBig);
            }
            self.position = input.len();
            return Ok(None);
        };
        let newline = self.position + found;
        if newline > self.limits.request_len {
            return Err(ProtocolError::InlineTooBig);
        }
        self.forget();
        let end = if newline > 0 && input[newline - 1] == b'\r' { newline - 1 } else { newline };
        inline::split(&mut input[..end], &mut self.spans)?;
        if self.spans.len() > UNAUTHENTICATED_ARGUMENTS as usize && !self.limits.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        self.position = 0;
        Ok(Some(newline + 1))
    }

    fn forget(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT);
    }
}

/// A line with one number, and the errors of a bad one.
struct Line {
    too_long: ProtocolError,
    invalid: ProtocolError,
}

impl Line {
    /// The number at `start`, and the offset behind its line; `None` when the line has not arrived
    /// in full.
    fn parse(
        self,
        input: &[u8],
        start: usize,
        len_max: usize,
    ) -> Result<Option<(i64, usize)>, ProtocolError> {
        // Nearly every line has a few digits, and needs no search for its end.
        let rest = &input[start..];
        let mut value = 0;
        for (index, byte) in rest.iter().take(10).enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                value = value * 10 + i64::from(digit);
                continue;
            }
            let canonical = index == 1 || (index > 1 && rest[0] != b'0');
            if *byte == b'\r' && canonical && rest.len() > index + 1 {
                return Ok(Some((value, start + index + 2)));
            }
            break;
        }
        let Some(end) = memchr(b'\r', rest) else {
            return if rest.len() > len_max { Err(self.too_long) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        match parse_i64(&rest[..end]) {
            Some(value) => Ok(Some((value, start + end + 2))),
            None => Err(self.invalid),
        }
    }
}

/// One request: the name of a command and its arguments, as slices of the connection's buffer.
#[derive(Debug)]
pub struct Request<'a> {
    bytes: &'a mut [u8],
    spans: &'a [Span],
}

impl<'a> Request<'a> {
    /// How many arguments there are, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Length of the request in bytes, framing included.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the request has no arguments, not even a name: it gets no answer.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`. Argument 0 is the command's name.
    ///
    /// # Panics
    ///
    /// Panics if there is no such argument.
    pub fn get(&self, index: usize) -> &[u8] {
        let Span { start, len } = self.spans[index];
        &self.bytes[start as usize..start as usize + len as usize]
    }

    /// All arguments, the command's name first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Puts `tag` into the byte before the argument at `index`.
    ///
    /// That byte is the end of the argument's length line, or the space or quote before an inline
    /// word, and is not needed any more. With the tag in its place, the argument is a stored value,
    /// and need not be copied, which for 512 MiB would be slow.
    ///
    /// # Panics
    ///
    /// Panics if `index` is 0, which is the name, or if there is no such argument.
    pub fn tag(&mut self, index: usize, tag: u8) {
        assert!(index > 0, "a command's name has no byte before it");
        self.bytes[self.spans[index].start as usize - 1] = tag;
    }

    /// The argument at `index` with the byte before it: see [`tag`](Request::tag).
    ///
    /// # Panics
    ///
    /// Panics if `index` is 0, which is the name, or if there is no such argument.
    pub fn tagged(&self, index: usize) -> &[u8] {
        let Span { start, len } = self.spans[index];
        &self.bytes[start as usize - 1..start as usize + len as usize]
    }
}
