//! The members of sets that are gone, and who removes them.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use remanent_pmem::{Mapped, Pool};
use remanent_server::{Config, Keyspace, MapStore, Shared, Store};

use super::session::{Connection, shared};

/// Members of a set, which make several batches of those that are removed at a time.
const MEMBERS: u64 = 3000;

/// A server without sockets, with a long set.
fn with_long_set(directory: &tempfile::TempDir) -> Arc<Shared<MapStore>> {
    let path = directory.path().join("pool");
    let pool: Pool<Mapped> = Pool::options().size_max(256 << 20).create(path).unwrap();
    let shared = shared(MapStore::open(&pool).unwrap(), Config::default());
    let members: String = (0..MEMBERS).map(|member| format!(" {member} m{member}")).collect();
    let mut connection = Connection::on(Arc::clone(&shared));
    assert_eq!(connection.exchange(&format!("ZADD long{members}")), format!(":{MEMBERS}\r\n"));
    shared
}

/// Entries of the tree; one of them is the note of which numbers are taken.
fn entries(shared: &Shared<MapStore>) -> u64 {
    shared.keys().store().tree().unwrap().len().unwrap()
}

#[test]
fn members_are_left_to_the_sweeper() {
    let directory = tempfile::tempdir().unwrap();
    let shared = with_long_set(&directory);
    let mut connection = Connection::on(Arc::clone(&shared));
    shared.keys().defer_sweeping();
    assert_eq!(connection.exchange("DEL long"), ":1\r\n");
    assert_eq!(entries(&shared), 2 + 2 * MEMBERS);
    // The name is free at once, and what it names now is not what goes.
    assert_eq!(connection.exchange("ZADD long 1 other"), ":1\r\n");
    shared.keys().sweep_gone(|| false).unwrap();
    assert_eq!(entries(&shared), 4);
    assert_eq!(connection.exchange("ZRANGE long 0 -1"), "*1\r\n$5\r\nother\r\n");
    assert_eq!(shared.keys().check().unwrap(), Vec::<String>::new());
}

#[test]
fn the_sweeper_stops_between_two_members_of_a_set() {
    let directory = tempfile::tempdir().unwrap();
    let shared = with_long_set(&directory);
    let mut connection = Connection::on(Arc::clone(&shared));
    shared.keys().defer_sweeping();
    assert_eq!(connection.exchange("SET long string"), "+OK\r\n");
    let asked = Cell::new(0);
    let is_over = || asked.replace(asked.get() + 1) == 4;
    shared.keys().sweep_gone(is_over).unwrap();
    let left = entries(&shared);
    assert!(left > MEMBERS && left < 2 * MEMBERS, "{left} entries are left");
    drop((connection, shared));
    // As at the next start.
    let pool = Pool::options().open(directory.path().join("pool")).unwrap();
    let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
    assert_eq!(keys.sweep(|| false).unwrap(), 1);
    assert_eq!(keys.store().tree().unwrap().len().unwrap(), 1);
    assert_eq!(keys.sweep(|| false).unwrap(), 0);
}

#[test]
fn a_thread_sweeps_until_it_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let shared = with_long_set(&directory);
    let swept = Arc::clone(&shared);
    let sweeper = thread::spawn(move || swept.keys().run_sweeper());
    let mut connection = Connection::on(Arc::clone(&shared));
    assert_eq!(connection.exchange("DEL long"), ":1\r\n");
    let start = Instant::now();
    while entries(&shared) > 1 {
        assert!(start.elapsed() < Duration::from_secs(30), "nobody removes the members");
        thread::sleep(Duration::from_millis(1));
    }
    shared.keys().stop_sweeper();
    sweeper.join().unwrap();
    // What is taken away now is for the next start.
    assert_eq!(connection.exchange("ZADD z 1 a"), ":1\r\n");
    assert_eq!(connection.exchange("DEL z"), ":1\r\n");
    assert_eq!(entries(&shared), 4);
}
