//! Batches over several maps.

use std::sync::Arc;
use std::thread;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_pmem::pool::Guarantee;
use remanent_structures::{Batch, BlinkTree, Change, Error, ExtendibleMap, HashMap, Map};

use crate::support::{fences, options, scratch, sim_pool};

type M = Arc<Sim>;

#[test]
fn a_batch_takes_two_fences_more_than_its_longest_operation_at_most() {
    let pool = sim_pool(Guarantee::default());
    let words: HashMap<u64, u64, M> = HashMap::create(&pool, "words").unwrap();
    let texts: HashMap<str, str, M> = HashMap::create(&pool, "texts").unwrap();
    let table: ExtendibleMap<str, str, M> = ExtendibleMap::create(&pool, "table").unwrap();
    let tree: BlinkTree<u64, u64, M> = BlinkTree::create(&pool, "tree").unwrap();
    let records: BlinkTree<str, str, M> = BlinkTree::create(&pool, "records").unwrap();
    for key in 1_000..1_010 {
        words.put(&key, &0).unwrap();
        texts.put(&key.to_string(), "a text of some length").unwrap();
        table.put(&key.to_string(), "a text of some length").unwrap();
        tree.put(&key, &0).unwrap();
        records.put(&key.to_string(), "a text of some length").unwrap();
    }
    let mut batch = Batch::new(&pool).unwrap();
    batch.put(&words, &1_000, &1).unwrap();
    batch.commit().unwrap();
    for round in 0..4_u64 {
        // In the first round lanes take chunks to allocate from.
        let expected = |found: u64| if round == 0 { found } else { 3 };
        // Words alone take one fence each.
        let found = fences(&pool, || {
            let mut batch = Batch::new(&pool).unwrap();
            batch.put(&words, &1_001, &round).unwrap();
            batch.put(&tree, &round, &round).unwrap();
            batch.put(&tree, &1_001, &round).unwrap();
            assert_eq!(batch.commit().unwrap(), [true, false, true]);
        });
        assert_eq!(found, expected(found));
        // New entries of a hash map, and records, take two.
        let name = format!("name {round}");
        let found = fences(&pool, || {
            let mut batch = Batch::new(&pool).unwrap();
            batch.put(&words, &round, &round).unwrap();
            batch.put(&texts, &name, "another text of some length").unwrap();
            batch.put(&texts, "1001", &name).unwrap();
            batch.remove(&texts, &format!("{}", 1_002 + round)).unwrap();
            batch.put(&table, &name, "another text of some length").unwrap();
            batch.put(&table, "1001", &name).unwrap();
            batch.remove(&table, &format!("{}", 1_002 + round)).unwrap();
            batch.put(&records, &name, "another text of some length").unwrap();
            batch.put(&records, "1001", &name).unwrap();
            batch.remove(&records, &format!("{}", 1_002 + round)).unwrap();
            batch.remove(&tree, &1_001).unwrap();
            batch.put(&tree, &1_001, &0).unwrap();
            assert_eq!(batch.len(), 11);
            batch.commit().unwrap();
        });
        assert_eq!(found, expected(found));
    }
    for violations in
        [words.check(), texts.check(), table.check(), Map::check(&tree), Map::check(&records)]
    {
        assert_eq!(violations.unwrap(), []);
    }
    assert_eq!(Batch::new(&pool).unwrap().check().unwrap(), []);
}

#[test]
fn the_last_word_about_a_key_counts() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: HashMap<str, u64> = HashMap::create(&pool, "map").unwrap();
    let mut batch = Batch::new(&pool).unwrap();
    batch.put(&map, "key", &1).unwrap();
    batch.remove(&map, "key").unwrap();
    batch.put(&map, "other", &1).unwrap();
    batch.put(&map, "other", &2).unwrap();
    assert_eq!(batch.commit().unwrap(), [false, false]);
    assert_eq!((map.get("key").unwrap(), map.get("other").unwrap()), (None, Some(2)));
    assert_eq!(Batch::new(&pool).unwrap().commit().unwrap(), []);
}

