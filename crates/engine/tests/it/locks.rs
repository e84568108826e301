//! Rows that a transaction has locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, Get, LockMode, Resumed, Table, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::Pool;

const LONG: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_millis(20);

struct Bank {
    pool: Pool,
    database: Database,
    accounts: Table,
    get: Get,
}

fn bank() -> Bank {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "bank").unwrap();
    let spec = TableSpec::new("accounts")
        .column("number", Type::U32)
        .column("balance", Type::I64)
        .primary_key(["number"]);
    let accounts = database.create_table(&spec).unwrap();
    for number in 1..=4u32 {
        accounts.insert(&[number.into(), 100.into()]).unwrap();
    }
    let get = accounts.prepare_get("primary").unwrap();
    Bank { pool, database, accounts, get }
}

impl Bank {
    fn begin(&self) -> Transaction<'_> {
        self.database.begin().unwrap()
    }

    fn begin_to_wait(&self) -> Transaction<'_> {
        self.database.begin_with(&TransactionOptions::new().wait(LONG)).unwrap()
    }

    fn lock(
        &self,
        by: &mut Transaction<'_>,
        number: u32,
        mode: LockMode,
    ) -> Result<Option<i64>, Error> {
        self.get.lock_in(by, &[number.into()], mode, |row| row.get(1))
    }

    fn set(&self, by: Option<&mut Transaction<'_>>, number: u32, to: i64) -> Result<bool, Error> {
        let update = self.accounts.prepare_update("primary").unwrap();
        let key = [number.into()];
        let found = match by {
            Some(transaction) => update.run_in(transaction, &key, |_, row| row.set(1, to)),
            None => update.run(&key, |_, row| row.set(1, to)),
        };
        Ok(found?.is_some())
    }

    fn remove(&self, by: Option<&mut Transaction<'_>>, number: u32) -> Result<bool, Error> {
        let delete = self.accounts.prepare_delete("primary").unwrap();
        match by {
            Some(transaction) => delete.run_in(transaction, &[number.into()]),
            None => delete.run(&[number.into()]),
        }
    }

    fn balance(&self, number: u32) -> Option<i64> {
        let now = self.database.snapshot();
        self.get.run(&now, &[number.into()], |row| row.get(1)).unwrap()
    }

    fn check(&self) {
        assert_eq!(self.database.check().unwrap(), []);
    }
}

#[test]
fn a_row_that_is_locked_is_read_and_not_changed() {
    let bank = bank();
    let mut first = bank.database.begin().unwrap();
    let mut second = bank.database.begin().unwrap();
    for _ in 0..2 {
        assert_eq!(bank.lock(&mut first, 1, LockMode::Wait).unwrap(), Some(100));
    }
    assert_eq!(bank.lock(&mut first, 9, LockMode::Wait).unwrap(), None);
    assert_eq!((first.statement(), bank.balance(1)), (0, Some(100)));
    let refused = [
        bank.set(None, 1, 0).map(drop),
        bank.set(Some(&mut second), 1, 0).map(drop),
        bank.remove(None, 1).map(drop),
        bank.lock(&mut second, 1, LockMode::NoWait).map(drop),
        bank.lock(&mut second, 1, LockMode::Wait).map(drop),
    ];
    for refused in refused {
        let Err(Error::Conflict { holder, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(holder, Some(first.token()));
    }
    assert_eq!(bank.lock(&mut second, 1, LockMode::Skip).unwrap(), None);
    // It has its key.
    let refused = bank.accounts.insert(&[1.into(), 0.into()]);
    assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
    bank.check();
    first.commit().unwrap();
    assert_eq!(bank.lock(&mut second, 1, LockMode::Skip).unwrap(), Some(100));
    drop(second);
    assert!(bank.set(None, 1, 1).unwrap());
    bank.check();
}

#[test]
fn a_row_that_is_locked_may_be_changed_and_removed_by_its_transaction() {
    let bank = bank();
    for is_commit in [false, true] {
        let mut transaction = bank.database.begin().unwrap();
        for number in 1..=3 {
            assert_eq!(bank.lock(&mut transaction, number, LockMode::Wait).unwrap(), Some(100));
        }
        assert!(bank.set(Some(&mut transaction), 1, 7).unwrap());
        assert!(bank.remove(Some(&mut transaction), 2).unwrap());
        // Refused, or without effect: it stays locked.
        let update = bank.accounts.prepare_update("primary").unwrap();
        let twice = update.run_in(&mut transaction, &[3.into()], |_, row| row.set(0, 4));
        assert!(matches!(twice, Err(Error::Unique { .. })), "{twice:?}");
        assert!(update.run_in(&mut transaction, &[3.into()], |_, _| Ok(())).unwrap().is_some());
        assert!(matches!(bank.set(None, 3, 0), Err(Error::Conflict { .. })));
        assert_eq!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap(), Some(7));
        assert_eq!(bank.lock(&mut transaction, 2, LockMode::Wait).unwrap(), None);
        bank.check();
        match is_commit {
            true => transaction.commit().unwrap(),
            false => transaction.abort().unwrap(),
        }
        bank.check();
        let after = if is_commit { [Some(7), None, Some(100)] } else { [Some(100); 3] };
        assert_eq!([1, 2, 3].map(|number| bank.balance(number)), after);
    }
    assert!(bank.set(None, 1, 0).unwrap() && bank.set(None, 3, 0).unwrap());
    bank.accounts.insert(&[2.into(), 0.into()]).unwrap();
    bank.database.collect().unwrap();
    bank.check();
}

#[test]
fn a_row_is_locked_as_the_transaction_sees_it() {
    let bank = bank();
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.set(None, 1, 1).unwrap());
    let refused = bank.lock(&mut transaction, 1, LockMode::Wait);
    assert!(matches!(refused, Err(Error::Overtaken { .. })), "{refused:?}");
    assert!(bank.set(None, 1, 2).unwrap());
    transaction.refresh().unwrap();
    assert_eq!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap(), Some(2));
}

