//! Batches, and transactions that are durable at their commit.

use std::ops::ControlFlow;
use std::time::Duration;

use proptest::prelude::*;
use remanent_engine::{
    Database, Durability, Error, LockMode, Placement, Resumed, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::Pool;

use crate::shop::{Items, Shop, at_commit, shop, shop_in, three};

#[test]
fn nothing_of_a_transaction_is_seen_before_its_commit_and_all_of_it_afterwards() {
    let shop = shop();
    let mut order = shop.begin(Durability::AtCommit);
    shop.insert(&mut order, 4, 4).unwrap();
    assert!(shop.update(&mut order, 1, 10, 5).unwrap());
    assert!(shop.update(&mut order, 4, 40, 6).unwrap());
    assert!(shop.remove(&mut order, 2).unwrap());
    assert_eq!(order.statement(), 4);
    let expected = Items::from([(1, (10, 5)), (3, (3, 100)), (4, (40, 6))]);
    assert_eq!(shop.items(&order), expected);
    assert_eq!(shop.now(), three());
    shop.check();
    order.commit().unwrap();
    assert_eq!(shop.now(), expected);
    shop.check();
    let shop = shop.reopened();
    assert_eq!(shop.now(), expected);
    shop.check();
}

#[test]
fn keys_are_taken_until_the_transaction_has_ended() {
    for how in [Durability::AtCommit, Durability::EachStatement] {
        for is_commit in [true, false] {
            let shop = shop();
            let mut order = shop.begin(how);
            shop.insert(&mut order, 4, 40).unwrap();
            assert!(shop.update(&mut order, 4, 41, 0).unwrap());
            assert!(shop.update(&mut order, 1, 10, 100).unwrap());
            let mut other = shop.database.begin().unwrap();
            for (number, name) in [(4, 90), (90, 41), (90, 10), (90, 1)] {
                let refused = shop.insert(&mut other, number, name);
                assert!(matches!(refused, Err(Error::Conflict { .. })), "{name}: {refused:?}");
            }
            // That one is not taken any more, but for those who write at once.
            let refused = shop.update(&mut other, 1, 7, 7);
            assert!(matches!(refused, Err(Error::Conflict { holder: Some(_), .. })));
            let refused = shop.insert(&mut order, 91, 3);
            assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
            let refused = shop.insert(&mut order, 4, 93);
            assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
            match is_commit {
                true => order.commit().unwrap(),
                false => order.abort().unwrap(),
            }
            other.refresh().unwrap();
            for (number, name, is_free) in
                [(4, 90, !is_commit), (90, 40, true), (91, 10, !is_commit), (92, 1, is_commit)]
            {
                let done = shop.insert(&mut other, number, name);
                assert_eq!(done.is_ok(), is_free, "{number} {name}: {done:?}");
            }
            other.commit().unwrap();
            shop.check();
        }
    }
}

#[test]
fn a_batch_counts_as_one_statement_or_not_at_all() {
    for how in [Durability::AtCommit, Durability::EachStatement] {
        let shop = shop();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 4).unwrap();
        let done = order.batch(|batch| {
            assert!(shop.update(batch, 4, 44, 4)?);
            shop.insert(batch, 5, 4)?;
            assert!(shop.remove(batch, 1)?);
            shop.insert(batch, 1, 1)?;
            assert_eq!(batch.statement(), 1);
            Ok(7)
        });
        assert_eq!((done.unwrap(), order.statement()), (7, 2));
        let expected =
            Items::from([(1, (1, 0)), (2, (2, 100)), (3, (3, 100)), (4, (44, 4)), (5, (4, 0))]);
        assert_eq!(shop.items(&order), expected);
        let refused = order.batch(|batch| {
            assert!(shop.update(batch, 4, 45, 4)?);
            shop.insert(batch, 6, 6)?;
            // A part of it alone is taken back.
            let part = batch.batch(|part| {
                assert!(shop.remove(part, 5)?);
                shop.insert(part, 7, 3)
            });
            assert!(matches!(part, Err(Error::Unique { .. })));
            assert!(shop.items(batch).contains_key(&5));
            assert!(matches!(batch.commit_with(|_| Ok(())), Err(Error::InBatch)));
            shop.insert(batch, 8, 44)?; // is free by now
            shop.insert(batch, 9, 2)
        });
        assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
        assert_eq!((shop.items(&order), order.statement()), (expected.clone(), 2));
        shop.check();
        // One that changes nothing in the end.
        order
            .batch(|batch| {
                shop.insert(batch, 6, 6)?;
                assert!(shop.remove(batch, 6)?);
                assert!(shop.update(batch, 4, 9, 9)?);
                assert!(shop.update(batch, 4, 44, 4)?);
                Ok(())
            })
            .unwrap();
        assert_eq!(shop.items(&order), expected);
        order.commit().unwrap();
        assert_eq!(shop.now(), expected);
        shop.check();
        let shop = shop.reopened();
        assert_eq!(shop.now(), expected);
        shop.check();
    }
}

