//! A small blocking client for servers that speak RESP2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::workloads::keys::mix;

/// Timeout of a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// SETs sent before their replies are read: enough to hide the round trip, and few enough for the
/// socket buffers of both sides.
const PIPELINE_LEN: usize = 512;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
}

/// A connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When nobody listens.
    pub(crate) fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client { reader: BufReader::with_capacity(1 << 16, stream) })
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    ///
    /// When the connection breaks or the reply is none of RESP2's simple types.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Result<Reply> {
        let mut request = Vec::new();
        encode(&mut request, words);
        self.reader.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        ensure!(line.ends_with(b"\r\n"), "the server closed the connection");
        let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        Ok(match line[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(text.parse()?),
            b'$' => match usize::try_from(text.parse::<i64>()?) {
                Err(_) => Reply::Null,
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Reply::Bulk(bytes)
                }
            },
            other => bail!("a reply of unknown type {:?}", char::from(other)),
        })
    }

    /// Sets the entries numbered `range`, pipelined, and makes sure that each was acknowledged.
    ///
    /// # Errors
    ///
    /// When the connection breaks or a SET is refused.
    pub(crate) fn load(&mut self, range: std::ops::Range<u64>) -> Result<()> {
        self.load_by(range, b"+OK\r\n", |request, number| {
            encode(request, &[b"SET", entry_key(number).as_bytes(), &entry_value(number)]);
        })
    }

    /// Adds the members numbered `range`, which must be new, to the sorted set [`SET_KEY`]. Their
    /// scores are of any order, and less than `range.end`.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load).
    pub(crate) fn load_set(&mut self, range: std::ops::Range<u64>) -> Result<()> {
        let scores = range.end.max(1);
        self.load_by(range, b":1\r\n", |request, number| {
            let score = (mix(number) % scores).to_string();
            let member = format!("member:{number:012}");
            let words = ["ZADD", SET_KEY, &score, &member].map(str::as_bytes);
            encode(request, &words);
        })
    }

    /// Sends a request for each number, pipelined, and makes sure that each has the right answer.
    fn load_by(
        &mut self,
        mut range: std::ops::Range<u64>,
        right: &[u8],
        request_for: impl Fn(&mut Vec<u8>, u64),
    ) -> Result<()> {
        let mut request = Vec::with_capacity(PIPELINE_LEN * 64);
        let mut replies = Vec::new();
        while !range.is_empty() {
            request.clear();
            let end = range.end.min(range.start + PIPELINE_LEN as u64);
            let count = (end - range.start) as usize;
            (range.start..end).for_each(|number| request_for(&mut request, number));
            range.start = end;
            self.reader.get_mut().write_all(&request)?;
            replies.resize(count * right.len(), 0);
            self.reader.read_exact(&mut replies)?;
            let refused = replies.chunks(right.len()).any(|reply| reply != right);
            ensure!(!refused, "an entry was refused: {}", String::from_utf8_lossy(&replies));
        }
        Ok(())
    }

    /// The text of `INFO section`.
    ///
    /// # Errors
    ///
    /// When the connection breaks or the server has no INFO.
    pub(crate) fn info(&mut self, section: &str) -> Result<String> {
        match self.call(&[b"INFO", section.as_bytes()])? {
            Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => bail!("INFO {section} was answered with {other:?}"),
        }
    }

    /// A number of `INFO section`.
    ///
    /// # Errors
    ///
    /// When there is no such number.
    pub(crate) fn info_number(&mut self, section: &str, name: &str) -> Result<f64> {
        let text = self.info(section)?;
        crate::machine::field(&text, name)
            .and_then(crate::machine::first_number)
            .with_context(|| format!("INFO {section} has no {name}"))
    }
}

fn encode(request: &mut Vec<u8>, words: &[&[u8]]) {
    let head = |request: &mut Vec<u8>, mark: u8, number: usize| {
        request.push(mark);
        request.extend_from_slice(number.to_string().as_bytes());
        request.extend_from_slice(b"\r\n");
    };
    head(request, b'*', words.len());
    for word in words {
        head(request, b'$', word.len());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// The sorted set that [`Client::load_set`] fills.
pub(crate) const SET_KEY: &str = "board";

/// The 16-byte key of an entry: the form that redis-benchmark gives its random keys.
pub(crate) fn entry_key(number: u64) -> String {
    format!("key:{number:012}")
}

/// The 16-byte value of an entry.
pub(crate) fn entry_value(number: u64) -> [u8; 16] {
    let text = format!("{:016x}", mix(number));
    std::array::from_fn(|at| text.as_bytes()[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn entries_are_small_and_distinct() {
        assert_eq!((entry_key(7).len(), entry_value(7).len()), (16, 16));
        assert_ne!(entry_value(7), entry_value(8));
    }

    #[test]
    fn replies_of_every_type_are_understood() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client connects");
            let mut request = [0; 14];
            stream.read_exact(&mut request).expect("the client sends a PING");
            stream
                .write_all(b"+PONG\r\n-ERR no\r\n:-3\r\n$2\r\na\n\r\n$-1\r\n")
                .expect("it listens");
            request
        });
        let mut client = Client::connect(address).expect("the server listens");
        let mut replies = vec![client.call(&[b"PING"]).expect("a reply")];
        while replies.len() < 5 {
            replies.push(client.reply().expect("a reply"));
        }
        let expected = [
            Reply::Simple("PONG".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Integer(-3),
            Reply::Bulk(b"a\n".to_vec()),
            Reply::Null,
        ];
        assert_eq!(replies, expected);
        assert!(client.reply().is_err(), "the connection is closed");
        assert_eq!(&server.join().expect("the server ends"), b"*1\r\n$4\r\nPING\r\n");
    }
}
