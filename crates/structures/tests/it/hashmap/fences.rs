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
fn what_is_built_on_modify_costs_what_it_comes_to() {
    let pool = pool();
    let map = steady::<u64, u64>(&pool, &[(&1000, &0), (&1001, &0)]);
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 0..8 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    let exchange = |key: u64, expected: Option<u64>, new: Option<u64>| {
        map.compare_exchange(&key, expected.as_ref(), new.as_ref()).unwrap()
    };
    cost("get or insert", 2, &mut |key| {
        assert_eq!(map.get_or_insert_with(&key, || 1).unwrap(), 1);
    });
    cost("get or insert of a present key", 0, &mut |key| {
        assert_eq!(map.get_or_insert_with(&key, || unreachable!()).unwrap(), 1);
    });
    cost("swap", 1, &mut |key| assert_eq!(map.swap(&key, &2).unwrap(), Some(1)));
    cost("swap of a new key", 2, &mut |key| assert_eq!(map.swap(&(key + 100), &2).unwrap(), None));
    cost("exchange", 1, &mut |key| assert_eq!(exchange(key, Some(2), Some(3)), Ok(())));
    cost("exchange that fails", 0, &mut |key| {
        assert_eq!(exchange(key, Some(2), Some(4)), Err(Some(3)));
        assert_eq!(exchange(key + 50, Some(2), Some(4)), Err(None));
        assert_eq!(exchange(key + 50, None, None), Ok(()));
    });
    cost("exchange with nothing", 1, &mut |key| assert_eq!(exchange(key, Some(3), None), Ok(())));
    cost("exchange of nothing", 2, &mut |key| assert_eq!(exchange(key, None, Some(5)), Ok(())));
    cost("change that may fail", 1, &mut |key| {
        let add = |found: Option<&u64>| Ok::<_, ()>((Change::Put(found.unwrap() + 1), ()));
        assert_eq!(map.try_modify(&key, add).unwrap(), Ok(()));
    });
    cost("change that fails", 0, &mut |key| {
        let refuse = |_: Option<&u64>| Err::<(Change<u64>, ()), _>("no");
        assert_eq!(map.try_modify(&key, refuse).unwrap(), Err("no"));
    });
    let retain = fences(&pool, || assert_eq!(map.retain(|_, value| *value != 6).unwrap(), 8));
    assert_eq!(retain, 8, "an entry that is removed costs one, one that is kept none");
    let extend = fences(&pool, || assert_eq!(map.extend([(1, 1), (2, 2), (1000, 3)]).unwrap(), 2));
    assert_eq!(extend, 2 + 2 + 1);
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

/// Includes rare events: chunks taken and given back, batches freed, the file and the bucket array
/// grown.
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
