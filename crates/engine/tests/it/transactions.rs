//! Transactions of several statements: what they and others see, how they end, and going on after
//! the process is gone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, Moment, OpenTransaction, Resumed, Row, Table, TableSpec, Token,
    Transaction, TransactionOptions, Type,
};
use remanent_pmem::Pool;

struct Bank {
    pool: Pool,
    database: Database,
    accounts: Table,
}

fn bank() -> Bank {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "bank").unwrap();
    let spec = TableSpec::new("accounts")
        .column("number", Type::U32)
        .column("owner", Type::Text { max: 40 })
        .column("balance", Type::I64)
        .primary_key(["number"])
        .unique("by_owner", ["owner"])
        .index("by_balance", ["balance"]);
    let accounts = database.create_table(&spec).unwrap();
    for number in 1..=3u32 {
        insert(&accounts, None, number, 100).unwrap();
    }
    Bank { pool, database, accounts }
}

fn owner(number: u32) -> String {
    format!("owner {number}")
}

fn insert(
    accounts: &Table,
    transaction: Option<&mut Transaction<'_>>,
    number: u32,
    balance: i64,
) -> Result<(), Error> {
    let owner = owner(number);
    let values = [number.into(), owner.as_str().into(), balance.into()];
    match transaction {
        Some(transaction) => accounts.insert_in(transaction, &values).map(drop),
        None => accounts.insert(&values).map(drop),
    }
}

impl Bank {
    fn set(
        &self,
        by: Option<&mut Transaction<'_>>,
        number: u32,
        balance: i64,
    ) -> Result<bool, Error> {
        let update = self.accounts.prepare_update("primary").unwrap();
        let key = [number.into()];
        let found = match by {
            Some(transaction) => update.run_in(transaction, &key, |_, row| row.set(2, balance)),
            None => update.run(&key, |_, row| row.set(2, balance)),
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

    /// All accounts, each found by a scan and by its keys.
    fn accounts(&self, moment: &impl Moment) -> Vec<(u32, i64)> {
        let mut rows = Vec::new();
        let visit = |row: &Row<'_>| {
            rows.push((row.get::<u32>(0).unwrap(), row.get::<i64>(2).unwrap()));
            ControlFlow::<()>::Continue(())
        };
        self.accounts.scan(moment, visit).unwrap();
        rows.sort_unstable();
        let get = self.accounts.prepare_get("by_owner").unwrap();
        let find = self.accounts.prepare_find("by_balance").unwrap();
        for &(number, balance) in &rows {
            let owner = owner(number);
            let found = get.run(moment, &[owner.as_str().into()], |row| row.get::<i64>(2));
            assert_eq!(found.unwrap(), Some(balance), "account {number}");
            let is_it = |row: &Row<'_>| match row.get::<u32>(0).unwrap() == number {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let found = find.run(moment, &[balance.into()], is_it).unwrap();
            assert!(found.is_some(), "account {number} by its balance {balance}");
        }
        rows
    }

    fn now(&self) -> Vec<(u32, i64)> {
        self.accounts(&self.database.snapshot())
    }

    fn check(&self) {
        let violations = self.database.check().unwrap();
        assert!(violations.is_empty(), "{violations:?}");
    }

    /// What a process finds after this one.
    fn reopened(self) -> Bank {
        let Bank { pool, database, accounts } = self;
        drop((database, accounts));
        let database = Database::open(&pool, "bank").unwrap();
        let accounts = database.table("accounts").unwrap();
        Bank { pool, database, accounts }
    }
}

fn open(resumed: Resumed<'_>) -> Transaction<'_> {
    match resumed {
        Resumed::Open(transaction) => transaction,
        other => panic!("the transaction is {other:?}"),
    }
}

#[test]
fn nobody_else_sees_a_transaction_before_it_has_committed() {
    let bank = bank();
    let before = bank.database.snapshot();
    let mut transfer = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut transfer), 1, 70).unwrap());
    assert!(bank.set(Some(&mut transfer), 2, 130).unwrap());
    insert(&bank.accounts, Some(&mut transfer), 4, 1).unwrap();
    assert!(bank.remove(Some(&mut transfer), 3).unwrap());
    let after = [(1, 70), (2, 130), (4, 1)];
    assert_eq!(transfer.statement(), 4);
    assert_eq!(bank.accounts(&transfer), after);
    assert_eq!(bank.now(), [(1, 100), (2, 100), (3, 100)]);
    bank.check();
    transfer.commit().unwrap();
    assert_eq!(bank.now(), after);
    assert_eq!(bank.accounts(&before), [(1, 100), (2, 100), (3, 100)]);
    drop(before);
    bank.check();
    bank.database.collect().unwrap();
    assert_eq!(bank.now(), after);
    bank.check();
    assert_eq!(bank.reopened().now(), after);
}

