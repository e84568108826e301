//! What a crash leaves of transactions that came one after the other in a slot, and what damage or
//! an unfriendly program makes of them. Lines that a crash loses are written back by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use remanent_crashsim::{Sim, SimOptions};
use remanent_engine::{
    Database, Error, Moment, Placement, Resumed, RowId, Table, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::pool::Format;
use remanent_pmem::{Medium, Pool};

type M = Arc<Sim>;

struct Bank {
    pool: Pool<M>,
    database: Database<M>,
    table: Table<M>,
}

fn bank() -> Bank {
    bank_in(Placement::Pmem)
}

/// Its index lies there.
fn bank_in(placement: Placement) -> Bank {
    let size_max = 32 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    let pool = Pool::format(Arc::new(sim), &Format::new(size_max)).unwrap();
    let database = Database::create(&pool, "bank").unwrap();
    let spec = TableSpec::new("accounts")
        .column("number", Type::U32)
        .column("balance", Type::I64)
        .primary_key(["number"])
        .place(["primary"], placement);
    let table = database.create_table(&spec).unwrap();
    for number in 1..=3u32 {
        table.insert(&[number.into(), 100.into()]).unwrap();
    }
    Bank { pool, database, table }
}

impl Bank {
    fn set_in(
        &self,
        by: &mut Transaction<'_, M>,
        number: u32,
        balance: i64,
    ) -> Result<bool, Error> {
        let update = self.table.prepare_update("primary")?;
        Ok(update.run_in(by, &[number.into()], |_, row| row.set(1, balance))?.is_some())
    }

    fn set(&self, number: u32, balance: i64) -> Result<bool, Error> {
        let update = self.table.prepare_update("primary")?;
        Ok(update.run(&[number.into()], |_, row| row.set(1, balance))?.is_some())
    }

    fn insert_in(&self, by: &mut Transaction<'_, M>, number: u32) -> RowId {
        self.table.insert_in(by, &[number.into(), 0.into()]).unwrap()
    }

    fn get(&self, moment: &impl Moment<M>, number: u32) -> Option<i64> {
        let get = self.table.prepare_get("primary").unwrap();
        get.run(moment, &[number.into()], |row| row.get(1)).unwrap()
    }

    fn now(&self, number: u32) -> Option<i64> {
        self.get(&self.database.snapshot(), number)
    }

    /// Offset of a row's head, in the only tile.
    fn head(&self, row: RowId) -> u64 {
        let medium = self.pool.medium();
        let is_tile = |at: &u64| medium.load(*at) >> 32 == 0x7469_6c65 && medium.load(at + 8) == 0;
        let tile = (0..medium.len()).step_by(1 << 16).find(is_tile).unwrap();
        tile + 64 + row.get() * 16
    }

    /// The process is killed, and more than that is lost as `meanwhile` says.
    fn killed(self, meanwhile: impl FnOnce(&M)) -> Bank {
        let medium = Arc::clone(self.pool.medium());
        std::mem::forget(self);
        meanwhile(&medium);
        let pool = Pool::recover(medium).unwrap();
        let database = Database::open(&pool, "bank").unwrap();
        let table = database.table("accounts").unwrap();
        Bank { pool, database, table }
    }

    fn check(&self) {
        let violations = self.database.check().unwrap();
        assert!(violations.is_empty(), "{violations:?}");
    }
}

fn open(resumed: Resumed<'_, M>) -> Transaction<'_, M> {
    match resumed {
        Resumed::Open(transaction) => transaction,
        other => panic!("the transaction is {other:?}"),
    }
}

/// One that expires at once.
fn hasty() -> TransactionOptions {
    TransactionOptions::new().time_limit(Duration::ZERO)
}

/// Fails if something takes so long that it will never end.
fn ends(action: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        action();
        done.send(()).unwrap();
    });
    wait.recv_timeout(Duration::from_secs(30)).expect("it ends, and does not panic");
}

#[test]
fn the_commit_before_an_open_transaction_outlives_two_crashes() {
    for time_limit in [Duration::from_secs(60), Duration::ZERO] {
        let bank = bank();
        let mut first = bank.database.begin().unwrap();
        let row = bank.insert_in(&mut first, 10);
        let (head, medium) = (bank.head(row), bank.pool.medium());
        let before = [medium.load(head), medium.load(head + 8)];
        let of_first = first.token();
        first.commit().unwrap();
        let options = TransactionOptions::new().time_limit(time_limit);
        let mut second = bank.database.begin_with(&options).unwrap();
        bank.insert_in(&mut second, 11);
        let token = second.suspend();
        // The second one's record has arrived, the head of the first one's row has not.
        let bank = bank.killed(|medium| {
            medium.store(head, before[0]);
            medium.store(head + 8, before[1]);
        });
        assert_eq!(bank.now(10), Some(0));
        // Either writes a record over that of the first one's commit.
        match bank.database.resume(token).unwrap() {
            Resumed::Open(mut second) => {
                bank.insert_in(&mut second, 12);
                second.suspend();
            }
            ended => assert!(matches!(ended, Resumed::Aborted) && time_limit.is_zero()),
        }
        let bank = bank.killed(|_| ());
        assert_eq!(bank.now(10), Some(0));
        assert!(matches!(bank.database.resume(of_first).unwrap(), Resumed::Committed));
        bank.database.collect().unwrap();
        assert_eq!(bank.now(10), Some(0));
        bank.check();
    }
}

