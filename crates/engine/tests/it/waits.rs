//! Statements that wait for who is in their way, and those that wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use remanent_engine::{Database, Error, Table, TableSpec, Transaction, TransactionOptions, Type};
use remanent_pmem::Pool;

const LONG: Duration = Duration::from_secs(60);

struct Bank {
    database: Database,
    accounts: Table,
}

fn bank(accounts: u32) -> Bank {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "bank").unwrap();
    let spec = TableSpec::new("accounts")
        .column("number", Type::U32)
        .column("owner", Type::U32)
        .column("balance", Type::I64)
        .primary_key(["number"])
        .unique("by_owner", ["owner"]);
    let table = database.create_table(&spec).unwrap();
    for number in 0..accounts {
        table.insert(&[number.into(), number.into(), 100.into()]).unwrap();
    }
    Bank { database, accounts: table }
}

impl Bank {
    fn begin(&self) -> Transaction<'_> {
        self.database.begin_with(&TransactionOptions::new().wait(LONG)).unwrap()
    }

    fn add_in(&self, by: &mut Transaction<'_>, number: u32, sum: i64) -> Result<(), Error> {
        let update = self.accounts.prepare_update("primary").unwrap();
        let added = update
            .run_in(by, &[number.into()], |row, account| account.set(2, row.get::<i64>(2)? + sum));
        added.map(|found| found.expect("the account is there"))
    }

    fn add(&self, number: u32, sum: i64) -> Result<(), Error> {
        let update = self.accounts.prepare_update("primary").unwrap();
        let added =
            update.run(&[number.into()], |row, account| account.set(2, row.get::<i64>(2)? + sum));
        added.map(|found| found.expect("the account is there"))
    }

    fn balance(&self, number: u32) -> i64 {
        let get = self.accounts.prepare_get("primary").unwrap();
        get.run(&self.database.snapshot(), &[number.into()], |row| row.get(2)).unwrap().unwrap()
    }

    fn insert(&self, number: u32, owner: u32) -> Result<(), Error> {
        self.accounts.insert(&[number.into(), owner.into(), 0.into()]).map(drop)
    }
}

/// Time in which another thread comes to where it waits.
fn a_moment() {
    thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_statement_waits_until_the_transaction_in_its_way_has_ended() {
    for is_commit in [true, false] {
        let bank = bank(2);
        bank.database.set_wait(LONG);
        let mut first = bank.begin();
        bank.add_in(&mut first, 1, 10).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| bank.add(1, 1));
            a_moment();
            assert!(!waiting.is_finished());
            if is_commit {
                first.commit().unwrap()
            } else {
                first.abort().unwrap()
            }
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(bank.balance(1), if is_commit { 111 } else { 101 });
        assert_eq!(bank.database.check().unwrap(), []);
    }
}

#[test]
fn a_transaction_that_has_waited_is_overtaken_unless_the_other_one_gave_up() {
    for is_commit in [true, false] {
        let bank = bank(2);
        let mut first = bank.begin();
        bank.add_in(&mut first, 1, 10).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut second = bank.begin();
                let added = bank.add_in(&mut second, 1, 1);
                second.commit().unwrap();
                added
            });
            a_moment();
            assert!(!waiting.is_finished());
            if is_commit {
                first.commit().unwrap()
            } else {
                first.abort().unwrap()
            }
            let added = waiting.join().unwrap();
            assert!(matches!(added, Err(Error::Overtaken { .. })) == is_commit, "{added:?}");
        });
        assert_eq!(bank.balance(1), if is_commit { 110 } else { 101 });
    }
}

#[test]
fn a_transaction_whose_time_is_over_keeps_nobody_from_its_keys() {
    let of_no_time = TransactionOptions::new().time_limit(Duration::ZERO);
    type Take = fn(&Bank) -> Result<(), Error>;
    let takes: [Take; 3] = [
        |bank| bank.insert(7, 7),
        |bank| {
            let mut other = bank.database.begin().unwrap();
            bank.accounts.insert_in(&mut other, &[8.into(), 7.into(), 0.into()])?;
            other.commit()
        },
        |bank| {
            let update = bank.accounts.prepare_update("primary").unwrap();
            let found = update.run(&[1.into()], |_, account| account.set(1, 7u32))?;
            found.map(drop).ok_or_else(|| unreachable!("the account is there"))
        },
    ];
    for take in takes {
        let bank = bank(2);
        let mut left = bank.database.begin_with(&of_no_time).unwrap();
        bank.accounts.insert_in(&mut left, &[7.into(), 7.into(), 0.into()]).unwrap();
        left.suspend();
        take(&bank).unwrap();
        assert_eq!(bank.database.check().unwrap(), []);
    }
}

