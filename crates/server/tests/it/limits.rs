//! What clients may take of the server's memory, and how often they may guess its password.

use std::sync::Arc;
use std::time::Duration;

use remanent_server::resp::encode_request;
use remanent_server::{Config, Progress, Session, Shared, Volatile};

use super::session::{Connection, shared};

const MEMORY_MAX: u64 = 1 << 20;
const REFUSED: &str = "-OOM the answer needs more memory than clients may take together \
    (`maxmemory-clients`); ask for less at a time, or try again\r\n";
const NOT_CHANGED: &str = "-OOM the command needs more memory than clients may take together \
    (`maxmemory-clients`); nothing was changed\r\n";

fn config() -> Config {
    Config { clients_memory_max: MEMORY_MAX, ..Config::default() }
}

fn limited() -> Arc<Shared<Volatile>> {
    shared(Volatile::new(1 << 30), config())
}

fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, arguments);
    bytes
}

fn connect(shared: &Arc<Shared<Volatile>>) -> Session<Volatile> {
    let address = "127.0.0.1:50000".parse().unwrap();
    Session::new(Arc::clone(shared), address, address)
}

/// Sends bytes and leaves the answers where they are, as a client does that reads none.
fn send(session: &mut Session<Volatile>, bytes: &[u8]) -> Progress {
    session.input().extend_from_slice(bytes);
    session.run()
}

/// Bytes that the clients take together, as `INFO` says.
fn taken(connection: &mut Connection) -> u64 {
    let info = connection.exchange("INFO clients");
    let line = info.lines().find_map(|line| line.strip_prefix("client_memory:"));
    line.expect("the line").parse().expect("a number")
}

/// Sets `key` to a string of `len` bytes, in pieces that are not counted.
fn fill(connection: &mut Connection, key: &str, len: usize) {
    let piece = [b'v'; 8_000];
    for begin in (0..len).step_by(piece.len()) {
        let piece = &piece[..piece.len().min(len - begin)];
        connection.exchange_bytes(&request(&[b"APPEND", key.as_bytes(), piece]));
    }
}

#[test]
fn answers_that_wait_have_one_bound() {
    let shared = limited();
    let mut other = Connection::on(Arc::clone(&shared));
    fill(&mut other, "k", 300_000);
    let mut waiting: Vec<_> = (0..4).map(|_| connect(&shared)).collect();
    let lens: Vec<_> = waiting
        .iter_mut()
        .map(|session| {
            send(session, b"GET k\r\n");
            session.output().len()
        })
        .collect();
    assert_eq!(lens, [300_011; 4]);
    let mut greedy = connect(&shared);
    assert_eq!(send(&mut greedy, b"MGET k k\r\n"), Progress::Read);
    assert_eq!(String::from_utf8_lossy(greedy.output()), REFUSED);
    assert!(taken(&mut other) <= MEMORY_MAX);
    // Short requests go on, in long pipelines too.
    for _ in 0..5 {
        assert_eq!(other.exchange("STRLEN k"), ":300000\r\n");
        let pipeline = b"SET small value\r\nGET small\r\n".repeat(5_000);
        let (answers, _) = other.exchange_bytes(&pipeline);
        assert_eq!(answers, b"+OK\r\n$5\r\nvalue\r\n".repeat(5_000));
    }
    // Who has read makes room for others.
    waiting.iter_mut().for_each(Session::sent);
    greedy.sent();
    send(&mut greedy, b"MGET k k\r\n");
    assert_eq!(greedy.output().len(), 2 * 300_011 + 4);
    drop((waiting, greedy));
    assert_eq!(taken(&mut other), 0);
}

