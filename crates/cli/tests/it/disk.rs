//! `remanent disk`: the command, what its server serves, and the server killed under a client that
//! notes what was acknowledged.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::support::{Random, assert_whole, directory, error_of, number_from_env, remanent};

const BLOCK_LEN: usize = 4096;

/// A server of disks, killed when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) socket: PathBuf,
    greeting: String,
}

impl Server {
    pub(super) fn start(pool: &Path, arguments: &[&str]) -> Self {
        let socket = pool.with_extension("socket");
        let mut child = Command::new(env!("CARGO_BIN_EXE_remanent"))
            .args(["disk", "serve"])
            .arg(pool)
            .arg("--socket")
            .arg(&socket)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut greeting = String::new();
        let stdout = child.stdout.take().expect("standard output is piped");
        BufReader::new(stdout).read_line(&mut greeting).expect("the server speaks");
        assert!(greeting.starts_with("serving "), "{greeting:?}");
        Server { child, socket, greeting }
    }

    /// Where it listens besides its socket.
    pub(super) fn address(&self) -> SocketAddr {
        let places = self.greeting.split(" on ").nth(1).expect("it says where");
        let address = places.split(", ").nth(1).expect("it listens at two places");
        address.parse().unwrap_or_else(|_| panic!("no address in {:?}", self.greeting))
    }

    /// Somebody else kills it.
    fn wait_for_end(&mut self) {
        self.child.wait().expect("it was killed");
    }

    /// Asks it to end and waits until it has.
    pub(super) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As much of an NBD client as the tests need: one request at a time.
struct Client<S> {
    socket: S,
    size: u64,
    is_read_only: bool,
}

const WRITE: u16 = 1;
const READ: u16 = 0;
/// The error of a write to what is read-only: EPERM.
const REFUSED: u32 = 1;

impl Client<UnixStream> {
    fn connect(server: &Server, export: &str) -> std::io::Result<Self> {
        Client::choose(UnixStream::connect(&server.socket)?, export)
    }
}

impl<S: Read + Write> Client<S> {
    fn choose(mut socket: S, export: &str) -> std::io::Result<Self> {
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        // Fixed newstyle without zeroes; then NBD_OPT_EXPORT_NAME.
        socket.write_all(&3u32.to_be_bytes())?;
        socket.write_all(b"IHAVEOPT\0\0\0\x01")?;
        socket.write_all(&(export.len() as u32).to_be_bytes())?;
        socket.write_all(export.as_bytes())?;
        let mut answer = [0; 10];
        socket.read_exact(&mut answer)?;
        let size = u64::from_be_bytes(*answer.first_chunk().expect("8 bytes"));
        Ok(Client { socket, size, is_read_only: answer[9] & 2 != 0 })
    }

    fn request(&mut self, kind: u16, offset: u64, len: u32, data: &[u8]) -> std::io::Result<u32> {
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend_from_slice(&0x2560_9513u32.to_be_bytes());
        request.extend_from_slice(&[0, 0]);
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&len.to_be_bytes());
        request.extend_from_slice(data);
        self.socket.write_all(&request)?;
        let mut reply = [0; 16];
        self.socket.read_exact(&mut reply)?;
        Ok(u32::from_be_bytes(reply[4..8].try_into().expect("4 bytes")))
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        assert_eq!(self.request(WRITE, offset, data.len() as u32, data)?, 0, "a write is refused");
        Ok(())
    }

    fn read(&mut self, offset: u64, data: &mut [u8]) -> std::io::Result<()> {
        assert_eq!(self.request(READ, offset, data.len() as u32, &[])?, 0, "a read is refused");
        self.socket.read_exact(data)
    }
}

