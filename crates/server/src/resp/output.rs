//! The answers of one connection, encoded for the version of the protocol that it speaks.

use super::format_f64;
use crate::memory::Share;

/// The protocol version that a client chose with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, in which every connection begins.
    #[default]
    Resp2,
    /// RESP3, which has types of its own for nulls, maps, sets and texts.
    Resp3,
}

impl Protocol {
    /// The number by which clients ask for the version.
    pub fn version(self) -> u8 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// The answers that wait to be sent.
///
/// If there is no room for an answer, the rest of it is dropped, and [`failure`](Output::failure)
/// says so. The part that is there is useless to the client, so the caller removes it by
/// [`truncate`](Output::truncate).
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    protocol: Protocol,
    len_max: usize,
    /// The clients' memory that the capacity takes.
    share: Option<Share>,
    failure: Option<OutputFailure>,
}

/// Why there was no room for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFailure {
    /// More bytes would wait than may wait for one client.
    TooLong,
    /// Clients take all the memory that they may, or the system has no more.
    NoMemory,
}

/// Room for a line with a number, or for one that begins an array.
const LINE_LEN: usize = 32;

impl Output {
    /// An output without answers, for `len_max` bytes of them at most.
    pub fn new(len_max: usize) -> Self {
        let (bytes, protocol) = (Vec::new(), Protocol::Resp2);
        Output { bytes, protocol, len_max, share: None, failure: None }
    }

    /// The same, with a share in the clients' memory.
    pub(crate) fn sharing(len_max: usize, share: Share) -> Self {
        Output { share: Some(share), ..Output::new(len_max) }
    }

    /// The version of the protocol in which answers are encoded.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the version of the protocol for the answers that follow.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// The bytes that wait to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes wait to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Why the present answer had no room; `None` if it had.
    pub fn failure(&self) -> Option<OutputFailure> {
        self.failure
    }

    /// Removes what was written since the output was `len` bytes long, and clears the failure.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.failure = None;
    }

    /// Drops the answers, which were sent, and gives memory beyond `capacity_kept` bytes back.
    pub fn clear(&mut self, capacity_kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(capacity_kept);
        self.failure = None;
        let capacity = self.bytes.capacity();
        if let Some(share) = &mut self.share {
            // Never refused: the share does not grow.
            share.resize(capacity);
        }
    }

    /// Bytes of the clients' memory that the output takes.
    pub(crate) fn counted(&self) -> u64 {
        self.share.as_ref().map_or(0, Share::counted)
    }

    /// Bytes that the output has room for without more memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for an answer of `payload` bytes. If there is none, returns false, and the answer
    /// has failed.
    ///
    /// A command that answers what it changes calls this before it changes anything, so that its
    /// answer is sure to have room.
    pub(crate) fn reserve(&mut self, payload: usize) -> bool {
        self.failure.is_none() && self.make_room(payload.saturating_add(2 * LINE_LEN))
    }

    #[inline]
    fn make_room(&mut self, additional: usize) -> bool {
        additional <= self.bytes.capacity() - self.bytes.len() || self.grow(additional)
    }

    #[cold]
    fn grow(&mut self, additional: usize) -> bool {
        let needed = self.bytes.len().saturating_add(additional);
        if needed > self.len_max.saturating_add(2 * LINE_LEN) {
            self.failure = Some(OutputFailure::TooLong);
            return false;
        }
        // Doubling moves many small answers rarely. If there is no memory for that, take what is
        // needed.
        let doubled = self.bytes.capacity().saturating_mul(2).min(self.len_max).max(needed);
        for capacity in [doubled, needed] {
            let is_granted = self.share.as_mut().is_none_or(|share| share.resize(capacity));
            let missing = capacity - self.bytes.len();
            if is_granted && self.bytes.try_reserve_exact(missing).is_ok() {
                return true;
            }
        }
        let capacity = self.bytes.capacity();
        if let Some(share) = &mut self.share {
            share.resize(capacity);
        }
        self.failure = Some(OutputFailure::NoMemory);
        false
    }

    /// Appends a part of an answer as a whole, or fails.
    fn push(&mut self, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        if self.failure.is_none() && self.make_room(len) {
            parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        }
    }

    /// Answers a simple string such as `OK`: a line without line breaks.
    pub fn simple(&mut self, text: &str) {
        self.push(&[b"+", text.as_bytes(), END]);
    }

    /// Answers an error. `text` begins with its code, such as `ERR`. Line breaks in it become
    /// spaces.
    pub fn error(&mut self, text: &str) {
        let flat = text.replace(['\r', '\n'], " ");
        self.push(&[b"-", flat.as_bytes(), END]);
    }

    /// Answers an integer.
    pub fn integer(&mut self, value: i64) {
        self.push(&[b":", itoa::Buffer::new().format(value).as_bytes(), END]);
    }

    /// Answers a string of any bytes.
    pub fn bulk(&mut self, payload: &[u8]) {
        let mut number = itoa::Buffer::new();
        self.push(&[b"$", number.format(payload.len()).as_bytes(), END, payload, END]);
    }

    /// Answers a string, or null.
    pub fn bulk_or_null(&mut self, payload: Option<&[u8]>) {
        match payload {
            Some(payload) => self.bulk(payload),
            None => self.null(),
        }
    }

    /// Answers a text for people, which has a type of its own in RESP3.
    pub fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.push(&[b"txt:", text.as_bytes(), END]);
            }
        }
    }

    /// Answers a floating-point number, which is a string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = format_f64(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.push(&[b",", text.as_bytes(), END]),
        }
    }

    /// Answers null in place of a string.
    pub fn null(&mut self) {
        self.push(match self.protocol {
            Protocol::Resp2 => &[b"$-1\r\n"],
            Protocol::Resp3 => &[b"_\r\n"],
        });
    }

    /// Answers null in place of an array.
    pub fn null_array(&mut self) {
        self.push(match self.protocol {
            Protocol::Resp2 => &[b"*-1\r\n"],
            Protocol::Resp3 => &[b"_\r\n"],
        });
    }

    /// Begins an array. `len` answers follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Begins a map, which is an array in RESP2. `len` pairs of answers follow.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len * 2),
            Protocol::Resp3 => self.header(b'%', len),
        }
    }

    /// Begins a set, which is an array in RESP2. `len` answers follow.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len),
            Protocol::Resp3 => self.header(b'~', len),
        }
    }

    /// Makes an array of the `len` answers that were written since the output was `start` bytes
    /// long. For arrays whose length is not known before.
    pub(crate) fn close_array(&mut self, start: usize, len: usize) {
        let end = self.len();
        self.array(len);
        self.move_to(start, end);
    }

    /// The same for the answer to a scan: a cursor, and the array of answers.
    pub(crate) fn close_scan(&mut self, start: usize, cursor: u64, len: usize) {
        self.close_array(start, len);
        let end = self.len();
        self.array(2);
        self.bulk(itoa::Buffer::new().format(cursor).as_bytes());
        self.move_to(start, end);
    }

    /// Moves what was written since the output was `end` bytes long before what was written since
    /// it was `start` bytes long.
    fn move_to(&mut self, start: usize, end: usize) {
        let len = self.len() - end;
        self.bytes[start..].rotate_right(len);
    }

    fn header(&mut self, kind: u8, len: usize) {
        self.push(&[&[kind], itoa::Buffer::new().format(len).as_bytes(), END]);
    }
}

