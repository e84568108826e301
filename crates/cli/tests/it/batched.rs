//! `serve --durability batched`: acknowledged at once, safe within the bound.

use std::time::{Duration, Instant};

use super::support::{
    Answer, Client, PATIENCE, Server, assert_whole, directory, error_of, on_disk, pool_info,
};

const SAFE: Answer = Answer::Integer(1);
const NOT_SAFE: Answer = Answer::Integer(0);

/// Asks whether everything is safe, and waits for it.
fn wait(client: &mut Client, request: &[&str]) -> Answer {
    let Answer::Array(answers) = client.call(request) else { panic!("no array") };
    let [local, replicas] = <[Answer; 2]>::try_from(answers).expect("two numbers");
    assert_eq!(replicas, Answer::Integer(0));
    local
}

/// The line of `INFO persistence` that begins with `name:`.
fn told(client: &mut Client, name: &str) -> String {
    let Answer::Bulk(info) = client.call(&["INFO", "persistence"]) else { panic!("no text") };
    let info = String::from_utf8(info).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {info}")).to_owned()
}

#[test]
fn writes_are_acknowledged_at_once_and_waited_for() {
    let directory = on_disk();
    let pool = directory.path().join("batched.pool");
    // Longer than the test: nothing becomes safe but by being asked for.
    let server =
        Server::start(&pool, &["--durability", "batched", "--lag", "1M", "--lag-time", "1h"]);
    let promise = "survives the loss of power once it is safe after about 3600s, at most 1.0 MiB";
    assert!(server.greeting.contains(promise), "{}", server.greeting);
    assert!(server.greeting.contains("WAITAOF 1 0 0"), "{}", server.greeting);
    let mut client = server.connect();
    let mut other = server.connect();
    for index in 0..100 {
        assert_eq!(client.call(&["SET".into(), format!("key{index}"), "v".into()]), Answer::ok());
    }
    assert_eq!(told(&mut client, "durability"), "batched");
    assert_eq!(told(&mut client, "pool_durability"), "power");
    assert_eq!(told(&mut client, "lag_bytes_max"), (1 << 20).to_string());
    assert_eq!(told(&mut client, "lag_age_ms_max"), "3600000");
    assert_ne!(told(&mut client, "lag_bytes"), "0");
    assert_eq!(wait(&mut other, &["WAITAOF", "0", "0", "0"]), NOT_SAFE);
    // It waits for what others wrote as well.
    assert_eq!(wait(&mut other, &["WAITAOF", "1", "0", "0"]), SAFE);
    assert_eq!(told(&mut client, "lag_bytes"), "0");
    assert_eq!(wait(&mut client, &["WAITAOF", "0", "1", "0"]), SAFE);
    // Whoever comes to the bound makes room for itself.
    let value = "v".repeat(10_000);
    for index in 0..300 {
        assert_eq!(
            client.call(&["SET".into(), format!("long{index}"), value.clone()]),
            Answer::ok()
        );
        let lag: u64 = told(&mut other, "lag_bytes").parse().unwrap();
        assert!(lag < 1 << 20, "{lag} bytes are not safe");
    }
    server.stop();
    assert_whole(&pool);
}

#[test]
fn what_was_acknowledged_becomes_safe_by_itself() {
    let directory = on_disk();
    let pool = directory.path().join("batched.pool");
    let server = Server::start(&pool, &["--durability", "batched", "--lag-time", "1ms"]);
    let mut client = server.connect();
    for index in 0..10 {
        client.call(&["SET".into(), format!("key{index}"), "v".into()]);
        await_safety(&mut client);
    }
}

