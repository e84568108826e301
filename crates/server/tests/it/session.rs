//! A connection's life: what it asks of the owner of its socket, and what it keeps.

use std::sync::Arc;

use remanent_server::resp::encode_request;
use remanent_server::{Config, Keyspace, Progress, Session, Shared, Store, Volatile};

/// A connection whose socket is this test.
pub(crate) struct Connection<S: Store = Volatile> {
    session: Session<S>,
}

/// What the connections of one server share.
pub(crate) fn shared<S: Store>(store: S, config: Config) -> Arc<Shared<S>> {
    let keys = Keyspace::open(store).expect("the store is whole");
    Arc::new(Shared::new(keys, config))
}

impl Connection {
    pub(crate) fn new() -> Self {
        Self::with_store(1 << 30)
    }

    pub(crate) fn with_store(bytes_max: u64) -> Self {
        Self::to(Volatile::new(bytes_max))
    }
}

impl<S: Store> Connection<S> {
    /// A connection to a server of its own.
    pub(crate) fn to(store: S) -> Self {
        Self::on(shared(store, Config::default()))
    }

    pub(crate) fn on(shared: Arc<Shared<S>>) -> Self {
        let address = "127.0.0.1:50000".parse().unwrap();
        Connection { session: Session::new(shared, address, address) }
    }

    /// Sends one line; returns the answers.
    pub(crate) fn exchange(&mut self, line: &str) -> String {
        let (answer, progress) = self.exchange_bytes(format!("{line}\r\n").as_bytes());
        assert_eq!(progress, Progress::Read);
        String::from_utf8(answer).unwrap()
    }