#[test]
fn who_waits_for_a_lock_gets_the_row_when_the_transaction_has_ended() {
    for is_commit in [true, false] {
        let bank = bank();
        let (mut first, mut second) = (bank.begin(), bank.begin_to_wait());
        assert!(bank.lock(&mut first, 1, LockMode::Wait).unwrap().is_some());
        assert!(bank.set(Some(&mut first), 2, 7).unwrap());
        bank.database.set_wait(LONG);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| bank.lock(&mut second, 1, LockMode::Wait));
            thread::sleep(A_WHILE);
            assert!(!waiter.is_finished());
            match is_commit {
                true => first.commit().unwrap(),
                false => first.abort().unwrap(),
            }
            // It was not changed.
            assert_eq!(waiter.join().unwrap().unwrap(), Some(100));
        });
        // What was committed under the lock is seen by then.
        second.refresh().unwrap();
        let seen = bank.get.run(&second, &[2.into()], |row| row.get(1)).unwrap();
        assert_eq!(seen, Some(if is_commit { 7 } else { 100 }));
        thread::scope(|scope| {
            // A statement that is a transaction waits, too.
            let waiter = scope.spawn(|| bank.set(None, 1, 5));
            thread::sleep(A_WHILE);
            assert!(!waiter.is_finished());
            drop(second);
            assert!(waiter.join().unwrap().unwrap());
        });
        assert_eq!(bank.balance(1), Some(5));
        bank.check();
    }
}

#[test]
fn of_those_who_wait_for_each_others_locks_one_is_refused() {
    let bank = bank();
    let (mut one, mut other) = (bank.begin_to_wait(), bank.begin_to_wait());
    assert!(bank.lock(&mut one, 1, LockMode::Wait).unwrap().is_some());
    // A lock, and a change: it makes no difference.
    assert!(bank.set(Some(&mut other), 2, 7).unwrap());
    let names = [one.token(), other.token()];
    let refused = AtomicU64::new(0);
    let wait = |mut by: Transaction<'_>, number, holder| {
        match bank.lock(&mut by, number, LockMode::Wait) {
            Err(Error::Deadlock { holder: found, .. }) => {
                assert_eq!(found, Some(holder));
                refused.fetch_add(1, Ordering::SeqCst);
            }
            // The other one was refused, and gave up what it had.
            locked => assert_eq!(locked.unwrap(), Some(100)),
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| wait(one, 2, names[1]));
        scope.spawn(|| wait(other, 1, names[0]));
    });
    assert_eq!(refused.into_inner(), 1);
    bank.check();
}

