//! Panics in what objects, vectors, logs and lists are given.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remanent_pmem::Pool;
use remanent_structures::batch_list::{BatchList, List, LogList, Variant};
use remanent_structures::papers::{Append, FlushAlways, Table};
use remanent_structures::{
    AppendVector, BatchOptions, Error, Log, SharedTx, Transactional, Tx, TxArray, TxValue, Vector,
    batch_list, transactional,
};

use super::{PANICS, fail, panics, pool};

#[transactional]
struct Account {
    balance: u64,
}

#[transactional]
impl Account {
    /// Changes the object before it knows whether it may.
    fn spend(&mut self, amount: u64) -> u64 {
        let balance = self.balance;
        self.balance = 0;
        if balance < amount {
            fail();
        }
        self.balance = balance - amount;
        self.balance
    }
}

/// As [`panics`], for handles of one writer: a reference to one is not `UnwindSafe`, so its user
/// has to vouch for it.
fn panics_mut<R>(mut action: impl FnMut() -> R) {
    for _ in 0..PANICS {
        assert!(catch_unwind(AssertUnwindSafe(|| drop(action()))).is_err());
    }
}

#[test]
fn a_transaction_that_panics_has_not_been() {
    let pool = pool();
    let mut one = Tx::create(&pool, "one", [1_u64, 2]).unwrap();
    let half = |object: &mut [u64; 2]| {
        object[0] = 10;
        fail()
    };
    panics_mut(|| one.transact(half));
    panics_mut(|| one.try_transact(|object| -> Result<(), ()> { half(object) }));
    assert_eq!(one.get().unwrap(), [1, 2]);
    one.transact(|object| object[0] = 3).unwrap();
    let shared: SharedTx<[u64; 2]> = one.share();
    panics(|| shared.transact(half));
    panics(|| shared.try_transact(|object| -> Result<(), ()> { half(object) }));
    assert_eq!(shared.get().unwrap(), [3, 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| shared.transact(|object| object[1] = 4).unwrap());
    });
    assert_eq!((shared.get().unwrap(), shared.check().unwrap()), ([3, 4], vec![]));
    let value = TxValue::create(&pool, "value", 5_u64).unwrap();
    panics(|| value.update(|_| fail()));
    assert_eq!((value.replace(6).unwrap(), value.get().unwrap()), (5, 6));
}

#[test]
fn a_method_that_panics_has_not_been_called() {
    let pool = pool();
    let mut account = Account { balance: 100 }.create(&pool, "account").unwrap();
    panics_mut(|| account.spend(200));
    assert_eq!(account.spend(30).unwrap(), 70);
    let shared = AccountShared::from(account);
    panics(|| shared.spend(200));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(shared.spend(20).unwrap(), 50));
    });
}

#[test]
fn objects_whose_making_panics_are_not_there() {
    let directory = crate::support::scratch();
    let path = directory.path().join("made.pool");
    let pool = crate::support::options().create(&path).unwrap();
    panics(|| {
        // As many as need chunks of their own.
        TxArray::create(
            &pool,
            "accounts",
            10_000,
            |number| if number < 9_999 { number } else { fail() },
        )
    });
    assert_eq!(pool.check().unwrap().violations, []);
    assert!(pool.roots().unwrap().is_empty());
    assert!(TxArray::<u64>::open(&pool, "accounts").is_err());
    drop(TxArray::create(&pool, "accounts", 3, |number| number).unwrap());
    drop(pool);
    let pool = Pool::options().open(&path).unwrap();
    assert!(pool.was_clean());
    let accounts: TxArray<u64> = TxArray::open(&pool, "accounts").unwrap();
    assert_eq!(accounts.at(2).unwrap().get().unwrap(), 2);
    assert_eq!(pool.check().unwrap().violations, []);
}

#[test]
fn vectors_outlive_panics() {
    let pool = pool();
    let vector: Vector<u64> = Vector::create(&pool, "vector").unwrap();
    let appended: AppendVector<u64> = AppendVector::create(&pool, "appended").unwrap();
    vector.extend_from_slice(&[1, 2, 3]).unwrap();
    appended.extend_from_slice(&[1, 2, 3]).unwrap();
    panics(|| vector.for_each_slice(0, 3, |_| fail()));
    panics(|| appended.for_each_slice(0, 3, |_| fail()));
    panics(|| appended.with_slice(0, 3, |_| fail()));
    assert_eq!((vector.push(&4).unwrap(), appended.push(&4).unwrap()), (3, 3));
    assert!(vector.set(0, &10).unwrap());
    vector.truncate(2).unwrap();
    assert_eq!(vector.iter().collect::<Result<Vec<u64>, _>>().unwrap(), [10, 2]);
    assert_eq!((vector.check().unwrap(), appended.check().unwrap()), (vec![], vec![]));
}

#[test]
fn a_log_outlives_panics() {
    let log: Log<str> = Log::create(&pool(), "log").unwrap();
    let first = log.append("first").unwrap();
    panics(|| log.read_with(first, |_| fail()));
    let second = log.append("second").unwrap();
    log.truncate_front(second).unwrap();
    assert_eq!(log.read(second).unwrap().as_deref(), Some("second"));
    assert_eq!(log.check().unwrap(), []);
}

fn list_outlives_panics<V: Variant>(pool: &Pool)
where
    List<V>: BatchList + std::panic::RefUnwindSafe,
{
    let mut list: List<V> = List::create(pool, V::TYPE_NAME, BatchOptions::default()).unwrap();
    assert!(list.insert(1, b"one").unwrap());
    panics(|| list.get_with(1, |_| fail()));
    panics(|| list.for_each(|_, _| fail()));
    assert!(list.insert(2, b"two").unwrap());
    list.sync().unwrap();
    assert_eq!(list.get(2).unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!((list.len(), list.check().unwrap()), (2, vec![]));
}

#[test]
fn lists_outlive_panics() {
    let pool = pool();
    list_outlives_panics::<batch_list::Log>(&pool);
    list_outlives_panics::<Append>(&pool);
    list_outlives_panics::<Table>(&pool);
    list_outlives_panics::<FlushAlways>(&pool);
}

/// A thread that ends with a panic gives everything back that it had.
#[test]
fn a_thread_that_panics_in_a_closure_leaves_its_handles_usable() {
    let pool = pool();
    let total: SharedTx<u64> = SharedTx::create(&pool, "total", 1).unwrap();
    let in_thread = total.clone();
    let ended = std::thread::spawn(move || in_thread.transact(|_| -> () { fail() })).join();
    assert!(ended.is_err());
    total.transact(|total| *total += 1).unwrap();
    assert_eq!(total.get().unwrap(), 2);
    let list = LogList::create(&pool, "list", BatchOptions::default()).unwrap();
    let ended = std::thread::spawn(move || list.for_each(|_, _| ()).map(|()| fail())).join();
    assert!(ended.is_err());
    // The writer's place is free again.
    let list: Result<LogList, Error> = LogList::open(&pool, "list", BatchOptions::default());
    assert!(list.is_ok());
}
