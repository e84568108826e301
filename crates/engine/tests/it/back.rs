//! Taking statements of a transaction back.

use proptest::prelude::*;
use remanent_engine::{Durability, Error, LockMode, Placement, Resumed, Token, Transaction};

use crate::shop::{Items, Shop, shop, shop_in, three};

const BOTH: [Durability; 2] = [Durability::EachStatement, Durability::AtCommit];

fn is_lock_refused(shop: &Shop, number: u32) -> bool {
    let get = shop.items.prepare_get("primary").unwrap();
    let mut other = shop.database.begin().unwrap();
    match get.lock_in(&mut other, &[number.into()], LockMode::NoWait, |_| Ok(())) {
        Err(Error::Conflict { .. }) => true,
        locked => {
            assert!(locked.unwrap().is_some());
            false
        }
    }
}

fn resumed(shop: &Shop, token: Token) -> Transaction<'_> {
    match shop.database.resume(token).unwrap() {
        Resumed::Open(transaction) => transaction,
        ended => panic!("it is open, and not {ended:?}"),
    }
}

#[test]
fn what_comes_behind_a_statement_is_taken_back_and_the_rest_is_committed() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 40).unwrap();
        assert!(shop.update(&mut order, 1, 10, 1).unwrap());
        let before = (order.statement(), shop.items(&order));
        assert!(shop.update(&mut order, 1, 11, 2).unwrap());
        assert!(shop.update(&mut order, 4, 41, 2).unwrap());
        shop.insert(&mut order, 5, 50).unwrap();
        assert!(shop.remove(&mut order, 2).unwrap());
        assert!(shop.remove(&mut order, 4).unwrap());
        order.take_back_to(before.0).unwrap();
        assert_eq!((order.statement(), shop.items(&order)), (8, before.1.clone()));
        shop.check();
        // Rows that it has not any more are free.
        assert!(shop.update(&mut shop.database.begin().unwrap(), 2, 20, 0).unwrap());
        assert!(is_lock_refused(&shop, 1));
        // There is nothing behind the last statement.
        order.take_back_to(8).unwrap();
        order.take_back_to(u32::MAX).unwrap();
        assert_eq!(order.statement(), 8);
        shop.insert(&mut order, 5, 41).unwrap();
        order.commit().unwrap();
        let mut items = before.1;
        items.insert(5, (41, 0));
        assert_eq!(shop.now(), items);
        shop.check();
        let shop = shop.reopened();
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn taking_back_counts_and_is_not_taken_back() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        for name in 10..15 {
            assert!(shop.update(&mut order, 1, name, 0).unwrap());
        }
        order.take_back_to(2).unwrap(); // the sixth
        assert!(shop.update(&mut order, 2, 20, 0).unwrap());
        // The third and the fourth are not there any more.
        order.take_back_to(4).unwrap();
        assert_eq!(order.statement(), 8);
        assert_eq!(shop.items(&order)[&1], (11, 0));
        assert_eq!(shop.items(&order)[&2], (2, 100));
        order.take_back_to(0).unwrap();
        assert_eq!((order.statement(), shop.items(&order)), (9, three()));
        order.commit().unwrap();
        assert_eq!(shop.now(), three());
        shop.check();
    }
}

#[test]
fn a_batch_is_taken_back_as_a_whole_and_nothing_is_taken_back_in_it() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 4).unwrap();
        order
            .batch(|batch| {
                assert!(matches!(batch.take_back_to(0), Err(Error::InBatch)));
                for number in 10..50 {
                    shop.insert(batch, number, number)?;
                }
                assert!(shop.update(batch, 1, 100, 0)? && shop.remove(batch, 4)?);
                Ok(())
            })
            .unwrap();
        assert_eq!(order.statement(), 2);
        order.take_back_to(1).unwrap();
        let mut items = three();
        items.insert(4, (4, 0));
        assert_eq!(shop.items(&order), items);
        order.commit().unwrap();
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn keys_that_may_come_back_are_taken() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 40).unwrap();
        assert!(shop.update(&mut order, 4, 41, 0).unwrap());
        assert!(shop.remove(&mut order, 4).unwrap());
        let mut other = shop.database.begin().unwrap();
        for name in [40, 41] {
            let refused = shop.insert(&mut other, 5, name);
            assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        }
        // The transaction itself may have them.
        shop.insert(&mut order, 6, 40).unwrap();
        order.take_back_to(1).unwrap();
        assert!(shop.insert(&mut order, 7, 40).is_err());
        shop.insert(&mut other, 5, 41).unwrap();
        other.commit().unwrap();
        order.commit().unwrap();
        assert_eq!((shop.now()[&4], shop.now()[&5]), ((40, 0), (41, 0)));
        shop.check();
    }
}

