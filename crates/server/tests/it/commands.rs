//! Each command's answers, on each kind of store.

use remanent_pmem::Pool;
use remanent_server::{BatchStore, MapStore, Store, Volatile};
use remanent_structures::BatchOptions;

use super::session::Connection;

/// Has `test` run on each kind of store.
pub(crate) fn on_each_store(test: impl Fn(&mut dyn FnMut(&str) -> String)) {
    fn run(test: &impl Fn(&mut dyn FnMut(&str) -> String), store: impl Store) {
        let mut connection = Connection::to(store);
        test(&mut |line| connection.exchange(line));
    }
    let directory = tempfile::tempdir().unwrap();
    let pool = |name| {
        let options = Pool::options().size_max(256 << 20);
        options.create(directory.path().join(name)).unwrap()
    };
    run(&test, Volatile::new(1 << 30));
    run(&test, MapStore::open(&pool("map")).unwrap());
    run(&test, BatchStore::open(&pool("batched"), BatchOptions::default()).unwrap());
}

/// Requests, and the bytes that answer them.
pub(crate) fn check(exchanges: &[(&str, &str)]) {
    on_each_store(|exchange| {
        for (request, answer) in exchanges {
            assert_eq!(exchange(request), *answer, "to {request}");
        }
    });
}

#[test]
fn strings() {
    check(&[
        ("SET k v", "+OK\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("GET missing", "$-1\r\n"),
        ("SET k w NX", "$-1\r\n"),
        ("SET k w XX", "+OK\r\n"),
        ("SET k x GET", "$1\r\nw\r\n"),
        ("SET new x GET", "$-1\r\n"),
        ("SET new y NX GET", "$1\r\nx\r\n"),
        ("SET none y XX GET", "$-1\r\n"),
        ("EXISTS none", ":0\r\n"),
        ("SETNX k z", ":0\r\n"),
        ("SETNX fresh z", ":1\r\n"),
        ("GETSET fresh a", "$1\r\nz\r\n"),
        ("GETDEL fresh", "$1\r\na\r\n"),
        ("GETDEL fresh", "$-1\r\n"),
        ("APPEND a 12", ":2\r\n"),
        ("APPEND a 345", ":5\r\n"),
        ("STRLEN a", ":5\r\n"),
        ("STRLEN none", ":0\r\n"),
        ("MSET x 1 y 2", "+OK\r\n"),
        ("MGET x none y", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("DEL x none y", ":2\r\n"),
        ("UNLINK a", ":1\r\n"),
    ]);
}

#[test]
fn numbers() {
    check(&[
        ("INCR n", ":1\r\n"),
        ("INCRBY n 9", ":10\r\n"),
        ("DECR n", ":9\r\n"),
        ("DECRBY n 19", ":-10\r\n"),
        ("GET n", "$3\r\n-10\r\n"),
        ("SET n 9223372036854775807", "+OK\r\n"),
        ("INCR n", "-ERR increment or decrement would overflow\r\n"),
        ("GET n", "$19\r\n9223372036854775807\r\n"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow\r\n"),
        ("SET n 1.5", "+OK\r\n"),
        ("INCR n", "-ERR value is not an integer or out of range\r\n"),
        ("GET n", "$3\r\n1.5\r\n"),
    ]);
}

#[test]
fn keys() {
    check(&[
        ("MSET one 1 two 2", "+OK\r\n"),
        ("TYPE one", "+string\r\n"),
        ("TYPE none", "+none\r\n"),
        ("EXISTS one one none", ":2\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("KEYS o*", "*1\r\n$3\r\none\r\n"),
        ("SCAN 0 COUNT 100 MATCH t*", "*2\r\n$1\r\n0\r\n*1\r\n$3\r\ntwo\r\n"),
        ("SCAN 0 COUNT 100 TYPE list", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("FLUSHDB", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
}

#[test]
fn connections() {
    check(&[
        ("PING", "+PONG\r\n"),
        ("PING hi", "$2\r\nhi\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT SETINFO lib-name tester", "+OK\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ]);
}

/// What a client waits for that cannot come is answered at once; it compares the answer anyway.
#[test]
fn waits() {
    let not_an_integer = "-ERR value is not an integer or out of range\r\n";
    check(&[
        ("WAIT 0 0", ":0\r\n"),
        ("WAIT 1 0", ":0\r\n"),
        ("WAIT x 0", not_an_integer),
        ("WAIT 1 -1", "-ERR timeout is negative\r\n"),
        ("SET k v", "+OK\r\n"),
        ("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n"),
        ("WAITAOF 0 0 0", "*2\r\n:1\r\n:0\r\n"),
        ("WAITAOF 0 2 0", "*2\r\n:1\r\n:0\r\n"),
        ("DEL k", ":1\r\n"),
        ("WAITAOF 1 2 60000", "*2\r\n:1\r\n:0\r\n"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n"),
        ("WAITAOF -1 0 0", "-ERR value is out of range, value must between 0 and 1\r\n"),
        ("WAITAOF x 0 0", not_an_integer),
        ("WAITAOF 1 x 0", not_an_integer),
        ("WAITAOF 1 -1 0", "-ERR value is out of range, must be positive\r\n"),
        ("WAITAOF 1 0 -1", "-ERR timeout is negative\r\n"),
        ("WAITAOF 1 0 x", "-ERR timeout is not an integer or out of range\r\n"),
        ("WAITAOF 1 0", "-ERR wrong number of arguments for 'waitaof' command\r\n"),
    ]);
}

#[test]
fn answers_can_be_turned_off() {
    check(&[
        ("CLIENT REPLY OFF", ""),
        ("SET k v", ""),
        ("NOSUCH", ""),
        ("CLIENT REPLY ON", "+OK\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("CLIENT REPLY SKIP", ""),
        ("GET k", ""),
        ("GET k", "$1\r\nv\r\n"),
        ("CLIENT REPLY SKIP", ""),
        ("CLIENT REPLY OFF", ""),
        ("GET k", ""),
        ("CLIENT REPLY ON", "+OK\r\n"),
        ("CLIENT REPLY MAYBE", "-ERR syntax error\r\n"),
    ]);
}

#[test]
fn resp3_has_types_of_its_own() {
    let mut connection = Connection::new();
    let greeting = connection.exchange("HELLO 3");
    assert!(greeting.starts_with("%7\r\n$6\r\nserver\r\n"), "{greeting}");
    assert!(greeting.contains("$5\r\nproto\r\n:3\r\n"), "{greeting}");
    assert_eq!(connection.exchange("GET none"), "_\r\n");
    assert_eq!(connection.exchange("CONFIG GET save"), "%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
    assert!(connection.exchange("INFO server").starts_with('='));
    assert!(connection.exchange("HELLO 2").starts_with("*14\r\n"));
    assert_eq!(connection.exchange("GET none"), "$-1\r\n");
}

#[test]
fn commands_are_described() {
    let mut connection = Connection::new();
    let count = connection.exchange("COMMAND COUNT");
    let all = connection.exchange("COMMAND");
    assert_eq!(all.split_once("\r\n").unwrap().0, count.trim_end().replace(':', "*"));
    let get = connection.exchange("COMMAND INFO get");
    assert!(get.starts_with(
        "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
    ));
    assert_eq!(connection.exchange("COMMAND INFO nosuch"), "*1\r\n*-1\r\n");
    let docs = connection.exchange("COMMAND DOCS get");
    assert!(docs.contains("Get the value of a key"), "{docs}");
    let id = connection.exchange("COMMAND INFO client|id");
    assert!(id.contains("client|id"), "{id}");
}

#[test]
fn numbers_about_the_server_add_up() {
    let mut connection = Connection::new();
    for request in ["SET k v", "GET k", "GET none", "NOSUCH"] {
        connection.exchange(request);
    }
    let info = connection.exchange("INFO");
    for line in [
        "connected_clients:1",
        "total_connections_received:1",
        "total_commands_processed:4",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "total_error_replies:1",
        "db0:keys=1,expires=0,avg_ttl=0",
        "role:master",
    ] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line} is not in {info}");
    }
    let some = connection.exchange("INFO keyspace clients");
    assert!(some.contains("# Keyspace") && some.contains("# Clients") && !some.contains("# Stats"));
    connection.exchange("CONFIG RESETSTAT");
    let info = connection.exchange("INFO stats");
    assert!(info.contains("keyspace_hits:0"), "{info}");
}

/// How much is not safe is told, and nothing is after waiting.
#[test]
fn what_lags_behind_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().create(directory.path().join("batched")).unwrap();
    let options = BatchOptions { lag_bytes: 4 << 20, ..BatchOptions::without_thread() };
    let mut connection = Connection::to(BatchStore::open(&pool, options).unwrap());
    let is_told = |connection: &mut Connection<BatchStore>, line: &str| {
        let info = connection.exchange("INFO persistence");
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line} is not in {info}");
    };
    for line in ["durability:batched", "lag_bytes:0", "lag_bytes_max:4194304", "lag_age_ms_max:20"]
    {
        is_told(&mut connection, line);
    }
    connection.exchange("SET key value");
    let info = connection.exchange("INFO persistence");
    assert!(!info.contains("\r\nlag_bytes:0\r\n"), "{info}");
    assert_eq!(connection.exchange("WAITAOF 0 0 0"), "*2\r\n:0\r\n:0\r\n");
    assert_eq!(connection.exchange("WAITAOF 1 0 0"), "*2\r\n:1\r\n:0\r\n");
    is_told(&mut connection, "lag_bytes:0");
    assert!(connection.exchange("CONFIG GET appendfsync").contains("everysec"));

    let info = Connection::new().exchange("INFO persistence");
    assert!(info.contains("\r\ndurability:none\r\n") && !info.contains("lag_"), "{info}");
}

#[test]
fn a_full_store_refuses_and_keeps() {
    let mut connection = Connection::with_store(300);
    let full = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(connection.exchange("SET a 1"), "+OK\r\n");
    let long = "x".repeat(300);
    assert_eq!(connection.exchange(&format!("SET b {long}")), full);
    assert_eq!(connection.exchange(&format!("APPEND a {long}")), full);
    assert_eq!(connection.exchange(&format!("SET a {long} GET")), full);
    assert_eq!(connection.exchange("GET a"), "$1\r\n1\r\n");
    assert_eq!(connection.exchange("DBSIZE"), ":1\r\n");
}
