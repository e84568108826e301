//! Kills the server under load and compares what is left with what it acknowledged.
//!
//! Each of four connections sends pipelined writes of strings and sorted sets on keys of its own,
//! and keeps a log of what it sent and how much of that was answered. Requests of one connection
//! run in order, so after a kill its keys must be as some prefix of its log left them: all that was
//! answered, and of the rest the first few requests or none, each wholly. Counters that all
//! connections share lie between the increments answered and those sent. A sorted set must be the
//! same in all ways to read it: in its order, by member, as a scan, and in number.
//!
//! `REMANENT_KILL_ROUNDS` sets the number of rounds, `REMANENT_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{
    Answer, Client, Random, Server, assert_whole, directory, encode, number_from_env, on_disk,
};
use super::writes::{Entries, Key, Members, SHARED_COUNTERS, Value, Write, in_order, number};

const CONNECTIONS: u64 = 4;
/// Requests in one write to the socket, at most.
const PIPELINE_MAX: u64 = 48;
/// Milliseconds under load before the kill.
const LOAD_MS: Range<u64> = 2..90;

/// What one connection sent in a round.
#[derive(Default)]
struct Log {
    sent: Vec<Write>,
    /// How many of the first of them were answered.
    answered: usize,
    /// Answers to increments of shared counters.
    shared: Vec<(Key, i64)>,
}

impl Log {
    fn answered_on_sets(&self) -> usize {
        self.sent[..self.answered].iter().filter(|write| write.is_on_set()).count()
    }
}