#[test]
fn what_is_refused_an_answer_is_not_changed() {
    let shared = limited();
    let mut connection = Connection::on(Arc::clone(&shared));
    fill(&mut connection, "k", 600_000);
    let mut waiting = connect(&shared);
    send(&mut waiting, b"GET k\r\n");
    for line in ["GET k", "GETDEL k", "GETSET k new", "SET k new GET", "SET k new XX GET"] {
        assert_eq!(connection.exchange(line), REFUSED, "{line}");
        assert_eq!(connection.exchange("STRLEN k"), ":600000\r\n", "{line}");
    }
    assert_eq!(connection.exchange("APPEND k x"), NOT_CHANGED);
    assert_eq!(connection.exchange("STRLEN k"), ":600000\r\n");
    assert_eq!(connection.exchange("SET k new"), "+OK\r\n");
    let info = connection.exchange("INFO errorstats");
    assert!(info.contains("errorstat_OOM:count=6\r\n"), "{info}");
}

#[test]
fn members_that_commands_collect_are_bounded() {
    let mut connection = Connection::on(limited());
    for index in 0..200 {
        let member = vec![b'm'; 8_000];
        let score = index.to_string();
        let member = [score.as_bytes(), &member].concat();
        connection.exchange_bytes(&request(&[b"ZADD", b"z", score.as_bytes(), &member]));
    }
    assert_eq!(connection.exchange("ZCARD z"), ":200\r\n");
    for line in ["ZRANGE z 0 -1", "ZRANGE z -inf +inf BYSCORE WITHSCORES", "ZSCAN z 0 COUNT 1000"] {
        assert_eq!(connection.exchange(line), REFUSED, "{line}");
    }
    for line in ["ZPOPMIN z 150", "ZREMRANGEBYRANK z 0 -1", "ZREMRANGEBYSCORE z 0 1000"] {
        assert!(connection.exchange(line).starts_with("-OOM "), "{line}");
        assert_eq!(connection.exchange("ZCARD z"), ":200\r\n", "{line}");
    }
    // In pieces, all can be had.
    assert!(connection.exchange("ZPOPMIN z 10").starts_with("*20\r\n"));
    for _ in 0..19 {
        assert_eq!(connection.exchange("ZREMRANGEBYRANK z 0 9"), ":10\r\n");
    }
    assert_eq!(connection.exchange("EXISTS z"), ":0\r\n");
    assert_eq!(taken(&mut connection), 0);
}

#[test]
fn keys_that_are_listed_are_bounded() {
    let mut connection = Connection::on(limited());
    for index in 0..1_000 {
        let key = format!("{index:02000}");
        connection.exchange_bytes(&request(&[b"SET", key.as_bytes(), b"v"]));
    }
    assert_eq!(connection.exchange("KEYS *"), REFUSED);
    assert_eq!(connection.exchange("SCAN 0 COUNT 1000"), REFUSED);
    assert!(connection.exchange("SCAN 0 COUNT 10").starts_with("*2\r\n"));
    assert_eq!(connection.exchange("KEYS *"), REFUSED);
    assert_eq!(connection.exchange("DBSIZE"), ":1000\r\n");
}

/// Requests that never end take what others need, too.
#[test]
fn requests_that_arrive_have_the_same_bound() {
    let shared = limited();
    let begin = |len: usize| {
        let bytes = request(&[b"SET", b"k", &vec![b'v'; 700_000]]);
        bytes[..len].to_vec()
    };
    let mut first = connect(&shared);
    assert_eq!(send(&mut first, &begin(600_000)), Progress::Read);
    let mut second = connect(&shared);
    let bytes = begin(700_000);
    let mut progress = Progress::Read;
    for piece in bytes.chunks(16_384) {
        progress = send(&mut second, piece);
        if progress != Progress::Read {
            break;
        }
    }
    assert_eq!(progress, Progress::Close);
    let told = String::from_utf8_lossy(second.output()).into_owned();
    assert!(told.starts_with("-OOM the request needs more memory"), "{told}");
    drop(second);
    assert_eq!(
        send(&mut first, &request(&[b"SET", b"k", &vec![b'v'; 700_000]])[600_000..]),
        Progress::Read
    );
    assert_eq!(first.output(), b"+OK\r\n");
}