#[test]
fn rows_that_were_locked_stay_so() {
    for how in BOTH {
        let shop = shop();
        let get = shop.items.prepare_get("primary").unwrap();
        let mut order = shop.begin(how);
        for number in [1u32, 2] {
            let locked = get.lock_in(&mut order, &[number.into()], LockMode::NoWait, |_| Ok(()));
            assert!(locked.unwrap().is_some());
        }
        assert!(shop.update(&mut order, 1, 10, 0).unwrap());
        assert!(shop.update(&mut order, 3, 30, 0).unwrap());
        order.take_back_to(0).unwrap();
        assert!(is_lock_refused(&shop, 1) && is_lock_refused(&shop, 2));
        assert!(!is_lock_refused(&shop, 3));
        order.commit().unwrap();
        assert!(!is_lock_refused(&shop, 1) && !is_lock_refused(&shop, 2));
        assert_eq!(shop.now(), three());
        shop.check();
    }
}

#[test]
fn rows_that_were_locked_after_they_were_changed_stay_so() {
    for how in BOTH {
        let shop = shop();
        let get = shop.items.prepare_get("primary").unwrap();
        let mut order = shop.begin(how);
        assert!(shop.update(&mut order, 1, 10, 0).unwrap());
        shop.insert(&mut order, 4, 4).unwrap();
        for number in [1u32, 4, 1] {
            let locked = get.lock_in(&mut order, &[number.into()], LockMode::NoWait, |_| Ok(()));
            assert!(locked.unwrap().is_some());
        }
        order.take_back_to(0).unwrap();
        assert!(is_lock_refused(&shop, 1));
        shop.insert(&mut shop.database.begin().unwrap(), 4, 4).unwrap();
        order.commit().unwrap();
        assert!(!is_lock_refused(&shop, 1));
        assert_eq!(shop.now(), three());
        shop.check();
    }
}

#[test]
fn keys_of_statements_before_a_batch_are_taken_in_it() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        assert!(shop.update(&mut order, 1, 41, 0).unwrap());
        assert!(shop.update(&mut order, 1, 42, 0).unwrap());
        order
            .batch(|batch| {
                assert!(shop.update(batch, 1, 43, 0)?);
                let mut other = shop.database.begin()?;
                for name in [1, 41, 42, 43] {
                    let refused = shop.insert(&mut other, 5, name);
                    assert!(matches!(refused, Err(Error::Conflict { .. })), "{name}: {refused:?}");
                }
                shop.insert(&mut other, 5, 44)
            })
            .unwrap();
        order.take_back_to(1).unwrap();
        order.commit().unwrap();
        assert_eq!(shop.now()[&1], (41, 0));
        shop.check();
    }
}

#[test]
fn a_transaction_goes_on_behind_what_was_taken_back() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let shop = shop_in(placement);
        let mut order = shop.database.begin().unwrap();
        shop.insert(&mut order, 4, 40).unwrap();
        shop.insert(&mut order, 5, 50).unwrap();
        assert!(shop.update(&mut order, 1, 10, 0).unwrap());
        let token = order.suspend();
        let shop = shop.reopened();
        let mut order = resumed(&shop, token);
        assert!(shop.update(&mut order, 1, 11, 0).unwrap());
        assert!(shop.update(&mut order, 4, 41, 0).unwrap());
        // Of an earlier process, too.
        order.take_back_to(1).unwrap();
        assert_eq!(order.statement(), 6);
        let mut items = three();
        items.insert(4, (40, 0));
        assert_eq!(shop.items(&order), items);
        assert!(shop.update(&mut order, 4, 42, 0).unwrap());
        order.take_back_to(6).unwrap();
        assert_eq!(shop.items(&order), items);
        let token = order.suspend();
        let shop = shop.reopened();
        let order = resumed(&shop, token);
        assert_eq!((order.statement(), shop.items(&order)), (8, items.clone()));
        assert!(!is_lock_refused(&shop, 1));
        order.commit().unwrap();
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn what_was_begun_and_taken_back_wholly_is_given_up_like_any_other() {
    for how in BOTH {
        let shop = shop();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 40).unwrap();
        order.take_back_to(0).unwrap();
        order.abort().unwrap();
        let mut order = shop.begin(how);
        shop.insert(&mut order, 4, 40).unwrap();
        order.take_back_to(0).unwrap();
        shop.insert(&mut order, 4, 40).unwrap();
        order.commit().unwrap();
        assert_eq!(shop.now()[&4], (40, 0));
        shop.database.collect().unwrap();
        shop.check();
    }
}

