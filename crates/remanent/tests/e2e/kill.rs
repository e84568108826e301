//! Kills the server under load and compares what is left with what it acknowledged.
//!
//! Each of four connections sends pipelined SET, DEL, INCR and APPEND on keys of its own, and keeps
//! a log of what it sent and how much of that was answered. Requests of one connection run in
//! order, so after a kill its keys must be as some prefix of its log left them: all that was
//! answered, and of the rest the first few requests or none, each wholly. Counters that all
//! connections share lie between the increments answered and those sent.
//!
//! `REMANENT_KILL_ROUNDS` sets the number of rounds, `REMANENT_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::common::{
    Answer, Client, Random, Server, assert_whole, directory, encode, number_from_env, on_disk,
};

const CONNECTIONS: u64 = 4;
/// Keys of each connection and kind: few, so that each is written many times a round.
const KEYS: u64 = 40;
const SHARED_COUNTERS: u64 = 3;
/// Requests in one write to the socket, at most.
const PIPELINE_MAX: u64 = 48;
/// Milliseconds under load before the kill.
const LOAD_MS: Range<u64> = 2..90;

type Key = Vec<u8>;
type Entries = BTreeMap<Key, Vec<u8>>;

/// A write that a connection sends.
enum Write {
    Set(Key, Vec<u8>),
    Del(Key),
    Incr(Key),
    Append(Key, Vec<u8>),
    /// An increment of a counter that other connections increment as well.
    IncrShared(Key),
}

impl fmt::Debug for Write {
    /// Briefly: values may be long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Write::Set(key, value) => {
                write!(f, "SET {} {}", key.escape_ascii(), shown(Some(value)))
            }
            Write::Del(key) => write!(f, "DEL {}", key.escape_ascii()),
            Write::Incr(key) | Write::IncrShared(key) => write!(f, "INCR {}", key.escape_ascii()),
            Write::Append(key, tail) => {
                write!(f, "APPEND {} {}", key.escape_ascii(), tail.escape_ascii())
            }
        }
    }
}

impl Write {
    /// A write of the connection `owner`; `number` makes its value unlike all others.
    fn random(random: &mut Random, owner: u64, number: u64) -> Write {
        let mut key = |kind: &str| format!("{kind}:{owner}:{}", random.below(KEYS)).into_bytes();
        let (text, counter) = (key("text"), key("count"));
        match random.below(10) {
            0..4 => Write::Set(text, value(random, owner, number)),
            4 => Write::Del(text),
            5 => Write::Del(counter),
            6 => Write::Append(text, format!("+{owner}.{number}").into_bytes()),
            7..9 => Write::Incr(counter),
            _ => {
                Write::IncrShared(format!("shared:{}", random.below(SHARED_COUNTERS)).into_bytes())
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Write::Set(key, value) => encode(&[b"SET", &key[..], value]),
            Write::Del(key) => encode(&[b"DEL", &key[..]]),
            Write::Incr(key) | Write::IncrShared(key) => encode(&[b"INCR", &key[..]]),
            Write::Append(key, tail) => encode(&[b"APPEND", &key[..], tail]),
        }
    }

    /// Does to the connection's own entries what the server does; returns the answer that is due,
    /// except for shared counters, whose answers depend on others.
    fn apply(&self, entries: &mut Entries) -> Option<Answer> {
        Some(match self {
            Write::Set(key, value) => {
                entries.insert(key.clone(), value.clone());
                Answer::ok()
            }
            Write::Del(key) => Answer::Integer(entries.remove(key).is_some().into()),
            Write::Incr(key) => {
                let old = entries.get(key).map_or(0, |digits| number(digits));
                entries.insert(key.clone(), (old + 1).to_string().into_bytes());
                Answer::Integer(old + 1)
            }
            Write::Append(key, tail) => {
                let value = entries.entry(key.clone()).or_default();
                value.extend_from_slice(tail);
                Answer::Integer(value.len() as i64)
            }
            Write::IncrShared(_) => return None,
        })
    }
}

/// Mostly small, sometimes several lines, pages or chunks long.
fn value(random: &mut Random, owner: u64, number: u64) -> Vec<u8> {
    let len = match random.below(100) {
        0..70 => random.below(24),
        70..95 => random.below(400),
        95..99 => random.below(9_000),
        _ => random.below(200_000),
    };
    let mut value = format!("{owner}.{number}.").into_bytes();
    value.resize(value.len() + len as usize, b'a' + (number % 26) as u8);
    value
}

fn number(digits: &[u8]) -> i64 {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).expect("a counter")
}

/// What one connection sent in a round.
#[derive(Default)]
struct Log {
    sent: Vec<Write>,
    /// How many of the first of them were answered.
    answered: usize,
    /// Answers to increments of shared counters.
    shared: Vec<(Key, i64)>,
}

