//! What vectors answer, compared with `Vec`.

use proptest::prelude::*;
use remanent_pmem::{Error as PoolError, Mapped, Persistent, Pool};
use remanent_structures::{AppendVector, Error, Vector};

use crate::support::{options, scratch};

#[derive(Clone, Copy, Debug, PartialEq, Persistent)]
#[repr(C)]
struct Trade {
    price: u64,
    amount: u32,
    market: [u8; 12],
}

fn trade(number: u64) -> Trade {
    Trade { price: number, amount: !number as u32, market: [number as u8; 12] }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u64),
    Extend(Vec<u64>),
    ExtendLong(u64),
    Set(u64, u64),
    Truncate(u64),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<u64>().prop_map(Op::Push),
        2 => proptest::collection::vec(any::<u64>(), 0..40).prop_map(Op::Extend),
        1 => (0_u64..20_000).prop_map(Op::ExtendLong),
        4 => (any::<u64>(), any::<u64>()).prop_map(|(index, value)| Op::Set(index, value)),
        1 => any::<u64>().prop_map(Op::Truncate),
        1 => Just(Op::Reopen),
    ]
}

fn agrees<T: Persistent + PartialEq + std::fmt::Debug>(
    ops: Vec<Op>,
    of: impl Fn(u64) -> T,
) -> Result<(), TestCaseError> {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let mut vector: Vector<T> = Vector::create(&pool, "vector").unwrap();
    let mut model: Vec<T> = Vec::new();
    for op in ops {
        let len = model.len() as u64;
        match op {
            Op::Push(value) => {
                prop_assert_eq!(vector.push(&of(value)).unwrap(), len);
                model.push(of(value));
            }
            Op::Extend(values) => {
                let values: Vec<T> = values.into_iter().map(&of).collect();
                prop_assert_eq!(vector.extend_from_slice(&values).unwrap(), len);
                model.extend(values);
            }
            Op::ExtendLong(count) => {
                let values: Vec<T> = (0..count).map(&of).collect();
                prop_assert_eq!(vector.extend_from_slice(&values).unwrap(), len);
                model.extend(values);
            }
            Op::Set(index, value) => {
                let index = index % (len + 2);
                let found = model.get_mut(index as usize).map(|old| *old = of(value));
                prop_assert_eq!(vector.set(index, &of(value)).unwrap(), found.is_some());
            }
            Op::Truncate(len_new) => {
                let len_new = len_new % (len + 2);
                vector.truncate(len_new).unwrap();
                model.truncate(len_new as usize);
            }
            Op::Reopen => {
                drop(vector);
                vector = Vector::open(&pool, "vector").unwrap();
            }
        }
        prop_assert_eq!(vector.len(), model.len() as u64);
        let last = model.len().checked_sub(1);
        prop_assert_eq!(vector.get(last.unwrap_or(0) as u64).unwrap(), model.last().copied());
        prop_assert_eq!(vector.get(model.len() as u64).unwrap(), None);
    }
    let all: Vec<T> = vector.iter().collect::<Result<_, _>>().unwrap();
    prop_assert_eq!(&all, &model);
    let (first, end) = (model.len() / 3, model.len() / 2);
    let mut part = Vec::new();
    vector
        .for_each_slice(first as u64, end as u64, |elements| part.extend_from_slice(elements))
        .unwrap();
    prop_assert_eq!(&part[..], &model[first..end]);
    prop_assert_eq!(vector.check().unwrap(), []);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn words_agree_with_a_vec(ops in proptest::collection::vec(op(), 1..40)) {
        agrees(ops, |value| value)?;
    }

    #[test]
    fn records_agree_with_a_vec(ops in proptest::collection::vec(op(), 1..40)) {
        agrees(ops, trade)?;
    }

    #[test]
    fn slices_are_those_of_a_vec(lens in proptest::collection::vec(0_u64..9_000, 1..8), cuts: [u64; 2]) {
        let dir = scratch();
        let pool = options().create(dir.path().join("pool")).unwrap();
        let vector: AppendVector<Trade> = AppendVector::create(&pool, "vector").unwrap();
        let mut model = Vec::new();
        for len in lens {
            let trades: Vec<Trade> = (0..len).map(trade).collect();
            prop_assert_eq!(vector.extend_from_slice(&trades).unwrap(), model.len() as u64);
            model.extend(trades);
        }
        let mut all = Vec::new();
        vector.for_each_slice(0, u64::MAX, |trades| all.extend_from_slice(trades)).unwrap();
        prop_assert_eq!(&all, &model);
        let mut cuts = cuts.map(|cut| cut % (model.len() as u64 + 1));
        cuts.sort();
        let [first, end] = cuts;
        let found = vector.with_slice(first, end, <[Trade]>::to_vec).unwrap();
        prop_assert_eq!(found.as_deref(), Some(&model[first as usize..end as usize]));
        let len = model.len() as u64;
        prop_assert_eq!(vector.with_slice(0, len + 1, <[Trade]>::len).unwrap(), None);
        prop_assert_eq!(vector.check().unwrap(), []);
    }
}

#[test]
fn a_slice_of_one_run_is_not_copied() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let vector: AppendVector<u64> = AppendVector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[1; 9_000]).unwrap();
    let address = || vector.with_slice(7, 9, |slice| slice.as_ptr().addr()).unwrap().unwrap();
    let before = address();
    vector.extend_from_slice(&[2; 90_000]).unwrap();
    assert_eq!(address(), before, "elements do not move");
    assert_eq!(vector.with_slice(8_190, 8_194, <[u64]>::to_vec).unwrap(), Some(vec![1; 4]));
}

#[test]
fn runs_that_were_truncated_are_the_pools_again() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let vector: Vector<u64> = Vector::create(&pool, "vector").unwrap();
    let used = || pool.check().unwrap().chunks_used;
    vector.push(&0).unwrap();
    let before = used();
    vector.extend_from_slice(&vec![1; 2 << 20]).unwrap();
    assert!(used() > before + 200);
    vector.truncate(1).unwrap();
    vector.push(&1).unwrap();
    drop(vector);
    assert_eq!(used(), before);
}

#[test]
fn a_full_pool_refuses_all_or_nothing() {
    let dir = scratch();
    let pool = Pool::options().size_max(32 << 20).create(dir.path().join("pool")).unwrap();
    let vector: Vector<u64> = Vector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[1, 2, 3]).unwrap();
    let used = pool.check().unwrap().chunks_used;
    let error = vector.extend_from_slice(&vec![4; 8 << 20]).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(vector.len(), 3);
    assert_eq!(vector.push(&4).unwrap(), 3);
    assert_eq!(vector.check().unwrap(), []);
    drop(vector);
    assert_eq!(pool.check().unwrap().chunks_used, used);
}

#[test]
fn another_type_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    drop(Vector::<u64>::create(&pool, "vector").unwrap());
    fn is_refused<T>(opened: Result<T, Error>) -> bool {
        matches!(opened, Err(Error::Pool(PoolError::WrongType { .. })))
    }
    assert!(is_refused(Vector::<i64>::open(&pool, "vector")));
    assert!(is_refused(Vector::<[u64; 1]>::open(&pool, "vector")));
    assert!(is_refused(AppendVector::<u64>::open(&pool, "vector")));
    let missing = Vector::<u64, Mapped>::open(&pool, "other");
    assert!(matches!(missing, Err(Error::Pool(PoolError::NoSuchRoot { .. }))));
}
