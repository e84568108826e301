//! What clients may do to a server, and to each other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::{
    Answer, Client, PATIENCE, Random, Server, assert_whole, directory, encode, error_of,
};

/// Bytes that a client may send, and all that the server answers before it closes the connection.
const MALFORMED: &[(&[u8], &str)] = &[
    (b"*1\r\n:4\r\nPING\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
    (b"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    (b"*1048577\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    (b"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    (b"*1\r\n$4x\r\nPING\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    (b"get \"k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
    (b"PING\r\n*1\r\n:\r\n", "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"),
];

/// Requests that are well formed and wrong, and the errors they get.
const WRONG: &[(&[&str], &str)] = &[
    (&["NOSUCH"], "ERR unknown command 'NOSUCH', with args beginning with: "),
    (&["nosuch", "a", "b c"], "ERR unknown command 'nosuch', with args beginning with: 'a' 'b c' "),
    (&["GET"], "ERR wrong number of arguments for 'get' command"),
    (&["GET", "a", "b"], "ERR wrong number of arguments for 'get' command"),
    (&["MSET", "a", "1", "b"], "ERR wrong number of arguments for 'mset' command"),
    (&["CLIENT"], "ERR wrong number of arguments for 'client' command"),
    (&["CLIENT", "SETNAME"], "ERR wrong number of arguments for 'client|setname' command"),
    (&["CLIENT", "NOSUCH"], "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    (&["SET", "k", "v", "NX", "XX"], "ERR syntax error"),
    (&["SET", "k", "v", "KEEPTTL", "EX", "1"], "ERR syntax error"),
    (
        &["SET", "k", "v", "EX", "1"],
        "ERR expiry is not supported: a key stays until it is deleted; \
         leave out EX, PX, EXAT and PXAT",
    ),
    (&["INCRBY", "n", "x"], "ERR value is not an integer or out of range"),
    (&["DECRBY", "n", "-9223372036854775808"], "ERR decrement would overflow"),
    (&["INCR", "text"], "ERR value is not an integer or out of range"),
    (&["INCRBY", "max", "1"], "ERR increment or decrement would overflow"),
    (&["SELECT", "1"], "ERR DB index is out of range"),
    (&["SCAN", "x"], "ERR invalid cursor"),
    (&["SCAN", "0", "COUNT", "0"], "ERR syntax error"),
    (&["HELLO", "4"], "NOPROTO unsupported protocol version"),
    (&["HELLO", "x"], "ERR Protocol version is not an integer or out of range"),
    (
        &["AUTH", "x"],
        "ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?",
    ),
    (
        &["CONFIG", "SET", "nosuch", "1"],
        "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
    ),
    (&["SHUTDOWN", "LATER"], "ERR syntax error"),
];

fn started(arguments: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = directory();
    let server = Server::start(&directory.path().join("server.pool"), arguments);
    (directory, server)
}

#[test]
fn malformed_frames_get_redis_errors_and_close_one_connection() {
    let (_directory, server) = started(&[]);
    let mut bystander = server.connect();
    for (bytes, answer) in MALFORMED {
        let mut client = server.connect();
        client.send(bytes).unwrap();
        let answered = String::from_utf8(client.drain()).unwrap();
        assert_eq!(answered, *answer, "to {:?}", bytes.escape_ascii().to_string());
        assert_eq!(bystander.call(&["PING"]), Answer::Simple("PONG".into()));
    }
    let mut endless = server.connect();
    endless.send(&vec![b'x'; 70_000]).unwrap();
    let answered = String::from_utf8(endless.drain()).unwrap();
    assert_eq!(answered, "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn wrong_requests_get_redis_errors_and_close_nothing() {
    let (_directory, server) = started(&[]);
    let mut client = server.connect();
    client.call(&["MSET", "text", "abc", "max", "9223372036854775807"]);
    for (request, error) in WRONG {
        assert_eq!(client.call(request).error(), *error, "to {request:?}");
    }
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(2));
}

/// Random bytes, and requests with random bytes in them: whatever comes back, others are served.
#[test]
fn noise_harms_nobody() {
    let (_directory, server) = started(&[]);
    let mut bystander = server.connect();
    let mut random = Random::new(7);
    for round in 0..200u64 {
        let mut bytes = encode(&["SET", "key", "a value of some length", "GET"]).repeat(3);
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        let mut client = server.connect();
        client.send(&bytes).unwrap();
        client.finish();
        client.drain();
        if round % 20 == 0 {
            assert_eq!(bystander.call(&["ECHO", "still here"]), Answer::bulk("still here"));
        }
    }
}

#[test]
fn a_thousand_connections_are_served() {
    let (_directory, server) = started(&["--threads", "3"]);
    let mut clients: Vec<Client> = (0..1_000).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(&encode(&["SET".into(), format!("key{index}"), index.to_string()])).unwrap();
        client.send(&encode(&["GET".into(), format!("key{index}")])).unwrap();
        client.send(&encode(&["INCR", "all"])).unwrap();
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().unwrap(), Answer::ok());
        assert_eq!(client.receive().unwrap(), Answer::bulk(index.to_string()));
        assert!(matches!(client.receive().unwrap(), Answer::Integer(1..=1_000)));
    }
    assert_eq!(clients[0].call(&["GET", "all"]), Answer::bulk("1000"));
    let Answer::Bulk(info) = clients[0].call(&["INFO", "clients"]) else { panic!("no text") };
    assert!(String::from_utf8(info).unwrap().contains("connected_clients:1000\r\n"));
}

#[test]
fn one_client_too_many_is_told_so() {
    let (_directory, server) = started(&["--max-clients", "2"]);
    let mut first = server.connect();
    let mut second = server.connect();
    first.call(&["PING"]);
    second.call(&["PING"]);
    let refused = String::from_utf8(server.connect().drain()).unwrap();
    assert_eq!(refused, "-ERR max number of clients reached\r\n");
    drop(second);
    let start = Instant::now();
    while server.connect().send(&encode(&["PING"])).is_err() {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_full_pool_says_so_and_loses_nothing() {
    fill_a_pool(&[]);
}

#[test]
fn a_full_batched_pool_says_so_and_loses_nothing() {
    fill_a_pool(&["--durability", "batched", "--emulate", "nvram"]);
}

fn fill_a_pool(arguments: &[&str]) {
    let (_directory, server) = started(&[arguments, &["--size", "40M"]].concat());
    let mut client = server.connect();
    let value = "v".repeat(10_000);
    let mut stored = 0;
    let error = loop {
        match client.call(&["SET".into(), format!("key{stored}"), value.clone()]) {
            Answer::Error(error) => break error,
            answer => assert_eq!(answer, Answer::ok()),
        }
        stored += 1;
        assert!(stored < 10_000, "40 MiB cannot hold 100 MB");
    };
    assert_eq!(error, "OOM command not allowed when used memory > 'maxmemory'.");
    assert!(stored > 500, "only {stored} values fit");
    assert_eq!(client.call(&["APPEND", "key0", &value]).error(), error);
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(stored));
    let pool = server.pool.clone();
    server.kill();
    assert_whole(&pool);

    let server = Server::start(&pool, arguments);
    let mut client = server.connect();
    for index in 0..stored {
        assert_eq!(client.call(&["GET".into(), format!("key{index}")]), Answer::bulk(&value));
    }
    for index in 0..stored / 2 {
        assert_eq!(client.call(&["DEL".into(), format!("key{index}")]), Answer::Integer(1));
    }
    for index in 0..stored / 4 {
        assert_eq!(
            client.call(&["SET".into(), format!("new{index}"), value.clone()]),
            Answer::ok()
        );
    }
    server.stop();
    assert_whole(&pool);
}

#[test]
fn large_values_come_back_whole() {
    let (_directory, server) = started(&[]);
    let mut client = server.connect();
    for len in [0, 1, 16_000, 70_000, 5_000_000, 64 << 20] {
        let mut random = Random::new(len);
        let value: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
        assert_eq!(client.call(&[b"SET", &b"large"[..], &value]), Answer::ok());
        assert_eq!(client.call(&["STRLEN", "large"]), Answer::Integer(value.len() as i64));
        assert!(client.call(&["GET", "large"]) == Answer::Bulk(value), "{len} bytes differ");
    }
}

/// A client that asks for much and reads nothing is not served further, and costs others nothing.
#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let (_directory, server) = started(&["--threads", "1"]);
    let mut other = server.connect();
    other.call(&["SET", "large", &"x".repeat(1 << 20)]);
    let mut greedy = server.connect();
    greedy.send(&encode(&["GET", "large"]).repeat(2_000)).unwrap();
    for _ in 0..100 {
        let start = Instant::now();
        assert_eq!(other.call(&["PING"]), Answer::Simple("PONG".into()));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 200 << 10, "{resident}: answers pile up");
    // It gets all of them once it does read.
    for _ in 0..2_000 {
        assert!(matches!(greedy.receive().unwrap(), Answer::Bulk(value) if value.len() == 1 << 20));
    }
}

/// Listing all keys takes long; others are answered meanwhile, on the same thread.
#[test]
fn long_requests_hold_nobody_up() {
    const KEYS: usize = 300_000;
    let (_directory, server) = started(&["--threads", "1"]);
    let mut lister = server.connect();
    for first in (0..KEYS).step_by(10_000) {
        let pairs = (first..first + 10_000).flat_map(|n| [format!("key{n}"), n.to_string()]);
        let request: Vec<String> = std::iter::once("MSET".into()).chain(pairs).collect();
        assert_eq!(lister.call(&request), Answer::ok());
    }
    let mut other = server.connect();
    other.call(&["PING"]);
    lister.send(&encode(&["KEYS", "*"]).repeat(3)).unwrap();
    let start = Instant::now();
    assert_eq!(other.call(&["PING"]), Answer::Simple("PONG".into()));
    let answered = start.elapsed();
    for _ in 0..3 {
        assert_eq!(lister.receive().unwrap().strings().len(), KEYS);
    }
    assert!(answered < start.elapsed() / 2, "answered after {answered:?}");
    assert_eq!(lister.call(&["FLUSHALL"]), Answer::ok());
    assert_eq!(lister.call(&["DBSIZE"]), Answer::Integer(0));
}

#[test]
fn scan_finds_every_key_that_stays() {
    let (_directory, server) = started(&[]);
    let mut client = server.connect();
    for index in 0..2_000 {
        client.call(&["SET".into(), format!("stays{index}"), "v".into()]);
    }
    let mut found = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    let mut rounds = 0;
    loop {
        // Others come and go meanwhile.
        client.call(&["SET".into(), format!("comes{rounds}"), "v".into()]);
        client.call(&["DEL".into(), format!("comes{}", rounds / 2)]);
        let scanned = client.call(&["SCAN", &cursor, "MATCH", "stays*", "COUNT", "50"]);
        let Answer::Array(parts) = scanned else { panic!("{scanned:?}") };
        let [Answer::Bulk(next), keys] = <[Answer; 2]>::try_from(parts).unwrap() else {
            panic!("no cursor")
        };
        found.extend(keys.strings());
        cursor = String::from_utf8(next).unwrap();
        rounds += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 2_000);
    assert!(rounds > 10, "COUNT 50 was taken for {} rounds", rounds);
}

/// What was read is answered and kept, then the server ends with status 0 and a closed pool.
#[test]
fn signals_end_the_server_properly() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_directory, server) = started(&[]);
        let pool = server.pool.clone();
        let mut client = server.connect();
        let mut idle = server.connect();
        idle.call(&["PING"]);
        let mut tireless = server.connect();
        let flood = std::thread::spawn(move || {
            let pings = encode(&["INCR", "flood"]).repeat(100);
            while tireless.send(&pings).is_ok() && (0..100).all(|_| tireless.receive().is_ok()) {}
        });
        let requests =
            (0..5_000).flat_map(|n| encode(&["SET".into(), format!("key{n}"), "v".into()]));
        client.send(&requests.collect::<Vec<u8>>()).unwrap();
        assert_eq!(client.receive().unwrap(), Answer::ok());
        let start = Instant::now();
        server.signal(signal);
        let answered = 1 + client.drain().len() / "+OK\r\n".len();
        assert!(idle.drain().is_empty());
        assert!(server.wait().success());
        assert!(start.elapsed() < Duration::from_secs(4), "connections had to be cut");
        flood.join().unwrap();

        let server = Server::start(&pool, &[]);
        assert!(!server.greeting.contains("after a crash"), "{}", server.greeting);
        let Answer::Integer(kept) = server.connect().call(&["DBSIZE"]) else { panic!("no number") };
        assert!(kept >= answered as i64, "{answered} answered, {kept} kept");
        server.stop();
        assert_whole(&pool);
    }
}