#[test]
fn a_disk_is_made_described_resized_and_checked() {
    let directory = directory();
    let path = directory.path().join("new.pool");
    let path = path.to_str().expect("a path in UTF-8");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = remanent(&[&["disk"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(json(&["create", path, "--size", "10M", "--json"])["size_bytes"], 10 << 20);
    json(&["create", path, "--size", "1M", "--name", "other", "--json"]);
    assert_eq!(json(&["resize", path, "--size", "20M", "--json"])["size_bytes"], 20 << 20);
    assert_eq!(json(&["snapshot", path, "first", "--json"])["snapshots"][0]["name"], "first");
    assert_eq!(json(&["check", path, "--json"])["violations"], serde_json::json!([]));
    assert_whole(path.as_ref());

    let refused: &[(&[&str], &str)] = &[
        (&["resize", path, "--size", "1M"], "--shrink"),
        (&["resize", path, "--size", "30000001"], "multiple of 512"),
        (&["create", path, "--size", "1M"], "already has a root"),
        (&["create", path, "--size", "1M", "--name", "x", "--pool-size", "1G"], "a new pool"),
        (&["info", path, "--name", "missing"], "other"),
        (&["snapshot", path, "first"], "of that name"),
        (&["serve", path, "--name", "missing"], "no disk"),
        (&["serve", path, "--listen", "0.0.0.0:0"], "refusing"),
    ];
    for (arguments, reason) in refused {
        let error = error_of(&[&["disk"], *arguments].concat());
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    assert_eq!(
        json(&["resize", path, "--size", "1M", "--shrink", "--json"])["size_bytes"],
        1 << 20
    );
    json(&["snapshot", path, "first", "--remove", "--json"]);
    let empty = directory.path().join("empty.pool");
    let empty = empty.to_str().expect("a path in UTF-8");
    assert!(remanent(&["pool", "create", empty]).status.success());
    assert!(error_of(&["disk", "serve", empty]).contains("remanent disk create"));
}

/// A pool with disks, by name and size.
fn pool_with(directory: &Path, disks: &[(&str, &str)]) -> PathBuf {
    let pool = directory.join("disks.pool");
    let path = pool.to_str().expect("a path in UTF-8");
    for (name, size) in disks {
        let output = remanent(&["disk", "create", path, "--size", size, "--name", name]);
        assert!(output.status.success(), "{output:?}");
    }
    pool
}

#[test]
fn all_disks_and_snapshots_of_a_pool_are_served_at_once() {
    let directory = directory();
    let pool = pool_with(directory.path(), &[("a", "1M"), ("b", "2M")]);
    let path = pool.to_str().expect("a path in UTF-8");
    let server = Server::start(&pool, &[]);
    Client::connect(&server, "a").unwrap().write(0, &block(1)).unwrap();
    server.stop();
    let output = remanent(&["disk", "snapshot", path, "first", "--name", "a"]);
    assert!(output.status.success(), "{output:?}");

    let server =
        Server::start(&pool, &["--listen", "127.0.0.1:0", "--poll", "20us", "--name", "b"]);
    assert!(server.greeting.starts_with("serving b, a, a@first of "), "{}", server.greeting);
    let by_name = |name| Client::connect(&server, name).expect("it is served");
    let [mut a, mut b, mut first, default] = ["a", "b", "a@first", ""].map(by_name);
    let sizes = [a.size, b.size, first.size, default.size];
    assert_eq!(sizes, [1 << 20, 2 << 20, 1 << 20, 2 << 20], "who asks for none gets b");
    assert!(Client::connect(&server, "a@second").is_err(), "there is none");
    a.write(0, &block(2)).unwrap();
    b.write(0, &block(3)).unwrap();
    assert!(first.is_read_only && !a.is_read_only);
    assert_eq!(first.request(WRITE, 0, 4096, &block(4)).unwrap(), REFUSED);

    let by_address = |name| {
        let socket = TcpStream::connect(server.address()).expect("it listens");
        Client::choose(socket, name).expect("it is served")
    };
    for (name, expected) in [("a", 2), ("b", 3), ("a@first", 1)] {
        let mut found = [0; BLOCK_LEN];
        by_name(name).read(0, &mut found).unwrap();
        assert_eq!(stamp(&found), expected, "{name}");
        by_address(name).read(0, &mut found).unwrap();
        assert_eq!(stamp(&found), expected, "{name} over TCP");
    }
    by_address("b").write(4096, &block(5)).unwrap();
    let mut found = [0; BLOCK_LEN];
    b.read(4096, &mut found).unwrap();
    assert_eq!(stamp(&found), 5);
    server.stop();
    assert_whole(&pool);
}

#[test]
fn a_disk_that_is_served_for_reading_is_not_changed() {
    let directory = directory();
    let pool = pool_with(directory.path(), &[("disk", "1M")]);
    let server = Server::start(&pool, &[]);
    Client::connect(&server, "").unwrap().write(8192, &block(1)).unwrap();
    server.stop();
    // Connections sleep at once, which makes no difference to what they answer.
    let poll = ["--poll", "0"];
    for (read_only, arguments) in [(true, &["--read-only"][..]), (false, &[])] {
        let server = Server::start(&pool, &[&poll, arguments].concat());
        let mut client = Client::connect(&server, "disk").unwrap();
        assert_eq!(client.is_read_only, read_only);
        let answer = client.request(WRITE, 8192, 4096, &block(2)).unwrap();
        assert_eq!(answer, if read_only { REFUSED } else { 0 });
        let mut found = [0; BLOCK_LEN];
        client.read(8192, &mut found).unwrap();
        assert_eq!(stamp(&found), if read_only { 1 } else { 2 });
        server.stop();
    }
}

#[test]
fn check_names_a_damaged_block_and_ends_with_status_1() {
    let directory = directory();
    let pool = pool_with(directory.path(), &[("disk", "1M")]);
    let path = pool.to_str().expect("a path in UTF-8");
    let data = block(0x5EED_0BAD_F00D);
    let server = Server::start(&pool, &[]);
    Client::connect(&server, "disk").unwrap().write(12 << 10, &data).unwrap();
    server.stop();
    let check = |arguments: &[&str]| remanent(&[&["disk", "check", path], arguments].concat());
    assert_eq!(check(&[]).status.code(), Some(0));

    let file = std::fs::OpenOptions::new().read(true).write(true).open(&pool).unwrap();
    let bytes = std::fs::read(&pool).unwrap();
    let number = bytes.chunks(BLOCK_LEN).position(|found| found == data);
    let at = (number.expect("it lies in the pool") * BLOCK_LEN) as u64;
    file.write_all_at(&[data[100] ^ 16], at + 100).unwrap();

    let output = check(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("1 violations in disk"));
    let output = check(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["violations"][0]["offset"], at);
    assert_eq!(check(&["--quick"]).status.code(), Some(0), "it reads no data");
}

/// What takes more of the pool meanwhile must not make the file longer again: what was cut off
/// would read as zeros.
#[test]
fn a_pool_that_is_truncated_under_its_disk_is_told_by_the_status() {
    const LEN: u64 = 32 << 20;
    let directory = directory();
    let pool = pool_with(directory.path(), &[("disk", "32M")]);
    let mut server = Server::start(&pool, &[]);
    let mut client = Client::connect(&server, "disk").unwrap();
    let blocks: Vec<u8> = (1..=64).flat_map(block).collect();
    for at in (0..LEN).step_by(blocks.len()) {
        client.write(at, &blocks).unwrap();
    }
    let file = std::fs::OpenOptions::new().write(true).open(&pool).unwrap();
    let cut = file.metadata().unwrap().len() / 2;
    file.set_len(cut).unwrap();
    let mut failed = 0;
    for (number, at) in (0..LEN).step_by(BLOCK_LEN).enumerate() {
        if client.request(READ, at, BLOCK_LEN as u32, &[]).unwrap() != 0 {
            failed += 1;
            continue;
        }
        let mut found = [0; BLOCK_LEN];
        client.socket.read_exact(&mut found).unwrap();
        assert_eq!(stamp(&found), number as u64 % 64 + 1, "the block at {at}");
    }
    assert!(failed > 1_000, "{failed} reads failed");
    assert_eq!(file.metadata().unwrap().len(), cut);
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("it runs");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(1));
}

/// The stamp in every word of a block; 0 for one that was never written.
fn stamp(block: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(*block.first_chunk().expect("a block"));
    let is_whole = block.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == stamp);
    assert!(is_whole, "a block is torn: it begins with {stamp}");
    stamp
}

fn block(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK_LEN / 8)
}

/// A request of several blocks was killed: all of it is there, or nothing.
#[test]
fn a_killed_server_of_disks_loses_no_acknowledged_write() {
    let directory = directory();
    let pool = directory.path().join("killed.pool");
    let path = pool.to_str().expect("a path in UTF-8");
    assert!(remanent(&["disk", "create", path, "--size", "1M"]).status.success());
    let mut random = Random::new(41);
    let mut acknowledged = vec![0u64; (1 << 20) / BLOCK_LEN];
    let mut stamps = 0;
    let mut writes = 0;
    for round in 0..number_from_env("REMANENT_KILL_ROUNDS", 10) {
        let mut server = Server::start(&pool, &[]);
        assert!(server.greeting.contains("killed.pool"));
        let mut client = Client::connect(&server, "").expect("it listens");
        assert_eq!(client.size, 1 << 20);
        let pid = Pid::from_child(&server.child);
        let delay = Duration::from_micros(500 + random.below(20_000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            kill_process(pid, Signal::KILL).expect("it runs");
        });
        // What was under way when the server died.
        let (range, last) = loop {
            let count = 1 + random.below(8) as usize;
            let first = random.below((acknowledged.len() - count) as u64) as usize;
            stamps += 1;
            let data: Vec<u8> = (0..count).flat_map(|_| block(stamps)).collect();
            if client.write((first * BLOCK_LEN) as u64, &data).is_err() {
                break (first..first + count, stamps);
            }
            acknowledged[first..first + count].fill(stamps);
            writes += 1;
        };
        killer.join().expect("it killed");
        server.wait_for_end();
        let server = Server::start(&pool, &[]);
        let mut client = Client::connect(&server, "").expect("it listens");
        let mut found = vec![0; 1 << 20];
        client.read(0, &mut found).expect("it reads");
        let found: Vec<u64> = found.chunks(BLOCK_LEN).map(stamp).collect();
        if found[range.start] == last {
            acknowledged[range].fill(last);
        }
        assert!(found == acknowledged, "round {round}: a write is gone, or a part of one is there");
    }
    println!("{writes} acknowledged writes");
    assert_whole(&pool);
    let output = remanent(&["disk", "check", path]);
    assert!(output.status.success(), "{output:?}");
}