/// Sends writes until the server is gone, and checks every answer.
fn load(mut client: Client, owner: u64, mut random: Random, entries: &Entries) -> Log {
    let mut log = Log::default();
    let mut expected = entries.clone();
    loop {
        let first = log.sent.len();
        let mut bytes = Vec::new();
        for _ in 0..=random.below(PIPELINE_MAX) {
            let write = Write::random(&mut random, owner, log.sent.len() as u64);
            bytes.extend_from_slice(&write.encode());
            log.sent.push(write);
        }
        if client.send(&bytes).is_err() {
            return log;
        }
        for index in first..log.sent.len() {
            let Ok(answer) = client.receive() else { return log };
            match (log.sent[index].apply(&mut expected), &log.sent[index], answer) {
                (None, Write::IncrShared(key), Answer::Integer(count)) => {
                    log.shared.push((key.clone(), count));
                }
                (Some(due), write, answer) => assert_eq!(answer, due, "answer to {write:?}"),
                (None, write, answer) => panic!("{answer:?} is no answer to {write:?}"),
            }
            log.answered += 1;
        }
    }
}

/// What the test knows of the server's entries between two rounds.
#[derive(Default)]
struct Known {
    /// Entries of each connection.
    own: Vec<Entries>,
    shared: BTreeMap<Key, i64>,
}

/// Runs rounds of load, kill and comparison.
fn kill_rounds(directory: &Path, rounds: u64, arguments: &[&str]) {
    let seed = number_from_env("REMANENT_SEED", std::process::id().into());
    println!("REMANENT_SEED={seed} REMANENT_KILL_ROUNDS={rounds} repeats this run");
    let mut random = Random::new(seed);
    let pool = directory.join("kill.pool");
    let mut known = Known { own: vec![Entries::new(); CONNECTIONS as usize], ..Known::default() };
    let mut answered = 0;
    for round in 0..rounds {
        let server = Server::start(&pool, arguments);
        let logs = run_and_kill(server, &known, &mut random);
        answered += logs.iter().map(|log| log.answered).sum::<usize>();
        // In every other round the checker recovers the pool, in the rest the server does.
        if round % 2 == 0 {
            assert_whole(&pool);
        }
        let server = Server::start(&pool, arguments);
        known = compare(&server, known, &logs);
        server.kill();
        assert_whole(&pool);
    }
    println!("{rounds} kills, {answered} acknowledged writes, none lost, none resurrected");
    assert!(answered as u64 > rounds, "there was no load");
}

fn run_and_kill(server: Server, known: &Known, random: &mut Random) -> Vec<Log> {
    let load_time =
        Duration::from_millis(LOAD_MS.start + random.below(LOAD_MS.end - LOAD_MS.start));
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = known
            .own
            .iter()
            .zip(0..)
            .map(|(entries, owner)| {
                let (client, random) = (server.connect(), Random::new(random.next()));
                let killed = &killed;
                scope.spawn(move || {
                    let log = load(client, owner, random, entries);
                    assert!(killed.load(Ordering::SeqCst), "the server ended before it was killed");
                    log
                })
            })
            .collect();
        std::thread::sleep(load_time);
        killed.store(true, Ordering::SeqCst);
        server.kill();
        threads.into_iter().map(|thread| thread.join().expect("a connection's log")).collect()
    })
}

/// Compares all that the restarted server holds with the logs; returns what is known from then on.
fn compare(server: &Server, mut known: Known, logs: &[Log]) -> Known {
    let mut found = fetch(&mut server.connect());
    known.shared = compare_shared(&known.shared, logs, &mut found);
    for (owner, log) in logs.iter().enumerate() {
        let infix = format!(":{owner}:").into_bytes();
        let is_own = |key: &Key| key.windows(infix.len()).any(|window| window == infix);
        let own: Entries = found.extract_if(.., |key, _| is_own(key)).collect();
        known.own[owner] = match_prefix(owner, &known.own[owner], log, own);
    }
    assert!(found.is_empty(), "keys that nobody wrote: {:?}", found.keys());
    known
}

/// Everything that the server holds.
fn fetch(client: &mut Client) -> Entries {
    let keys = client.call(&["KEYS", "*"]).keys();
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(keys.len() as i64));
    let mut entries = Entries::new();
    for key in keys {
        let Answer::Bulk(value) = client.call(&[b"GET", &key[..]]) else {
            panic!("{} is listed but not there", key.escape_ascii());
        };
        assert!(entries.insert(key, value).is_none(), "a key is listed twice");
    }
    entries
}

/// The entries that `log` left, which must be `found`.
fn match_prefix(owner: usize, before: &Entries, log: &Log, found: Entries) -> Entries {
    let mut expected = before.clone();
    for write in &log.sent[..log.answered] {
        write.apply(&mut expected);
    }
    let acknowledged = expected.clone();
    for write in &log.sent[log.answered..] {
        if expected == found {
            return found;
        }
        write.apply(&mut expected);
    }
    if expected == found {
        return found;
    }
    for (key, value) in &acknowledged {
        if found.get(key) != Some(value) {
            eprintln!("acknowledged: {} = {}", key.escape_ascii(), shown(Some(value)));
            eprintln!("found:        {}", shown(found.get(key)));
        }
    }
    for (key, value) in found.iter().filter(|(key, _)| !acknowledged.contains_key(*key)) {
        eprintln!("not acknowledged: {} = {}", key.escape_ascii(), shown(Some(value)));
    }
    panic!(
        "connection {owner}: no prefix of its log leaves these entries ({} sent, {} answered); \
         in flight: {:#?}",
        log.sent.len(),
        log.answered,
        &log.sent[log.answered..]
    );
}

