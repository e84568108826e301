//! What lists promise while nothing crashes, on real files.

use remanent_pmem::{Durability, Error as PoolError, Pool};
use remanent_structures::batch_list::{
    BatchList, ChangeList, Changeable, LinkList, List, Log, LogList, Variant,
};
use remanent_structures::papers::{
    Append, AppendList, FlushAlways, FlushAlwaysList, Table, TableList,
};
use remanent_structures::{BatchOptions, Error};

use super::{content, create, open, value, with_pool};

/// Lengths that lie in a page, fill it, span pages, and span segments.
const LENS: [usize; 10] = [0, 1, 7, 100, 4_000, 4_072, 4_096, 10_000, 1_048_552, 3 << 20];

type Model = Vec<(u64, Vec<u8>)>;

/// What is drawn next, from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn value(&mut self, lens: &[usize]) -> Vec<u8> {
        let len = lens[self.below(lens.len() as u64) as usize];
        value(self.below(1 << 20), len)
    }
}

/// One operation on a list and on the model of it.
fn change<V: Changeable>(list: &mut List<V>, model: &mut Model, draw: &mut Draw, lens: &[usize]) {
    let key = draw.below(20);
    let at = |model: &Model, key| model.iter().position(|&(found, _)| found == key);
    match draw.below(8) {
        0..=2 => {
            let value = draw.value(lens);
            assert!(list.insert(key, &value).unwrap());
            model.push((key, value));
        }
        3 => {
            let (left, value) = (draw.below(20), draw.value(lens));
            let place = at(model, left).map(|at| at + 1);
            assert_eq!(list.insert_after(Some(left), key, &value).unwrap(), place.is_some());
            place.into_iter().for_each(|place| model.insert(place, (key, value.clone())));
        }
        4 => {
            let value = draw.value(lens);
            assert!(list.insert_after(None, key, &value).unwrap());
            model.insert(0, (key, value));
        }
        5 => {
            let (place, value) = (at(model, key), draw.value(lens));
            assert_eq!(list.update(key, &value).unwrap(), place.is_some());
            place.into_iter().for_each(|place| model[place].1.clone_from(&value));
        }
        _ => {
            let place = at(model, key);
            assert_eq!(list.remove(key).unwrap(), place.is_some());
            place.into_iter().for_each(|place| drop(model.remove(place)));
        }
    }
    if draw.below(5) == 0 {
        list.sync().unwrap();
        assert_eq!(list.lag().bytes, 0);
    }
}

fn compare<V: Variant>(list: &mut List<V>, model: &Model) {
    assert_eq!(list.len(), model.len() as u64);
    assert!(content(list) == *model, "another content than the model's");
    for key in 0..20 {
        let first = model.iter().find(|&&(found, _)| found == key).map(|(_, value)| value.clone());
        assert!(list.get(key).unwrap() == first, "another first value of {key}");
    }
    assert_eq!(list.check().unwrap(), []);
}

/// Like the model, however often it is closed.
fn behaves<V: Changeable>(seed: u64, rounds: u64, lens: &[usize]) {
    with_pool(|path, mut pool| {
        let (mut draw, mut model) = (Draw(seed), Model::new());
        drop(create::<V, _>(&pool));
        for _ in 0..rounds {
            let mut list = open::<V, _>(&pool);
            for _ in 0..draw.below(60) {
                change(&mut list, &mut model, &mut draw, lens);
            }
            compare(&mut list, &model);
            if draw.below(2) == 0 {
                list.close().unwrap();
                drop(pool);
                pool = Pool::options().open(path).unwrap();
            }
        }
        compare(&mut open::<V, _>(&pool), &model);
    });
}

#[test]
fn every_variant_behaves_like_a_vector() {
    for seed in 0..6 {
        behaves::<FlushAlways>(seed, 8, &LENS[..6]);
        behaves::<Log>(seed, 8, &LENS[..6]);
        behaves::<Table>(seed, 8, &LENS[..6]);
    }
}

#[test]
fn every_variant_holds_values_of_any_length() {
    for seed in 0..2 {
        behaves::<FlushAlways>(seed, 4, &LENS);
        behaves::<Log>(seed, 4, &LENS);
        behaves::<Table>(seed, 4, &LENS);
    }
}

#[test]
fn an_append_list_keeps_what_was_inserted() {
    with_pool(|path, pool| {
        let (mut draw, mut model) = (Draw(1), Model::new());
        let mut list = create::<Append, _>(&pool);
        compare(&mut list, &model);
        drop((list, pool));
        for _ in 0..20 {
            let pool = Pool::options().open(path).unwrap();
            let mut list = open::<Append, _>(&pool);
            compare(&mut list, &model);
            for _ in 0..draw.below(30) {
                let (key, value) = (draw.below(20), draw.value(&LENS));
                assert!(list.insert(key, &value).unwrap());
                model.push((key, value));
            }
            compare(&mut list, &model);
        }
    });
}

#[test]
fn a_list_of_many_pages_is_walked_in_order() {
    fn walk<V: Variant>() {
        with_pool(|path, pool| {
            let mut list = create::<V, _>(&pool);
            for key in 0..40_000 {
                list.insert(key, &value(key, 90)).unwrap();
            }
            drop((list, pool));
            let pool = Pool::options().open(path).unwrap();
            let mut list = open::<V, _>(&pool);
            let mut expected = 0..40_000;
            list.for_each(|key, found| {
                assert_eq!(Some(key), expected.next());
                assert_eq!(found, value(key, 90));
            })
            .unwrap();
            assert_eq!((expected.next(), list.len()), (None, 40_000));
            assert_eq!(list.check().unwrap(), []);
        });
    }
    walk::<FlushAlways>();
    walk::<Append>();
    walk::<Log>();
    walk::<Table>();
}