#[test]
fn a_transaction_that_is_given_up_leaves_no_trace() {
    let bank = bank();
    let used = |bank: &Bank| bank.pool.check().unwrap().chunks_used;
    let mut used_before = 0;
    for round in 0..3 {
        let mut change = bank.database.begin().unwrap();
        for balance in 0..300 {
            assert!(bank.set(Some(&mut change), 1, balance).unwrap());
        }
        insert(&bank.accounts, Some(&mut change), 4, 1).unwrap();
        for balance in 2..150 {
            assert!(bank.set(Some(&mut change), 4, balance).unwrap());
        }
        assert!(bank.remove(Some(&mut change), 4).unwrap());
        insert(&bank.accounts, Some(&mut change), 4, 7).unwrap();
        assert!(bank.remove(Some(&mut change), 2).unwrap());
        match round {
            0 => change.abort().unwrap(),
            _ => drop(change),
        }
        assert_eq!(bank.now(), [(1, 100), (2, 100), (3, 100)]);
        bank.check();
        if round == 1 {
            used_before = used(&bank);
        }
    }
    assert_eq!(used(&bank), used_before);
    // Keys and rows can be used.
    insert(&bank.accounts, None, 4, 4).unwrap();
    assert!(bank.set(None, 1, 1).unwrap());
    bank.check();
}

#[test]
fn the_first_of_two_transactions_gets_a_row() {
    let bank = bank();
    let mut first = bank.database.begin().unwrap();
    let mut second = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut first), 1, 1).unwrap());
    let refused = bank.set(Some(&mut second), 1, 2).unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }) && refused.is_conflict(), "{refused}");
    assert!(matches!(bank.set(None, 1, 2), Err(Error::Conflict { .. })));
    assert!(matches!(bank.remove(None, 1), Err(Error::Conflict { .. })));
    first.commit().unwrap();
    let refused = bank.set(Some(&mut second), 1, 2).unwrap_err();
    assert!(matches!(refused, Error::Overtaken { .. }), "{refused}");
    assert_eq!(bank.accounts(&second)[0], (1, 100));
    second.refresh().unwrap();
    assert_eq!(bank.accounts(&second)[0], (1, 1));
    assert!(bank.set(Some(&mut second), 1, 2).unwrap());
    second.commit().unwrap();
    assert_eq!(bank.now()[0], (1, 2));

    let mut third = bank.database.begin().unwrap();
    assert!(bank.remove(None, 2).unwrap());
    assert!(matches!(bank.set(Some(&mut third), 2, 0), Err(Error::Overtaken { .. })));
    // It still sees the row that has had the key.
    let again = insert(&bank.accounts, Some(&mut third), 2, 0);
    assert!(matches!(again, Err(Error::Overtaken { .. })), "{again:?}");
    insert(&bank.accounts, None, 9, 9).unwrap();
    assert!(!bank.set(Some(&mut third), 9, 0).unwrap(), "it does not see the row");
    drop(third);
    bank.check();
}

#[test]
fn keys_are_taken_until_it_is_clear_who_gets_them() {
    let bank = bank();
    let mut change = bank.database.begin().unwrap();
    insert(&bank.accounts, Some(&mut change), 4, 4).unwrap();
    assert!(bank.remove(Some(&mut change), 3).unwrap());
    // 4 may come, and 3 may stay.
    for number in [3, 4] {
        let refused = insert(&bank.accounts, None, number, 0).unwrap_err();
        assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    }
    // Its own changes are settled for the transaction itself.
    let refused = insert(&bank.accounts, Some(&mut change), 4, 0).unwrap_err();
    assert!(matches!(refused, Error::Unique { .. }), "{refused}");
    insert(&bank.accounts, Some(&mut change), 3, 33).unwrap();
    let statement = change.statement();
    let refused = insert(&bank.accounts, Some(&mut change), 1, 0).unwrap_err();
    assert!(matches!(refused, Error::Unique { .. }), "{refused}");
    assert_eq!(change.statement(), statement, "what was refused does not count");
    bank.check();
    change.commit().unwrap();
    assert_eq!(bank.now(), [(1, 100), (2, 100), (3, 33), (4, 4)]);
    assert!(matches!(insert(&bank.accounts, None, 4, 0), Err(Error::Unique { .. })));
    bank.check();
    bank.database.collect().unwrap();
    bank.check();
}

