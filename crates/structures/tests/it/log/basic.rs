//! What logs answer, compared with a `Vec` of records.

use std::time::Duration;

use proptest::prelude::*;
use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::log::Position;
use remanent_structures::{Error, Log};

use crate::support::{options, scratch};

#[derive(Clone, Debug)]
enum Op {
    Append(Vec<u8>),
    AppendLong(usize),
    AppendMany(Vec<Vec<u8>>),
    Truncate(usize),
    Reopen,
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..100)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => record().prop_map(Op::Append),
        1 => (0_usize..3 << 20).prop_map(Op::AppendLong),
        2 => proptest::collection::vec(record(), 0..5).prop_map(Op::AppendMany),
        1 => any::<usize>().prop_map(Op::Truncate),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_agrees_with_a_vec(ops in proptest::collection::vec(op(), 1..30)) {
        let dir = scratch();
        let pool = options().create(dir.path().join("pool")).unwrap();
        let mut log: Log<[u8]> = Log::create(&pool, "log").unwrap();
        let mut model: Vec<(Position, Vec<u8>)> = Vec::new();
        let mut gone = Vec::new();
        let mut tail = Some(log.tail(log.first()));
        for op in ops {
            match op {
                Op::Append(record) => model.push((log.append(&record).unwrap(), record)),
                Op::AppendLong(len) => {
                    let record: Vec<u8> = (0..len).map(|at| (at / 100) as u8).collect();
                    model.push((log.append(&record).unwrap(), record));
                }
                Op::AppendMany(records) => {
                    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
                    let positions = log.append_many(&slices).unwrap();
                    prop_assert_eq!(positions.len(), records.len());
                    model.extend(positions.into_iter().zip(records));
                }
                Op::Truncate(count) => {
                    let count = count % (model.len() + 1);
                    let first = model.get(count).map_or(log.end(), |record| record.0);
                    log.truncate_front(first).unwrap();
                    gone.extend(model.drain(..count).map(|record| record.0));
                    prop_assert_eq!(log.first(), first);
                }
                Op::Reopen => {
                    let end = log.end();
                    drop((log, tail.take()));
                    log = Log::open(&pool, "log").unwrap();
                    prop_assert_eq!(log.end(), end);
                }
            }
            while let Some(tail) = &mut tail {
                let Some((at, record)) = tail.poll().unwrap() else { break };
                let known = model.iter().find(|known| known.0 == at);
                prop_assert_eq!(known.map(|known| &known.1), Some(&record));
            }
        }
        let records: Vec<_> = log.iter().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(&records, &model);
        let mut backward: Vec<_> = log.iter().rev().collect::<Result<_, _>>().unwrap();
        backward.reverse();
        prop_assert_eq!(&backward, &model);
        for (at, record) in &model {
            let read = log.read(*at).unwrap();
            prop_assert_eq!(read.as_ref(), Some(record));
        }
        for at in gone {
            prop_assert_eq!(log.read(at).unwrap(), None);
        }
        prop_assert_eq!(log.read(log.end()).unwrap(), None);
        prop_assert_eq!(log.check().unwrap(), []);
    }
}

#[test]
fn reading_goes_either_way_from_any_record() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let log: Log<u64> = Log::create(&pool, "log").unwrap();
    let at: Vec<Position> = (0..10).map(|number| log.append(&number).unwrap()).collect();
    let numbers = |records: &mut dyn Iterator<Item = Result<(Position, u64), Error>>| {
        records.map(|record| record.unwrap().1).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&mut log.iter_from(at[7])), [7, 8, 9]);
    assert_eq!(numbers(&mut log.iter_until(at[3]).rev()), [2, 1, 0]);
    let mut both = log.iter();
    assert_eq!((both.next().unwrap().unwrap().1, both.next_back().unwrap().unwrap().1), (0, 9));
    assert_eq!(numbers(&mut both), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn what_is_no_position_is_told() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let log: Log<str> = Log::create(&pool, "log").unwrap();
    log.append("a record that is somewhat longer").unwrap();
    for number in [1, 8, 16, 24, 55] {
        let at = Position::from_u64(number);
        assert!(matches!(log.read(at), Err(Error::Corrupt { .. })), "{number}");
        assert!(matches!(log.truncate_front(at), Err(Error::Corrupt { .. })), "{number}");
        assert!(matches!(log.iter_until(at).next_back(), Some(Err(_))), "{number}");
    }
    assert!(log.truncate_front(Position::from_u64(1 << 40)).is_err());
    assert_eq!(log.read(Position::from_u64(1 << 40)).unwrap(), None);
}

#[test]
fn what_was_truncated_is_the_pools_again() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let log: Log<[u8]> = Log::create(&pool, "log").unwrap();
    let used = || pool.check().unwrap().chunks_used;
    log.append(b"first").unwrap();
    let before = used();
    for _ in 0..40 {
        log.append(&vec![1; 500_000]).unwrap();
    }
    assert!(used() > before + 280);
    log.truncate_front(log.end()).unwrap();
    log.append(b"last").unwrap();
    drop(log);
    assert_eq!(used(), before);
}

#[test]
fn a_full_pool_refuses_all_or_nothing() {
    let dir = scratch();
    let pool = Pool::options().size_max(32 << 20).create(dir.path().join("pool")).unwrap();
    let log: Log<[u8]> = Log::create(&pool, "log").unwrap();
    log.append(b"first").unwrap();
    let end = log.end();
    let error = log.append(&vec![0; 40 << 20]).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(log.end(), end);
    assert_eq!(log.append(b"second").unwrap(), end);
    assert_eq!(log.iter().count(), 2);
    assert_eq!(log.check().unwrap(), []);
}

#[test]
fn another_type_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    drop(Log::<str>::create(&pool, "log").unwrap());
    let opened = Log::<[u8]>::open(&pool, "log");
    assert!(matches!(opened, Err(Error::Pool(PoolError::WrongType { .. }))));
}

#[test]
fn a_tail_that_waits_in_vain_comes_back() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let log: Log<str> = Log::create(&pool, "log").unwrap();
    let mut tail = log.tail(log.end());
    assert_eq!(tail.wait(Duration::from_millis(20)).unwrap(), None);
    log.append("news").unwrap();
    assert_eq!(tail.wait(Duration::MAX).unwrap().unwrap().1, "news");
    assert_eq!(tail.position(), log.end());
}