/// Waits until everything is safe, without asking for it.
fn await_safety(client: &mut Client) {
    let start = Instant::now();
    while told(client, "lag_bytes") != "0" {
        assert!(start.elapsed() < PATIENCE, "not safe");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Only the name of a sorted set waits for a batch; a set that is named already changes durably at
/// once.
#[test]
fn members_of_sorted_sets_do_not_wait() {
    let directory = on_disk();
    let pool = directory.path().join("batched.pool");
    let server =
        Server::start(&pool, &["--durability", "batched", "--lag", "1M", "--lag-time", "1h"]);
    let mut client = server.connect();
    assert_eq!(client.call(&["ZADD", "set", "1", "one", "2", "two"]), Answer::Integer(2));
    assert_ne!(told(&mut client, "lag_bytes"), "0");
    assert_eq!(wait(&mut client, &["WAITAOF", "1", "0", "0"]), SAFE);
    assert_eq!(client.call(&["ZADD", "set", "3", "three"]), Answer::Integer(1));
    assert_eq!(client.call(&["ZINCRBY", "set", "9", "one"]), Answer::bulk("10"));
    assert_eq!(told(&mut client, "lag_bytes"), "0");
    // Members are removed after their set for good, so all that was written before is made safe
    // first.
    assert_eq!(client.call(&["SET", "string", "text"]), Answer::ok());
    assert_eq!(client.call(&["ZADD", "gone", "1", "one"]), Answer::Integer(1));
    assert_ne!(told(&mut client, "lag_bytes"), "0");
    assert_eq!(client.call(&["DEL", "gone"]), Answer::Integer(1));
    await_safety(&mut client);
    // Safe or not, nothing is lost with the process.
    assert_eq!(client.call(&["ZADD", "late", "1", "one"]), Answer::Integer(1));
    server.kill();
    assert_whole(&pool);
    let server = Server::start(&pool, &[]);
    let mut client = server.connect();
    let range = |client: &mut Client, key| client.call(&["ZRANGE", key, "0", "-1"]).strings();
    assert_eq!(range(&mut client, "set"), [&b"two"[..], b"three", b"one"]);
    assert_eq!(range(&mut client, "late"), [b"one"]);
    assert_eq!(client.call(&["ZRANGE", "gone", "0", "-1"]), Answer::Array(vec![]));
    server.stop();
    assert_whole(&pool);
}

/// Not asked for again, and batched nevertheless; the checker knows it too.
#[test]
fn a_pool_stays_what_it_was_made_for() {
    let directory = on_disk();
    let path = directory.path().join("batched.pool");
    let text = path.to_str().unwrap();
    let server = Server::start(&path, &["--durability", "batched"]);
    server.connect().call(&["SET", "key", "value"]);
    server.kill();
    let info = pool_info(text);
    assert_eq!(info["durability"], "power");
    assert_eq!(info["roots"][0]["type"], "BatchMap<[u8], [u8]>");
    assert_whole(&path);

    let server = Server::start(&path, &["--lag-time", "50ms"]);
    assert!(server.greeting.contains(": 1 entry in "), "{}", server.greeting);
    assert!(server.greeting.contains("after about 50ms"), "{}", server.greeting);
    let mut client = server.connect();
    assert_eq!(client.call(&["GET", "key"]), Answer::bulk("value"));
    assert_eq!(told(&mut client, "durability"), "batched");
    assert_eq!(told(&mut client, "pool_durability"), "power");
    server.stop();
    let server = Server::start(&path, &["--durability", "batched"]);
    assert!(!server.greeting.contains("after a crash"), "{}", server.greeting);
    assert_eq!(server.connect().call(&["GET", "key"]), Answer::bulk("value"));
    server.stop();

    for promise in ["process", "power"] {
        let error = serve_error(text, &["--durability", promise]);
        let names = ["BatchMap", &format!("--durability {promise}"), "ExtendibleMap", "leave out"];
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    }
}

#[test]
fn a_pool_for_immediate_writes_is_not_served_batched() {
    let directory = on_disk();
    let path = directory.path().join("immediate.pool");
    let text = path.to_str().unwrap();
    let server = Server::start(&path, &[]);
    server.connect().call(&["SET", "key", "value"]);
    server.stop();
    let error = serve_error(text, &["--durability", "batched"]);
    let names = ["ExtendibleMap", "--durability batched", "BatchMap", "leave out", "--pool"];
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
    let error = serve_error(text, &["--lag", "1M"]);
    assert!(error.contains("--durability batched"), "{error}");
    let server = Server::start(&path, &[]);
    assert_eq!(server.connect().call(&["GET", "key"]), Answer::bulk("value"));
    let error = server.connect().call(&["WAITAOF", "2", "0", "0"]).error();
    assert_eq!(error, "ERR value is out of range, value must between 0 and 1");
    // Every write is safe already.
    assert_eq!(wait(&mut server.connect(), &["WAITAOF", "1", "0", "0"]), SAFE);
}

fn serve_error(pool: &str, arguments: &[&str]) -> String {
    error_of(&[&["serve", "--listen", "127.0.0.1:0", "--pool", pool], arguments].concat())
}

#[test]
fn bounds_without_batches_are_refused() {
    let directory = directory();
    let path = directory.path().join("new.pool");
    let text = path.to_str().unwrap();
    for arguments in [
        &["--lag", "8M"][..],
        &["--lag-time", "20ms"],
        &["--durability", "process", "--lag", "8M"],
        &["--durability", "power", "--lag-time", "20ms"],
    ] {
        let error = serve_error(text, arguments);
        assert!(error.contains("ask for --durability batched"), "{error}");
        assert!(!path.exists(), "{arguments:?} made a pool");
    }
    let output = super::support::remanent(&["serve", "--durability", "soon"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`process`, `power` or `batched`, not `soon`"), "{error}");
}

#[test]
fn batches_in_memory_are_for_research_alone() {
    let directory = directory();
    if !directory.path().starts_with("/dev/shm") {
        return; // Only memory is known to lose power.
    }
    let path = directory.path().join("memory.pool");
    let text = path.to_str().unwrap();
    let error = serve_error(text, &["--durability", "batched"]);
    assert!(error.contains("leave it out") && error.contains("--pool"), "{error}");
    assert!(error.contains("tmpfs"), "{error}");
    assert!(!path.exists());

    for medium in ["nvram", "pcm", "stt-mram"] {
        let path = directory.path().join(medium);
        let server = Server::start(&path, &["--durability", "batched", "--emulate", medium]);
        assert!(server.greeting.contains("on emulated memory"), "{}", server.greeting);
        let mut client = server.connect();
        assert_eq!(client.call(&["SET", "key", "value"]), Answer::ok());
        assert_eq!(wait(&mut client, &["WAITAOF", "1", "0", "0"]), SAFE);
        assert_eq!(told(&mut client, "pool_durability"), "process");
        server.kill();
        assert_whole(&path);
        let server = Server::start(&path, &["--emulate", medium]);
        assert_eq!(told(&mut server.connect(), "durability"), "batched");
        assert_eq!(server.connect().call(&["GET", "key"]), Answer::bulk("value"));
        server.stop();
        let error = serve_error(path.to_str().unwrap(), &[]);
        assert!(error.contains("lies in memory") && error.contains("--emulate"), "{error}");
    }
}
