//! Sessions and their index by expiry.

use std::collections::BTreeSet;

use remanent::{BlinkTree, HashMap, Key, OrderedKey, Stored};

use super::support::{Program, assert_whole, directory};

const VISITORS: &str = "20000";

/// As the example stores it: the pool refuses to be read with other fields.
#[derive(Clone, Stored)]
struct Session {
    user: u64,
    expires_unix_ms: u64,
}

#[derive(Clone, Stored, Key, OrderedKey)]
struct Expiry {
    unix_ms: u64,
    token: String,
}

/// Panics unless the index has each session under its expiry, and nothing else. Returns the tokens
/// of the sessions.
fn tokens_of_consistent_store(program: &Program) -> BTreeSet<String> {
    let pool = program.open_whole_pool();
    let sessions = HashMap::<str, Session>::open(&pool, "sessions").expect("the map opens");
    let index =
        BlinkTree::<Expiry, ()>::open(&pool, "sessions by expiry").expect("the index opens");
    assert_whole(sessions.check().expect("it is read"));
    assert_whole(index.check().expect("it is read"));
    let by_token: BTreeSet<(String, u64)> = sessions
        .iter()
        .map(|entry| entry.expect("it is read"))
        .map(|(token, session)| (token, session.expires_unix_ms))
        .collect();
    let by_expiry: BTreeSet<(String, u64)> = index
        .keys()
        .map(|key| key.expect("it is read"))
        .map(|expiry| (expiry.token, expiry.unix_ms))
        .collect();
    assert_eq!(by_token, by_expiry);
    for (token, session) in sessions.iter().map(|entry| entry.expect("it is read")) {
        assert_eq!(token, format!("token {}", session.user));
    }
    by_token.into_iter().map(|(token, _)| token).collect()
}

#[test]
fn the_index_follows_the_sessions_through_kills() {
    let directory = directory();
    let program = Program::new("session_store", directory.path());
    for round in 1..=10 {
        let printed = program.run_until_killed(&["simulate", VISITORS], String::new(), 200 * round);
        let tokens = tokens_of_consistent_store(&program);
        assert!(printed.iter().any(|line| line.starts_with("ended ")), "nobody left: {printed:?}");
        let prolonged: Vec<&str> =
            printed.iter().filter_map(|line| line.strip_prefix("prolonged ")).collect();
        assert!(!prolonged.is_empty());
        for token in prolonged {
            assert!(tokens.contains(token), "the session of {token} was acknowledged, and is gone");
        }
    }
}

#[test]
fn a_session_starts_stays_and_ends() {
    let directory = directory();
    let program = Program::new("session_store", directory.path());
    let run = |arguments: &[&str]| program.run(arguments, String::new()).join("\n");
    let users = || tokens_of_consistent_store(&program).len();
    assert_eq!(run(&["start", "token 1", "1", "3600"]), "started");
    assert_eq!(run(&["start", "token 1", "1", "3600"]), "the token is taken");
    assert_eq!(run(&["start", "token 2", "2", "0"]), "started");
    assert_eq!(run(&["prolong", "token 2", "3600"]), "no such session"); // it has expired
    assert_eq!(users(), 2);
    assert_eq!(run(&["expire"]), "1 sessions had expired");
    assert_eq!(run(&["prolong", "token 1", "7200"]), "prolonged");
    let listed = run(&["list"]);
    assert!(listed.ends_with(" token 1 of user 1") && listed.lines().count() == 1, "{listed}");
    assert_eq!(users(), 1);
    assert_eq!(run(&["end", "token 1"]), "ended");
    assert_eq!(run(&["end", "token 1"]), "no such session");
    assert_eq!(users(), 0);
}