#[test]
fn a_sweep_looks_below_what_is_open() {
    let bank = bank();
    let mut first = bank.database.begin().unwrap();
    let mut second = bank.database.begin().unwrap();
    assert!(bank.set_in(&mut first, 1, 70).unwrap());
    first.commit().unwrap();
    let medium = bank.pool.medium();
    let committed = medium.load(bank.head(RowId::new(0).unwrap()));
    let stamp_at = (committed & ((1 << 48) - 1)) + 16;
    second.refresh().unwrap();
    assert!(bank.set_in(&mut second, 1, 60).unwrap());
    let token = second.suspend();
    // The first one's version does not say its stamp yet: slot 0, transaction 1.
    let bank = bank.killed(|medium| medium.store(stamp_at, 1 << 63 | 1));
    assert_eq!(bank.now(1), Some(70));
    bank.database.collect().unwrap();
    for number in 20..24 {
        let mut other = bank.database.begin().unwrap();
        bank.insert_in(&mut other, number);
        other.commit().unwrap();
    }
    assert_eq!(bank.now(1), Some(70));
    let second = open(bank.database.resume(token).unwrap());
    assert_eq!(bank.get(&second, 1), Some(60));
    second.commit().unwrap();
    assert_eq!(bank.now(1), Some(60));
    bank.check();
}

#[test]
fn a_claim_of_nobody_is_damage() {
    let bank = bank();
    let head = bank.head(RowId::new(0).unwrap());
    let bank = bank.killed(|medium| medium.store(head + 8, 6 << 60));
    assert_eq!(bank.database.check().unwrap().len(), 1);
    ends(move || {
        assert!(matches!(bank.set(1, 5), Err(Error::Pool(_))));
        let mut transaction = bank.database.begin().unwrap();
        assert!(matches!(bank.set_in(&mut transaction, 1, 5), Err(Error::Pool(_))));
        assert!(bank.set_in(&mut transaction, 2, 5).unwrap());
        transaction.commit().unwrap();
        bank.database.collect().unwrap();
        assert_eq!((bank.now(1), bank.now(2)), (Some(100), Some(5)));
    });
}

#[test]
fn a_row_whose_newest_state_is_damaged_is_not_said_not_to_be_there() {
    let bank = bank_in(Placement::Dram);
    std::mem::forget(bank.database.snapshot()); // keeps the version from being folded
    let update = bank.table.prepare_update("primary").unwrap();
    update.run(&[1.into()], |_, row| row.set(0, 9u32)).unwrap();
    drop(update);
    let head = bank.head(RowId::new(0).unwrap());
    let bank = bank.killed(|medium| medium.store(medium.load(head) & ((1 << 48) - 1), 0));
    let get = bank.table.prepare_get("primary").unwrap();
    for number in [1u32, 9] {
        let found = get.run(&bank.database.snapshot(), &[number.into()], |_| Ok(()));
        assert!(matches!(found, Err(Error::Pool(_))), "{number}: {found:?}");
    }
    assert_eq!(bank.now(2), Some(100));
    assert_ne!(bank.database.check().unwrap(), []);
}

#[test]
fn a_crash_brings_a_moment_back_that_is_still_there() {
    let bank = bank();
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.set_in(&mut transaction, 1, 70).unwrap());
    assert!(bank.set(2, 55).unwrap());
    transaction.refresh().unwrap();
    assert_eq!(bank.get(&transaction, 2), Some(55));
    bank.database.collect().unwrap();
    let token = transaction.suspend();
    let bank = bank.killed(|_| ());
    let mut transaction = open(bank.database.resume(token).unwrap());
    assert_eq!(bank.get(&transaction, 2), Some(100));
    transaction.refresh().unwrap();
    assert!(bank.set_in(&mut transaction, 1, 71).unwrap());
    let token = transaction.suspend();
    bank.database.collect().unwrap();
    let bank = bank.killed(|_| ());
    let transaction = open(bank.database.resume(token).unwrap());
    assert_eq!(bank.get(&transaction, 2), Some(55));
}

