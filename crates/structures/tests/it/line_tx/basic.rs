//! What transactional objects promise, on real files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::line_tx::{Counters, SharedTx, Transactional, Tx, TxArray, TxValue};
use remanent_structures::papers::BoundedBuffer;
use remanent_structures::{Error, HashMap};

fn with_pool(test: impl FnOnce(&std::path::Path, Pool)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.pool");
    let pool = Pool::options().create(&path).unwrap();
    test(&path, pool);
}

#[test]
fn a_committed_version_is_there_after_reopening() {
    with_pool(|path, pool| {
        let mut small = Tx::create(&pool, "small", [1_u64, 2, 3]).unwrap();
        let mut large = Tx::create(&pool, "large", [7_u8; 1000]).unwrap();
        for round in 0..5_u64 {
            small.transact(|words| words[1] = round).unwrap();
            large.transact(|bytes| bytes[999] = round as u8).unwrap();
        }
        drop((small, large, pool));
        let pool = Pool::options().open(path).unwrap();
        let mut small: Tx<[u64; 3]> = Tx::open(&pool, "small").unwrap();
        let mut large: Tx<[u8; 1000]> = Tx::open(&pool, "large").unwrap();
        assert_eq!(small.get().unwrap(), [1, 4, 3]);
        assert_eq!((large.get().unwrap()[999], large.get().unwrap()[998]), (4, 7));
        small.set([9, 9, 9]).unwrap();
        assert_eq!(small.get().unwrap(), [9, 9, 9]);
        assert!(small.check().unwrap().is_empty() && large.check().unwrap().is_empty());
    });
}

#[test]
fn a_panic_rolls_back_and_the_object_goes_on() {
    with_pool(|_, pool| {
        let mut pair = Tx::create(&pool, "pair", [1_u64, 1]).unwrap();
        let broken = catch_unwind(AssertUnwindSafe(|| {
            pair.transact(|pair| {
                pair[0] = 2;
                panic!("in the middle");
            })
        }));
        assert!(broken.is_err());
        assert_eq!(pair.get().unwrap(), [1, 1]);
        let shared = pair.share();
        let broken = catch_unwind(AssertUnwindSafe(|| {
            shared.transact(|pair| {
                pair[0] = 3;
                panic!("in the middle");
            })
        }));
        assert!(broken.is_err());
        shared.transact(|pair| pair[1] = 5).unwrap(); // the lock was given back
        assert_eq!(shared.get().unwrap(), [1, 5]);
    });
}

#[test]
fn an_error_aborts() {
    with_pool(|_, pool| {
        let mut total = Tx::create(&pool, "total", 10_u64).unwrap();
        let refused = total.try_transact(|total| {
            *total = 0;
            Err::<(), _>("not enough")
        });
        assert_eq!(refused.unwrap(), Err("not enough"));
        assert_eq!(total.get().unwrap(), 10);
    });
}

#[test]
fn there_is_one_exclusive_handle() {
    with_pool(|_, pool| {
        let queue = BoundedBuffer::new().create(&pool, "queue").unwrap();
        let second = BoundedBuffer::open(&pool, "queue").err().unwrap();
        assert!(matches!(second, Error::Pool(PoolError::RootInUse { .. })), "{second}");
        drop(queue);
        let mut queue = BoundedBuffer::open(&pool, "queue").unwrap();
        queue.add(1).unwrap();
        let reader = queue.reader();
        queue.add(2).unwrap();
        assert_eq!(reader.get().unwrap().len(), 2);
    });
}

#[test]
fn an_object_of_another_type_is_refused() {
    with_pool(|_, pool| {
        drop(Tx::create(&pool, "object", 7_u64).unwrap());
        let error = Tx::<[u8; 8]>::open(&pool, "object").err().unwrap();
        let text = error.to_string();
        assert!(text.contains("Tx<u64>") && text.contains("Tx<[u8; 8]>"), "{text}");
    });
}