#[test]
fn shutdown_ends_the_server_properly() {
    for request in [&["SHUTDOWN"][..], &["SHUTDOWN", "NOSAVE"]] {
        let (_directory, server) = started(&[]);
        let pool = server.pool.clone();
        let mut client = server.connect();
        client.call(&["SET", "key", "value"]);
        client.send(&encode(request)).unwrap();
        assert!(client.drain().is_empty());
        assert!(server.wait().success());
        let server = Server::start(&pool, &[]);
        assert_eq!(server.connect().call(&["GET", "key"]), Answer::bulk("value"));
    }
}

/// A client that reads nothing cannot keep the server from ending, and a second signal hurries it.
#[test]
fn a_second_signal_ends_the_server_at_once() {
    let (_directory, server) = started(&[]);
    let pool = server.pool.clone();
    let mut stuck = server.connect();
    stuck.call(&["SET", "large", &"x".repeat(1 << 20)]);
    stuck.send(&encode(&["GET", "large"]).repeat(500)).unwrap();
    stuck.receive().unwrap();
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(1));
    assert_whole(&pool);
}

#[test]
fn other_machines_need_a_password_or_permission() {
    let directory = directory();
    let pool = directory.path().join("open.pool");
    let error = error_of(&["serve", "--pool", pool.to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    assert!(error.contains("--password-file") && error.contains("--unprotected"), "{error}");
}

#[test]
fn a_taken_address_is_refused() {
    let (directory, server) = started(&[]);
    let pool = directory.path().join("other.pool");
    let address = server.address.to_string();
    let error = error_of(&["serve", "--pool", pool.to_str().unwrap(), "--listen", &address]);
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}

#[test]
fn passwords_are_asked_for() {
    let directory = directory();
    let file = directory.path().join("password");
    std::fs::write(&file, "correct horse\n").unwrap();
    for arguments in [["--password", "correct horse"], ["--password-file", file.to_str().unwrap()]]
    {
        let server = Server::start(&directory.path().join("secret.pool"), &arguments);
        check_password(server.address);
        server.stop();
    }
    std::fs::write(&file, "\n").unwrap();
    let error = error_of(&["serve", "--password-file", file.to_str().unwrap()]);
    assert!(error.contains("is empty"), "{error}");
}

fn check_password(address: SocketAddr) {
    let mut client = Client::connect(address);
    let noauth = "NOAUTH Authentication required.";
    assert_eq!(client.call(&["GET", "key"]).error(), noauth);
    assert_eq!(client.call(&["PING"]).error(), noauth);
    assert_eq!(client.call(&["SHUTDOWN"]).error(), noauth);
    assert!(client.call(&["HELLO", "3"]).error().starts_with("NOAUTH HELLO must be called"));
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(client.call(&["AUTH", "battery staple"]).error(), wrong);
    assert_eq!(client.call(&["AUTH", "root", "correct horse"]).error(), wrong);
    assert_eq!(client.call(&["HELLO", "2", "AUTH", "default", "x"]).error(), wrong);
    assert_eq!(client.call(&["GET", "key"]).error(), noauth);
    assert_eq!(client.call(&["AUTH", "correct horse"]), Answer::ok());
    assert_eq!(client.call(&["GET", "key"]), Answer::Null);
    assert_eq!(client.call(&["RESET"]), Answer::Simple("RESET".into()));
    assert_eq!(client.call(&["GET", "key"]).error(), noauth);
    let greeting = client.call(&["HELLO", "2", "AUTH", "default", "correct horse"]);
    assert!(matches!(greeting, Answer::Array(pairs) if pairs.len() == 14));

    // Before a password was given, little is read.
    let mut stranger = Client::connect(address);
    stranger.send(b"*1\r\n$20000\r\n").unwrap();
    let answered = String::from_utf8(stranger.drain()).unwrap();
    assert_eq!(answered, "-ERR Protocol error: unauthenticated bulk length\r\n");
}