#[test]
fn a_panic_in_the_last_statement_does_not_commit_the_next_one() {
    let bank = bank();
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.set_in(&mut transaction, 1, 70).unwrap());
    let last =
        std::panic::AssertUnwindSafe(|| transaction.commit_with::<()>(|_| panic!("on purpose")));
    assert!(std::panic::catch_unwind(last).is_err());
    assert!(bank.set_in(&mut transaction, 2, 70).unwrap());
    assert_eq!(bank.now(1), Some(100));
    transaction.abort().unwrap();
    bank.check();
}

#[test]
fn transactions_expire_although_nobody_meets_their_rows() {
    ends(|| {
        let bank = bank();
        for number in 0..256 {
            let mut lost = bank.database.begin_with(&hasty()).unwrap();
            bank.insert_in(&mut lost, 100 + number);
            lost.suspend();
        }
        drop(bank.database.begin().unwrap());
        assert!(bank.database.open_transactions().is_empty());
        bank.database.begin_with(&hasty()).unwrap().suspend();
        for balance in 0..200 {
            assert!(bank.set(1, balance).unwrap());
        }
        assert!(bank.database.collect().unwrap() > 0);
        bank.check();
    });
}

#[test]
fn a_token_is_answered_whatever_others_do_with_its_slot() {
    let bank = bank();
    let nothing = bank.database.begin().unwrap();
    let of_nothing = nothing.token();
    nothing.commit().unwrap();
    let mut other = bank.database.begin().unwrap();
    bank.insert_in(&mut other, 50);
    assert!(matches!(bank.database.resume(of_nothing).unwrap(), Resumed::Aborted));
    let of_other = other.token();
    assert!(matches!(bank.database.resume(of_other), Err(Error::InUse { .. })));
    other.commit().unwrap();
    ends(move || {
        // A statement has the slot meanwhile.
        let update = bank.table.prepare_update("primary").unwrap();
        let asked = update.run(&[2.into()], |_, _| {
            assert!(matches!(bank.database.resume(of_other)?, Resumed::Committed));
            Ok(())
        });
        assert!(asked.unwrap().is_some());
        let mut suspended = bank.database.begin().unwrap();
        assert!(bank.set_in(&mut suspended, 1, 1).unwrap());
        let token = suspended.suspend();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    bank.database.open_transactions();
                }
            });
            for _ in 0..20_000 {
                open(bank.database.resume(token).unwrap()).suspend();
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn who_asks_for_the_name_after_the_commit_is_answered_by_the_next_opening() {
    for is_killed in [false, true] {
        let mut bank = bank();
        let mut change = bank.database.begin().unwrap();
        change.commit_with(|last| bank.set_in(last, 1, 1)).unwrap();
        let token = change.token();
        drop(change);
        // They take the place of its records.
        for balance in [2, 3] {
            assert!(bank.set(1, balance).unwrap());
        }
        for opening in 0..3 {
            bank = match is_killed {
                true => bank.killed(|_| {}),
                false => {
                    let Bank { pool, database, table } = bank;
                    drop((database, table));
                    let database = Database::open(&pool, "bank").unwrap();
                    let table = database.table("accounts").unwrap();
                    Bank { pool, database, table }
                }
            };
            assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
            bank.database.collect().unwrap();
            let mut next = bank.database.begin().unwrap();
            assert_eq!(next.token().to_string()[..2], token.to_string()[..2], "the same slot");
            bank.insert_in(&mut next, 10 + opening);
            next.commit().unwrap();
            assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
        }
        bank.check();
    }
}

#[test]
fn a_transaction_that_is_forgotten_does_not_keep_the_database_from_closing() {
    ends(|| {
        let bank = bank();
        let mut forgotten = bank.database.begin().unwrap();
        assert!(bank.set_in(&mut forgotten, 1, 1).unwrap());
        let token = forgotten.token();
        std::mem::forget(forgotten);
        // Closing it leaves the transaction as it is.
        let Bank { pool, database, table } = bank;
        drop((database, table));
        let database = Database::open(&pool, "bank").unwrap();
        let table = database.table("accounts").unwrap();
        let bank = Bank { pool, database, table };
        assert_eq!(bank.now(1), Some(100));
        open(bank.database.resume(token).unwrap()).commit().unwrap();
        assert_eq!(bank.now(1), Some(1));
        bank.check();
    });
}

#[test]
fn a_commit_outlives_folding_of_the_row_that_its_last_statement_inserted() {
    let bank = bank();
    let other = bank.database.begin().unwrap(); // has the first slot
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.set_in(&mut transaction, 1, 70).unwrap());
    let row = transaction.commit_with(|last| Ok(bank.insert_in(last, 10))).unwrap();
    let token = transaction.token();
    drop((transaction, other));
    assert!(bank.set(10, 5).unwrap());
    bank.database.collect().unwrap();
    let head = bank.head(row);
    // The head's line was never flushed; the cells of the newer state were.
    let bank = bank.killed(|medium| {
        medium.store(head, 0);
        medium.store(head + 8, 0);
    });
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
    assert_eq!((bank.now(1), bank.now(10)), (Some(70), Some(5)));
    bank.database.collect().unwrap();
    assert_eq!((bank.now(1), bank.now(10)), (Some(70), Some(5)));
}

