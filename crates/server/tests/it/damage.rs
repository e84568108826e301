//! What clients are told of entries that have changed in the pool.

use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::pool::Format;
use remanent_pmem::{Medium, Pool};
use remanent_server::MapStore;

use super::session::Connection;

const SIZE_MAX: u64 = 64 << 20;

/// Flips a bit of the only word that holds these bytes.
fn damage(pool: &Pool<Arc<Sim>>, bytes: &[u8; 8]) {
    let medium = pool.medium();
    let word = u64::from_le_bytes(*bytes);
    let found: Vec<u64> =
        (0..medium.len()).step_by(8).filter(|&at| medium.load(at) == word).collect();
    assert_eq!(found.len(), 1, "{bytes:?}");
    medium.store(found[0], word ^ 1 << 17);
}

#[test]
fn a_client_is_told_which_entry_has_changed_and_goes_on() {
    let sim = Arc::new(Sim::new(SimOptions { capacity: SIZE_MAX, ..SimOptions::default() }));
    let pool = Pool::format(sim, &Format::new(SIZE_MAX)).unwrap();
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
    damage(&pool, &inside.unwrap());
    let answer = connection.exchange("GET key");
    for part in ["structure \"redis entries\"", "offset 0x", "restore the pool from a backup"] {
        assert!(answer.starts_with('-') && answer.contains(part), "{answer}");
    }
    assert!(connection.exchange("GET other").contains("whole"));
    assert!(connection.exchange("PING").contains("PONG"));
}