/// The positions of very many short arguments take more than the arguments.
#[test]
fn many_arguments_count() {
    let shared = limited();
    let mut connection = Connection::on(Arc::clone(&shared));
    let mut session = connect(&shared);
    let bytes = [&b"*1000000\r\n$3\r\nDEL\r\n"[..], &b"$0\r\n\r\n".repeat(60_000)].concat();
    for piece in bytes.chunks(16_384) {
        assert_eq!(send(&mut session, piece), Progress::Read);
    }
    assert!(taken(&mut connection) > 600_000, "{}", taken(&mut connection));
    drop(session);
    assert_eq!(taken(&mut connection), 0);
    let mut idle = connect(&shared);
    // Not DEL: removing so many keys as one takes more memory than there is here.
    let bytes = [&b"*20000\r\n$6\r\nEXISTS\r\n"[..], &b"$0\r\n\r\n".repeat(19_999)].concat();
    for piece in bytes.chunks(16_384) {
        if send(&mut idle, piece) == Progress::Long {
            idle.run_long();
            assert_eq!(idle.run(), Progress::Read);
        }
    }
    assert_eq!(idle.output(), b":0\r\n");
    assert_eq!(taken(&mut connection), 0);
}

#[test]
fn wrong_passwords_are_answered_later_each_time() {
    let config = Config { password: Some("secret".into()), ..Config::default() };
    let shared = shared(Volatile::new(1 << 20), config);
    let mut sessions: Vec<_> = (0..3).map(|_| connect(&shared)).collect();
    let mut last = Duration::ZERO;
    for (session, line) in
        sessions.iter_mut().zip(["AUTH wrong", "AUTH nobody secret", "HELLO 3 AUTH default wrong"])
    {
        let progress = send(session, format!("{line}\r\nAUTH wrong again\r\n").as_bytes());
        let Progress::Wait(delay) = progress else { panic!("{line} is answered at once") };
        assert!(delay > last, "{line} waits for {delay:?} after {last:?}");
        assert!(session.output().starts_with(b"-WRONGPASS "));
        assert_eq!(session.output().iter().filter(|byte| **byte == b'\n').count(), 1);
        last = delay;
    }
    // Else whoever guesses need not wait to learn that a password is wrong.
    let mut right = connect(&shared);
    let progress = send(&mut right, b"AUTH secret\r\nPING\r\n");
    let Progress::Wait(delay) = progress else { panic!("told at once that it is right") };
    assert!(delay > last / 2, "{delay:?}");
    assert_eq!(right.output(), b"+OK\r\n");
}

/// Long requests run elsewhere than others: no way around the wait.
#[test]
fn a_long_request_with_a_wrong_password_waits_too() {
    let config = Config { password: Some("secret".into()), ..Config::default() };
    let shared = shared(Volatile::new(1 << 20), config);
    let mut session = connect(&shared);
    assert_eq!(send(&mut session, b"AUTH secret\r\n"), Progress::Read);
    let line = format!("HELLO 2 AUTH default wrong{}\r\n", " x".repeat(5_000));
    assert_eq!(send(&mut session, line.as_bytes()), Progress::Long);
    let progress = session.run_long();
    assert!(matches!(progress, Progress::Wait(_)), "{progress:?}");
    // Who has not given the password is not listened to for so long.
    let mut stranger = connect(&shared);
    assert_eq!(send(&mut stranger, line.as_bytes()), Progress::Close);
}

/// A buffer that a long request has left behind does not count for the shorter one behind it.
#[test]
fn buffers_shrink_behind_a_long_request() {
    let shared = limited();
    let mut connection = Connection::on(Arc::clone(&shared));
    let mut session = connect(&shared);
    let long = request(&[b"SET", b"k", &vec![b'v'; 700_000]]);
    let shorter = request(&[b"SET", b"k", &vec![b'v'; 200_000]]);
    assert_eq!(send(&mut session, &[&long[..], &shorter[..100_000]].concat()), Progress::Read);
    assert_eq!(session.output(), b"+OK\r\n");
    assert!(taken(&mut connection) < 300_000, "{}", taken(&mut connection));
    assert_eq!(send(&mut session, &shorter[100_000..]), Progress::Read);
    assert_eq!(session.output(), b"+OK\r\n+OK\r\n");
}