#[test]
fn a_row_that_was_locked_stays_so_when_a_batch_is_taken_back() {
    for how in [Durability::AtCommit, Durability::EachStatement] {
        let shop = shop();
        let mut order = shop.begin(how);
        let get = shop.items.prepare_get("primary").unwrap();
        let lock = |by: &mut Transaction<'_>, number: u32| {
            get.lock_in(by, &[number.into()], LockMode::NoWait, |_| Ok(()))
        };
        assert!(lock(&mut order, 1).unwrap().is_some());
        let refused = order.batch(|batch| {
            assert!(shop.update(batch, 1, 10, 0)? && shop.update(batch, 2, 20, 0)?);
            assert!(lock(batch, 1)?.is_some() && lock(batch, 2)?.is_some());
            Err::<(), _>(Error::InBatch)
        });
        assert!(refused.is_err());
        let mut other = shop.database.begin().unwrap();
        assert!(matches!(lock(&mut other, 1), Err(Error::Conflict { .. })));
        assert!(matches!(lock(&mut other, 2), Err(Error::Conflict { .. })));
        assert!(lock(&mut other, 3).unwrap().is_some());
        assert!(matches!(shop.insert(&mut other, 9, 1), Err(Error::Unique { .. })));
        assert!(shop.update(&mut order, 1, 10, 0).unwrap());
        assert!(matches!(shop.insert(&mut other, 9, 1), Err(Error::Conflict { .. })));
        order.commit().unwrap();
        other.refresh().unwrap();
        assert!(lock(&mut other, 1).unwrap().is_some());
        other.commit().unwrap();
        shop.check();
    }
}

#[test]
fn a_row_that_is_locked_after_a_batch_has_changed_it_stays_so() {
    for is_taken_back in [true, false] {
        let shop = shop();
        let get = shop.items.prepare_get("primary").unwrap();
        // The newest state of the row is a version, which is to be folded some time.
        assert!(shop.update(&mut shop.database.begin().unwrap(), 2, 2, 9).unwrap());
        let mut change = shop.database.begin().unwrap();
        assert!(shop.update(&mut change, 1, 1, 9).unwrap());
        change.commit().unwrap();
        let mut order = shop.database.begin().unwrap();
        let done: Result<(), Error> = order.batch(|batch| {
            assert!(shop.update(batch, 1, 10, 10)?);
            shop.insert(batch, 4, 4)?;
            shop.database.collect()?;
            for number in [1u32, 1, 4] {
                let locked = get.lock_in(batch, &[number.into()], LockMode::Wait, |_| Ok(()));
                assert_eq!(locked?, Some(()));
            }
            match is_taken_back {
                true => Err(Error::TransactionEnded),
                false => {
                    assert!(shop.update(batch, 1, 1, 9)?);
                    shop.remove(batch, 4).map(drop)
                }
            }
        });
        assert_eq!(done.is_err(), is_taken_back);
        let mut other = shop.database.begin().unwrap();
        let refused = shop.update(&mut other, 1, 1, 11);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        shop.insert(&mut other, 4, 4).unwrap();
        order.commit().unwrap();
        assert!(shop.update(&mut other, 1, 1, 11).unwrap());
        other.abort().unwrap();
        assert!(shop.database.collect().unwrap() > 0, "nobody could fold it before");
        assert_eq!(shop.now()[&1], (1, 9));
        shop.check();
    }
}