#[test]
fn a_sweep_leaves_no_row_out_while_others_look_at_slots() {
    for round in 0..20 {
        let bank = bank();
        let mut transaction = bank.database.begin().unwrap();
        for number in 10..300 {
            bank.insert_in(&mut transaction, number);
        }
        let rows = 10..300u32;
        let before: Vec<(u64, u64, u64)> = (0..bank.pool.medium().len())
            .step_by(8)
            .filter(|at| bank.pool.medium().load(*at) >> 61 == 3)
            .map(|at| (at, bank.pool.medium().load(at - 8), bank.pool.medium().load(at)))
            .collect();
        assert!(before.len() >= 290);
        match round % 2 {
            0 => transaction.commit().unwrap(),
            _ => {
                transaction.suspend();
            }
        }
        let mut bank = bank.killed(|medium| {
            for (at, committed, claim) in before {
                medium.store(at - 8, committed);
                medium.store(at, claim);
            }
        });
        if round % 2 != 0 {
            let token = bank.database.open_transactions()[0].token;
            let transaction = open(bank.database.resume(token).unwrap());
            transaction.commit().unwrap();
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        bank.database.open_transactions();
                    }
                });
            }
            bank.database.collect().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        // Its slot is used for others.
        for _ in 0..3 {
            let mut other = bank.database.begin().unwrap();
            assert!(bank.set_in(&mut other, 1, 1 + round).unwrap() || round > 0);
            other.commit().unwrap();
        }
        bank = bank.killed(|_| ());
        assert!(rows.clone().all(|number| bank.now(number) == Some(0)), "round {round}");
        bank.check();
    }
}

#[test]
fn a_last_statement_may_be_followed_by_one_that_meets_its_rows() {
    ends(|| {
        let bank = bank();
        let mut transaction = bank.database.begin().unwrap();
        assert!(bank.set_in(&mut transaction, 1, 70).unwrap());
        let token = transaction.suspend();
        let bank = bank.killed(|_| ());
        let mut transaction = open(bank.database.resume(token).unwrap());
        let done = transaction.commit_with(|last| {
            bank.set_in(last, 2, 71)?;
            bank.set(1, 72)
        });
        assert!(done.unwrap());
        assert_eq!((bank.now(1), bank.now(2)), (Some(72), Some(71)));
        bank.check();
    });
}

#[test]
fn slots_can_be_used_again_after_a_clean_close() {
    let mut bank = bank();
    for round in 0..20 {
        let mut transaction = bank.database.begin().unwrap();
        assert!(bank.set_in(&mut transaction, 1, round).unwrap());
        // The same slot each time, so that it is no orphan.
        assert!(transaction.token().to_string().starts_with("00"), "round {round}");
        transaction.commit().unwrap();
        assert!(bank.set(2, round).unwrap());
        let Bank { pool, database, table } = bank;
        drop((database, table));
        let database = Database::open(&pool, "bank").unwrap();
        let table = database.table("accounts").unwrap();
        bank = Bank { pool, database, table };
    }
    bank.check();
}

#[test]
fn a_statement_that_did_not_arrive_is_not_believed_because_its_row_was_changed_before() {
    let bank = bank();
    let mut transaction = bank.database.begin().unwrap();
    assert!(bank.set(1, 70).unwrap()); // in another slot
    transaction.refresh().unwrap();
    let (head, medium) = (bank.head(RowId::new(0).unwrap()), bank.pool.medium());
    let before = [medium.load(head), medium.load(head + 8)];
    assert!(bank.set_in(&mut transaction, 1, 71).unwrap());
    let version = (medium.load(head + 8) & ((1 << 43) - 1)) * 32;
    let token = transaction.suspend();
    let bank = bank.killed(|medium| {
        (version..version + 64).step_by(8).for_each(|at| medium.store(at, 0));
        medium.store(head, before[0]);
        medium.store(head + 8, before[1]);
    });
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
    assert_eq!(bank.now(1), Some(70));
    assert!(bank.set(1, 72).unwrap());
    bank.check();
}