#[test]
fn who_waits_for_too_long_is_told_for_whom() {
    let bank = bank(2);
    let mut first = bank.begin();
    let token = first.token();
    bank.add_in(&mut first, 1, 10).unwrap();
    for limit in [Duration::ZERO, Duration::from_millis(30)] {
        bank.database.set_wait(limit);
        let begin = std::time::Instant::now();
        let error = bank.add(1, 1).unwrap_err();
        assert!(begin.elapsed() >= limit && begin.elapsed() < LONG);
        assert!(error.is_conflict() && error.to_string().contains(&token.to_string()), "{error}");
        assert!(matches!(error, Error::Conflict { holder: Some(holder), .. } if holder == token));
        let mut second = bank.database.begin().unwrap();
        second.set_wait(limit);
        assert!(bank.add_in(&mut second, 1, 1).unwrap_err().is_conflict());
        bank.add_in(&mut second, 0, 1).unwrap(); // and it goes on
        second.abort().unwrap();
    }
}

#[test]
fn keys_are_waited_for_as_rows_are() {
    for (is_commit, is_update) in [(true, false), (false, false), (true, true), (false, true)] {
        let bank = bank(2);
        bank.database.set_wait(LONG);
        let mut first = bank.begin();
        let row = bank.accounts.insert_in(&mut first, &[7.into(), 70.into(), 0.into()]).unwrap();
        let want = || match is_update {
            true => {
                let update = bank.accounts.prepare_update("primary").unwrap();
                update.run(&[1.into()], |_, row| row.set(1, 70u32)).map(drop)
            }
            false => bank.insert(8, 70),
        };
        thread::scope(|scope| {
            let waiting = scope.spawn(want);
            a_moment();
            assert!(!waiting.is_finished());
            if is_commit {
                first.commit().unwrap()
            } else {
                first.abort().unwrap()
            }
            match waiting.join().unwrap() {
                Ok(()) => assert!(!is_commit),
                Err(Error::Unique { row: other, index, .. }) => {
                    assert!(is_commit && other == row && index == "by_owner");
                }
                Err(error) => panic!("{error}"),
            }
        });
        assert_eq!(bank.database.check().unwrap(), []);
    }
}

#[test]
fn of_those_who_wait_for_each_other_one_is_refused() {
    for count in [2u32, 3, 5] {
        let bank = bank(count);
        let together = Barrier::new(count as usize);
        let refused: u32 = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|number| {
                    let (bank, together) = (&bank, &together);
                    scope.spawn(move || {
                        let mut transaction = bank.begin();
                        bank.add_in(&mut transaction, number, 1).unwrap();
                        together.wait();
                        match bank.add_in(&mut transaction, (number + 1) % count, 1) {
                            Ok(()) => panic!("somebody has changed it before, and commits"),
                            Err(Error::Overtaken { .. }) => {
                                transaction.commit().unwrap();
                                0
                            }
                            Err(Error::Deadlock { holder, .. }) => {
                                assert!(holder.is_some());
                                // The row that it has keeps the others waiting until then.
                                transaction.commit().unwrap();
                                1
                            }
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(refused, 1);
        assert!((0..count).all(|number| bank.balance(number) == 101));
    }
}

#[test]
fn transfers_that_wait_all_come_to_their_end() {
    let bank = bank(4);
    let deadlocks = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (bank, deadlocks) = (&bank, &deadlocks);
            scope.spawn(move || {
                for round in 0..200u32 {
                    let from = (thread + round) % 4;
                    let to = (from + 1 + round % 3) % 4;
                    loop {
                        let mut transfer = bank.begin();
                        let both = bank
                            .add_in(&mut transfer, from, -1)
                            .and_then(|()| bank.add_in(&mut transfer, to, 1));
                        match both {
                            Ok(()) => break transfer.commit().unwrap(),
                            Err(Error::Deadlock { .. }) => {
                                deadlocks.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::Overtaken { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!((0..4).map(|number| bank.balance(number)).sum::<i64>(), 400);
    assert_eq!(bank.database.check().unwrap(), []);
}

#[test]
fn a_transaction_whose_time_is_over_is_not_waited_for() {
    let bank = bank(2);
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    bank.database.set_clock(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
    bank.database.set_wait(LONG);
    let mut left = bank.begin();
    bank.add_in(&mut left, 1, 10).unwrap();
    left.suspend();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| bank.add(1, 1));
        a_moment();
        assert!(!waiting.is_finished());
        // Its time limit is a minute, and so is that of the statement, which began later.
        now_ms.store(59_999, Ordering::SeqCst);
        a_moment();
        assert!(!waiting.is_finished());
        now_ms.store(60_000, Ordering::SeqCst);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(bank.balance(1), 101);
}

#[test]
fn more_threads_wait_for_keys_than_can_pin_at_once() {
    const THREADS: u32 = 200;
    let bank = bank(1);
    bank.database.set_wait(LONG);
    let mut holder = bank.begin();
    for number in 1..=THREADS {
        let values = [number.into(), number.into(), 0.into()];
        bank.accounts.insert_in(&mut holder, &values).unwrap();
    }
    let all_here = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let (bank, all_here) = (&bank, &all_here);
            scope.spawn(move || {
                // Each thread has its place among those that pin before the others come.
                assert_eq!(bank.balance(0), 100);
                all_here.wait();
                let refused = bank.insert(number, 1_000 + number).unwrap_err();
                assert!(matches!(refused, Error::Unique { .. }), "{refused}");
            });
        }
        all_here.wait();
        thread::sleep(Duration::from_millis(200));
        holder.commit().unwrap();
    });
    assert_eq!(bank.database.check().unwrap(), []);
}