#[test]
fn a_panic_takes_a_batch_back() {
    let shop = shop();
    let mut order = shop.database.begin().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        order.batch(|batch| -> Result<(), Error> {
            shop.insert(batch, 4, 4)?;
            panic!("in a batch")
        })
    }));
    assert!(panicked.is_err());
    shop.insert(&mut order, 5, 5).unwrap();
    order.commit().unwrap();
    assert_eq!(shop.now().keys().copied().collect::<Vec<_>>(), [1, 2, 3, 5]);
    shop.check();
}

#[test]
fn who_exchanges_transactions_in_a_batch_gets_nothing_of_it() {
    for is_first_in_batch in [true, false] {
        let shop = shop();
        let mut order = shop.database.begin().unwrap();
        let mut other = shop.database.begin().unwrap();
        let _ = order.batch(|batch| {
            if is_first_in_batch {
                shop.insert(batch, 4, 4)?;
                assert!(shop.update(batch, 1, 10, 10)?);
            }
            std::mem::swap(batch, &mut other);
            shop.insert(batch, 5, 5)
        });
        assert!(matches!(other.commit(), Err(Error::InBatch)));
        order.commit().unwrap();
        let mut items = three();
        items.insert(5, (5, 0));
        assert_eq!(shop.now(), items);
        shop.check();
        let mut next = shop.database.begin().unwrap();
        shop.insert(&mut next, 4, 4).unwrap();
        assert!(shop.update(&mut next, 1, 10, 10).unwrap());
        next.commit().unwrap();
        shop.check();
    }
}