#[test]
fn a_batch_is_of_one_pool() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let other = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&other, "map").unwrap();
    let mut batch = Batch::new(&pool).unwrap();
    assert!(matches!(batch.put(&map, &1, &1), Err(Error::OtherPool)));
}

#[test]
fn a_batch_that_expects_something_else_does_nothing() {
    let directory = scratch();
    let pool = options().create(directory.path().join("expected.pool")).unwrap();
    let map: HashMap<u64, str> = HashMap::create(&pool, "map").unwrap();
    let tree: BlinkTree<str, u64> = BlinkTree::create(&pool, "tree").unwrap();
    map.put(&1, "one").unwrap();
    let commit = |expected: Option<&str>, absent: &str| {
        let mut batch = Batch::new(&pool).unwrap();
        batch.expect(&map, &1, expected).unwrap();
        batch.expect(&tree, absent, None).unwrap();
        batch.put(&map, &2, "two").unwrap();
        batch.commit()
    };
    assert!(matches!(commit(None, "a"), Err(Error::Conflict)));
    assert!(matches!(commit(Some("on"), "a"), Err(Error::Conflict)));
    tree.put("b", &1).unwrap();
    assert!(matches!(commit(Some("one"), "b"), Err(Error::Conflict)));
    assert_eq!(map.len().unwrap(), 1);
    assert_eq!(commit(Some("one"), "a").unwrap(), [false]);
    assert_eq!(commit(Some("one"), "a").unwrap(), [true]);
    // What is expected need not be changed; and a batch that changes nothing can expect.
    let mut batch = Batch::new(&pool).unwrap();
    batch.expect(&map, &2, Some("two")).unwrap();
    assert_eq!(batch.commit().unwrap(), []);
    // What was closed is open again.
    assert!(map.discard(&1).unwrap() && tree.discard("b").unwrap());
}

#[test]
fn counters_of_batches_that_expect_what_they_read_lose_nothing() {
    const ROUNDS: u64 = 500;
    let directory = scratch();
    let pool = options().create(directory.path().join("counters.pool")).unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    map.put(&1, &0).unwrap();
    tree.put(&1, &0).unwrap();
    let count = || {
        for _ in 0..ROUNDS {
            loop {
                let (one, other) = (map.get(&1).unwrap().unwrap(), tree.get(&1).unwrap().unwrap());
                let mut batch = Batch::new(&pool).unwrap();
                batch.expect(&map, &1, Some(&one)).unwrap();
                batch.expect(&tree, &1, Some(&other)).unwrap();
                batch.put(&map, &1, &(one + 1)).unwrap();
                batch.put(&tree, &1, &(other + 1)).unwrap();
                match batch.commit() {
                    Err(Error::Conflict) => {}
                    done => break drop(done.unwrap()),
                }
            }
            // A writer of one key beside them.
            let add = |found: Option<&u64>| (Change::Put(found.copied().unwrap_or(0) + 1), ());
            map.modify(&1, add).unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(count);
        }
    });
    assert_eq!(map.get(&1).unwrap(), Some(2 * 3 * ROUNDS));
    assert_eq!(tree.get(&1).unwrap(), Some(3 * ROUNDS));
}