/// Sends writes until the server is gone, and checks every answer.
fn load(mut client: Client, owner: u64, mut random: Random, known: &Known) -> Log {
    let mut log = Log::default();
    let mut expected = known.own[owner as usize].clone();
    let has_sets = owner < known.owners_of_sets;
    loop {
        let first = log.sent.len();
        let mut bytes = Vec::new();
        for _ in 0..=random.below(PIPELINE_MAX) {
            let write = Write::random(
                &mut random,
                owner,
                log.sent.len() as u64,
                has_sets,
                known.has_batches,
            );
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
struct Known {
    /// So many of the first connections have sorted sets.
    owners_of_sets: u64,
    /// Whether commands on several keys happen as a whole; they do not where keys are batched.
    has_batches: bool,
    /// Entries of each connection.
    own: Vec<Entries>,
    shared: BTreeMap<Key, i64>,
}

/// Runs rounds of load, kill and comparison.
fn kill_rounds(directory: &Path, rounds: u64, arguments: &[&str], owners_of_sets: u64) {
    let seed = number_from_env("REMANENT_SEED", std::process::id().into());
    println!("REMANENT_SEED={seed} REMANENT_KILL_ROUNDS={rounds} repeats this run");
    let mut random = Random::new(seed);
    let pool = directory.join("kill.pool");
    let own = vec![Entries::new(); CONNECTIONS as usize];
    let has_batches = !arguments.contains(&"batched");
    let mut known = Known { owners_of_sets, has_batches, own, shared: BTreeMap::new() };
    let (mut answered, mut on_sets) = (0, 0);
    for round in 0..rounds {
        let server = Server::start(&pool, arguments);
        let logs = run_and_kill(server, &known, &mut random);
        answered += logs.iter().map(|log| log.answered).sum::<usize>();
        on_sets += logs.iter().map(Log::answered_on_sets).sum::<usize>();
        // In every other round the checker recovers the pool, in the rest the server does.
        if round % 2 == 0 {
            assert_whole(&pool);
        }
        let server = Server::start(&pool, arguments);
        known = compare(&server, known, &logs);
        server.kill();
        assert_whole(&pool);
    }
    println!(
        "{rounds} kills, {answered} acknowledged writes, {on_sets} of them on sorted sets, none lost, \
         none resurrected"
    );
    assert!(answered as u64 > rounds, "there was no load");
}

fn run_and_kill(server: Server, known: &Known, random: &mut Random) -> Vec<Log> {
    let load_time =
        Duration::from_millis(LOAD_MS.start + random.below(LOAD_MS.end - LOAD_MS.start));
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|owner| {
                let (client, random) = (server.connect(), Random::new(random.next()));
                let killed = &killed;
                scope.spawn(move || {
                    let log = load(client, owner, random, known);
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
    let keys = client.call(&["KEYS", "*"]).strings();
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(keys.len() as i64));
    let mut entries = Entries::new();
    for key in keys {
        let value = match client.call(&[b"TYPE", &key[..]]) {
            Answer::Simple(name) if name == "zset" => Value::Set(fetch_set(client, &key)),
            _ => match client.call(&[b"GET", &key[..]]) {
                Answer::Bulk(value) => Value::Text(value),
                answer => panic!("{} is listed, and it is {answer:?}", key.escape_ascii()),
            },
        };
        assert!(entries.insert(key, value).is_none(), "a key is listed twice");
    }
    entries
}

/// A sorted set, read in all ways, which must agree.
fn fetch_set(client: &mut Client, key: &[u8]) -> Members {
    let pairs = |words: Vec<Vec<u8>>| -> Vec<(i64, Vec<u8>)> {
        words.chunks_exact(2).map(|pair| (number(&pair[1]), pair[0].clone())).collect()
    };
    let ordered = pairs(client.call(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]).strings());
    let set: Members = ordered.iter().map(|(score, member)| (member.clone(), *score)).collect();
    let name = key.escape_ascii();
    assert_eq!(in_order(&set), ordered, "{name} is not in order, or has a member twice");
    assert!(!set.is_empty(), "{name} has no members");
    assert_eq!(client.call(&[b"ZCARD", key]), Answer::Integer(set.len() as i64), "{name}");

    let mut request = vec![b"ZMSCORE".to_vec(), key.to_vec()];
    request.extend(ordered.iter().map(|(_, member)| member.clone()));
    let scores: Vec<i64> = client.call(&request).strings().iter().map(|s| number(s)).collect();
    assert!(ordered.iter().map(|(score, _)| score).eq(&scores), "{name}: scores are not the same");

    // More than there are, so one answer has them all.
    let Answer::Array(scanned) = client.call(&[b"ZSCAN", key, b"0", b"COUNT", b"100000"]) else {
        panic!("{name} is not scanned");
    };
    let [cursor, members] = <[Answer; 2]>::try_from(scanned).expect("a cursor and members");
    assert_eq!(cursor, Answer::bulk("0"));
    let mut scanned = pairs(members.strings());
    scanned.sort();
    assert_eq!(scanned, ordered, "{name}: the members are not the same");
    set
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
            eprintln!("acknowledged: {} = {value:?}", key.escape_ascii());
            eprintln!("found:        {:?}", found.get(key));
        }
    }
    for (key, value) in found.iter().filter(|(key, _)| !acknowledged.contains_key(*key)) {
        eprintln!("not acknowledged: {} = {value:?}", key.escape_ascii());
    }
    panic!(
        "connection {owner}: no prefix of its log leaves these entries ({} sent, {} answered); \
         in flight: {:#?}",
        log.sent.len(),
        log.answered,
        &log.sent[log.answered..]
    );
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
        let count = match found.remove(&key) {
            None => 0,
            Some(Value::Text(digits)) => number(&digits),
            Some(value) => panic!("counter {index} is {value:?}"),
        };
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
    kill_rounds(directory().path(), rounds(50), &["--threads", "4"], CONNECTIONS);
}

#[test]
fn no_kill_loses_or_resurrects_a_write_as_nvram() {
    let arguments = ["--threads", "4", "--emulate", "nvram"];
    kill_rounds(directory().path(), rounds(50).div_ceil(5), &arguments, CONNECTIONS);
}

/// What is not safe lies with the system, which outlives the process: not even that is lost by a
/// kill.
#[test]
fn no_kill_loses_or_resurrects_a_batched_write() {
    let arguments = ["--threads", "4", "--durability", "batched", "--lag", "256K"];
    // Members are safe at once, at a disk's speed; so that the others are not as slow, one
    // connection has sets.
    kill_rounds(on_disk().path(), rounds(50).div_ceil(5), &arguments, 1);
}

#[test]
fn no_kill_loses_or_resurrects_a_batched_write_as_nvram() {
    let arguments = ["--threads", "4", "--durability", "batched", "--emulate", "nvram"];
    kill_rounds(directory().path(), rounds(50).div_ceil(5), &arguments, CONNECTIONS);
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
        let mut client = server.connect();
        client.call(&["FLUSHALL"]);
        // What may be left of the sets that are gone is in nobody's way.
        for name in ["zkey0", "new"] {
            client.call(&["ZADD", name, "1", "new"]);
            assert_eq!(fetch_set(&mut client, name.as_bytes()), Members::from([("new".into(), 1)]));
            client.call(&["DEL", name]);
        }
        server.stop();
        assert_whole(&pool);
    }
}

const FLUSHED: usize = 2_000;
/// One of so many is a sorted set.
const SET_EVERY: usize = 10;

fn fill_and_kill_flush(pool: &Path, arguments: &[&str], delay_us: u64) {
    let server = Server::start(pool, arguments);
    let mut client = server.connect();
    let request = |index| match index % SET_EVERY {
        0 => format!("ZADD zkey{index} 1 one 2 two 3 three 4 four"),
        _ => format!("SET key{index} v"),
    };
    let requests = (0..FLUSHED).map(|index| encode(&request(index).split(' ').collect::<Vec<_>>()));
    client.send(&requests.flatten().collect::<Vec<u8>>()).expect("the server reads");
    for index in 0..FLUSHED {
        let due = if index % SET_EVERY == 0 { Answer::Integer(4) } else { Answer::ok() };
        assert_eq!(client.receive().expect("the server answers"), due);
    }
    client.send(&encode(&["FLUSHALL"])).expect("the server reads");
    std::thread::sleep(Duration::from_micros(delay_us));
    server.kill();
}