#[test]
fn the_last_statement_commits() {
    let bank = bank();
    let mut transfer = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut transfer), 1, 70).unwrap());
    let token = transfer.token();
    // Refused, so it goes on.
    let last = |last: &mut Transaction<'_>| insert(&bank.accounts, Some(last), 2, 0);
    assert!(matches!(transfer.commit_with(last), Err(Error::Unique { .. })));
    assert_eq!(bank.accounts(&transfer)[0], (1, 70));
    let last = |last: &mut Transaction<'_>| bank.set(Some(last), 1, 60);
    assert!(transfer.commit_with(last).unwrap());
    assert_eq!(bank.now(), [(1, 60), (2, 100), (3, 100)]);
    assert!(matches!(bank.set(Some(&mut transfer), 1, 0), Err(Error::TransactionEnded)));
    assert!(matches!(transfer.commit(), Err(Error::TransactionEnded)));
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
    // One that finds nothing commits, too.
    let mut nothing = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut nothing), 2, 7).unwrap());
    assert!(!nothing.commit_with(|last| bank.remove(Some(last), 77)).unwrap());
    assert_eq!(bank.now()[1], (2, 7));
    bank.check();
}

#[test]
fn a_transaction_goes_on_where_the_last_process_stopped() {
    let mut bank = bank();
    let mut transfer = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut transfer), 1, 70).unwrap());
    insert(&bank.accounts, Some(&mut transfer), 4, 5).unwrap();
    let token = transfer.suspend();
    for round in 0..3 {
        bank = bank.reopened();
        assert_eq!(bank.now(), [(1, 100), (2, 100), (3, 100)]);
        assert!(matches!(bank.set(None, 1, 0), Err(Error::Conflict { .. })));
        let statement = 2 + 2 * round;
        assert_eq!(bank.database.open_transactions(), [OpenTransaction { token, statement }]);
        let mut transfer = open(bank.database.resume(token).unwrap());
        assert!(matches!(bank.database.resume(token), Err(Error::InUse { .. })));
        assert_eq!(transfer.statement(), statement);
        let balance = i64::from(round);
        assert!(bank.set(Some(&mut transfer), 1, 60 + balance).unwrap());
        assert!(bank.set(Some(&mut transfer), 4, 10 + balance).unwrap());
        assert_eq!(bank.accounts(&transfer)[3], (4, 10 + balance));
        bank.check();
        assert_eq!(transfer.suspend(), token);
    }
    let bank = bank.reopened();
    let mut transfer = open(bank.database.resume(token).unwrap());
    assert!(transfer.commit_with(|last| bank.set(Some(last), 2, 140)).unwrap());
    drop(transfer);
    assert_eq!(bank.now(), [(1, 62), (2, 140), (3, 100), (4, 12)]);
    bank.check();
    // Rows that still name their transaction can be changed, and are put right.
    assert!(bank.set(None, 1, 90).unwrap());
    let bank = bank.reopened();
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
    bank.check();
    bank.database.collect().unwrap();
    assert_eq!(bank.now(), [(1, 90), (2, 140), (3, 100), (4, 12)]);
    bank.check();
}

