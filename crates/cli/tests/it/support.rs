//! A server process, a client, and random numbers with a seed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes; what needs more hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory in memory, so that tests do not wait for a disk.
pub(crate) fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("remanent-test-").tempdir_in(parent).expect("a directory")
}

/// A directory beside the tests themselves: on a file system that survives the loss of power.
pub(crate) fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// What `remanent pool info` tells of a pool.
pub(crate) fn pool_info(path: &str) -> serde_json::Value {
    let output = remanent(&["pool", "info", path, "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs the command to its end.
pub(crate) fn remanent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_remanent")).args(arguments).output().expect("the command runs")
}

/// What the command wrote to standard error, which must have failed with status 1.
pub(crate) fn error_of(arguments: &[&str]) -> String {
    let output = remanent(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?} should fail: {output:?}");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.starts_with("error: "), "{error}");
    error
}

/// Checks a pool with the command, and panics with all that it says when it is not whole.
pub(crate) fn assert_whole(pool: &Path) {
    let output = remanent(&["pool", "check", pool.to_str().expect("a path in UTF-8")]);
    assert!(output.status.success(), "the pool is not whole: {output:#?}");
    assert!(output.stderr.is_empty(), "something was not checked: {output:#?}");
}

/// A server process; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it said when it was ready.
    pub(crate) greeting: String,
    pub(crate) pool: PathBuf,
}

impl Server {
    /// Starts a server on a free port of the loopback interface and waits until it is ready.
    pub(crate) fn start(pool: &Path, arguments: &[&str]) -> Server {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_remanent")), pool, arguments)
    }

    /// The same from a shell that has run `setting` before, such as `ulimit -n 100`; standard error
    /// goes to `log`.
    pub(crate) fn start_after(
        setting: &str,
        pool: &Path,
        arguments: &[&str],
        log: &Path,
    ) -> Server {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("{setting}; exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_remanent"),
        ]);
        shell.stderr(std::fs::File::create(log).expect("a log"));
        Self::spawn(shell, pool, arguments)
    }

    fn spawn(mut command: Command, pool: &Path, arguments: &[&str]) -> Server {
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--pool"])
            .arg(pool)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("standard output is piped");
        let mut greeting = String::new();
        BufReader::new(stdout).read_line(&mut greeting).expect("the server speaks");
        let address = greeting
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(": ").next()?.parse().ok())
            .unwrap_or_else(|| panic!("no address in {greeting:?}; the server failed"));
        Server { child, address, greeting, pool: pool.to_owned() }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, signal).expect("the server can be signalled");
    }

    /// Kills the server as nothing can be prepared for, and waits until it is dead.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the server can be waited for") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks the server to end and waits until it has.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer of a server in RESP2.
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

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Answer {
        Answer::Bulk(text.as_ref().to_vec())
    }

    /// The text of an error.
    pub(crate) fn error(self) -> String {
        match self {
            Answer::Error(text) => text,
            other => panic!("an error was expected, not {other:?}"),
        }
    }

    /// The text of an array's bulk strings.
    pub(crate) fn strings(self) -> Vec<Vec<u8>> {
        let Answer::Array(answers) = self else { panic!("an array was expected, not {self:?}") };
        let string = |answer| match answer {
            Answer::Bulk(string) => string,
            other => panic!("a string was expected, not {other:?}"),
        };
        answers.into_iter().map(string).collect()
    }
}

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Client { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn receive(&mut self) -> io::Result<Answer> {
        read_answer(&mut self.reader)
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Answer {
        self.send(&encode(arguments)).expect("the server reads");
        self.receive().expect("the server answers")
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("the connection is open");
    }

    /// What is answered to requests that were sent, without taking it.
    pub(crate) fn has_answer(&self, patience: Duration) -> bool {
        self.stream.set_read_timeout(Some(patience)).expect("a socket option");
        let is_there = matches!(self.stream.peek(&mut [0]), Ok(1));
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        is_there
    }

    /// Everything that the server sends until it closes the connection.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            // Closed with bytes of ours unread: as good an end as any.
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => rest,
        }
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

fn read_answer(reader: &mut impl BufRead) -> io::Result<Answer> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(line) = line.strip_suffix("\r\n") else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let (kind, rest) = line.split_at(1);
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => Answer::Simple(rest.into()),
        "-" => Answer::Error(rest.into()),
        ":" => Answer::Integer(number()?),
        "$" | "*" if rest == "-1" => Answer::Null,
        "$" => {
            let mut payload = vec![0; number()? as usize + 2];
            reader.read_exact(&mut payload)?;
            payload.truncate(payload.len() - 2);
            Answer::Bulk(payload)
        }
        "*" => {
            let answers = (0..number()?).map(|_| read_answer(reader));
            Answer::Array(answers.collect::<io::Result<_>>()?)
        }
        _ => return Err(io::Error::other(format!("no answer begins like {line:?}"))),
    })
}

/// Random numbers that a seed repeats (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The number in an environment variable, or `default`.
pub(crate) fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}
