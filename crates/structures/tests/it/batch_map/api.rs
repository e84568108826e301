//! What the map offers beyond single reads and writes.

use remanent_structures::{BatchMap, BatchOptions, Change, Result};

use crate::support::{options, scratch};

#[test]
fn entries_are_exchanged_kept_and_iterated_as_in_other_maps() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let map: BatchMap<str, str> = BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
    assert_eq!(map.extend([("a", "1"), ("b", "2"), ("a", "3")]).unwrap(), 2);
    assert_eq!(map.swap("a", "4").unwrap().as_deref(), Some("3"));
    assert_eq!(map.compare_exchange("a", Some("3"), None).unwrap(), Err(Some("4".to_owned())));
    assert_eq!(map.compare_exchange("a", Some("4"), Some("5")).unwrap(), Ok(()));
    assert_eq!(map.get_or_insert_with("c", || "6".to_owned()).unwrap(), "6");
    assert_eq!(map.get_or_insert_with("c", || unreachable!()).unwrap(), "6");
    let refused = map.try_modify("b", |_| Err::<(Change<&str>, ()), _>("no"));
    assert_eq!(refused.unwrap(), Err("no"));
    let mut keys = map.keys().collect::<Result<Vec<_>>>().unwrap();
    keys.sort();
    assert_eq!(keys, ["a", "b", "c"]);
    let mut values = map.values().collect::<Result<Vec<_>>>().unwrap();
    values.sort();
    assert_eq!(values, ["2", "5", "6"]);
    assert_eq!(map.retain(|key, value| key == "a" && value == "5").unwrap(), 2);
    drop((map, pool));

    let pool = options().open(&path).unwrap();
    let map: BatchMap<str, str> = BatchMap::open(&pool, "map", BatchOptions::default()).unwrap();
    let entries = (&map).into_iter().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(entries, [("a".to_owned(), "5".to_owned())]);
}
