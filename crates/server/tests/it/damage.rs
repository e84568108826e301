//! What clients are told of entries that have changed in the pool.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::pool::Format;
use remanent_pmem::{Medium, Pool};
use remanent_server::store::{Change, TREE_ROOT};
use remanent_server::{Keyspace, MapStore, Store, check_collections};
use remanent_structures::BlinkTree;

use super::session::Connection;

const SIZE_MAX: u64 = 64 << 20;

/// Flips a bit of every word that holds these bytes, and returns how many there are.
fn damage(pool: &Pool<Arc<Sim>>, bytes: &[u8; 8]) -> usize {
    let medium = pool.medium();
    let word = u64::from_le_bytes(*bytes);
    let found: Vec<u64> =
        (0..medium.len()).step_by(8).filter(|&at| medium.load(at) == word).collect();
    found.iter().for_each(|&at| medium.store(at, word ^ 1 << 17));
    found.len()
}

fn pool() -> Pool<Arc<Sim>> {
    let sim = Arc::new(Sim::new(SimOptions { capacity: SIZE_MAX, ..SimOptions::default() }));
    Pool::format(sim, &Format::new(SIZE_MAX)).unwrap()
}

#[test]
fn a_client_is_told_which_entry_has_changed_and_goes_on() {
    let pool = pool();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    connection.exchange("SET other whole");
    connection.exchange("SET key 0123456789abcdefghijklmnopqrstuvwxyz0123456789");
    // Wherever the value begins, some word lies inside of it.
    let value = b"0123456789abcdefghijklmnopqrstuvwxyz0123456789";
    let medium = pool.medium();
    let words: Vec<u64> = (0..medium.len()).step_by(8).map(|at| medium.load(at)).collect();
    let inside = (10..20)
        .map(|from| value[from..from + 8].try_into().unwrap())
        .find(|bytes| words.contains(&u64::from_le_bytes(*bytes)));
    assert_eq!(damage(&pool, &inside.unwrap()), 1);
    let answer = connection.exchange("GET key");
    for part in ["structure \"redis entries\"", "offset 0x", "restore the pool from a backup"] {
        assert!(answer.starts_with('-') && answer.contains(part), "{answer}");
    }
    assert!(connection.exchange("GET other").contains("whole"));
    assert!(connection.exchange("PING").contains("PONG"));
}

/// The last change of a set stays on record, and is made again when the server starts.
#[test]
fn a_damaged_set_keeps_no_other_from_being_served() {
    let pool = pool();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    let member = "0123456789".repeat(8);
    let sets = 64;
    for set in 0..sets {
        connection.exchange(&format!("ZADD set{set} 1 first"));
        connection.exchange(&format!("ZADD set{set} 2 second"));
    }
    connection.exchange("ZADD damaged 1 first");
    assert_eq!(connection.exchange(&format!("ZADD damaged 2 {member}")), ":1\r\n");
    drop(connection);
    // Wherever the member begins, in its entries, which are the last of all, and on record.
    let damaged: usize = (0..10)
        .map(|from| damage(&pool, member.as_bytes()[from..from + 8].try_into().unwrap()))
        .sum();
    assert!(damaged >= 3, "{damaged} words");
    let pool = reopened(pool);
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    let answer = connection.exchange("ZADD damaged 3 third");
    assert!(answer.starts_with('-'), "{answer}");
    let whole = (0..sets).filter(|set| {
        let range = connection.exchange(&format!("ZRANGE set{set} 0 -1"));
        let is_whole = range == "*2\r\n$5\r\nfirst\r\n$6\r\nsecond\r\n";
        is_whole && connection.exchange(&format!("ZADD set{set} 3 third")) == ":1\r\n"
    });
    // Others are refused: those of the same 256th of all keys, and new members that belong where
    // something is damaged, and may be what it was.
    assert!(whole.count() >= 48);
    assert!(connection.exchange("SET key value").contains("OK"));
    // New sets belong into the last leaf of the tree, which is damaged.
    assert!(connection.exchange("ZADD new 1 member").contains("damaged"));
}

/// As the next process finds the pool.
fn reopened(pool: Pool<Arc<Sim>>) -> Pool<Arc<Sim>> {
    let sim = Arc::clone(pool.medium());
    drop(pool);
    Pool::recover(sim).unwrap()
}