#[test]
fn many_objects_live_under_one_root() {
    with_pool(|path, pool| {
        let array = TxArray::create(&pool, "many", 5000, |number| [number, 0]).unwrap();
        for number in (0..5000).step_by(7) {
            array.at(number).unwrap().transact(|object| object[1] = number * 2).unwrap();
        }
        assert!(array.at(5000).is_none());
        assert!(array.check().unwrap().is_empty());
        drop((array, pool));
        let pool = Pool::options().open(path).unwrap();
        let array: TxArray<[u64; 2]> = TxArray::open(&pool, "many").unwrap();
        for number in 0..5000 {
            let expected = if number % 7 == 0 { number * 2 } else { 0 };
            assert_eq!(array.at(number).unwrap().get().unwrap(), [number, expected]);
        }
        drop(TxArray::create(&pool, "none", 0, |_| 0_u64).unwrap());
        assert!(TxArray::<u64>::open(&pool, "none").unwrap().at(0).is_none());
        assert!(TxArray::create(&pool, "too many", u64::MAX / 64, |_| 0_u64).is_err());
        for name in ["none", "many"] {
            let error = SharedTx::<[u64; 2]>::open(&pool, name).err().unwrap().to_string();
            assert!(error.contains("TxArray") || error.contains("Tx<u64>"), "{error}");
        }
        assert!(Tx::<u64>::open(&pool, "none").is_err(), "it has no object to open");
    });
}

#[test]
fn readers_see_whole_versions_while_writers_go_on() {
    with_pool(|_, pool| {
        let object: SharedTx<[u64; 100]> = SharedTx::create(&pool, "object", [0; 100]).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        object
                            .transact(|words| words.iter_mut().for_each(|word| *word += 1))
                            .unwrap();
                    }
                });
            }
            scope.spawn(|| {
                let mut last = 0;
                while last < 40_000 {
                    let words = object.get().unwrap();
                    assert!(words.iter().all(|&word| word == words[0]), "{words:?}");
                    assert!(words[0] >= last, "versions are seen in their order");
                    last = words[0];
                }
            });
        });
    });
}

#[test]
fn ready_made_types_do_what_they_say() {
    with_pool(|_, pool| {
        let mut queue = BoundedBuffer::new().create(&pool, "queue").unwrap();
        for round in 0..100_u8 {
            while queue.add(round).unwrap() {}
            assert!(queue.is_full().unwrap());
            assert_eq!(queue.len().unwrap(), BoundedBuffer::CAPACITY);
            for _ in 0..BoundedBuffer::CAPACITY {
                assert_eq!(queue.take().unwrap(), Some(round));
            }
            assert_eq!(queue.take().unwrap(), None);
        }
        let mut counters = Counters::<128>::new().create(&pool, "counters").unwrap();
        assert_eq!(counters.add(127, 5).unwrap(), Some(5));
        assert!(counters.move_between(127, 0, 2).unwrap());
        assert_eq!(counters.add(128, 1).unwrap(), None);
        assert_eq!(
            (counters.get_at(0).unwrap(), counters.get_at(127).unwrap()),
            (Some(2), Some(3))
        );
        counters.reset().unwrap();
        assert_eq!(counters.all().unwrap(), [0; 128]);
        let value = TxValue::create(&pool, "value", [0_u8; 31]).unwrap();
        assert_eq!(value.replace([1; 31]).unwrap(), [0; 31]);
        assert_eq!(value.update(|old| old.map(|byte| byte + 1)).unwrap(), [2; 31]);
        assert_eq!(TxValue::<[u8; 31]>::open(&pool, "value").unwrap().get().unwrap(), [2; 31]);
    });
}

#[test]
fn a_medium_with_write_disturbance_gets_checked_objects_and_no_maps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.pool");
    let pool = Pool::options().write_disturbance(true).create(&path).unwrap();
    let mut object = Tx::create(&pool, "object", 1_u64).unwrap();
    object.set(2).unwrap();
    drop(object);
    let error = HashMap::<u64, u64>::create(&pool, "map").err().unwrap().to_string();
    assert!(error.contains("HashMap<u64, u64>") && error.contains("disturbance"), "{error}");
    drop(pool);
    let pool = Pool::options().open(&path).unwrap();
    assert!(pool.guarantee().write_disturbance, "the pool remembers");
    assert_eq!(Tx::<u64>::open(&pool, "object").unwrap().get().unwrap(), 2);
}

#[test]
fn an_object_made_without_disturbance_is_refused_where_it_is_declared() {
    with_pool(|path, pool| {
        drop(Tx::create(&pool, "object", 1_u64).unwrap());
        drop(pool);
        let pool = Pool::options().write_disturbance(true).open(path).unwrap();
        let error = Tx::<u64>::open(&pool, "object").err().unwrap().to_string();
        assert!(error.contains("disturbance"), "{error}");
        drop(pool);
        let pool = Pool::options().open(path).unwrap();
        assert_eq!(Tx::<u64>::open(&pool, "object").unwrap().get().unwrap(), 1);
    });
}