/// More versions of one row than are taken back at once.
#[test]
fn many_statements_are_taken_back() {
    let shop = shop();
    let mut order = shop.database.begin().unwrap();
    for price in 0..1_000 {
        assert!(shop.update(&mut order, 1, 1, price).unwrap());
        assert!(shop.update(&mut order, 2, 2, price).unwrap());
    }
    order.take_back_to(500).unwrap();
    let expected = Items::from([(1, (1, 249)), (2, (2, 249)), (3, (3, 100))]);
    assert_eq!(shop.items(&order), expected);
    order.commit().unwrap();
    assert_eq!(shop.now(), expected);
    shop.database.collect().unwrap();
    shop.check();
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32),
    Update(u32, u32),
    Remove(u32),
    Lock(u32),
    Batch(Vec<(u32, u32)>),
    TakeBack(u32),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let (number, name) = (1..6u32, 1..7u32);
    prop_oneof![
        3 => (number.clone(), name.clone()).prop_map(|(number, name)| Op::Insert(number, name)),
        4 => (number.clone(), name.clone()).prop_map(|(number, name)| Op::Update(number, name)),
        2 => number.clone().prop_map(Op::Remove),
        1 => number.clone().prop_map(Op::Lock),
        1 => proptest::collection::vec((number, name), 1..4).prop_map(Op::Batch),
        3 => (0..8u32).prop_map(Op::TakeBack),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_transaction_is_what_its_statements_have_left(
        is_at_commit: bool,
        ops in proptest::collection::vec(op(), 1..24),
        is_commit: bool,
    ) {
        let mut shop = shop();
        let how = if is_at_commit { Durability::AtCommit } else { Durability::EachStatement };
        // By the number of the statement behind which it was so.
        let mut states = vec![(0, three())];
        let mut order = shop.begin(how);
        for op in ops {
            let before = order.statement();
            match op {
                Op::Insert(number, name) => drop(shop.insert(&mut order, number, name)),
                Op::Update(number, name) => drop(shop.update(&mut order, number, name, 0)),
                Op::Remove(number) => drop(shop.remove(&mut order, number)),
                Op::Lock(number) => {
                    let get = shop.items.prepare_get("primary").unwrap();
                    let key = [number.into()];
                    get.lock_in(&mut order, &key, LockMode::NoWait, |_| Ok(())).unwrap();
                }
                Op::Batch(changes) => {
                    let _ = order.batch(|batch| {
                        changes.iter().try_for_each(|(number, name)| {
                            shop.update(batch, *number, *name, 1).map(drop)
                        })
                    });
                }
                Op::TakeBack(to) => {
                    order.take_back_to(to).unwrap();
                    prop_assert_eq!(order.statement(), before + u32::from(to < before));
                    states.retain(|(statement, _)| *statement <= to);
                    prop_assert_eq!(&shop.items(&order), &states[states.len() - 1].1);
                }
                Op::Reopen if !is_at_commit && order.statement() > 0 => {
                    let token = order.suspend();
                    shop = shop.reopened();
                    order = resumed(&shop, token);
                    prop_assert_eq!(order.statement(), before);
                }
                Op::Reopen => {}
            }
            if order.statement() > before {
                states.push((order.statement(), shop.items(&order)));
            }
            let last = states.last().map(|(_, items)| items);
            prop_assert_eq!(Some(&shop.items(&order)), last);
        }
        let last = states.pop().map(|(_, items)| items);
        match is_commit {
            true => order.commit().unwrap(),
            false => order.abort().unwrap(),
        }
        let expected = if is_commit { last } else { Some(three()) };
        prop_assert_eq!(Some(shop.now()), expected);
        shop.database.collect().unwrap();
        shop.check();
    }
}
