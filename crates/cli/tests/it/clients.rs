//! Real clients run the same transcript against Redis and against Remanent, with equal answers.
//!
//! These tests need redis-server, redis-cli, redis-benchmark and Python's redis (Debian:
//! redis-server, redis-tools, python3-redis); `ci/test` installs them.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use super::support::{Answer, Client, PATIENCE, Server, assert_whole, directory, encode, on_disk};

/// Debian's own interpreter: that is where its python3-redis can be found.
const PYTHON: &str = "/usr/bin/python3";

/// Whether a client is there. Where it must be, its absence is a failure; else it is said.
pub(super) fn available(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let required =
        ["CI", "REMANENT_REQUIRE_CLIENTS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(
        found || !required,
        "{program} {arguments:?} does not run here; ci/test installs what the tests need"
    );
    if !found {
        eprintln!("not run: {program} {arguments:?} is missing");
    }
    found
}

fn redis_available() -> bool {
    available("redis-server", &["--version"]) && available("redis-cli", &["--version"])
}

/// A Redis server without persistence; killed when dropped.
struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    fn start(directory: &Path) -> Redis {
        let address = free_address();
        let child = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--databases", "1"])
            .arg("--dir")
            .arg(directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let redis = Redis { child, address };
        let start = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

fn transcript(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name)
}

/// What a client printed on a server, which it must have left with status 0.
pub(super) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the client runs");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?} ended with {status}: {stderr}");
    String::from_utf8(stdout).expect("text")
}

/// Runs the same client on a fresh Redis and a fresh Remanent, and compares what it prints.
fn compare(client: impl Fn(SocketAddr) -> String) {
    compare_with(&[], client);
}

/// The same on a Remanent that is served with `arguments`.
fn compare_with(arguments: &[&str], client: impl Fn(SocketAddr) -> String) {
    let directory = directory();
    let redis = Redis::start(directory.path());
    let server = Server::start(&directory.path().join("transcript.pool"), arguments);
    let (expected, found) = (client(redis.address), client(server.address));
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(found, expected, "answers differ in line {}", number + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    assert!(expected.lines().count() > 20, "the transcript did not run: {expected}");
    let pool = server.pool.clone();
    server.stop();
    assert_whole(&pool);
}

/// What redis-cli sends, a command a line.
///
/// What Redis has changed since 7.0, which Debian has, is left out of those: Remanent answers as
/// later ones do. They print a score with the fewest digits that tell it from others, where 7.0
/// prints 0.1 as 0.10000000000000001; so the scores here are sums of powers of two. And they know
/// `ZRANK … WITHSCORE`. Left out as well is −0, whose sign Redis keeps in long sets alone.
const TRANSCRIPTS: [&str; 4] =
    ["strings.redis", "sorted_sets.redis", "numbers.redis", "server.redis"];

fn redis_cli(address: SocketAddr, name: &str, arguments: &[&str]) -> String {
    let input = File::open(transcript(name)).expect("the transcript");
    run(Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "--no-raw"])
        .args(arguments)
        .stdin(input))
}

#[test]
fn redis_cli_sees_no_difference() {
    if redis_available() {
        for name in TRANSCRIPTS {
            compare(|address| redis_cli(address, name, &[]));
        }
    }
}

#[test]
fn redis_cli_sees_no_difference_when_batched() {
    if redis_available() {
        let arguments = ["--durability", "batched", "--emulate", "nvram"];
        for name in TRANSCRIPTS {
            compare_with(&arguments, |address| redis_cli(address, name, &[]));
        }
    }
}

/// A command that the Redis which the others are compared with has not yet.
#[test]
fn redis_cli_waits_for_the_disk() {
    if !available("redis-cli", &["--version"]) {
        return;
    }
    let directory = on_disk();
    let server =
        Server::start(&directory.path().join("batched.pool"), &["--durability", "batched"]);
    let cli = |arguments: &str| {
        let port = server.address.port().to_string();
        run(Command::new("redis-cli").args(["-p", &port]).args(arguments.split(' ')))
    };
    assert_eq!(cli("set greeting hello"), "OK\n");
    assert_eq!(cli("waitaof 1 0 0"), "1\n0\n");
    assert!(cli("info persistence").contains("\nlag_bytes:0\r\n"));
}

#[test]
fn redis_cli_sees_no_difference_in_resp3() {
    if redis_available() {
        for name in TRANSCRIPTS {
            compare(|address| redis_cli(address, name, &["-3"]));
        }
    }
}