#[test]
fn a_batch_that_finds_no_room_does_nothing() {
    let directory = scratch();
    let path = directory.path().join("small.pool");
    let pool = Pool::options().size_max(24 << 20).create(&path).unwrap();
    let map: HashMap<u64, [u8]> = HashMap::create(&pool, "map").unwrap();
    let tree: BlinkTree<u64, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    let mut refused = 0;
    let mut len = 0;
    for first in (0..).step_by(10) {
        let mut batch = Batch::new(&pool).unwrap();
        for key in first..first + 10 {
            batch.put(&map, &key, &[1; 9_000]).unwrap();
            batch.put(&tree, &key, &[2; 9_000]).unwrap();
        }
        match batch.commit() {
            Ok(_) => len += 10,
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
            }
        }
        assert_eq!((map.len().unwrap(), tree.len().unwrap()), (len, len));
        if refused == 2 {
            break;
        }
    }
    // What was closed is open again.
    map.remove(&0).unwrap();
    assert!(tree.discard(&0).unwrap());
    assert_eq!(map.check().unwrap(), []);
    assert_eq!(Map::check(&tree).unwrap(), []);
}

#[test]
fn a_batch_that_finds_no_room_after_its_commit_is_completed_when_there_is_room() {
    const LEN: usize = 9_000;
    let directory = scratch();
    let path = directory.path().join("small.pool");
    let pool = Pool::options().size_max(32 << 20).create(&path).unwrap();
    let map: HashMap<u64, [u8]> = HashMap::create(&pool, "map").unwrap();
    let filler: HashMap<u64, [u8]> = HashMap::create(&pool, "filler").unwrap();
    let counts: BlinkTree<u64, u64> = BlinkTree::create(&pool, "counts").unwrap();
    map.put(&1_000, &[4; 8]).unwrap();
    drop(Batch::new(&pool).unwrap());
    // Room for the intent, which has all values, and for the first part, but not for the others.
    let mut filled = 0;
    while filler.insert(&filled, &[3; LEN]).is_ok() {
        filled += 1;
    }
    for key in filled - 520..filled {
        filler.discard(&key).unwrap();
    }
    let mut batch = Batch::new(&pool).unwrap();
    for key in 0..300 {
        batch.put(&map, &key, &[1; LEN]).unwrap();
    }
    batch.put(&counts, &1, &300).unwrap();
    let told = batch.commit().expect_err("there is too little room");
    assert!(matches!(told, Error::Unfinished { .. }), "{told}");
    let len = map.len().unwrap();
    assert!((128..300).contains(&len), "{len} entries are there");
    for changed in [map.discard(&0), map.put(&299, &[2; 8]), map.clear().map(|_| true)] {
        assert!(matches!(changed, Err(Error::Abandoned)), "{changed:?}");
    }
    let mut another = Batch::new(&pool).unwrap();
    another.remove(&map, &0).unwrap();
    assert!(matches!(another.commit(), Err(Error::Abandoned)));
    assert!(map.discard(&1_000).unwrap(), "no batch is to change this key");
    assert!(matches!(counts.put(&1, &0), Err(Error::Abandoned)));
    drop((map, filler, counts, pool));

    // There is no more room when it is opened again. What there is no room for stays closed.
    let pool = Pool::options().open(&path).unwrap();
    let filler: HashMap<u64, [u8]> = HashMap::open(&pool, "filler").unwrap();
    let map: HashMap<u64, [u8]> = HashMap::open(&pool, "map").unwrap();
    assert!((128..300).contains(&map.len().unwrap()));
    assert!(matches!(map.discard(&0), Err(Error::Abandoned)));
    // A map that is completed can change, whatever becomes of the others.
    let counts: BlinkTree<u64, u64> = BlinkTree::open(&pool, "counts").unwrap();
    assert_eq!(counts.swap(&1, &301).unwrap(), Some(300));
    filler.clear().unwrap();
    drop((map, filler, counts, pool));

    let pool = Pool::options().open(&path).unwrap();
    let map: HashMap<u64, [u8]> = HashMap::open(&pool, "map").unwrap();
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (300, vec![]));
    assert!(map.discard(&0).unwrap());
    let counts: BlinkTree<u64, u64> = BlinkTree::open(&pool, "counts").unwrap();
    assert_eq!(counts.get(&1).unwrap(), Some(301), "it was completed before");
    let batch = Batch::new(&pool).unwrap();
    assert_eq!(batch.check().unwrap(), []);
}