#[test]
fn locks_are_kept_while_a_transaction_is_suspended_and_until_its_time_is_over() {
    let bank = bank();
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    let options = TransactionOptions::new().time_limit(Duration::from_secs(1));
    let mut transaction = bank.database.begin_with(&options).unwrap();
    for number in 1..=4 {
        assert!(bank.lock(&mut transaction, number, LockMode::Wait).unwrap().is_some());
    }
    let token = transaction.suspend();
    assert!(matches!(bank.set(None, 1, 0), Err(Error::Conflict { .. })));
    let Resumed::Open(transaction) = bank.database.resume(token).unwrap() else { panic!("it is") };
    assert!(matches!(bank.set(None, 1, 0), Err(Error::Conflict { .. })));
    transaction.suspend();
    now_ms.store(999, Ordering::Relaxed);
    let mut other = bank.begin();
    assert_eq!(bank.lock(&mut other, 1, LockMode::Skip).unwrap(), None);
    now_ms.store(1_000, Ordering::Relaxed);
    // Whoever meets one of its locks first has it given up.
    assert_eq!(bank.lock(&mut other, 1, LockMode::Skip).unwrap(), Some(100));
    assert_eq!(bank.lock(&mut other, 2, LockMode::NoWait).unwrap(), Some(100));
    assert!(bank.set(None, 3, 0).unwrap() && bank.remove(None, 4).unwrap());
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
    bank.check();
}

#[test]
fn what_is_changed_and_not_written_is_kept_until_its_time_is_over() {
    let bank = bank();
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    let options = TransactionOptions::new().time_limit(Duration::from_secs(1));
    for mode in [LockMode::Skip, LockMode::NoWait] {
        let at_commit = options.durability(Durability::AtCommit);
        let mut transaction = bank.database.begin_with(&at_commit).unwrap();
        assert!(bank.set(Some(&mut transaction), 1, 0).unwrap());
        let token = transaction.suspend();
        let mut other = bank.begin();
        assert!(!matches!(bank.lock(&mut other, 1, mode), Ok(Some(_))));
        now_ms.fetch_add(1_000, Ordering::Relaxed);
        assert_eq!(bank.lock(&mut other, 1, mode).unwrap(), Some(100));
        assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
    }
    bank.check();
}

#[test]
fn closing_takes_locks_away() {
    let bank = bank();
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap().is_some());
    assert!(bank.set(Some(&mut transaction), 2, 7).unwrap());
    let token = transaction.suspend();
    let mut forgotten = bank.database.begin().unwrap();
    assert!(bank.lock(&mut forgotten, 3, LockMode::Wait).unwrap().is_some());
    std::mem::forget(forgotten);
    let Bank { pool, database, accounts, get } = bank;
    drop((database, accounts, get));
    let database = Database::open(&pool, "bank").unwrap();
    let accounts = database.table("accounts").unwrap();
    let get = accounts.prepare_get("primary").unwrap();
    let bank = Bank { pool, database, accounts, get };
    assert!(bank.set(None, 1, 5).unwrap() && bank.set(None, 3, 5).unwrap());
    let Resumed::Open(transaction) = bank.database.resume(token).unwrap() else { panic!("it is") };
    assert!(matches!(bank.set(None, 2, 0), Err(Error::Conflict { .. })));
    transaction.commit().unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(5), Some(7)));
    bank.check();
}

#[test]
fn rows_that_were_to_be_folded_while_they_were_locked_are_folded_later() {
    let bank = bank();
    let mut used = 0;
    for round in 0..400 {
        let mut locker = bank.database.begin().unwrap();
        for number in 1..=4 {
            assert!(bank.set(None, number, round).unwrap());
        }
        locker.refresh().unwrap();
        for number in 1..=4 {
            assert!(bank.lock(&mut locker, number, LockMode::Wait).unwrap().is_some());
        }
        if round % 16 == 0 {
            // It comes to an end, although these rows cannot be folded.
            bank.database.collect().unwrap();
        }
        for number in 10..14 {
            bank.accounts.insert(&[number.into(), 0.into()]).unwrap();
            assert!(bank.remove(None, number).unwrap());
        }
        match round % 3 {
            0 => locker.commit().unwrap(),
            1 => locker.abort().unwrap(),
            _ => {
                for number in 1..=4 {
                    assert!(bank.set(Some(&mut locker), number, round + 1).unwrap());
                }
                drop(locker);
            }
        }
        if round == 100 {
            used = bank.pool.check().unwrap().chunks_used;
        }
    }
    let used_now = bank.pool.check().unwrap().chunks_used;
    assert!(used_now <= used + 1, "{used} chunks, and then {used_now}");
    assert!(bank.database.collect().unwrap() > 0);
    bank.check();
}