#[test]
fn a_transaction_that_was_exchanged_in_a_batch_can_only_be_given_up() {
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let shop = shop();
        let (mut order, mut other) = (shop.begin(how), shop.begin(how));
        let name = order.token();
        let exchanged = order.batch(|batch| {
            shop.insert(batch, 4, 4)?;
            std::mem::swap(batch, &mut other);
            shop.insert(batch, 5, 5)
        });
        assert!(matches!(exchanged, Err(Error::Exchanged { token }) if token == name));
        assert_eq!((order.statement(), other.token()), (1, name));
        order.commit().unwrap();
        // Nobody is told that this took effect: it would be lost.
        shop.insert(&mut other, 6, 6).unwrap();
        assert!(matches!(other.commit(), Err(Error::InBatch)));
        let mut items = three();
        items.insert(5, (5, 0));
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn a_transaction_that_comes_back_into_its_batch_has_nothing_of_it() {
    for how in [Durability::EachStatement, Durability::AtCommit] {
        // It was exchanged in a batch that is a part of this one.
        let shop = shop();
        let (mut order, mut other) = (shop.begin(how), shop.begin(how));
        let exchanged = order.batch(|outer| {
            let exchanged = outer.batch(|inner| {
                shop.insert(inner, 4, 4)?;
                std::mem::swap(inner, &mut other);
                Ok(())
            });
            assert!(matches!(exchanged, Err(Error::Exchanged { .. })));
            std::mem::swap(outer, &mut other);
            Ok(())
        });
        assert!(matches!(exchanged, Err(Error::Exchanged { .. })));
        assert_eq!(order.statement(), 0);
        shop.insert(&mut order, 5, 5).unwrap();
        // It was suspended, and resumed.
        let exchanged: Result<(), Error> = order.batch(|batch| {
            shop.insert(batch, 6, 6)?;
            let order = std::mem::replace(batch, shop.begin(how));
            let resumed = shop.database.resume(order.suspend())?;
            let Resumed::Open(order) = resumed else { panic!("it is open") };
            *batch = order;
            Ok(())
        });
        assert!(matches!(exchanged, Err(Error::Exchanged { .. })));
        assert_eq!(order.statement(), 1);
        order.commit().unwrap();
        drop(other);
        let mut items = three();
        items.insert(5, (5, 0));
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn the_last_statement_of_one_transaction_commits_no_other() {
    let shop = shop();
    let (mut order, mut other) = (shop.database.begin().unwrap(), shop.database.begin().unwrap());
    shop.insert(&mut order, 4, 4).unwrap();
    shop.insert(&mut other, 5, 5).unwrap();
    let exchanged = order.commit_with(|last| {
        std::mem::swap(last, &mut other);
        Ok(())
    });
    assert!(matches!(exchanged, Err(Error::Exchanged { .. })));
    assert_eq!(shop.now(), three());
    drop((order, other));
    assert_eq!(shop.now(), three());
    shop.check();
}

#[test]
fn a_transaction_that_is_suspended_in_its_batch_goes_on_before_it() {
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let shop = shop();
        let (mut order, other) = (shop.begin(how), shop.begin(how));
        shop.insert(&mut order, 4, 4).unwrap();
        let (mut other, mut token) = (Some(other), None);
        let exchanged = order.batch(|batch| {
            shop.insert(batch, 5, 5)?;
            let order = std::mem::replace(batch, other.take().unwrap());
            token = Some(order.suspend());
            Ok(())
        });
        assert!(matches!(exchanged, Err(Error::Exchanged { .. })));
        let resumed = shop.database.resume(token.unwrap()).unwrap();
        let Resumed::Open(mut order) = resumed else { panic!("it is open") };
        assert_eq!(order.statement(), 1);
        shop.insert(&mut order, 6, 6).unwrap();
        order.commit().unwrap();
        let mut items = three();
        items.extend([(4, (4, 0)), (6, (6, 0))]);
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn a_transaction_goes_on_behind_its_last_batch() {
    let shop = shop();
    let mut order = shop.database.begin().unwrap();
    shop.insert(&mut order, 4, 4).unwrap();
    let batch = |batch: &mut Transaction<'_>| {
        for number in 10..60 {
            shop.insert(batch, number, number)?;
        }
        assert!(shop.update(batch, 4, 440, 4)?);
        shop.remove(batch, 1)
    };
    assert!(order.batch(batch).unwrap());
    let expected = shop.items(&order);
    let token = order.suspend();
    let shop = shop.reopened();
    assert_eq!(shop.now(), three());
    let Resumed::Open(order) = shop.database.resume(token).unwrap() else { panic!("it is open") };
    assert_eq!((order.statement(), shop.items(&order)), (2, expected.clone()));
    order.commit().unwrap();
    assert_eq!(shop.now(), expected);
    shop.check();
}

#[test]
fn a_transaction_that_is_durable_at_its_commit_does_not_outlive_the_process() {
    let shop = shop();
    let mut order = shop.begin(Durability::AtCommit);
    shop.insert(&mut order, 4, 4).unwrap();
    assert!(shop.update(&mut order, 1, 10, 5).unwrap());
    let token = order.suspend();
    let Resumed::Open(mut order) = shop.database.resume(token).unwrap() else { panic!("it is") };
    assert!(shop.remove(&mut order, 3).unwrap());
    order.suspend();
    let mut done = shop.begin(Durability::AtCommit);
    shop.insert(&mut done, 5, 5).unwrap();
    let done = {
        let token = done.token();
        done.commit().unwrap();
        token
    };
    let shop = shop.reopened();
    assert!(matches!(shop.database.resume(token).unwrap(), Resumed::Aborted));
    assert!(matches!(shop.database.resume(done).unwrap(), Resumed::Committed));
    let expected: Items = three().into_iter().chain([(5, (5, 0))]).collect();
    assert_eq!(shop.now(), expected);
    shop.check();
    // Nobody has these rows and keys any more.
    let mut other = shop.database.begin().unwrap();
    assert!(shop.update(&mut other, 1, 10, 0).unwrap() && shop.remove(&mut other, 3).unwrap());
    shop.insert(&mut other, 4, 4).unwrap();
    other.commit().unwrap();
    shop.check();
}

#[test]
fn one_whose_time_is_over_is_taken_back() {
    let shop = shop();
    let mut order = shop.database.begin_with(&at_commit().time_limit(Duration::ZERO)).unwrap();
    shop.insert(&mut order, 4, 4).unwrap();
    assert!(shop.update(&mut order, 1, 10, 5).unwrap());
    let token = order.suspend();
    let mut other = shop.database.begin().unwrap();
    shop.insert(&mut other, 10, 10).unwrap();
    assert!(shop.update(&mut other, 1, 4, 5).unwrap());
    other.commit().unwrap();
    assert!(matches!(shop.database.resume(token).unwrap(), Resumed::Aborted));
    assert_eq!(shop.now()[&1], (4, 5));
    shop.check();
}

#[test]
fn a_pool_that_is_full_leaves_nothing_of_a_batch() {
    let pool = Pool::options().size_max(20 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("texts")
        .column("number", Type::U32)
        .column("text", Type::Text { max: 255 })
        .primary_key(["number"]);
    let texts = database.create_table(&spec).unwrap();
    let text = "x".repeat(200);
    let insert = |by: &mut Transaction<'_>, number: u32| {
        texts.insert_in(by, &[number.into(), text.as_str().into()])
    };
    let mut order = database.begin().unwrap();
    for number in 0..200 {
        insert(&mut order, number).unwrap();
    }
    order.commit().unwrap();
    let update = texts.prepare_update("primary").unwrap();
    for how in [Durability::AtCommit, Durability::EachStatement] {
        let options = TransactionOptions::new().durability(how);
        let mut order = database.begin_with(&options).unwrap();
        let mut round = 0;
        let refused = loop {
            round += 1;
            let text = format!("{round} {text}");
            let _behind = database.snapshot(); // has folding wait
            let batch = order.batch(|batch| {
                for number in 0..200u32 {
                    update.run_in(batch, &[number.into()], |_, row| row.set(1, text.as_str()))?;
                }
                (0..300).try_for_each(|more| insert(batch, round * 1_000 + more).map(drop))
            });
            match batch {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(refused.is_full() || matches!(refused, Error::TooMuchAtOnce), "{refused}");
        assert_eq!(order.statement(), round - 1);
        order.abort().unwrap();
        assert_eq!(database.check().unwrap(), []);
    }
    let mut rows = 0;
    let counted = texts.scan(&database.snapshot(), |_| {
        rows += 1;
        ControlFlow::<()>::Continue(())
    });
    assert_eq!((counted.unwrap(), rows), (None, 200));
}

#[test]
fn threads_commit_transactions_that_are_durable_at_their_commit() {
    let shop = shop();
    let count = 40;
    std::thread::scope(|scope| {
        for own in 0..3u32 {
            let shop = &shop;
            scope.spawn(move || {
                let mut done = 0;
                while done < count {
                    let how =
                        if own == 0 { Durability::EachStatement } else { Durability::AtCommit };
                    let options = TransactionOptions::new().durability(how);
                    let wait = options.wait(Duration::from_secs(30));
                    let mut order = shop.database.begin_with(&wait).unwrap();
                    let add = shop.items.prepare_update("primary").unwrap();
                    // In one order, so that nobody waits for whom waits for it.
                    let added = (1..=3u32).try_for_each(|number| {
                        let added = add.run_in(&mut order, &[number.into()], |row, item| {
                            item.set(2, row.get::<i64>(2)? + 1)
                        });
                        added.map(|found| assert!(found.is_some()))
                    });
                    let number = 1_000 * (own + 1) + done;
                    let inserted = added.and_then(|()| shop.insert(&mut order, number, number));
                    match inserted {
                        Ok(()) => {
                            order.commit().unwrap();
                            done += 1;
                        }
                        Err(Error::Overtaken { .. } | Error::Conflict { .. }) => {
                            order.abort().unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let items = shop.now();
    for number in 1..=3 {
        assert_eq!(items[&number], (number, 100 + 3 * i64::from(count)));
    }
    assert_eq!(items.len(), 3 + 3 * count as usize);
    shop.check();
    let shop = shop.reopened();
    assert_eq!(shop.now(), items);
    shop.check();
}

/// A statement of a transaction.
#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32),
    Update(u32, u32, i64),
    Remove(u32),
    /// These, of which the batch is refused if the flag says so.
    Batch(Vec<Op>, bool),
    Commit(Durability),
    Abort(Durability),
    Reopen,
    Collect,
}

fn change() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..8u32, 0..8u32).prop_map(|(number, name)| Op::Insert(number, name)),
        (0..8u32, 0..8u32, 0..3i64)
            .prop_map(|(number, name, price)| Op::Update(number, name, price)),
        (0..8u32).prop_map(Op::Remove),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let how = || prop_oneof![Just(Durability::AtCommit), Just(Durability::EachStatement)];
    prop_oneof![
        6 => change(),
        2 => (prop::collection::vec(change(), 1..5), any::<bool>())
            .prop_map(|(ops, is_refused)| Op::Batch(ops, is_refused)),
        2 => how().prop_map(Op::Commit),
        1 => how().prop_map(Op::Abort),
        1 => Just(Op::Reopen),
        1 => Just(Op::Collect),
    ]
}

/// Makes a statement, and says whether the items allow it.
fn make(shop: &Shop, by: &mut Transaction<'_>, items: &mut Items, op: &Op) {
    let is_named = |items: &Items, own: Option<u32>, name| {
        items.iter().any(|(number, (of, _))| *of == name && Some(*number) != own)
    };
    match *op {
        Op::Insert(number, name) => {
            let is_taken = items.contains_key(&number) || is_named(items, None, name);
            let done = shop.insert(by, number, name);
            assert_eq!(done.is_err(), is_taken, "{done:?}");
            if !is_taken {
                items.insert(number, (name, 0));
            }
        }
        Op::Update(number, name, price) => {
            let is_taken = items.contains_key(&number) && is_named(items, Some(number), name);
            match shop.update(by, number, name, price) {
                Ok(is_found) => {
                    assert!(!is_taken);
                    assert_eq!(is_found, items.contains_key(&number));
                    if is_found {
                        items.insert(number, (name, price));
                    }
                }
                Err(error) => assert!(is_taken, "{error}"),
            }
        }
        Op::Remove(number) => {
            assert_eq!(shop.remove(by, number).unwrap(), items.remove(&number).is_some());
        }
        _ => unreachable!("no single statement"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn transactions_do_what_they_should(
        ops in prop::collection::vec(op(), 1..60),
        is_in_dram in any::<bool>(),
    ) {
        let mut shop = shop_in(if is_in_dram { Placement::Dram } else { Placement::Pmem });
        let mut committed = three();
        let mut ops = ops.into_iter().peekable();
        let mut how = Durability::AtCommit;
        while ops.peek().is_some() {
            let mut open = Some(shop.begin(how));
            let mut items = committed.clone();
            let mut is_reopened = false;
            while let (Some(order), Some(op)) = (&mut open, ops.next()) {
                match op {
                    Op::Batch(of_batch, is_refused) => {
                        let mut changed = items.clone();
                        let done = order.batch(|batch| {
                            for op in &of_batch {
                                make(&shop, batch, &mut changed, op);
                            }
                            if is_refused { Err(Error::InBatch) } else { Ok(()) }
                        });
                        prop_assert_eq!(done.is_err(), is_refused);
                        if !is_refused {
                            items = changed;
                        }
                    }
                    Op::Commit(next) => {
                        how = next;
                        open.take().expect("it is open").commit().unwrap();
                        committed = items.clone();
                        break;
                    }
                    Op::Abort(next) => {
                        how = next;
                        open.take().expect("it is open").abort().unwrap();
                        break;
                    }
                    Op::Reopen => {
                        is_reopened = true;
                        break;
                    }
                    Op::Collect => drop(shop.database.collect().unwrap()),
                    ref change => make(&shop, order, &mut items, change),
                }
                if let Some(order) = &open {
                    prop_assert_eq!(&shop.items(order), &items);
                }
                prop_assert_eq!(&shop.now(), &committed);
            }
            drop(open);
            if is_reopened {
                shop = shop.reopened();
            }
            prop_assert_eq!(&shop.now(), &committed);
            prop_assert_eq!(shop.database.check().unwrap(), vec![]);
        }
    }
}