    /// Sends bytes and does what the session asks for until it wants to read, or ends.
    pub(crate) fn exchange_bytes(&mut self, bytes: &[u8]) -> (Vec<u8>, Progress) {
        self.session.input().extend_from_slice(bytes);
        let mut answers = Vec::new();
        let mut progress = self.session.run();
        loop {
            answers.extend_from_slice(self.session.output());
            self.session.sent();
            progress = match progress {
                Progress::Yield | Progress::Wait(_) => self.session.run(),
                Progress::Long => self.session.run_long(),
                Progress::Read | Progress::Close | Progress::ShutDown => break,
            };
        }
        (answers, progress)
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_and_in_turns() {
    const REQUESTS: usize = 10_000;
    let mut connection = Connection::new();
    let mut bytes = Vec::new();
    for index in 0..REQUESTS {
        encode_request(&mut bytes, &["ECHO".to_owned(), index.to_string()]);
    }
    connection.session.input().extend_from_slice(&bytes);
    assert_eq!(connection.session.run(), Progress::Yield, "others get no turn");
    let (answers, progress) = connection.exchange_bytes(b"");
    assert_eq!(progress, Progress::Read);
    let expected: String =
        (0..REQUESTS).map(|n| format!("${}\r\n{n}\r\n", n.to_string().len())).collect();
    assert_eq!(String::from_utf8(answers).unwrap(), expected);
}

#[test]
fn long_requests_ask_for_a_place_of_their_own() {
    for line in [
        "KEYS *",
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "SCAN 0 COUNT 1000000",
        "WAITAOF 1 0 0",
        "ZSCAN z 0 MATCH * COUNT 1000000",
        "ZPOPMIN z 5000",
        "ZRANGE z 0 5000",
        "ZREVRANGE z -5000 -1 WITHSCORES",
        "ZRANGE z 0 1 BYSCORE LIMIT 4000 100",
        "ZRANGEBYLEX z - + LIMIT 5000 -1",
        "ZREMRANGEBYRANK z -9223372036854775808 -1",
    ] {
        let mut connection = Connection::new();
        connection
            .session
            .input()
            .extend_from_slice(format!("PING\r\n{line}\r\nPING\r\n").as_bytes());
        assert_eq!(connection.session.run(), Progress::Long, "{line}");
        assert_eq!(connection.session.output(), b"+PONG\r\n");
        connection.session.sent();
        assert_eq!(connection.session.run_long(), Progress::Yield);
        assert_ne!(connection.session.output(), b"");
        connection.session.sent();
        assert_eq!(connection.session.run(), Progress::Read);
        assert_eq!(connection.session.output(), b"+PONG\r\n");
    }
}

/// What names a small part, or all of a set that may be short, is run at once.
#[test]
fn ranges_that_are_short_or_of_unknown_length_are_run_in_their_turn() {
    for line in [
        "ZSCAN z 0 COUNT 4096",
        "ZPOPMAX z",
        "ZPOPMAX z 4096",
        "ZRANGE z 0 -1",
        "ZRANGE z 5000 9095",
        "ZRANGE z 0 5000 BYSCORE",
        "ZRANGE z 0 none",
        "ZRANGEBYSCORE z 0 1 LIMIT 0 4096",
        "ZREMRANGEBYRANK z 0 -1",
    ] {
        let mut connection = Connection::new();
        connection.session.input().extend_from_slice(format!("{line}\r\n").as_bytes());
        assert_eq!(connection.session.run(), Progress::Read, "{line}");
    }
}

#[test]
fn ends_are_announced() {
    for (bytes, answer, end) in [
        (&b"PING\r\nQUIT\r\nPING\r\n"[..], "+PONG\r\n+OK\r\n", Progress::Close),
        (b"SHUTDOWN\r\nPING\r\n", "", Progress::ShutDown),
        (
            b"PING\r\n*1\r\n:\r\n",
            "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n",
            Progress::Close,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\n",
            "-ERR unknown command 'POST', with args beginning with: '/' 'HTTP/1.1' \r\n",
            Progress::Close,
        ),
    ] {
        let (answers, progress) = Connection::new().exchange_bytes(bytes);
        assert_eq!(String::from_utf8(answers).unwrap(), answer);
        assert_eq!(progress, end);
    }
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let config = Config { output_len_max: 1_000, ..Config::default() };
    let mut connection = Connection::on(shared(Volatile::new(1 << 20), config));
    let mut set = Vec::new();
    encode_request(&mut set, &["SET", "k", &"x".repeat(600)]);
    assert_eq!(connection.exchange_bytes(&set).1, Progress::Read);
    assert_eq!(connection.exchange_bytes(b"GET k\r\n").1, Progress::Read);
    let refused =
        "-ERR the answer is longer than what may wait for one client; ask for less at a time\r\n";
    for line in ["MGET k k", "MGET none k k none"] {
        assert_eq!(connection.exchange(line), refused);
    }
    assert_eq!(connection.exchange("STRLEN k"), ":600\r\n");
}

/// A client that announces much must not make the server reserve much.
#[test]
fn memory_follows_what_arrived() {
    let mut connection = Connection::new();
    connection.exchange_bytes(b"*2\r\n$4\r\nECHO\r\n$500000000\r\n");
    assert!(connection.session.input().capacity() < 1 << 20);
    let mut connection = Connection::new();
    let mut request = Vec::new();
    encode_request(&mut request, &["ECHO", &"x".repeat(8 << 20)]);
    let (answer, _) = connection.exchange_bytes(&request);
    assert_eq!(answer.len(), (8 << 20) + "$8388608\r\n\r\n".len());
    assert!(connection.session.input().capacity() < 1 << 20, "an idle connection keeps its buffer");
}

#[test]
fn passwords_guard_every_command_but_those_that_give_one() {
    let config = Config { password: Some("secret".into()), ..Config::default() };
    let mut connection = Connection::on(shared(Volatile::new(1 << 20), config));
    let noauth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(connection.exchange("GET k"), noauth);
    assert_eq!(connection.exchange("CLIENT ID"), noauth);
    assert_eq!(
        connection.exchange("NOSUCH"),
        "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"
    );
    assert!(connection.exchange("AUTH wrong!").starts_with("-WRONGPASS"));
    assert!(connection.exchange("AUTH secret2").starts_with("-WRONGPASS"));
    assert!(connection.exchange("AUTH default secre").starts_with("-WRONGPASS"));
    assert_eq!(connection.exchange("AUTH default secret"), "+OK\r\n");
    assert_eq!(connection.exchange("GET k"), "$-1\r\n");
}

#[test]
fn clients_are_listed_while_connected() {
    let shared = shared(Volatile::new(1 << 20), Config::default());
    let mut first = Connection::on(Arc::clone(&shared));
    let mut second = Connection::on(shared);
    first.exchange("CLIENT SETNAME first");
    let list = second.exchange("CLIENT LIST");
    assert!(
        list.contains("id=1 ") && list.contains("name=first ") && list.contains("id=2 "),
        "{list}"
    );
    drop(first);
    let list = second.exchange("CLIENT LIST");
    assert!(!list.contains("id=1 "), "{list}");
    assert!(second.exchange("INFO stats").contains("total_connections_received:2\r\n"));
    let own = second.exchange("CLIENT LIST ID 2");
    assert!(own.contains("id=2 "), "{own}");
    assert_eq!(second.exchange("CLIENT LIST TYPE pubsub"), "$0\r\n\r\n");
}

/// A client sends all of a transaction before it reads the first answer: nothing of it may happen.
#[test]
fn what_follows_multi_is_refused_until_it_ends() {
    let mut connection = Connection::new();
    let refused = "-ERR refused: MULTI was sent, and there are no transactions; EXEC or DISCARD ends this\r\n";
    let (answers, _) = connection.exchange_bytes(
        b"MULTI\r\nSET a 1\r\nZADD z 1 m\r\nWAITAOF 1 0 1\r\nFLUSHALL\r\nMULTI\r\nCLIENT INFO\r\nEXEC\r\nEXISTS a z\r\n",
    );
    let answers = String::from_utf8(answers).unwrap();
    let first = "-ERR there are no transactions: what follows is refused until EXEC or DISCARD\r\n";
    let nested = "-ERR MULTI calls can not be nested\r\n";
    let end = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let expected = [first, refused, refused, refused, refused, nested, refused, end, ":0\r\n"];
    assert_eq!(answers, expected.concat());
    assert_eq!(connection.exchange("EXEC"), "-ERR EXEC without MULTI\r\n");
    for end in ["DISCARD", "RESET"] {
        assert_eq!(connection.exchange("MULTI"), first);
        assert_eq!(connection.exchange("SET a 1"), refused);
        assert!(connection.exchange(end).starts_with('+'));
        assert_eq!(connection.exchange("DISCARD"), "-ERR DISCARD without MULTI\r\n");
    }
    assert_eq!(connection.exchange("DBSIZE"), ":0\r\n");
    connection.exchange("MULTI");
    assert_eq!(connection.exchange_bytes(b"QUIT\r\n").1, Progress::Close);
}

#[test]
fn clients_are_listed_with_what_they_did_and_hold() {
    let shared = shared(Volatile::new(1 << 20), Config::default());
    let (mut idle, mut busy) =
        (Connection::on(Arc::clone(&shared)), Connection::on(Arc::clone(&shared)));
    idle.session.set_descriptor(17);
    busy.exchange("MULTI");
    // Half a request.
    busy.exchange_bytes(b"*2\r\n$3\r\nGET\r\n$10\r\nabc");
    let list = Connection::on(shared).exchange("CLIENT LIST");
    let lines: Vec<_> = list.lines().skip(1).collect();
    let expected = [
        &["fd=17", "cmd=NULL", "qbuf=0", "flags=N", "multi=-1"][..],
        &["fd=-1", "cmd=multi", "qbuf=21", "flags=x", "multi=0"],
        // Its own request counts.
        &["cmd=client|list", "qbuf=13"],
    ];
    for (line, expected) in lines.iter().zip(expected) {
        for what in expected {
            assert!(line.split(' ').any(|field| field == *what), "{what} is not in {line}");
        }
    }
}

#[test]
fn commands_and_errors_are_counted() {
    let mut connection = Connection::new();
    for line in
        ["SET k v", "GET k", "GET k", "INCR k", "SET k", "NOSUCH", "ZADD k 1 m", "CLIENT ID"]
    {
        connection.exchange(line);
    }
    let info = connection.exchange("INFO commandstats");
    for (command, calls, rejected, failed) in
        [("set", 1, 1, 0), ("get", 2, 0, 0), ("incr", 1, 0, 1), ("client|id", 1, 0, 0)]
    {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let line = line.unwrap_or_else(|| panic!("{command} is not in {info}"));
        assert!(line.contains(&format!(":calls={calls},usec=")), "{line}");
        let end = format!(",rejected_calls={rejected},failed_calls={failed}");
        assert!(line.ends_with(&end), "{line}");
    }
    let errors = connection.exchange("INFO errorstats");
    assert!(
        errors.contains("errorstat_ERR:count=3\r\nerrorstat_WRONGTYPE:count=1\r\n"),
        "{errors}"
    );
    connection.exchange("CONFIG RESETSTAT");
    assert!(!connection.exchange("INFO all").contains("errorstat_"));
    assert!(!connection.exchange("INFO").contains("cmdstat_"), "shown without being asked for");
}