#[test]
fn there_is_one_writer() {
    with_pool(|_, pool| {
        let mut first = create::<Log, _>(&pool);
        first.insert(1, b"one").unwrap();
        let options = BatchOptions::without_thread();
        let second = LogList::open(&pool, "list", options).err().unwrap();
        assert!(matches!(second, Error::Pool(PoolError::RootInUse { .. })), "{second}");
        // A persister does not keep the list from being opened.
        let persister = first.persister();
        drop(first);
        let mut third = open::<Log, _>(&pool);
        third.insert(2, b"two").unwrap();
        assert!(persister.lag().bytes > 0);
        persister.persist().unwrap();
        assert_eq!(third.lag().bytes, 0);
        assert_eq!(content(&third).len(), 2);
        assert_eq!(third.check().unwrap(), []);
    });
}

#[test]
fn a_list_of_another_variant_is_refused() {
    with_pool(|_, pool| {
        drop(create::<Append, _>(&pool));
        let options = BatchOptions::default();
        let errors = [
            FlushAlwaysList::open(&pool, "list", options).err().unwrap(),
            LogList::open(&pool, "list", options).err().unwrap(),
            TableList::open(&pool, "list", options).err().unwrap(),
        ];
        for error in errors {
            assert!(error.to_string().contains("AppendList"), "{error}");
        }
        assert!(AppendList::open(&pool, "list", options).is_ok());
        assert!(AppendList::open_or_create(&pool, "another", options).unwrap().is_empty());
    });
}

#[test]
fn a_full_pool_changes_nothing() {
    fn fill<V: Changeable>() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::options().size_max(24 << 20).create(dir.path().join("test.pool")).unwrap();
        let mut list = create::<V, _>(&pool);
        let mut model = Model::new();
        for key in 0.. {
            match list.insert(key, &value(key, 200_000)) {
                Ok(_) => model.push((key, value(key, 200_000))),
                Err(error) => {
                    assert!(error.is_full(), "{error}");
                    break;
                }
            }
        }
        assert!(model.len() > 10);
        assert!(list.update(3, &value(0, 300_000)).unwrap_err().is_full());
        assert!(list.insert_after(Some(3), 9, &value(0, 2 << 20)).unwrap_err().is_full());
        // A table needs room for this too, and has some left in the last page.
        assert!(list.remove(3).unwrap());
        model.remove(3);
        compare(&mut list, &model);
        drop(list);
        compare(&mut open::<V, _>(&pool), &model);
    }
    fill::<FlushAlways>();
    fill::<Log>();
    fill::<Table>();
}

#[test]
fn lag_counts_what_is_not_safe() {
    fn count<V: Changeable>() {
        with_pool(|_, pool| {
            let mut list = create::<V, _>(&pool);
            list.insert(1, &[0; 1000]).unwrap();
            assert!((1000..1200).contains(&list.lag().bytes), "{:?}", list.lag());
            list.sync().unwrap();
            assert_eq!(list.lag().bytes, 0);
            list.remove(1).unwrap();
            assert!((1..200).contains(&list.lag().bytes), "a removal is covered too");
            list.close().unwrap();
        });
    }
    count::<Log>();
    count::<Table>();
    with_pool(|_, pool| {
        let mut list = create::<FlushAlways, _>(&pool);
        list.insert(1, &[0; 1000]).unwrap();
        assert_eq!(list.lag().bytes, 0);
    });
}

#[test]
fn the_writer_keeps_the_bound() {
    with_pool(|_, pool| {
        let options = BatchOptions { lag_bytes: 10_000, ..BatchOptions::without_thread() };
        let mut list = LogList::create(&pool, "list", options).unwrap();
        for key in 0..1000 {
            list.insert(key, &[1; 100]).unwrap();
            assert!(list.lag().bytes < 10_000);
        }
    });
}

#[test]
fn lists_lie_on_disks_that_survive_power_loss() {
    fn fill<V: Variant>(path: &std::path::Path, background: bool) {
        let options = BatchOptions { background, ..BatchOptions::default() };
        let pool = Pool::options().durability(Durability::Power).create(path).unwrap();
        let mut list = List::<V>::create(&pool, "list", options).unwrap();
        for key in 0..300 {
            list.insert(key, &value(key, 500)).unwrap();
        }
        list.sync().unwrap();
        assert_eq!(list.lag().bytes, 0);
        drop((list, pool));
        let pool = Pool::options().durability(Durability::Power).open(path).unwrap();
        let mut list = List::<V>::open(&pool, "list", options).unwrap();
        assert_eq!(list.get(299).unwrap(), Some(value(299, 500)));
        assert_eq!(list.len(), 300);
        assert_eq!(list.check().unwrap(), []);
    }
    let dir = tempfile::tempdir().unwrap();
    fill::<FlushAlways>(&dir.path().join("always.pool"), true);
    fill::<Append>(&dir.path().join("append.pool"), true);
    fill::<Log>(&dir.path().join("log.pool"), true);
    fill::<Table>(&dir.path().join("table.pool"), false);
}
