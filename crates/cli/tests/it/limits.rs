//! What a server does when something runs out: memory, descriptors, room in files, or the medium
//! itself.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::support::{Answer, Client, PATIENCE, Server, assert_whole, directory, encode};

fn started(arguments: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = directory();
    let server = Server::start(&directory.path().join("limits.pool"), arguments);
    (directory, server)
}

/// Memory of the server that is no pool, in MiB.
fn own_memory_mib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

fn info(client: &mut Client, name: &str) -> String {
    let Answer::Bulk(text) = client.call(&["INFO", "all"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

/// Answers that are not read take no more than they may, whoever asks; who reads nothing is closed
/// at last.
#[test]
fn answers_that_nobody_reads_have_one_bound() {
    const CLIENTS: usize = 12;
    let (_directory, server) = started(&["--client-memory", "64M", "--threads", "2"]);
    let mut other = server.connect();
    other.call(&["SET", "large", &"x".repeat(1 << 20)]);
    let before_mib = own_memory_mib(&server);
    let request = encode(&[&["MGET"][..], &["large"; 20]].concat());
    let greedy: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            client.send(&request.repeat(5)).unwrap();
            client
        })
        .collect();
    assert!(greedy.iter().all(|client| client.has_answer(PATIENCE)), "somebody waits for nothing");
    let after_mib = own_memory_mib(&server);
    assert!(after_mib < before_mib + 80, "{before_mib} MiB before, {after_mib} MiB after");
    assert!(info(&mut other, "client_memory").parse::<u64>().unwrap() <= 64 << 20);
    // Whoever needs little is served; who needs much is told why not, and is still connected.
    assert_eq!(other.call(&["STRLEN", "large"]), Answer::Integer(1 << 20));
    let mut patient = server.connect();
    let start = Instant::now();
    while let Answer::Error(error) = patient.call(&[&["MGET"][..], &["large"; 30]].concat()) {
        assert!(error.starts_with("OOM the answer needs more memory"), "{error}");
        assert!(start.elapsed() < PATIENCE, "who does not read is never closed");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(start.elapsed() > Duration::from_secs(5), "closed without patience");
    assert!(info(&mut other, "evicted_clients").parse::<u32>().unwrap() >= 1);
    drop(greedy);
    let start = Instant::now();
    while info(&mut other, "client_memory") != "0" {
        assert!(start.elapsed() < PATIENCE, "memory is not given back");
    }
    server.stop();
}

/// Where the system itself has no memory, clients are told, and the server goes on.
#[test]
fn an_allocation_that_fails_is_an_answer() {
    let directory = directory();
    let (pool, log) = (directory.path().join("a.pool"), directory.path().join("log"));
    let arguments = ["--size", "256M", "--client-memory", "64G", "--threads", "1"];
    let server = Server::start_after("ulimit -v 900000", &pool, &arguments, &log);
    let mut client = server.connect();
    client.call(&["SET", "large", &"x".repeat(20 << 20)]);
    let asked = [&["MGET"][..], &["large"; 45]].concat();
    let error = client.call(&asked).error();
    assert!(error.starts_with("OOM "), "{error}");
    assert_eq!(client.call(&["STRLEN", "large"]), Answer::Integer(20 << 20));
    // A request that is longer than there is room for.
    let mut long = server.connect();
    let _ = long.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n");
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..500).take_while(|_| long.send(&piece).is_ok()).count();
    let told = String::from_utf8_lossy(&long.drain()).into_owned();
    assert!(told.is_empty() || told.starts_with("-OOM "), "{told} after {sent} MiB");
    assert_eq!(client.call(&["GET", "k"]), Answer::Null);
    server.stop();
    assert_whole(&pool);
}

/// A value of the greatest length that Redis takes, to the byte.
#[test]
fn a_value_of_512_mib_is_stored() {
    const LEN: usize = 512 << 20;
    let (_directory, server) = started(&["--size", "2G"]);
    let mut client = server.connect();
    let mut value = vec![b'v'; LEN];
    value[LEN - 1] = b'!';
    assert_eq!(client.call(&[b"SET", &b"longest"[..], &value]), Answer::ok());
    assert_eq!(client.call(&["STRLEN", "longest"]), Answer::Integer(LEN as i64));
    assert!(client.call(&["GET", "longest"]) == Answer::Bulk(value), "it is another one");
    let error = client.call(&["APPEND", "longest", "x"]).error();
    assert!(error.contains("maximum allowed size"), "{error}");
    let mut longer = server.connect();
    longer.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n").unwrap();
    assert_eq!(longer.drain(), b"-ERR Protocol error: invalid bulk length\r\n");
}

/// Connections for which there are no descriptors are told so, and the log is not filled with it.
#[test]
fn descriptors_that_run_out_are_told_to_clients() {
    let directory = directory();
    let (pool, log) = (directory.path().join("a.pool"), directory.path().join("log"));
    let server = Server::start_after("ulimit -n 400", &pool, &["--threads", "1"], &log);
    let mut first = server.connect();
    first.call(&["SET", "key", "value"]);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("fewer clients than asked for"), "{said}");
    // Fewer than the server knows of, so that it meets the limit.
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    let limit = Rlimit { current: Some(open + 3), maximum: Some(400) };
    prlimit(Pid::from_raw(server.pid() as i32), Resource::Nofile, limit).unwrap();
    let mut clients: Vec<Client> = (0..30).map(|_| server.connect()).collect();
    let mut served = 0;
    for client in &mut clients {
        // Closed with bytes of ours unread, it may be told nothing.
        let _ = client.send(&encode(&["PING"]));
        match client.receive() {
            Ok(Answer::Simple(pong)) => {
                assert_eq!(pong, "PONG");
                served += 1;
            }
            Ok(answer) => assert_eq!(answer.error(), "ERR max number of clients reached"),
            Err(_) => {}
        }
    }
    assert!((1..=4).contains(&served), "{served} served");
    assert_eq!(first.call(&["GET", "key"]), Answer::bulk("value"));
    assert!(info(&mut first, "rejected_connections").parse::<u32>().unwrap() >= 20);
    drop(clients);
    let start = Instant::now();
    loop {
        let mut client = server.connect();
        if client.send(&encode(&["PING"])).is_ok()
            && client.receive().is_ok_and(|a| a == Answer::Simple("PONG".into()))
        {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "no descriptor comes back");
    }
    server.stop();
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.lines().count() <= 3, "{said}");
}

