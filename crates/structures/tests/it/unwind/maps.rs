//! Panics in what maps are given: closures, and values that are borrowed.

use std::borrow::Borrow;
use std::panic::RefUnwindSafe;

use remanent_structures::papers::{BpMultiTree, BpTree};
use remanent_structures::{
    BatchMap, BatchOptions, BlinkTree, Change, ExtendibleMultiMap, HashMap, HashMultiMap, Map,
};

use super::{fail, panics, pool};

/// Stands for a value, and panics when it is looked at.
struct Unborrowable;

impl Borrow<[u8]> for Unborrowable {
    fn borrow(&self) -> &[u8] {
        fail()
    }
}

impl Borrow<u64> for Unborrowable {
    fn borrow(&self) -> &u64 {
        fail()
    }
}

/// A map of one entry, and a key that it does not have.
struct OneEntry<'m, T, K: ?Sized, V: ?Sized> {
    map: &'m T,
    key: &'m K,
    absent: &'m K,
    value: &'m V,
}

impl<T, K, V> OneEntry<'_, T, K, V>
where
    T: Map<K, V> + RefUnwindSafe,
    K: remanent_structures::Key + Sync + RefUnwindSafe + ?Sized,
    V: remanent_structures::Stored + Sync + RefUnwindSafe + ?Sized,
    V::Owned: PartialEq + std::fmt::Debug,
    Unborrowable: Borrow<V>,
{
    /// Panics wherever the map calls code of its user.
    fn outlives_panics(&self) {
        let Self { map, key, absent, value } = *self;
        map.put(key, value).unwrap();
        panics(|| map.get_with(key, |_| fail()));
        panics(|| map.for_each(|_, _| fail()));
        for key in [key, absent] {
            panics(|| map.modify(key, |_| -> (Change<V::Owned>, ()) { fail() }));
            panics(|| map.modify(key, |_| (Change::Put(Unborrowable), ())));
        }
        self.is_as_it_was();
    }

    /// The map has its entry and no other, and others can change it.
    fn is_as_it_was(&self) {
        let Self { map, key, absent, value } = *self;
        assert_eq!(map.get(key).unwrap(), Some(value.to_owned()));
        assert_eq!((map.get(absent).unwrap(), map.len().unwrap()), (None, 1));
        assert_eq!(map.check().unwrap(), []);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(map.put(absent, value).unwrap() && map.discard(key).unwrap());
                assert!(map.put(key, value).unwrap() && map.discard(absent).unwrap());
            });
        });
        assert_eq!((map.len().unwrap(), map.check().unwrap()), (1, vec![]));
    }
}

const LONG: &[u8] = b"a value of more than a word";

fn entry_of_bytes<T>(map: &T) -> OneEntry<'_, T, str, [u8]> {
    OneEntry { map, key: "key", absent: "absent", value: LONG }
}

fn entry_of_words<T>(map: &T) -> OneEntry<'_, T, u64, u64> {
    OneEntry { map, key: &7, absent: &8, value: &70 }
}

#[test]
fn a_hash_map_outlives_panics() {
    let pool = pool();
    entry_of_bytes(&HashMap::create(&pool, "bytes").unwrap()).outlives_panics();
    entry_of_words(&HashMap::create(&pool, "words").unwrap()).outlives_panics();
}

#[test]
fn a_blink_tree_outlives_panics() {
    let pool = pool();
    let words = BlinkTree::create(&pool, "words").unwrap();
    entry_of_words(&words).outlives_panics();
    let tree: BlinkTree<str, [u8]> = BlinkTree::create(&pool, "bytes").unwrap();
    let entry = entry_of_bytes(&tree);
    entry.outlives_panics();
    panics(|| tree.ascend(.., |_: &str, _: &[u8]| fail()));
    panics(|| tree.descend(.., |_: &str, _: &[u8]| fail()));
    panics(|| tree.bulk_load(["z"].into_iter().map(|key| (key, Unborrowable))));
    entry.is_as_it_was();
    // What an iterator gave before it panicked is there, as far as whole leaves of it were written.
    let numbers =
        (100..1000_u64).map(|number| if number < 900 { (number, number) } else { fail() });
    panics(|| words.bulk_load(numbers.clone()));
    let loaded: Vec<u64> = words.range(100..).map(|entry| entry.unwrap().0).collect();
    assert!(loaded.len() > 600 && (100..).zip(&loaded).all(|(one, other)| one == *other));
    assert_eq!(Map::check(&words).unwrap(), []);
}

#[test]
fn a_batched_map_outlives_panics() {
    let pool = pool();
    for options in [BatchOptions::default(), BatchOptions::without_thread()] {
        let name = format!("with thread: {}", options.background);
        let map: BatchMap<str, [u8]> = BatchMap::create(&pool, &name, options).unwrap();
        entry_of_bytes(&map).outlives_panics();
        map.sync().unwrap();
    }
}

#[test]
fn the_versioned_tree_outlives_panics() {
    entry_of_words(&BpTree::create(&pool(), "words").unwrap()).outlives_panics();
}

#[test]
fn maps_of_many_values_outlive_panics() {
    let pool = pool();
    let map: HashMultiMap<str, u64> = HashMultiMap::create(&pool, "hash").unwrap();
    let chains: ExtendibleMultiMap<str, u64> = ExtendibleMultiMap::create(&pool, "chains").unwrap();
    let tree: BpMultiTree<u64, u64> = BpMultiTree::create(&pool, "tree").unwrap();
    for value in [1, 2] {
        map.insert("key", &value).unwrap();
        chains.insert("key", &value).unwrap();
        tree.insert(&7, &value).unwrap();
    }
    panics(|| map.for_each("key", |_| fail()));
    panics(|| map.scan(0, 10, |_, _| fail()));
    panics(|| chains.for_each("key", |_| fail()));
    panics(|| chains.scan(0, 10, |_, _| fail()));
    assert!(chains.remove_one("key", &1).unwrap());
    assert_eq!((chains.get_all("key").unwrap(), chains.check().unwrap()), (vec![2], vec![]));
    panics(|| tree.for_each(&7, |_| fail()));
    panics(|| tree.ascend(.., |_, _| fail()));
    assert!(map.remove_one("key", &1).unwrap() && tree.remove_one(&7, &1).unwrap());
    assert_eq!((map.get_all("key").unwrap(), tree.get_all(&7).unwrap()), (vec![2], vec![2]));
    assert_eq!((map.check().unwrap(), tree.check().unwrap()), (vec![], vec![]));
}
