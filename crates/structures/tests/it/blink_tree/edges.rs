//! What only certain keys, certain memory or certain moments bring about.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc;

use remanent_pmem::{Medium, Pool};
use remanent_structures::{BlinkTree, Key, OrderedKey, Stored};

use crate::support::{options, scratch};

/// The tag of a leaf where it lies in a leaf, as the beginning of a key.
const LEAF_TAG: u64 = 0x4c45_4146 << 32;

/// A word of few entries a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Few(pub(super) u64);

impl Stored for Few {
    fn type_name() -> String {
        "Few".to_owned()
    }
    const LEN: Option<u32> = Some(8);
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(use_bytes)
    }
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |word| use_value(&Few(*word)))
    }
}
impl Key for Few {}
impl OrderedKey for Few {
    const NODE_ENTRIES_MAX: usize = 4;
    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_ordered(use_bytes)
    }
    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        u64::from_ordered(bytes, |word| use_key(&Few(*word)))
    }
}

/// As [`Few`], of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FewBytes(pub(super) Vec<u8>);

impl Stored for FewBytes {
    fn type_name() -> String {
        "FewBytes".to_owned()
    }
    const LEN: Option<u32> = None;
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&FewBytes(bytes.to_vec()))
    }
}
impl Key for FewBytes {}
impl OrderedKey for FewBytes {
    const NODE_ENTRIES_MAX: usize = 4;
    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }
    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        use_key(&FewBytes(bytes.to_vec()))
    }
}

/// Opens a copy of a pool that is in use, which is to it as if the process had been killed.
fn open_copy(path: &Path) -> Pool {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    options().open(&copy).unwrap()
}

fn keys_of<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium>(
    tree: &BlinkTree<K, V, M>,
) -> Vec<K::Owned> {
    let mut keys = Vec::new();
    tree.ascend(.., |key, _| {
        keys.push(key.to_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    keys
}

#[test]
fn a_new_tree_takes_nothing_from_leaves_that_lay_in_its_memory() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    {
        let pool = options().create(&path).unwrap();
        let before: BlinkTree<str, u64> = BlinkTree::create(&pool, "before").unwrap();
        for number in 0..20_000 {
            before.insert(&format!("with a common beginning {number:06}"), &number).unwrap();
        }
        drop(before);
        pool.remove_root("before").unwrap();
    }
    let pool = options().open(&path).unwrap();
    // The order of these is another one behind any number of bytes.
    let key =
        |number: u8| format!("{number:03}{}", char::from(b'z' - number).to_string().repeat(60));
    let trees: Vec<BlinkTree<str, u64>> =
        (0..20).map(|tree| BlinkTree::create(&pool, &format!("tree {tree}")).unwrap()).collect();
    for tree in &trees {
        for number in (0..26).rev() {
            tree.insert(&key(number), &0).unwrap();
        }
        assert_eq!(keys_of(tree), (0..26).map(key).collect::<Vec<_>>());
        assert_eq!(tree.check().unwrap(), []);
    }
}

#[test]
fn keys_that_look_like_the_tag_of_a_leaf_survive_a_crash() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let tree: BlinkTree<[u8], u64> = BlinkTree::create(&pool, "tree").unwrap();
    // In a record the key begins where a leaf has its tag, in a separator it is eight bytes before.
    let keys: Vec<Vec<u8>> = (0..500_u32)
        .flat_map(|number| {
            let tag = LEAF_TAG.to_le_bytes();
            [
                [&tag[..], &number.to_be_bytes()].concat(),
                [b"12345678", &tag[..], &number.to_be_bytes()].concat(),
            ]
        })
        .collect();
    for (value, key) in keys.iter().enumerate() {
        tree.insert(key, &(value as u64)).unwrap();
    }
    let pool = open_copy(&path);
    let tree: BlinkTree<[u8], u64> = BlinkTree::open(&pool, "tree").unwrap();
    assert_eq!(tree.check().unwrap(), []);
    for number in 0..2_000_u64 {
        tree.insert(&[b"another key", &number.to_be_bytes()[..]].concat(), &0).unwrap();
    }
    for (value, key) in keys.iter().enumerate() {
        assert_eq!(tree.get(key).unwrap(), Some(value as u64));
    }
}

#[test]
fn bounds_that_look_like_the_tag_of_a_leaf_survive_a_crash() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    // In a node of words, the least key behind it lies where a leaf has its tag.
    let keys = |tree: u64| LEAF_TAG - 100 - tree..LEAF_TAG + 100;
    let name = |tree: u64| format!("tree {tree}");
    let trees: Vec<_> = (0..16)
        .map(|number| {
            let tree: BlinkTree<Few, u64> = BlinkTree::create(&pool, &name(number)).unwrap();
            for key in keys(number) {
                tree.insert(&Few(key), &key).unwrap();
            }
            tree
        })
        .collect();
    let copy = open_copy(&path);
    for number in 0..trees.len() as u64 {
        let tree: BlinkTree<Few, u64> = BlinkTree::open(&copy, &name(number)).unwrap();
        assert_eq!(tree.check().unwrap(), [], "tree {number}");
        assert_eq!(keys_of(&tree), keys(number).map(Few).collect::<Vec<_>>());
    }
}