#[test]
fn a_lock_is_no_statement() {
    let bank = bank();
    let mut transaction = bank.begin();
    // A lock as the last statement: nothing was changed, and the transaction is over.
    let last = transaction.commit_with(|last| bank.lock(last, 1, LockMode::Wait)).unwrap();
    assert_eq!((last, transaction.statement()), (Some(100), 0));
    let ended = bank.lock(&mut transaction, 1, LockMode::Wait);
    assert!(matches!(ended, Err(Error::TransactionEnded)), "{ended:?}");
    assert!(bank.set(None, 1, 1).unwrap());
    // Behind the statement that commits, it is over as well.
    let mut transaction = bank.begin();
    let ended = transaction.commit_with(|last| {
        bank.set(Some(last), 1, 2)?;
        bank.lock(last, 2, LockMode::Wait)
    });
    assert!(matches!(ended, Err(Error::TransactionEnded)), "{ended:?}");
    assert!(bank.set(None, 1, 3).unwrap() && bank.set(None, 2, 3).unwrap());
    // One whose last statement is refused goes on, and keeps its locks.
    let mut transaction = bank.begin();
    assert!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap().is_some());
    let refused = transaction
        .commit_with(|last| bank.accounts.insert_in(last, &[2.into(), 0.into()]).map(drop));
    assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
    assert!(matches!(bank.set(None, 1, 4), Err(Error::Conflict { .. })));
    // What `read` refuses stays locked; a wrong key, or NULL, locks nothing.
    let failed = bank
        .get
        .lock_in(&mut transaction, &[2.into()], LockMode::Wait, |row| row.get::<&str>(1).map(drop));
    assert!(failed.is_err() && bank.set(None, 2, 4).is_err());
    let none = [remanent_engine::Value::Null];
    let found = bank.get.lock_in(&mut transaction, &none, LockMode::Wait, |_| Ok(()));
    assert_eq!(found.unwrap(), None);
    assert!(bank.get.lock_in(&mut transaction, &[], LockMode::Wait, |_| Ok(())).is_err());
    drop(transaction);
    assert!(bank.set(None, 1, 4).unwrap() && bank.set(None, 2, 4).unwrap());
    bank.check();
}

#[test]
fn a_row_whose_removal_is_pending_is_had_by_who_removes_it() {
    for is_commit in [true, false] {
        let bank = bank();
        let (mut remover, mut other) = (bank.begin(), bank.begin());
        assert!(bank.remove(Some(&mut remover), 1).unwrap());
        assert_eq!(bank.lock(&mut other, 1, LockMode::Skip).unwrap(), None);
        let refused = bank.lock(&mut other, 1, LockMode::NoWait);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        match is_commit {
            true => remover.commit().unwrap(),
            false => remover.abort().unwrap(),
        }
        // It was passed over because somebody had it, not because it was gone.
        match (is_commit, bank.lock(&mut other, 1, LockMode::Skip)) {
            (true, Err(Error::Overtaken { .. })) | (false, Ok(Some(100))) => {}
            (_, locked) => panic!("{locked:?}"),
        }
        other.refresh().unwrap();
        let after = (!is_commit).then_some(100);
        assert_eq!(bank.lock(&mut other, 1, LockMode::Skip).unwrap(), after);
        bank.check();
    }
}

#[test]
fn a_key_of_a_locked_row_is_taken_until_its_change_is_committed() {
    let bank = bank();
    let update = bank.accounts.prepare_update("primary").unwrap();
    let mut transaction = bank.begin_to_wait();
    assert!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap().is_some());
    // Nobody has to wait for who may change the row: it has the key.
    bank.database.set_wait(LONG);
    let taken = bank.accounts.insert(&[1.into(), 0.into()]);
    assert!(matches!(taken, Err(Error::Unique { .. })), "{taken:?}");
    let taken = update.run(&[2.into()], |_, row| row.set(0, 1u32));
    assert!(matches!(taken, Err(Error::Unique { .. })), "{taken:?}");
    thread::scope(|scope| {
        update.run_in(&mut transaction, &[1.into()], |_, row| row.set(0, 9u32)).unwrap();
        // Now the key may become free, and it does.
        let waiter = scope.spawn(|| bank.accounts.insert(&[1.into(), 0.into()]));
        thread::sleep(A_WHILE);
        assert!(!waiter.is_finished());
        transaction.commit().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!((bank.balance(1), bank.balance(9)), (Some(0), Some(100)));
    bank.check();
}

/// Who folds a row has it for a fence, and nobody passes over it because of that.
#[test]
fn a_row_that_is_being_folded_is_not_passed_over() {
    let bank = bank();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                bank.database.collect().unwrap();
            }
        });
        let passed_over = (0..3_000).find(|round| {
            // Nobody else has the row: it has a version that can be folded, and is locked then.
            assert!(bank.set(None, 1, *round).unwrap());
            let mut transaction = bank.begin();
            let locked = bank.lock(&mut transaction, 1, LockMode::Skip).unwrap();
            let again = bank.lock(&mut transaction, 1, LockMode::NoWait).unwrap();
            (locked, again) != (Some(*round), Some(*round))
        });
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(passed_over, None);
    });
    bank.check();
}

