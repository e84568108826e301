//! Answers of one connection, encoded for the protocol version it speaks.

use super::format_f64;

/// The protocol version that a client chose with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, with which every connection begins.
    #[default]
    Resp2,
    /// RESP3: nulls, maps, sets and texts have types of their own.
    Resp3,
}

impl Protocol {
    /// The number by which clients ask for it.
    pub fn version(self) -> u8 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Answers that wait to be sent.
///
/// Beyond the limit given to [`new`](Output::new) bulk strings are dropped and
/// [`overflowed`](Output::overflowed) says so: what is there is then useless to the client, and the
/// connection is to be closed.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    protocol: Protocol,
    len_max: usize,
    overflowed: bool,
}

impl Output {
    /// No answers yet, and room for `len_max` bytes of them.
    pub fn new(len_max: usize) -> Self {
        Output { bytes: Vec::new(), protocol: Protocol::Resp2, len_max, overflowed: false }
    }

    /// The version in which answers are encoded.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Encodes what follows in another version.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What waits to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether an answer was too long to keep.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Takes back what was written since the output was `len` bytes long.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Forgets what was sent, and memory beyond `capacity_kept` bytes.
    pub fn clear(&mut self, capacity_kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(capacity_kept);
    }

    /// `OK` and the like: one line without line breaks.
    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// An error; `text` begins with its code, such as `ERR`. Line breaks in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        let flat = text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.bytes.extend(flat);
        self.end_line();
    }

    /// A number.
    pub fn integer(&mut self, value: i64) {
        self.bytes.push(b':');
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.end_line();
    }

    /// A string of any bytes.
    pub fn bulk(&mut self, payload: &[u8]) {
        if self.bytes.len() + payload.len() > self.len_max {
            self.overflowed = true;
            return;
        }
        self.header(b'$', payload.len());
        self.bytes.extend_from_slice(payload);
        self.end_line();
    }

    /// A string, or null.
    pub fn bulk_or_null(&mut self, payload: Option<&[u8]>) {
        match payload {
            Some(payload) => self.bulk(payload),
            None => self.null(),
        }
    }

    /// A text for people: its own type in RESP3.
    pub fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.end_line();
            }
        }
    }

    /// A floating-point number: a string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = format_f64(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(text.as_bytes());
                self.end_line();
            }
        }
    }

    /// Nothing, where a string could have been.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Nothing, where an array could have been.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Begins an array; `len` answers follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Begins a map; `len` pairs of answers follow. RESP2 has only arrays for it.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len * 2),
            Protocol::Resp3 => self.header(b'%', len),
        }
    }

    /// Begins a set; `len` answers follow. RESP2 has only arrays for it.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len),
            Protocol::Resp3 => self.header(b'~', len),
        }
    }

    /// Appends answers that were encoded elsewhere.
    pub(crate) fn append(&mut self, other: &Output) {
        self.overflowed |= other.overflowed;
        self.bytes.extend_from_slice(&other.bytes);
    }

    fn header(&mut self, kind: u8, len: usize) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        self.end_line();
    }

    fn end_line(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut output = Output::new(10);
        output.bulk(b"12345");
        assert!(!output.overflowed());
        output.bulk(b"12345");
        assert!(output.overflowed());
        assert_eq!(output.as_bytes(), b"$5\r\n12345\r\n");
    }
}
