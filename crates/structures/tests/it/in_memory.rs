//! Structures in a pool that has no file.

use remanent_pmem::Pool;
use remanent_structures::{BlinkTree, HashMap, Map, OrderedMap};

#[test]
fn maps_live_in_anonymous_memory() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let by_name: HashMap<str, u64> = HashMap::create(&pool, "by name").unwrap();
    let by_number: BlinkTree<u64, str> = BlinkTree::create(&pool, "by number").unwrap();
    for number in 0..10_000_u64 {
        let name = format!("name {number}");
        by_name.insert(&name, &number).unwrap();
        by_number.insert(&number, &name).unwrap();
    }
    assert_eq!(by_name.get("name 77").unwrap(), Some(77));
    assert_eq!(by_number.get(&77).unwrap().as_deref(), Some("name 77"));
    let first = OrderedMap::range(&by_number, 9_998..).map(|entry| entry.unwrap().0);
    assert_eq!(first.collect::<Vec<_>>(), [9_998, 9_999]);
    assert_eq!(Map::check(&by_name).unwrap(), []);
    assert_eq!(Map::check(&by_number).unwrap(), []);
    // Reopened within the process, as a root of any other pool.
    drop((by_name, by_number));
    let by_name: HashMap<str, u64> = HashMap::open(&pool, "by name").unwrap();
    assert_eq!(by_name.len().unwrap(), 10_000);
}