#[test]
fn a_transaction_that_nobody_resumes_is_given_up() {
    let bank = bank();
    let options = TransactionOptions::new().time_limit(Duration::from_secs(5));
    let mut lost = bank.database.begin_with(&options).unwrap();
    insert(&bank.accounts, Some(&mut lost), 4, 5).unwrap();
    assert!(bank.set(Some(&mut lost), 1, 5).unwrap());
    let token = lost.suspend();
    let bank = bank.reopened();
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    now_ms.fetch_add(4_999, Ordering::Relaxed);
    assert!(matches!(bank.set(None, 1, 0), Err(Error::Conflict { .. })));
    now_ms.fetch_add(1, Ordering::Relaxed);
    assert!(bank.set(None, 1, 0).unwrap());
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
    assert!(bank.database.open_transactions().is_empty());
    insert(&bank.accounts, None, 4, 1).unwrap();
    bank.database.collect().unwrap();
    let after = [(1, 0), (2, 100), (3, 100), (4, 1)];
    assert_eq!(bank.now(), after);
    bank.check();
    let bank = bank.reopened();
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
    assert_eq!(bank.now(), after);
}

#[test]
fn outcomes_are_kept_for_a_while() {
    let bank = bank();
    let mut tokens = Vec::new();
    for round in 0..40 {
        let mut change = bank.database.begin().unwrap();
        assert!(bank.set(Some(&mut change), 1, round).unwrap());
        tokens.push((change.token(), round % 3 != 0));
        match round % 3 {
            0 => change.abort().unwrap(),
            _ => change.commit().unwrap(),
        }
    }
    let bank = bank.reopened();
    for (number, (token, is_committed)) in tokens.into_iter().enumerate() {
        match bank.database.resume(token) {
            Ok(Resumed::Committed) => assert!(is_committed),
            Ok(Resumed::Aborted) => assert!(!is_committed),
            Err(Error::Forgotten { .. }) => assert!(number < 33),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            matches!(bank.database.resume(token), Err(Error::Forgotten { .. })),
            number < 33
        );
    }
    let untouched = bank.database.begin().unwrap();
    let token = untouched.token();
    untouched.commit().unwrap();
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Aborted));
}

#[test]
fn a_transaction_whose_token_somebody_has_is_remembered_for_longer() {
    let bank = bank();
    let mut known = bank.database.begin().unwrap();
    let token = known.token();
    assert!(bank.set(Some(&mut known), 1, 7).unwrap());
    known.commit().unwrap();
    for round in 0..40 {
        let mut others = bank.database.begin().unwrap();
        assert!(bank.set(Some(&mut others), 1, round).unwrap());
        others.commit().unwrap();
    }
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
    let bank = bank.reopened();
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
}

#[test]
fn a_token_that_is_asked_for_too_late_says_so() {
    let bank = bank();
    let change = |balance| {
        let mut change = bank.database.begin().unwrap();
        assert!(change.commit_with(|last| bank.set(Some(last), 1, balance)).unwrap());
        change
    };
    let (early, late) = (change(1), change(2));
    assert!(matches!(bank.database.resume(late.token()).unwrap(), Resumed::Committed));
    // That of `early` has had others meanwhile.
    let token = early.token();
    assert!(matches!(bank.database.resume(token), Err(Error::Forgotten { .. })));
    let token = late.token();
    drop((early, late));
    for balance in 3..6 {
        drop(change(balance));
    }
    assert!(matches!(bank.database.resume(token).unwrap(), Resumed::Committed));
}

#[test]
fn nobody_is_told_that_a_holder_was_given_up_that_has_committed() {
    let bank = bank();
    let mut holder = bank.database.begin().unwrap();
    assert!(bank.set(Some(&mut holder), 1, 7).unwrap());
    let Err(Error::Conflict { holder: Some(token), .. }) = bank.set(None, 1, 8) else {
        panic!("it has the row")
    };
    holder.commit().unwrap();
    for round in 0..3 {
        let resumed = bank.database.resume(token);
        match round {
            0 => assert!(matches!(resumed, Ok(Resumed::Committed)), "{resumed:?}"),
            _ => assert!(matches!(resumed, Err(Error::Forgotten { .. })), "{resumed:?}"),
        }
        let mut others = bank.database.begin().unwrap();
        assert!(bank.set(Some(&mut others), 1, round).unwrap());
        others.commit().unwrap();
    }
}

