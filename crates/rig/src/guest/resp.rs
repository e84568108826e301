//! A client of the server: RESP2 over a socket.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Timeout, longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximal length of a string, longer than any that was written.
const BULK_MAX: usize = 1 << 26;

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Answer>),
}

impl Answer {
    pub(crate) fn ok() -> Answer {
        Answer::Simple("OK".into())
    }

    /// The text of an array's bulk strings.
    pub(crate) fn strings(self) -> Result<Vec<Vec<u8>>> {
        let Answer::Array(answers) = self else { bail!("an array was expected, not {self:?}") };
        answers
            .into_iter()
            .map(|answer| match answer {
                Answer::Bulk(string) => Ok(string),
                other => bail!("a string was expected, not {other:?}"),
            })
            .collect()
    }
}

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address)
            .with_context(|| format!("the server at {address} does not accept"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Client { stream, reader })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the server does not read")
    }

    pub(crate) fn receive(&mut self) -> Result<Answer> {
        read_answer(&mut self.reader).context("the server does not answer")
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<Answer> {
        self.send(&encode(arguments))?;
        self.receive()
    }
}

/// A request as clients send it.
pub(crate) fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read_answer(reader: &mut impl BufRead) -> Result<Answer> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some((kind, rest)) = line.strip_suffix("\r\n").and_then(|line| line.split_at_checked(1))
    else {
        bail!("the connection ended behind {line:?}");
    };
    let number = || rest.parse::<i64>().with_context(|| format!("{line:?} has no number"));
    Ok(match kind {
        "+" => Answer::Simple(rest.into()),
        "-" => Answer::Error(rest.into()),
        ":" => Answer::Integer(number()?),
        "$" | "*" if rest == "-1" => Answer::Null,
        "$" => {
            let len = usize::try_from(number()?)?;
            if len > BULK_MAX {
                bail!("a string of {len} bytes; nobody wrote one so long");
            }
            let mut payload = vec![0; len + 2];
            reader.read_exact(&mut payload)?;
            payload.truncate(len);
            Answer::Bulk(payload)
        }
        "*" => {
            let answers = (0..number()?).map(|_| read_answer(reader));
            Answer::Array(answers.collect::<Result<_>>()?)
        }
        _ => bail!("no answer begins like {line:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let mut bytes = &b"*3\r\n:-7\r\n$2\r\nhi\r\n$-1\r\n+OK\r\n-ERR no\r\n$9"[..];
        let mut next = || read_answer(&mut bytes);
        let array = vec![Answer::Integer(-7), Answer::Bulk(b"hi".to_vec()), Answer::Null];
        assert_eq!(next().expect("an answer"), Answer::Array(array));
        assert_eq!(next().expect("an answer"), Answer::ok());
        assert_eq!(next().expect("an answer"), Answer::Error("ERR no".into()));
        assert!(next().is_err());
    }

    #[test]
    fn requests_are_written() {
        assert_eq!(encode(&["GET", "k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
