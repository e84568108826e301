//! Sorted sets: each command's answers, and long random runs beside a model.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use remanent_pmem::Pool;
use remanent_server::{Keyspace, MapStore, Store};
use remanent_structures::BlinkTree;

use super::commands::{check, on_each_store};
use super::session::Connection;

#[test]
fn members_are_added_and_removed() {
    check(&[
        ("ZADD z 1 one 2 two 3 three", ":3\r\n"),
        ("TYPE z", "+zset\r\n"),
        ("ZCARD z", ":3\r\n"),
        ("ZADD z 2.5 two 4 four", ":1\r\n"),
        ("ZADD z CH 2.5 two 5 four 6 six", ":2\r\n"),
        ("ZSCORE z two", "$3\r\n2.5\r\n"),
        ("ZSCORE z none", "$-1\r\n"),
        ("ZSCORE none none", "$-1\r\n"),
        ("ZMSCORE z one none six", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n6\r\n"),
        ("ZREM z one none six", ":2\r\n"),
        ("ZCARD z", ":3\r\n"),
        ("ZINCRBY z -1.5 two", "$1\r\n1\r\n"),
        ("ZINCRBY z inf new", "$3\r\ninf\r\n"),
        ("ZINCRBY z -inf new", "-ERR resulting score is not a number (NaN)\r\n"),
        ("ZADD z 7 m 8 m", ":1\r\n"),
        ("ZSCORE z m", "$1\r\n8\r\n"),
        ("ZREM z two three four new m", ":5\r\n"),
        ("EXISTS z", ":0\r\n"),
        ("ZCARD z", ":0\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
}

#[test]
fn options_of_zadd_are_obeyed() {
    check(&[
        ("ZADD z XX 1 a", ":0\r\n"),
        ("EXISTS z", ":0\r\n"),
        ("ZADD z NX 1 a", ":1\r\n"),
        ("ZADD z NX 2 a", ":0\r\n"),
        ("ZADD z GT CH 0 a 5 b", ":1\r\n"),
        ("ZADD z LT CH 0 a 6 b", ":1\r\n"),
        ("ZADD z INCR 2 a", "$1\r\n2\r\n"),
        ("ZADD z GT INCR -2 a", "$-1\r\n"),
        ("ZADD z XX INCR 2 none", "$-1\r\n"),
        ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible\r\n"),
        (
            "ZADD z GT LT 1 a",
            "-ERR GT, LT, and/or NX options at the same time are not compatible\r\n",
        ),
        ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair\r\n"),
        ("ZADD z 1 a 2", "-ERR syntax error\r\n"),
        ("ZADD z 1 a x b", "-ERR value is not a valid float\r\n"),
        ("ZADD z nan b", "-ERR value is not a valid float\r\n"),
        ("ZADD z 1e400 b", "-ERR value is not a valid float\r\n"),
        ("ZADD z -0.01E-400 b", "-ERR value is not a valid float\r\n"),
        ("ZADD tiny 5e-324 a 0e9 b -inf c", ":3\r\n"),
        ("ZRANGE z 0 -1 WITHSCORES", "*4\r\n$1\r\na\r\n$1\r\n2\r\n$1\r\nb\r\n$1\r\n5\r\n"),
    ]);
}

#[test]
fn ranges_are_by_rank_by_score_and_by_member() {
    check(&[
        ("ZADD z 1 a 2 b 2 c 3 d", ":4\r\n"),
        ("ZRANGE z 1 2", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("ZRANGE z 0 1 REV", "*2\r\n$1\r\nd\r\n$1\r\nc\r\n"),
        ("ZREVRANGE z 2 -1 WITHSCORES", "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        ("ZRANGE z (1 3 BYSCORE", "*3\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n"),
        ("ZRANGE z 3 (1 BYSCORE REV LIMIT 1 1", "*1\r\n$1\r\nc\r\n"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT 3 -1", "*1\r\n$1\r\nd\r\n"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT -1 5", "*0\r\n"),
        ("ZREVRANGEBYSCORE z 2 1 WITHSCORES LIMIT 0 1", "*2\r\n$1\r\nc\r\n$1\r\n2\r\n"),
        ("ZRANGEBYSCORE z 3 1", "*0\r\n"),
        ("ZCOUNT z 2 (3", ":2\r\n"),
        ("ZCOUNT z (3 2", ":0\r\n"),
        ("ZCOUNT z -inf inf", ":4\r\n"),
        ("ZRANK z c", ":2\r\n"),
        ("ZREVRANK z c", ":1\r\n"),
        ("ZRANK z c WITHSCORE", "*2\r\n:2\r\n$1\r\n2\r\n"),
        ("ZRANK z none", "$-1\r\n"),
        ("ZRANK z none WITHSCORE", "*-1\r\n"),
        ("ZADD l 0 a 0 b 0 c 0 d", ":4\r\n"),
        ("ZRANGEBYLEX l (a [c", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("ZRANGE l + [c BYLEX REV", "*2\r\n$1\r\nd\r\n$1\r\nc\r\n"),
        ("ZREVRANGEBYLEX l + - LIMIT 1 2", "*2\r\n$1\r\nc\r\n$1\r\nb\r\n"),
        ("ZLEXCOUNT l - (c", ":2\r\n"),
        ("ZLEXCOUNT l + -", ":0\r\n"),
        ("ZREMRANGEBYLEX l [a (c", ":2\r\n"),
        ("ZREMRANGEBYRANK z 0 1", ":2\r\n"),
        ("ZREMRANGEBYSCORE z 3 3", ":1\r\n"),
        ("ZRANGE z 0 -1", "*1\r\n$1\r\nc\r\n"),
    ]);
}

#[test]
fn a_range_that_makes_no_sense_is_refused() {
    check(&[
        ("ZRANGE z 0 x", "-ERR value is not an integer or out of range\r\n"),
        ("ZRANGE z 0 1 NOSUCH", "-ERR syntax error\r\n"),
        ("ZRANGE z a b BYSCORE", "-ERR min or max is not a float\r\n"),
        ("ZRANGE z a b BYLEX", "-ERR min or max not valid string range item\r\n"),
        ("ZREVRANGE z 0 1 REV", "-ERR syntax error\r\n"),
        ("ZRANGE z 0 1 REV REV", "-ERR syntax error\r\n"),
        ("ZRANGE z 0 1 BYSCORE BYLEX", "-ERR syntax error\r\n"),
        (
            "ZRANGE z 0 1 LIMIT 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX\r\n",
        ),
        (
            "ZRANGE z - + BYLEX WITHSCORES",
            "-ERR syntax error, WITHSCORES not supported in combination with BYLEX\r\n",
        ),
        ("ZSCAN z x", "-ERR invalid cursor\r\n"),
        ("ZSCAN none 0 NOSUCH", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("ZPOPMIN z x", "-ERR value is out of range, must be positive\r\n"),
        ("ZPOPMIN z 1 2", "-ERR syntax error\r\n"),
    ]);
}

#[test]
fn the_ends_are_popped() {
    check(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4\r\n"),
        ("ZPOPMIN z", "*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        ("ZPOPMAX z 2", "*4\r\n$1\r\nd\r\n$1\r\n4\r\n$1\r\nc\r\n$1\r\n3\r\n"),
        ("ZPOPMAX z 0", "*0\r\n"),
        ("ZPOPMAX z 5", "*2\r\n$1\r\nb\r\n$1\r\n2\r\n"),
        ("ZPOPMAX z", "*0\r\n"),
        ("EXISTS z", ":0\r\n"),
    ]);
}

#[test]
fn zero_has_a_sign_and_one_place() {
    check(&[
        ("ZADD z -0 b 0 a 0 c", ":3\r\n"),
        (
            "ZRANGE z 0 -1 WITHSCORES",
            "*6\r\n$1\r\na\r\n$1\r\n0\r\n$1\r\nb\r\n$2\r\n-0\r\n$1\r\nc\r\n$1\r\n0\r\n",
        ),
        ("ZCOUNT z 0 0", ":3\r\n"),
        ("ZADD z CH 0 b", ":0\r\n"),
        ("ZREM z b", ":1\r\n"),
        ("ZCARD z", ":2\r\n"),
    ]);
}

#[test]
fn a_key_has_one_type() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    check(&[
        ("ZADD z 1 a 2 b", ":2\r\n"),
        ("SET s text", "+OK\r\n"),
        ("GET z", wrong),
        ("APPEND z x", wrong),
        ("INCR z", wrong),
        ("GETSET z x", wrong),
        ("GETDEL z", wrong),
        ("SET z x GET", wrong),
        ("MGET z s", "*2\r\n$-1\r\n$4\r\ntext\r\n"),
        ("SETNX z x", ":0\r\n"),
        ("ZADD s 1 a", wrong),
        ("ZRANGE s 0 -1", wrong),
        ("ZCARD s", wrong),
        ("ZSCAN s 0", wrong),
        ("ZCARD z", ":2\r\n"),
        ("SCAN 0 COUNT 100 TYPE zset", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nz\r\n"),
        ("SET z x", "+OK\r\n"),
        ("GET z", "$1\r\nx\r\n"),
        ("DEL z", ":1\r\n"),
        ("ZADD z 3 c", ":1\r\n"),
        ("ZRANGE z 0 -1", "*1\r\n$1\r\nc\r\n"),
        ("DEL z s", ":2\r\n"),
        ("ZADD z 1 a", ":1\r\n"),
        ("FLUSHALL", "+OK\r\n"),
        ("ZCARD z", ":0\r\n"),
        ("ZADD z 2 b", ":1\r\n"),
        ("ZRANGE z 0 -1", "*1\r\n$1\r\nb\r\n"),
    ]);
}

#[test]
fn resp3_has_numbers_and_pairs() {
    let mut connection = Connection::new();
    connection.exchange("HELLO 3");
    for (request, answer) in [
        ("ZADD z 1.5 a 2 b", ":2\r\n"),
        ("ZSCORE z a", ",1.5\r\n"),
        ("ZINCRBY z inf b", ",inf\r\n"),
        ("ZRANGE z 0 -1 WITHSCORES", "*2\r\n*2\r\n$1\r\na\r\n,1.5\r\n*2\r\n$1\r\nb\r\n,inf\r\n"),
        ("ZRANK z none", "_\r\n"),
        ("ZSCAN z 0 MATCH a", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$3\r\n1.5\r\n"),
        ("ZPOPMIN z", "*2\r\n$1\r\na\r\n,1.5\r\n"),
        ("ZPOPMIN z 1", "*1\r\n*2\r\n$1\r\nb\r\n,inf\r\n"),
    ] {
        assert_eq!(connection.exchange(request), answer, "to {request}");
    }
}

#[test]
fn a_long_set_is_scanned_and_counted() {
    on_each_store(|exchange| {
        for first in (0..3000).step_by(100) {
            let members: String =
                (first..first + 100).map(|n| format!(" {} m{n}", n * 7 % 3000)).collect();
            assert_eq!(exchange(&format!("ZADD z{members}")), ":100\r\n");
        }
        assert_eq!(exchange("ZCARD z"), ":3000\r\n");
        for rank in [0, 1, 255, 256, 257, 1500, 2999] {
            let member = (0..3000).find(|n| n * 7 % 3000 == rank).unwrap();
            assert_eq!(exchange(&format!("ZRANK z m{member}")), format!(":{rank}\r\n"));
            let bulk = format!("*1\r\n${}\r\nm{member}\r\n", member.to_string().len() + 1);
            assert_eq!(exchange(&format!("ZRANGE z {rank} {rank}")), bulk);
            let from_end = 2999 - rank;
            assert_eq!(exchange(&format!("ZREVRANGE z {from_end} {from_end}")), bulk);
        }
        let (mut cursor, mut seen) = ("0".to_owned(), BTreeMap::new());
        loop {
            let answer = exchange(&format!("ZSCAN z {cursor} COUNT 70"));
            let mut lines = answer.split("\r\n").filter(|line| !line.starts_with(['*', '$']));
            cursor = lines.next().unwrap().to_owned();
            let words: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            for pair in words.chunks(2) {
                assert!(seen.insert(pair[0].to_owned(), pair[1].to_owned()).is_none());
            }
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 3000);
        assert_eq!(seen["m1"], "7");
        assert_eq!(exchange("ZREMRANGEBYRANK z 0 2990"), ":2991\r\n");
        assert_eq!(exchange("ZCARD z"), ":9\r\n");
        assert_eq!(exchange("DEL z"), ":1\r\n");
    });
}

#[test]
fn a_member_that_is_too_long_is_refused() {
    // Only the tree of a pool knows a limit.
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().create(directory.path().join("pool")).unwrap();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    let longest = "m".repeat(65_518);
    assert_eq!(connection.exchange(&format!("ZADD z 1 {longest}")), ":1\r\n");
    let answer = connection.exchange(&format!("ZADD z 1 short 2 {longest}m"));
    assert_eq!(answer, "-ERR a member of a sorted set has at most 65518 bytes\r\n");
    assert_eq!(connection.exchange("ZCARD z"), ":1\r\n");
    assert_eq!(connection.exchange(&format!("ZSCORE z {longest}m")), "$-1\r\n");
}

/// A full store refuses a whole command, and is as before.
#[test]
fn a_full_store_refuses_all_of_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().size_max(40 << 20).create(directory.path().join("full")).unwrap();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    let value = "v".repeat(20_000);
    let mut added = 0;
    loop {
        let members: String = (0..10).map(|n| format!(" {n} {added}-{n}-{value}")).collect();
        let answer = connection.exchange(&format!("ZADD z{members}"));
        if answer.starts_with("-OOM") {
            break;
        }
        assert_eq!(answer, ":10\r\n");
        added += 10;
    }
    assert!(added > 100, "{added} fit");
    // Another score takes room, too, and is refused without a trace where there is none.
    let mut scores: Vec<u64> = (0..added).map(|member| member % 10).collect();
    for (member, score) in scores.iter_mut().enumerate() {
        let name = format!("{}-{}-{value}", member / 10 * 10, member % 10);
        let answer = connection.exchange(&format!("ZINCRBY z 100 {name}"));
        if !answer.starts_with("-OOM") {
            *score += 100;
        }
        let bulk = format!("${}\r\n{score}\r\n", score.to_string().len());
        assert_eq!(connection.exchange(&format!("ZSCORE z {name}")), bulk);
    }
    assert_eq!(connection.exchange("ZCARD z"), format!(":{added}\r\n"));
    drop(connection);
    let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
    assert_eq!(keys.check().unwrap(), Vec::<String>::new());
    drop(keys);
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    assert_eq!(connection.exchange("ZCARD z"), format!(":{added}\r\n"));
    assert_eq!(connection.exchange("DEL z"), ":1\r\n");
    assert_eq!(connection.exchange("ZADD z 1 a"), ":1\r\n");
}

/// Whatever is taken away leaves nothing behind.
#[test]
fn removed_sets_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().size_max(256 << 20).create(directory.path().join("map")).unwrap();
    let store = MapStore::open(&pool).unwrap();
    let mut connection = Connection::to(store);
    for request in [
        "ZADD a 1 x 2 y",
        "DEL a",
        "ZADD b 1 x",
        "SET b s",
        "ZADD c 1 x",
        "ZREM c x",
        "ZADD d 1 x",
        "ZPOPMIN d",
    ] {
        assert!(!connection.exchange(request).starts_with('-'), "{request}");
    }
    drop(connection);
    // Opening removes the last change of each group of keys.
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    assert_eq!(connection.exchange("EXISTS a c d"), ":0\r\n");
    drop(connection);
    let tree: BlinkTree<[u8], [u8]> = BlinkTree::open(&pool, "redis sorted sets").unwrap();
    // What is left is the note of which numbers are taken.
    assert_eq!(tree.len().unwrap(), 1);
    drop(tree);
    // Nor does a name without a set, which a crash may leave.
    let store = MapStore::open(&pool).unwrap();
    let keys = Keyspace::open(store).unwrap();
    let tree = keys.store().tree().unwrap();
    for key in [[0, 0, 0, 0, 0, 0, 0, 9, 0], [0, 0, 0, 0, 0, 0, 1, 9, 0]] {
        tree.put(&key[..], b"gone").unwrap();
    }
    assert_eq!(keys.sweep(|| false).unwrap(), 2);
    assert_eq!(tree.len().unwrap(), 1);
    let mut left = Vec::new();
    tree.ascend(.., |key, _| {
        left.push(key.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(left, [[0; 9]]);
}

/// A sorted set as simple as can be.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<String, f64>);

impl Model {
    fn in_order(&self) -> Vec<(f64, &str)> {
        let mut all: Vec<(f64, &str)> = self.0.iter().map(|(m, &s)| (s, m.as_str())).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        all
    }

    fn answer(entries: &[(f64, &str)]) -> String {
        let mut answer = format!("*{}\r\n", 2 * entries.len());
        for (score, member) in entries {
            let score = score.to_string();
            answer += &format!("${}\r\n{member}\r\n${}\r\n{score}\r\n", member.len(), score.len());
        }
        answer
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<(i8, u8)>),
    Remove(Vec<u8>),
    Increment(i8, u8),
    Range(i8, i8, bool),
    Scores(i8, i8, bool, bool),
    Rank(u8, bool),
    Pop(u8, bool),
    RemoveRanks(i8, i8),
    Delete,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let member = 0..40u8;
    let op = prop_oneof![
        6 => prop::collection::vec((-9..9i8, member.clone()), 1..9).prop_map(Op::Add),
        3 => prop::collection::vec(member.clone(), 1..5).prop_map(Op::Remove),
        3 => (-9..9i8, member.clone()).prop_map(|(by, member)| Op::Increment(by, member)),
        3 => (any::<i8>(), any::<i8>(), any::<bool>()).prop_map(|(a, b, rev)| Op::Range(a, b, rev)),
        3 => (-12..12i8, -12..12i8, any::<bool>(), any::<bool>())
            .prop_map(|(a, b, excluded, rev)| Op::Scores(a, b, excluded, rev)),
        3 => (member, any::<bool>()).prop_map(|(member, rev)| Op::Rank(member, rev)),
        1 => (0..4u8, any::<bool>()).prop_map(|(count, max)| Op::Pop(count, max)),
        1 => (-5..5i8, -5..5i8).prop_map(|(a, b)| Op::RemoveRanks(a, b)),
        1 => Just(Op::Delete),
    ];
    prop::collection::vec(op, 1..80)
}

/// The members of ranks `start` to `stop`, as Redis counts them.
fn slice(len: usize, start: i8, stop: i8) -> std::ops::Range<usize> {
    let from_end = |rank: i8| if rank < 0 { i64::from(rank) + len as i64 } else { rank.into() };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len as i64 - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

fn range(model: &Model, start: i8, stop: i8, backwards: bool) -> (String, String) {
    let mut all = model.in_order();
    if backwards {
        all.reverse();
    }
    let rev = if backwards { " REV" } else { "" };
    let answer = Model::answer(&all[slice(all.len(), start, stop)]);
    (format!("ZRANGE z {start} {stop}{rev} WITHSCORES"), answer)
}

/// The members with scores from `low`, which is left out if `is_out`, to `high`.
fn scores(model: &Model, low: f64, high: f64, is_out: bool, backwards: bool) -> (String, String) {
    let mut all = model.in_order();
    all.retain(|&(score, _)| (if is_out { score > low } else { score >= low }) && score <= high);
    let open = if is_out { "(" } else { "" };
    if backwards {
        all.reverse();
        let request = format!("ZRANGE z {high} {open}{low} BYSCORE REV WITHSCORES");
        return (request, Model::answer(&all));
    }
    (format!("ZRANGE z {open}{low} {high} BYSCORE WITHSCORES"), Model::answer(&all))
}

fn request_and_answer(model: &mut Model, op: &Op) -> (String, String) {
    let name = |member: &u8| format!("member{member:02}");
    match op {
        Op::Add(pairs) => {
            let words: String = pairs.iter().map(|(s, m)| format!(" {s} {}", name(m))).collect();
            let before = model.0.len();
            model.0.extend(pairs.iter().map(|(s, m)| (name(m), f64::from(*s))));
            (format!("ZADD z{words}"), format!(":{}\r\n", model.0.len() - before))
        }
        Op::Remove(members) => {
            let words: String = members.iter().map(|m| format!(" {}", name(m))).collect();
            let count = members.iter().filter(|m| model.0.remove(&name(m)).is_some()).count();
            (format!("ZREM z{words}"), format!(":{count}\r\n"))
        }
        Op::Increment(by, member) => {
            let score = model.0.entry(name(member)).or_default();
            *score += f64::from(*by);
            let text = score.to_string();
            (format!("ZINCRBY z {by} {}", name(member)), format!("${}\r\n{text}\r\n", text.len()))
        }
        Op::Range(start, stop, backwards) => range(model, *start, *stop, *backwards),
        Op::Scores(low, high, excluded, backwards) => {
            scores(model, f64::from(*low), f64::from(*high), *excluded, *backwards)
        }
        Op::Rank(member, backwards) => {
            let mut all = model.in_order();
            if *backwards {
                all.reverse();
            }
            let rank = all.iter().position(|(_, other)| **other == name(member));
            let command = if *backwards { "ZREVRANK" } else { "ZRANK" };
            let answer = rank.map_or("$-1\r\n".to_owned(), |rank| format!(":{rank}\r\n"));
            (format!("{command} z {}", name(member)), answer)
        }
        Op::Pop(count, max) => {
            let mut all = model.in_order();
            if *max {
                all.reverse();
            }
            all.truncate(usize::from(*count));
            let answer = Model::answer(&all);
            let popped: Vec<String> = all.iter().map(|(_, member)| (*member).to_owned()).collect();
            model.0.retain(|member, _| !popped.contains(member));
            let command = if *max { "ZPOPMAX" } else { "ZPOPMIN" };
            (format!("{command} z {count}"), answer)
        }
        Op::RemoveRanks(start, stop) => {
            let all = model.in_order();
            let gone: Vec<String> =
                all[slice(all.len(), *start, *stop)].iter().map(|e| e.1.to_owned()).collect();
            model.0.retain(|member, _| !gone.contains(member));
            (format!("ZREMRANGEBYRANK z {start} {stop}"), format!(":{}\r\n", gone.len()))
        }
        Op::Delete => {
            let was_there = !std::mem::take(&mut model.0).is_empty();
            ("DEL z".to_owned(), format!(":{}\r\n", u8::from(was_there)))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_commands_are_answered_as_the_model_says(ops in ops()) {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::options().size_max(64 << 20).create(directory.path().join("map")).unwrap();
        let mut connection = Connection::to(MapStore::open(&pool).unwrap());
        let mut model = Model::default();
        for op in &ops {
            let (request, answer) = request_and_answer(&mut model, op);
            prop_assert_eq!(connection.exchange(&request), answer, "to {}", request);
            let count = connection.exchange("ZCARD z");
            prop_assert_eq!(count, format!(":{}\r\n", model.0.len()), "after {}", request);
        }
        drop(connection);
        let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
        prop_assert_eq!(keys.check().unwrap(), Vec::<String>::new());
    }
}