#[test]
fn a_batch_that_is_not_done_is_completed_when_its_maps_are_opened_again_in_the_same_process() {
    const LEN: usize = 9_000;
    let pool = Pool::options().size_max(32 << 20).create_in_memory().unwrap();
    let map: HashMap<u64, [u8]> = HashMap::create(&pool, "map").unwrap();
    let filler: HashMap<u64, [u8]> = HashMap::create(&pool, "filler").unwrap();
    let counts: BlinkTree<u64, u64> = BlinkTree::create(&pool, "counts").unwrap();
    drop(Batch::new(&pool).unwrap());
    let mut filled = 0;
    while filler.insert(&filled, &[3; LEN]).is_ok() {
        filled += 1;
    }
    (filled - 520..filled).for_each(|key| assert!(filler.discard(&key).unwrap()));
    let mut batch = Batch::new(&pool).unwrap();
    for key in 0..300 {
        batch.put(&map, &key, &[1; LEN]).unwrap();
    }
    batch.put(&counts, &1, &300).unwrap();
    assert!(matches!(batch.commit(), Err(Error::Unfinished { .. })));
    // The map is open, so nothing is completed: neither now nor when there is room.
    for _ in 0..2 {
        let again: HashMap<u64, [u8]> = HashMap::open(&pool, "map").unwrap();
        assert!(matches!(again.discard(&0), Err(Error::Abandoned)));
        filler.clear().unwrap();
    }
    assert!(matches!(counts.put(&1, &0), Err(Error::Abandoned)));
    assert_eq!(Batch::new(&pool).unwrap().check().unwrap(), []);

    drop(map);
    let map: HashMap<u64, [u8]> = HashMap::open(&pool, "map").unwrap();
    assert_eq!(map.len().unwrap(), 300);
    assert!(map.discard(&0).unwrap());
    assert!(matches!(counts.put(&1, &0), Err(Error::Abandoned)));
    drop(counts);
    let counts: BlinkTree<u64, u64> = BlinkTree::open(&pool, "counts").unwrap();
    assert_eq!(counts.swap(&1, &301).unwrap(), Some(300));
    assert_eq!((map.check().unwrap(), Map::check(&counts).unwrap()), (vec![], vec![]));
    assert_eq!(Batch::new(&pool).unwrap().check().unwrap(), []);
}

#[test]
fn batches_of_large_values_and_of_neighbours_find_room_for_suspects() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let large: HashMap<u64, [u8]> = HashMap::create(&pool, "large").unwrap();
    let records: BlinkTree<u64, [u8]> = BlinkTree::create(&pool, "records").unwrap();
    for round in 0..3 {
        let mut batch = Batch::new(&pool).unwrap();
        (0..200).for_each(|key| batch.put(&large, &key, &[round; 30_000]).unwrap());
        (0..200).for_each(|key| batch.put(&records, &key, &[round; 30_000]).unwrap());
        assert_eq!(batch.commit().unwrap(), vec![round > 0; 400]);
    }
    // Entries in the order of the list: each removal leaves a node in the way of the next.
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    map.extend((0..12_000).map(|key| (key, key))).unwrap();
    let keys: Vec<u64> = map.keys().collect::<Result<_, _>>().unwrap();
    for keys in keys.chunks(1_000) {
        let mut batch = Batch::new(&pool).unwrap();
        keys.iter().for_each(|key| batch.remove(&map, key).unwrap());
        assert_eq!(batch.commit().unwrap(), vec![true; keys.len()]);
    }
    assert!(map.is_empty().unwrap());
    for violations in [large.check(), Map::check(&records), map.check()] {
        assert_eq!(violations.unwrap(), []);
    }
    assert_eq!(Batch::new(&pool).unwrap().check().unwrap(), []);
}

