//! Fences are the currency: each operation costs what the documentation says, and no more.

use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_pmem::pool::Guarantee;
use remanent_structures::{Change, HashMap, HashMultiMap, Key, Stored};

use crate::support::{fences, sim_pool};

/// Operations over which the cost is amortised.
const MANY: u64 = 100_000;

fn pool() -> Pool<Arc<Sim>> {
    sim_pool(Guarantee::default())
}

/// Mean number of fences of an action, as it is done for 0, 1, 2, …
fn mean_fences(pool: &Pool<Arc<Sim>>, count: u64, action: impl FnMut(u64)) -> f64 {
    fences(pool, || (0..count).for_each(action)) as f64 / count as f64
}

/// A map in its steady state: a chunk to allocate from is there, and nothing is due.
fn steady<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool<Arc<Sim>>,
    entries: &[(&K, &V)],
) -> HashMap<K, V, Arc<Sim>> {
    let map = HashMap::<K, V, Arc<Sim>>::create(pool, "map").unwrap();
    for &(key, value) in entries {
        assert!(map.insert(key, value).unwrap());
    }
    map
}

#[test]
fn every_operation_on_words_costs_its_budget() {
    let pool = pool();
    let map = steady::<u64, u64>(&pool, &[(&1000, &0), (&1001, &0)]);
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 0..8 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    cost("insert", 2, &mut |key| assert!(map.insert(&key, &key).unwrap()));
    cost("insert of a present key", 0, &mut |key| assert!(!map.insert(&key, &0).unwrap()));
    cost("get", 0, &mut |key| assert_eq!(map.get(&key).unwrap(), Some(key)));
    cost("get of an absent key", 0, &mut |key| assert_eq!(map.get(&(key + 50)).unwrap(), None));
    cost("contains", 0, &mut |key| assert!(map.contains(&key).unwrap()));
    cost("update", 1, &mut |key| assert!(map.update(&key, &(key + 1)).unwrap()));
    cost("update of an absent key", 0, &mut |key| assert!(!map.update(&(key + 50), &0).unwrap()));
    cost("put of a present key", 1, &mut |key| assert!(!map.put(&key, &key).unwrap()));
    cost("put of a new key", 2, &mut |key| assert!(map.put(&(key + 100), &key).unwrap()));
    cost("modify", 1, &mut |key| {
        map.modify(&key, |value| (Change::Put(value.unwrap() + 1), ())).unwrap();
    });
    cost("remove", 1, &mut |key| assert_eq!(map.remove(&key).unwrap(), Some(key + 1)));
    cost("discard", 1, &mut |key| assert!(map.discard(&(key + 100)).unwrap()));
    cost("remove of an absent key", 0, &mut |key| assert_eq!(map.remove(&key).unwrap(), None));
    cost("insert into the place of a removed one", 2, &mut |key| {
        assert!(map.insert(&key, &key).unwrap());
    });
}

#[test]
fn a_longer_value_is_replaced_for_two_fences() {
    let pool = pool();
    let map = steady::<[u8], [u8]>(&pool, &[(b"one", &[1; 24]), (b"two", &[2; 24])]);
    for stamp in 0..8 {
        assert_eq!(fences(&pool, || assert!(!map.put(b"one", &[stamp; 24]).unwrap())), 2);
        assert_eq!(fences(&pool, || assert!(map.update(b"two", &[stamp; 25]).unwrap())), 2);
        assert_eq!(fences(&pool, || drop(map.get(b"one").unwrap())), 0);
    }
    assert_eq!(fences(&pool, || assert!(map.discard(b"one").unwrap())), 1);
}

#[test]
fn a_multi_map_costs_the_same() {
    let pool = pool();
    let map = HashMultiMap::<u64, u64, Arc<Sim>>::create(&pool, "map").unwrap();
    map.insert(&1, &0).unwrap();
    for value in 1..8 {
        assert_eq!(fences(&pool, || map.insert(&1, &value).unwrap()), 2);
        assert_eq!(fences(&pool, || drop(map.get_all(&1).unwrap())), 0);
    }
    for value in 1..8 {
        assert_eq!(fences(&pool, || assert!(map.remove_one(&1, &value).unwrap())), 1);
    }
}

/// With everything that happens now and then: chunks taken and given back, batches freed, the file and
/// the bucket array grown.
#[test]
fn budgets_hold_over_many_operations() {
    let pool = pool();
    let map = HashMap::<u64, u64, Arc<Sim>>::create(&pool, "map").unwrap();
    let hold = |what: &str, max: f64, mean: f64| {
        assert!(mean <= max, "{what}: {mean} fences on average, {max} at most");
    };
    let insert = mean_fences(&pool, MANY, |key| assert!(map.insert(&key, &key).unwrap()));
    hold("insert", 2.1, insert);
    assert!(map.bucket_count() >= MANY / 2, "the bucket array did not grow");
    hold("get", 0.0, mean_fences(&pool, MANY, |key| assert!(map.contains(&key).unwrap())));
    let update = mean_fences(&pool, MANY, |key| assert!(map.update(&key, &1).unwrap()));
    hold("update", 1.01, update);
    hold("remove", 1.15, mean_fences(&pool, MANY, |key| assert!(map.discard(&key).unwrap())));
    assert_eq!(map.check().unwrap(), []);

    let values = HashMap::<u64, [u8], Arc<Sim>>::create(&pool, "values").unwrap();
    values.insert(&1, &[0; 40]).unwrap();
    let replace = mean_fences(&pool, MANY / 10, |stamp| {
        assert!(!values.put(&1, &[stamp as u8; 40]).unwrap());
    });
    hold("put in the place of a longer value", 2.15, replace);
}