fn shown(value: Option<&Vec<u8>>) -> String {
    match value {
        None => "nothing".into(),
        Some(value) => {
            format!("{} bytes {}", value.len(), value[..value.len().min(60)].escape_ascii())
        }
    }
}

/// Takes the shared counters out of `found` and checks that they lie within their bounds.
fn compare_shared(
    before: &BTreeMap<Key, i64>,
    logs: &[Log],
    found: &mut Entries,
) -> BTreeMap<Key, i64> {
    let mut after = BTreeMap::new();
    for index in 0..SHARED_COUNTERS {
        let key = format!("shared:{index}").into_bytes();
        let count = found.remove(&key).map_or(0, |digits| number(&digits));
        let start = before.get(&key).copied().unwrap_or(0);
        let increments = |writes: &[Write]| {
            writes.iter().filter(|write| matches!(write, Write::IncrShared(k) if *k == key)).count()
        };
        let least = logs.iter().map(|log| increments(&log.sent[..log.answered])).sum::<usize>();
        let most = logs.iter().map(|log| increments(&log.sent)).sum::<usize>();
        let bounds = start + least as i64..=start + most as i64;
        assert!(bounds.contains(&count), "counter {index} is {count}, not within {bounds:?}");
        let answers = logs.iter().flat_map(|log| &log.shared).filter(|(k, _)| *k == key);
        let answers: Vec<i64> = answers.map(|(_, count)| *count).collect();
        let distinct: BTreeSet<i64> = answers.iter().copied().collect();
        assert_eq!(distinct.len(), answers.len(), "two increments had the same answer");
        assert!(distinct.iter().all(|answer| *answer > start && *answer <= count));
        after.insert(key, count);
    }
    after
}

#[test]
fn no_kill_loses_or_resurrects_a_write() {
    kill_rounds(directory().path(), rounds(50), &["--threads", "4"]);
}

#[test]
fn no_kill_loses_or_resurrects_a_write_as_nvram() {
    let arguments = ["--threads", "4", "--emulate", "nvram"];
    kill_rounds(directory().path(), rounds(50).div_ceil(5), &arguments);
}

/// What is not safe lies with the system, which outlives the process: not even that is lost by a kill.
#[test]
fn no_kill_loses_or_resurrects_a_batched_write() {
    let arguments = ["--threads", "4", "--durability", "batched", "--lag", "256K"];
    kill_rounds(on_disk().path(), rounds(50).div_ceil(5), &arguments);
}

#[test]
fn no_kill_loses_or_resurrects_a_batched_write_as_nvram() {
    let arguments = ["--threads", "4", "--durability", "batched", "--emulate", "nvram"];
    kill_rounds(directory().path(), rounds(50).div_ceil(5), &arguments);
}

fn rounds(default: u64) -> u64 {
    number_from_env("REMANENT_KILL_ROUNDS", default)
}

/// A kill while entries are wiped: all of them are there afterwards or none.
#[test]
fn a_killed_flushall_is_whole_or_nothing() {
    kill_flushes(&[]);
}

#[test]
fn a_killed_batched_flushall_is_whole_or_nothing() {
    kill_flushes(&["--durability", "batched", "--emulate", "nvram"]);
}

fn kill_flushes(arguments: &[&str]) {
    let directory = directory();
    let pool = directory.path().join("flush.pool");
    let mut random = Random::new(number_from_env("REMANENT_SEED", std::process::id().into()));
    for _ in 0..10 {
        fill_and_kill_flush(&pool, arguments, random.below(3_000));
        let server = Server::start(&pool, arguments);
        let left = fetch(&mut server.connect()).len();
        assert!(left == 0 || left == FLUSHED, "{left} of {FLUSHED} entries are left");
        server.connect().call(&["FLUSHALL"]);
        server.stop();
        assert_whole(&pool);
    }
}

const FLUSHED: usize = 2_000;

fn fill_and_kill_flush(pool: &Path, arguments: &[&str], delay_us: u64) {
    let server = Server::start(pool, arguments);
    let mut client = server.connect();
    let requests =
        (0..FLUSHED).map(|index| encode(&["SET".into(), format!("key{index}"), "v".into()]));
    client.send(&requests.flatten().collect::<Vec<u8>>()).expect("the server reads");
    for _ in 0..FLUSHED {
        assert_eq!(client.receive().expect("the server answers"), Answer::ok());
    }
    client.send(&encode(&["FLUSHALL"])).expect("the server reads");
    std::thread::sleep(Duration::from_micros(delay_us));
    server.kill();
}