#[test]
fn a_holder_is_forgotten_also_when_older_outcomes_are_kept_for_longer() {
    let bank = bank();
    let mut balance = 0;
    let mut commit = |is_named: bool| {
        balance += 1;
        let mut one = bank.database.begin().unwrap();
        assert!(bank.set(Some(&mut one), 1, balance).unwrap());
        let Err(Error::Conflict { holder: Some(token), .. }) = bank.set(None, 1, -1) else {
            panic!("it has the row")
        };
        if is_named {
            assert_eq!(one.token(), token);
        }
        one.commit().unwrap();
        token
    };
    // The outcome of the one that nobody knows takes the place of the first, and is overwritten
    // before the next one of those that are known.
    let known: Vec<Token> = (0..7).map(|_| commit(true)).collect();
    let unknown = commit(false);
    for _ in 0..2 {
        commit(true);
    }
    for token in [known[0], known[1], unknown] {
        let resumed = bank.database.resume(token);
        assert!(matches!(resumed, Err(Error::Forgotten { .. })), "{token}: {resumed:?}");
    }
    for token in &known[2..] {
        assert!(matches!(bank.database.resume(*token), Ok(Resumed::Committed)), "{token}");
    }
}

#[test]
fn a_name_that_was_asked_for_too_late_tells_nothing_in_later_openings_either() {
    let bank = bank();
    let mut late = bank.database.begin().unwrap();
    late.commit_with(|last| bank.set(Some(last), 1, 7)).unwrap();
    bank.database.begin().unwrap().abort().unwrap();
    let token = late.suspend();
    let is_forgotten =
        |bank: &Bank| matches!(bank.database.resume(token), Err(Error::Forgotten { .. }));
    assert!(is_forgotten(&bank));
    assert!(is_forgotten(&bank.reopened()));
}

#[test]
fn nobody_gets_the_name_of_a_transaction_that_has_left_nothing_in_the_pool() {
    let mut bank = bank();
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let options = TransactionOptions::new().durability(how);
        let mut lost = Vec::new();
        for _ in 0..3 {
            let mut one = bank.database.begin_with(&options).unwrap();
            if how == Durability::AtCommit {
                assert!(bank.set(Some(&mut one), 1, 7).unwrap());
            }
            lost.push(one.token());
            one.abort().unwrap();
        }
        // Suspended, and lost when the database is closed.
        lost.push(bank.database.begin_with(&options).unwrap().suspend());
        bank = bank.reopened();
        assert_eq!(bank.database.open_transactions(), []);
        for _ in 0..5 {
            let mut other = bank.database.begin().unwrap();
            assert!(bank.set(Some(&mut other), 2, 8).unwrap());
            assert!(!lost.contains(&other.token()));
            for token in &lost {
                let resumed = bank.database.resume(*token);
                assert!(matches!(resumed, Ok(Resumed::Aborted)), "{token}: {resumed:?}");
            }
            other.commit().unwrap();
        }
        bank.check();
    }
}

#[test]
fn a_transaction_whose_time_is_over_keeps_no_versions_though_nobody_meets_it() {
    let bank = bank();
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    let options = TransactionOptions::new().time_limit(Duration::from_secs(1));
    let mut lost = bank.database.begin_with(&options).unwrap();
    insert(&bank.accounts, Some(&mut lost), 4, 5).unwrap();
    lost.suspend();
    let update = || (0..500).for_each(|balance| assert!(bank.set(None, 1, balance).unwrap()));
    update();
    let before = bank.pool.check().unwrap().chunks_used;
    now_ms.store(1_000, Ordering::Relaxed);
    assert_eq!(bank.database.open_transactions().len(), 1);
    (0..20).for_each(|_| update());
    assert_eq!(bank.database.open_transactions(), []);
    assert_eq!(bank.pool.check().unwrap().chunks_used, before);
    bank.check();
}

#[test]
fn as_many_transactions_are_open_as_there_are_slots() {
    let bank = bank();
    let options = TransactionOptions::new().time_limit(Duration::from_secs(1));
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    for number in 10..10 + 256 {
        let mut lost = bank.database.begin_with(&options).unwrap();
        insert(&bank.accounts, Some(&mut lost), number, 0).unwrap();
        lost.suspend();
    }
    assert_eq!(bank.database.open_transactions().len(), 256);
    let bank = bank.reopened();
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    now_ms.store(1_000, Ordering::Relaxed);
    // Their time is over, so there is room for another one.
    insert(&bank.accounts, None, 10, 0).unwrap();
    assert_eq!(bank.now().len(), 4);
    bank.check();
}