#[test]
fn a_thread_that_a_batch_may_wait_for_does_not_wait_for_batches() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let (one, other): (HashMap<u64, u64>, BlinkTree<u64, u64>) =
        (HashMap::create(&pool, "one").unwrap(), BlinkTree::create(&pool, "other").unwrap());
    one.put(&1, &1).unwrap();
    let committed = one.modify(&1, |_| {
        let mut batch = Batch::new(&pool).unwrap();
        batch.put(&one, &2, &2).unwrap();
        batch.put(&other, &2, &2).unwrap();
        (Change::<u64>::Keep, batch.commit())
    });
    assert!(matches!(committed, Ok(Err(Error::Nested))), "{committed:?}");
    let cleared = other.modify(&1, |_| (Change::<u64>::Keep, one.clear())).unwrap();
    assert!(matches!(cleared, Err(Error::Nested)), "{cleared:?}");

    // Threads that change one map inside of a closure of the other meet batches over both.
    let refused = thread::scope(|threads| {
        threads.spawn(|| {
            for value in 0..2_000 {
                let mut batch = Batch::new(&pool).unwrap();
                batch.put(&one, &2, &value).unwrap();
                batch.put(&other, &2, &value).unwrap();
                batch.commit().unwrap();
            }
        });
        let mut refused = 0;
        for value in 0..2_000 {
            let put = one.modify(&1, |_| (Change::Put(value), other.put(&2, &value))).unwrap();
            match put {
                Ok(_) => {}
                Err(Error::Nested) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        refused
    });
    println!("{refused} of 2000 changes inside of a closure were refused");
    assert!(one.put(&2, &0).is_ok() && other.put(&2, &0).is_ok());
}

#[test]
fn long_batches_are_done_in_parts() {
    let directory = scratch();
    let path = directory.path().join("long.pool");
    let pool = options().create(&path).unwrap();
    let map: HashMap<u64, str> = HashMap::create(&pool, "map").unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    for round in 0..3 {
        let mut batch = Batch::new(&pool).unwrap();
        for key in 0..2_000_u64 {
            batch.put(&map, &key, &format!("value {round} of {key}")).unwrap();
            batch.put(&tree, &key, &round).unwrap();
        }
        let presence = batch.commit().unwrap();
        assert!(presence.len() == 4_000 && presence.iter().all(|&was| was == (round > 0)));
    }
    assert_eq!(map.get(&1_999).unwrap().as_deref(), Some("value 2 of 1999"));
    assert_eq!(tree.len().unwrap(), 2_000);
    drop((map, tree, pool));
    let pool = options().open(&path).unwrap();
    let map: HashMap<u64, str> = HashMap::open(&pool, "map").unwrap();
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (2_000, vec![]));
}

#[test]
fn batches_and_single_changes_of_the_same_keys_take_turns() {
    const ROUNDS: u64 = 2_000;
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let left: HashMap<u64, u64> = HashMap::create(&pool, "left").unwrap();
    let right: BlinkTree<u64, u64> = BlinkTree::create(&pool, "right").unwrap();
    thread::scope(|scope| {
        for writer in 0..3_u64 {
            let (pool, left, right) = (&pool, &left, &right);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut batch = Batch::new(pool).unwrap();
                    // In an order of its own.
                    for key in (0..4).map(|key| (key + writer) % 4) {
                        batch.put(left, &key, &(round * 3 + writer)).unwrap();
                        batch.put(right, &key, &(round * 3 + writer)).unwrap();
                    }
                    batch.commit().unwrap();
                    left.put(&(10 + round % 5), &round).unwrap();
                    right.discard(&(20 + round % 5)).unwrap();
                }
            });
        }
    });
    // All keys have the values of one batch: the last.
    let last = left.get(&0).unwrap().unwrap();
    for key in 0..4 {
        assert_eq!((left.get(&key).unwrap(), right.get(&key).unwrap()), (Some(last), Some(last)));
    }
}