/// The end of a line.
const END: &[u8] = b"\r\n";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Memory;

    fn encoded(protocol: Protocol) -> String {
        let mut output = Output::new(1 << 20);
        output.set_protocol(protocol);
        output.simple("OK");
        output.error("ERR two\r\nlines");
        output.integer(-5);
        output.bulk(b"a\r\nb");
        output.text("hi");
        output.double(-0.25);
        output.null();
        output.null_array();
        output.array(0);
        output.map(1);
        output.set(2);
        String::from_utf8(output.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn both_versions_are_encoded() {
        let common = "+OK\r\n-ERR two  lines\r\n:-5\r\n$4\r\na\r\nb\r\n";
        assert_eq!(
            encoded(Protocol::Resp2),
            format!("{common}$2\r\nhi\r\n$5\r\n-0.25\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*2\r\n")
        );
        assert_eq!(
            encoded(Protocol::Resp3),
            format!("{common}=6\r\ntxt:hi\r\n,-0.25\r\n_\r\n_\r\n*0\r\n%1\r\n~2\r\n")
        );
    }

    #[test]
    fn too_long_an_answer_is_noticed() {
        let mut output = Output::new(40);
        output.bulk(&[b'x'; 80]);
        assert_eq!(output.failure(), None);
        let start = output.len();
        output.array(2);
        output.bulk(&[b'x'; 80]);
        output.null();
        assert_eq!(output.failure(), Some(OutputFailure::TooLong));
        output.truncate(start);
        assert_eq!((output.failure(), output.len()), (None, start));
    }

    #[test]
    fn answers_share_the_clients_memory() {
        let memory = Arc::new(Memory::new(1000));
        let sharing = || Output::sharing(1 << 20, Share::new(&memory, 200));
        let (mut first, mut second) = (sharing(), sharing());
        first.bulk(&[b'x'; 900]);
        assert_eq!((first.failure(), memory.taken()), (None, first.capacity() as u64 - 200));
        second.simple("OK");
        second.bulk(&[b'x'; 600]);
        assert_eq!(second.failure(), Some(OutputFailure::NoMemory));
        assert_eq!(second.as_bytes(), b"+OK\r\n");
        assert!(!second.reserve(1), "what was refused stays so until it is taken back");
        first.clear(0);
        assert_eq!(memory.taken(), 0);
        second.truncate(0);
        assert!(second.reserve(900));
        drop((first, second));
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn arrays_are_closed_around_what_is_in_them() {
        let mut output = Output::new(100);
        output.simple("OK");
        let start = output.len();
        output.integer(1);
        output.integer(2);
        output.close_array(start, 2);
        assert_eq!(output.as_bytes(), b"+OK\r\n*2\r\n:1\r\n:2\r\n");
    }
}
