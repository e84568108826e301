//! What commands cost in fences.

use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;
use remanent_server::MapStore;

use super::session::Connection;

const SIZE_MAX: u64 = 64 << 20;

#[test]
fn commands_on_sorted_sets_cost_their_budget() {
    let sim = Arc::new(Sim::new(SimOptions { capacity: SIZE_MAX, ..SimOptions::default() }));
    let pool = Pool::format(sim, &Format::new(SIZE_MAX)).unwrap();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    connection.exchange("ZADD z 0 first 0 second");
    // Memory of each length, which the first who asks for it pays for.
    connection.exchange("ZADD other 1 one 2 two 3 three");
    connection.exchange("SET another value");
    let mut cost = |request: &str| {
        pool.medium().reset_counters();
        let answer = connection.exchange(request);
        assert!(!answer.starts_with('-'), "{answer}");
        pool.medium().counters().fences
    };
    let budget = [
        ("ZADD z 1 member", 4),
        ("ZADD z 1 member", 0),
        ("ZADD z 2 member", 6),
        ("ZINCRBY z 3 member", 6),
        ("ZADD z 1 one 2 two 3 three", 4),
        ("ZREM z one two", 4),
        ("ZPOPMIN z", 4),
        ("ZSCORE z member", 0),
        ("ZRANK z member", 0),
        ("ZRANGE z 0 -1", 0),
        ("SET string value", 2),
        // A set that begins, with its name in two places, and one that ends.
        ("ZADD new 1 member", 8),
        ("ZADD newer 1 one 2 two", 8),
        ("ZREM new member", 7),
    ];
    assert_eq!(budget.map(|(request, _)| (request, cost(request))), budget);
}