#[test]
fn a_range_whose_next_leaf_is_joined_to_the_present_one_shows_nothing_twice() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    for key in 0..5_000 {
        tree.insert(&key, &key).unwrap();
    }
    let (arrive, arrived) = mpsc::channel();
    let (join, joined) = mpsc::channel();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let tree = &tree;
        scope.spawn(move || {
            arrived.recv().unwrap();
            for key in (800_u64..1_200).filter(|key| !key.is_multiple_of(10)) {
                tree.remove(&key).unwrap();
            }
            join.send(()).unwrap();
        });
        tree.ascend(.., |&key, _| {
            if key == 1_000 && !seen.contains(&1_000) {
                arrive.send(()).unwrap();
                joined.recv().unwrap();
            }
            seen.push(key);
            ControlFlow::Continue(())
        })
        .unwrap();
    });
    assert!(seen.is_sorted_by(|one, other| one < other));
    let stays = |key: &u64| key.is_multiple_of(10) || !(800..1_200).contains(key);
    seen.retain(stays);
    assert_eq!(seen, (0..5_000).filter(stays).collect::<Vec<_>>());
}

#[test]
fn many_large_values_are_loaded_while_a_reader_holds_back_what_was_replaced() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    tree.insert(&0, &[0; 100]).unwrap();
    let (arrive, arrived) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let tree = &tree;
        scope.spawn(move || {
            tree.get_with(&0, |_| {
                arrive.send(()).unwrap();
                left.recv().unwrap_or_default();
            })
            .unwrap();
        });
        arrived.recv().unwrap();
        for round in 0..185 {
            tree.put(&0, &[round; 100]).unwrap();
        }
        let value = vec![1; 70_000];
        assert_eq!(tree.bulk_load((1..=60).map(|key| (key, &value[..]))).unwrap(), 60);
        drop(leave);
    });
    assert_eq!(tree.len().unwrap(), 61);
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn a_range_from_both_ends_keeps_its_order_while_entries_come() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    for key in [10, 20, 30] {
        tree.insert(&key, &0).unwrap();
    }
    let mut range = tree.range(..).map(|entry| entry.unwrap().0);
    assert_eq!(range.next_back(), Some(30));
    assert_eq!(range.next(), Some(10));
    tree.insert(&5, &0).unwrap();
    assert_eq!(range.next(), Some(20));
    assert_eq!(range.next(), None);
}

#[test]
fn a_full_pool_gets_all_of_a_long_separator_back() {
    const BEGINNING: usize = 65_530;
    let key = |number: u32| {
        let end = number.to_be_bytes();
        FewBytes([&vec![b'k'; BEGINNING][..], &end].concat())
    };
    let fill = |chunks: u64| {
        let dir = scratch();
        let path = dir.path().join("a.pool");
        let pool = Pool::options().size_max(chunks << 16).create(&path).unwrap();
        let tree: BlinkTree<FewBytes, u64> = BlinkTree::create(&pool, "tree").unwrap();
        let full = (0..).find(|&number| tree.insert(&key(number), &0).is_err()).unwrap();
        assert_eq!(tree.len().unwrap(), u64::from(full));
        assert_eq!(tree.check().unwrap(), []);
        let report = pool.check().unwrap();
        assert!(report.violations.is_empty(), "{chunks} chunks: {:?}", report.violations);
    };
    // At one of these lengths there is room for a separator, but not for the leaf.
    (600..616).for_each(fill);
}