#[test]
fn python_redis_sees_no_difference() {
    if redis_available() && available(PYTHON, &["-c", "import redis"]) {
        compare(|address| {
            run(Command::new(PYTHON).arg(transcript("client.py")).arg(address.port().to_string()))
        });
    }
}

/// Bytes that are no request, and what Redis says before it closes the connection.
#[test]
fn malformed_frames_are_refused_in_the_same_words() {
    const FRAMES: &[&[u8]] = &[
        b"*1\r\n:4\r\nPING\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$\r\n\r\n",
        b"*1\r\n$4x\r\nPING\r\n",
        b"*1\r\n$536870913\r\n",
        b"*x\r\n",
        b"*1x\r\n",
        b"*99999999999999999999\r\n",
        b"set \"k\r\n",
        b"set 'k'x v\r\n",
        b"*0\r\n*-1\r\n\r\nPING\r\nQUIT\r\n",
        b"  ping  \"a\\x41\\n\"\r\nQUIT\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nQUIT\r\n",
    ];
    if !redis_available() {
        return;
    }
    compare(|address| {
        let mut printed = String::new();
        for frame in FRAMES {
            let mut client = Client::connect(address);
            client.send(frame).unwrap();
            let answer = client.drain();
            printed += &format!("{}\n{}\n", frame.escape_ascii(), answer.escape_ascii());
        }
        printed
    });
}

#[test]
fn redis_benchmark_runs() {
    if !available("redis-benchmark", &["--version"]) {
        return;
    }
    let directory = directory();
    let server = Server::start(&directory.path().join("benchmark.pool"), &[]);
    let port = server.address.port().to_string();
    let printed = run(Command::new("redis-benchmark").args(["-p", &port]).args(
        "-t set,get,incr,mset,ping_inline,ping_mbulk -n 20000 -P 16 -r 1000 --csv".split(' '),
    ));
    assert_ran(&printed, &["SET", "GET", "INCR", "MSET (10 keys)", "PING_INLINE", "PING_MBULK"]);
    let mut client = server.connect();
    assert_eq!(client.call(&["GET", "counter:__rand_int__"]), Answer::Null);
    assert!(matches!(client.call(&["DBSIZE"]), Answer::Integer(2_000..=3_000)));
    client.send(&encode(&["QUIT"])).unwrap();
}

fn assert_ran(printed: &str, tests: &[&str]) {
    for test in tests {
        assert!(printed.contains(&format!("\"{test}\"")), "{test} is missing in {printed}");
    }
}

#[test]
fn redis_benchmark_runs_on_sorted_sets() {
    if !available("redis-benchmark", &["--version"]) {
        return;
    }
    let directory = directory();
    let server = Server::start(&directory.path().join("benchmark.pool"), &[]);
    let port = server.address.port().to_string();
    let benchmark = |arguments: &str| {
        run(Command::new("redis-benchmark").args(["-p", &port]).args(arguments.split(' ')))
    };
    let printed = benchmark("-t zadd,zpopmin -n 20000 -P 16 -r 1000 --csv");
    assert_ran(&printed, &["ZADD", "ZPOPMIN"]);
    let mut client = server.connect();
    // Whatever was added has been popped, and the set is gone with its last member.
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(0));
    benchmark("-t zadd -n 20000 -P 16 -r 1000 --csv");
    assert!(matches!(client.call(&["ZCARD", "myzset"]), Answer::Integer(900..=1000)));
    let pool = server.pool.clone();
    server.stop();
    assert_whole(&pool);
}

/// Many keys through `redis-cli --pipe`, its bulk loading mode.
#[test]
fn redis_cli_loads_in_bulk() {
    const KEYS: u64 = 200_000;
    if !available("redis-cli", &["--version"]) {
        return;
    }
    let directory = directory();
    let server = Server::start(&directory.path().join("bulk.pool"), &[]);
    let requests = directory.path().join("requests");
    let bytes = (0..KEYS).flat_map(|n| encode(&["SET".into(), format!("key{n}"), n.to_string()]));
    std::fs::write(&requests, bytes.collect::<Vec<u8>>()).unwrap();
    let printed = run(Command::new("redis-cli")
        .args(["-p", &server.address.port().to_string(), "--pipe"])
        .stdin(File::open(&requests).unwrap()));
    assert!(printed.contains(&format!("errors: 0, replies: {KEYS}")), "{printed}");
    assert_eq!(server.connect().call(&["DBSIZE"]), Answer::Integer(KEYS as i64));
}
