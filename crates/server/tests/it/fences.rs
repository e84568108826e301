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

/// Sixteen members share fences.
#[test]
fn many_members_cost_their_budget() {
    let sim = Arc::new(Sim::new(SimOptions { capacity: SIZE_MAX, ..SimOptions::default() }));
    let pool = Pool::format(sim, &Format::new(SIZE_MAX)).unwrap();
    let mut connection = Connection::to(MapStore::open(&pool).unwrap());
    connection.exchange("ZADD z 0 first 0 second 0 third");
    let mut cost = |request: &str| {
        pool.medium().reset_counters();
        let answer = connection.exchange(request);
        assert!(!answer.starts_with('-'), "{answer}");
        pool.medium().counters().fences
    };
    let named = |score: &str, count: usize| {
        (0..count).map(|number| format!(" {score}member{number}")).collect::<String>()
    };
    // Now and then memory takes one more, and leaves are divided when members first come.
    let assert_budget = |fences: u64, budget: u64, what: &str| {
        assert!((budget..=budget + 1).contains(&fences), "{what}: {fences}, not {budget}");
    };
    for (count, budget) in [(16, 4), (17, 6)] {
        let (add, remove) = (named("1 ", count), named("", count));
        let mut both = || [cost(&format!("ZADD z{add}")), cost(&format!("ZREM z{remove}"))];
        both();
        for (fences, what) in both().into_iter().zip(["added", "removed"]) {
            assert_budget(fences, budget, &format!("{count} members {what}"));
        }
    }
    let long = "x".repeat(5_000);
    let mut both = || [cost(&format!("ZADD z 1 {long}")), cost(&format!("ZREM z {long}"))];
    both();
    for fences in both() {
        assert_budget(fences, 6, "the intent is removed");
    }
}