#[test]
fn a_table_is_dropped_although_rows_of_it_are_locked() {
    let bank = bank();
    let mut transaction = bank.begin();
    assert!(bank.set(None, 1, 1).unwrap());
    transaction.refresh().unwrap();
    assert!(bank.lock(&mut transaction, 1, LockMode::Wait).unwrap().is_some());
    bank.database.collect().unwrap();
    bank.database.drop_table("accounts").unwrap();
    let refused = bank.lock(&mut transaction, 2, LockMode::Wait);
    assert!(matches!(refused, Err(Error::NoSuchTable { .. })), "{refused:?}");
    transaction.commit().unwrap();
    let Bank { pool, database, accounts, get } = bank;
    drop((accounts, get));
    database.collect().unwrap();
    assert_eq!(database.check().unwrap(), []);
    drop(database);
    let database = Database::open(&pool, "bank").unwrap();
    assert_eq!((database.tables(), database.check().unwrap()), (vec![], vec![]));
}

/// What threads have of the same rows.
struct Race {
    bank: Bank,
    /// Whether somebody has locked a row.
    is_locked: [AtomicBool; 4],
    deadlocks: AtomicU64,
}

impl Race {
    /// Locks a row; `None` if that is refused, or the row is passed over.
    fn lock(&self, by: &mut Transaction<'_>, number: u32, mode: LockMode) -> Option<i64> {
        match self.bank.lock(by, number, mode) {
            Ok(None) => {
                assert_eq!(mode, LockMode::Skip);
                None
            }
            Ok(found) => {
                let was_locked = self.is_locked[number as usize - 1].swap(true, Ordering::SeqCst);
                assert!(!was_locked, "somebody else has row {number}");
                found
            }
            Err(Error::Overtaken { .. }) => None,
            Err(Error::Conflict { .. }) => {
                assert_eq!(mode, LockMode::NoWait);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn add(&self, by: &mut Transaction<'_>, number: u32, sum: i64) -> Result<i64, Error> {
        let update = self.bank.accounts.prepare_update("primary")?;
        let added = update.run_in(by, &[number.into()], |row, account| {
            account.set(1, row.get::<i64>(1)? + sum)
        })?;
        Ok(added.map_or(0, |()| sum))
    }

    /// Locks a row, and changes it or another one, or both. Returns by how much.
    fn work(&self, thread: u32, round: u32) -> i64 {
        let options = TransactionOptions::new().time_limit(Duration::ZERO).wait(LONG);
        let mut transaction = self.bank.database.begin_with(&options).unwrap();
        let (own, other) = (1 + (thread + round) % 4, 1 + (thread * 3 + round / 3) % 4);
        let mode = [LockMode::Wait, LockMode::NoWait, LockMode::Skip][round as usize % 3];
        if self.lock(&mut transaction, own, mode).is_none() {
            return 0;
        }
        transaction.refresh().unwrap();
        let added = self.add(&mut transaction, other, i64::from(round % 5)).and_then(|added| {
            let is_own_changed = round.is_multiple_of(7);
            Ok(added + if is_own_changed { self.add(&mut transaction, own, 1)? } else { 0 })
        });
        self.is_locked[own as usize - 1].store(false, Ordering::SeqCst);
        match added {
            Ok(_) if round.is_multiple_of(5) => transaction.abort().unwrap(),
            // Whoever meets it gives it up: its time is over.
            Ok(_) if round.is_multiple_of(11) => drop(transaction.suspend()),
            Ok(added) => {
                transaction.commit().unwrap();
                return added;
            }
            Err(Error::Deadlock { .. }) => drop(self.deadlocks.fetch_add(1, Ordering::Relaxed)),
            Err(Error::Overtaken { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        0
    }
}

/// Threads lock rows in any order and change some of them, beside folding and transactions that are
/// left. Who has locked a row is alone with it.
#[test]
fn threads_that_lock_and_change_the_same_rows_exclude_each_other() {
    const TIME: Duration = Duration::from_secs(2);
    let race = Race { bank: bank(), is_locked: Default::default(), deadlocks: 0.into() };
    let (sum, begun) = (AtomicI64::new(400), std::time::Instant::now());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (sum, race) = (&sum, &race);
            scope.spawn(move || {
                let mut round = 0;
                while begun.elapsed() < TIME {
                    sum.fetch_add(race.work(thread, round), Ordering::Relaxed);
                    round += 1;
                    if round % 16 == thread {
                        race.bank.database.collect().unwrap();
                    }
                }
                println!("{round} rounds of thread {thread}");
            });
        }
    });
    let Race { bank, deadlocks, .. } = race;
    println!("{} deadlocks", deadlocks.into_inner());
    bank.database.collect().unwrap();
    assert_eq!((1..=4).map(|number| bank.balance(number).unwrap()).sum::<i64>(), sum.into_inner());
    bank.check();
    // No lock is left.
    assert!((1..=4).all(|number| bank.set(None, number, 0).unwrap()));
}

/// One transaction locks a row and moves its key away, while others insert rows with that key.
#[test]
fn inserts_beside_locks_never_bring_a_key_twice() {
    let bank = bank();
    bank.database.set_wait(LONG);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let inserter = scope.spawn(|| {
            let mut inserted = 0;
            while !is_done.load(Ordering::Relaxed) {
                match bank.accounts.insert(&[1.into(), 0.into()]) {
                    Ok(_) => inserted += 1,
                    Err(Error::Unique { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            inserted
        });
        let mut moved = 0u32;
        for round in 0..2_000 {
            let mut transaction = bank.begin_to_wait();
            // The inserter may have committed it since the transaction began.
            match bank.lock(&mut transaction, 1, LockMode::Wait) {
                Ok(Some(_)) => {}
                Ok(None) | Err(Error::Overtaken { .. }) => continue,
                Err(error) => panic!("{error}"),
            }
            let update = bank.accounts.prepare_update("primary").unwrap();
            let to = 100 + round;
            update.run_in(&mut transaction, &[1.into()], |_, row| row.set(0, to)).unwrap();
            match round % 3 {
                0 => transaction.abort().unwrap(),
                _ => {
                    transaction.commit().unwrap();
                    moved += 1;
                }
            }
        }
        is_done.store(true, Ordering::Relaxed);
        let inserted = inserter.join().unwrap();
        // There was one at the beginning, and there is one or none.
        assert!(inserted + 1 - moved <= 1, "{inserted} were inserted, and {moved} moved away");
        let mut count = 0u32;
        let now = bank.database.snapshot();
        let all = bank.accounts.scan(&now, |_| {
            count += 1;
            std::ops::ControlFlow::<()>::Continue(())
        });
        assert_eq!((all.unwrap(), count), (None, 4 + inserted));
    });
    bank.check();
}

#[test]
fn workers_share_rows_by_passing_over_those_that_others_have() {
    const JOBS: u32 = 300;
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "queue").unwrap();
    let spec = TableSpec::new("jobs").column("number", Type::U32).primary_key(["number"]);
    let jobs = database.create_table(&spec).unwrap();
    for number in 0..JOBS {
        jobs.insert(&[number.into()]).unwrap();
    }
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let get = jobs.prepare_get("primary").unwrap();
                let delete = jobs.prepare_delete("primary").unwrap();
                while done.load(Ordering::Relaxed) < u64::from(JOBS) {
                    let mut worker = database.begin().unwrap();
                    let taken = (0..JOBS).find(|number| {
                        let locked =
                            get.lock_in(&mut worker, &[(*number).into()], LockMode::Skip, |_| {
                                Ok(())
                            });
                        match locked {
                            Ok(found) => found.is_some(),
                            Err(Error::Overtaken { .. }) => false,
                            Err(error) => panic!("{error}"),
                        }
                    });
                    if let Some(number) = taken {
                        assert!(delete.run_in(&mut worker, &[number.into()]).unwrap());
                        worker.commit().unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(done.into_inner(), u64::from(JOBS));
    assert_eq!(database.check().unwrap(), []);
}