/// The sweeper knows by its name whether a set is gone.
#[test]
fn a_set_whose_name_is_lost_is_not_swept() {
    let pool = pool();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    connection.exchange("ZADD set 1 one 2 two");
    connection.exchange("ZADD gone 1 one 2 two");
    drop(connection);
    let tree = Tree::open(&pool, TREE_ROOT).unwrap();
    for name in [b"set", &b"gone"[..]] {
        let mut key = None;
        let visit = |found: &[u8], value: &[u8]| match value == name {
            true => {
                key = Some(found.to_vec());
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        };
        tree.ascend(.., visit).unwrap();
        assert_eq!(tree.remove(&key.unwrap()[..]).unwrap().as_deref(), Some(name));
    }
    drop(tree);
    let store = MapStore::open(&pool).unwrap();
    store.modify(b"gone", |_| (Change::<&[u8]>::Remove, ())).unwrap();
    drop(store);
    let pool = reopened(pool);
    let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
    assert_eq!(keys.sweep(|| false).unwrap(), 1);
    assert_eq!(keys.check().unwrap().len(), 1, "it has no name");
    drop(keys);
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    let set = "*2\r\n$3\r\none\r\n$3\r\ntwo\r\n";
    assert_eq!(connection.exchange("ZRANGE set 0 -1"), set);
    assert_eq!(connection.exchange("EXISTS gone"), ":0\r\n");
}

/// Nothing is left of what their last changes were about.
#[test]
fn sets_that_are_gone_do_not_contradict_their_last_changes() {
    let pool = pool();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    for commands in [
        ["ZADD removed 1 member", "ZADD removed 2 member", "DEL removed"],
        ["ZADD replaced 1 member", "ZADD replaced 2 member", "SET replaced value"],
        ["ZADD emptied 1 one 2 two", "ZREM emptied one", "ZREM emptied two"],
    ] {
        commands.iter().for_each(|command| drop(connection.exchange(command)));
    }
    drop(connection);
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    for set in ["removed", "emptied"] {
        assert_eq!(connection.exchange(&format!("ZADD {set} 1 member")), ":1\r\n");
    }
    assert_eq!(connection.exchange("GET replaced"), "$5\r\nvalue\r\n");
}

type Tree = BlinkTree<[u8], [u8], Arc<Sim>>;

/// As a page of memory that has not been written leaves it.
#[test]
fn an_older_record_of_a_change_is_not_made_again() {
    let pool = pool();
    let run = |commands: &[&str]| {
        let mut connection = Connection::to(MapStore::open(&pool).unwrap());
        let answers = commands.iter().map(|command| connection.exchange(command));
        answers.collect::<Vec<_>>().concat()
    };
    let entries = || {
        let mut entries = BTreeMap::new();
        let tree = Tree::open(&pool, TREE_ROOT).unwrap();
        let visit = |key: &[u8], value: &[u8]| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        tree.ascend(.., visit).unwrap();
        entries
    };
    run(&["ZADD set 1 member"]);
    run(&["ZADD set 2 member"]);
    let older = entries();
    run(&["ZADD set 3 member"]);
    // The record names the set and the member, whose own entry has a score alone.
    let (key, value) = older
        .into_iter()
        .filter(|(key, value)| entries().get(key).is_some_and(|now| now != value))
        .max_by_key(|(_, value)| value.len())
        .unwrap();
    assert!(value.len() > 8);
    Tree::open(&pool, TREE_ROOT).unwrap().put(&key, &value).unwrap();
    let answer = run(&["ZSCORE set member"]);
    assert!(answer.starts_with('-') && answer.contains("backup"), "{answer}");
    assert_eq!(run(&["SET key value", "GET key"]), "+OK\r\n$5\r\nvalue\r\n");
    let found = check_collections(&pool).unwrap();
    assert!(found.iter().any(|what| what.contains("sorted set set ")), "{found:?}");
    assert_eq!(run(&["DEL set"]), ":1\r\n");
    assert_eq!(run(&["ZADD set 1 again", "ZSCORE set again"]), ":1\r\n$1\r\n1\r\n");
    assert_eq!(check_collections(&pool).unwrap(), Vec::<String>::new());
}