/// A file that may not grow is a full pool, and no end of the server.
#[test]
fn a_file_size_limit_is_a_full_pool() {
    let directory = directory();
    let (pool, log) = (directory.path().join("a.pool"), directory.path().join("log"));
    // In blocks of 512 bytes, as every shell counts that follows the standard; some count in 1024.
    let server = Server::start_after("ulimit -f 80000", &pool, &["--size", "1G"], &log);
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    let mut stored = 0;
    let error = loop {
        match client.call(&["SET".into(), format!("key{stored}"), value.clone()]) {
            Answer::Error(error) => break error,
            answer => assert_eq!(answer, Answer::ok()),
        }
        stored += 1;
        assert!(stored < 1_000, "100 MB in a file of at most 82 MB");
    };
    assert!(error.starts_with("OOM ") || error.contains("File too large"), "{error}");
    assert!(stored > 10, "only {stored} values fit");
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(stored));
    assert_eq!(client.call(&["DEL", "key0"]), Answer::Integer(1));
    server.stop();
    assert_whole(&pool);
}

#[test]
fn a_terminal_that_is_closed_ends_no_server() {
    let (_directory, server) = started(&[]);
    let mut client = server.connect();
    server.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.call(&["SET", "key", "value"]), Answer::ok());
    assert_eq!(server.connect().call(&["GET", "key"]), Answer::bulk("value"));
    server.stop();
}

/// Someone cuts the pool's file off while it is served: that is told on standard error, in `INFO`,
/// and by the status.
#[test]
fn a_medium_that_fails_is_told() {
    for arguments in [&[][..], &["--durability", "batched", "--emulate", "nvram"]] {
        let directory = directory();
        let (pool, log) = (directory.path().join("a.pool"), directory.path().join("log"));
        let arguments = [arguments, &["--size", "64M"]].concat();
        let server = Server::start_after("true", &pool, &arguments, &log);
        let mut client = server.connect();
        let value = "v".repeat(100_000);
        for index in 0..50 {
            client.call(&["SET".into(), format!("key{index}"), value.clone()]);
        }
        assert_eq!(info(&mut client, "pool_status"), "ok");
        fs::OpenOptions::new().write(true).open(&pool).unwrap().set_len(1 << 20).unwrap();
        let failed = (0..50).filter(|index| {
            matches!(client.call(&["GET".into(), format!("key{index}")]), Answer::Error(_))
        });
        assert!(failed.count() > 0, "nothing was lost");
        assert_eq!(info(&mut client, "pool_status"), "failed");
        assert!(info(&mut client, "pool_fault").contains("cannot be read"));
        wait_for_line(&log, "commands that meet it are answered by an error");
        std::thread::sleep(Duration::from_millis(1_100));
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(1));
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(
            said.matches("commands that meet it are answered by an error").count(),
            1,
            "{said}"
        );
        assert!(said.contains("failed while it was served"), "{said}");
    }
}

fn wait_for_line(log: &Path, what: &str) {
    let start = Instant::now();
    while !fs::read_to_string(log).unwrap().contains(what) {
        assert!(start.elapsed() < PATIENCE, "{}", fs::read_to_string(log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
}
