//! Unique keys of rows that transactions have changed and not written: each state of a row may come
//! back until then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_engine::{Durability, Error, Resumed, Transaction};

use crate::shop::{Shop, at_commit, shop, three};

/// Whoever takes a key back gets this.
fn no() -> Error {
    Error::TransactionEnded
}

impl Shop {
    /// Refuses to give the name to another item.
    fn is_taken(&self, name: u32) -> bool {
        let mut by = self.database.begin().unwrap();
        match self.insert(&mut by, 1000 + name, name) {
            Err(Error::Conflict { holder, .. }) => {
                assert!(holder.is_some());
                true
            }
            Err(Error::Unique { .. } | Error::Overtaken { .. }) => true,
            other => {
                other.unwrap();
                by.abort().unwrap();
                false
            }
        }
    }
}

#[test]
fn a_key_that_a_batch_has_given_up_is_taken_until_the_batch_is_written() {
    for is_removal in [true, false] {
        let shop = shop();
        let mut order = shop.database.begin().unwrap();
        shop.insert(&mut order, 4, 40).unwrap();
        let refused: Result<(), Error> = order.batch(|batch| {
            match is_removal {
                true => assert!(shop.remove(batch, 4)?),
                false => assert!(shop.update(batch, 4, 41, 0)?),
            }
            assert!(shop.is_taken(40), "it comes back");
            assert_eq!(shop.is_taken(41), !is_removal);
            Err(no())
        });
        assert!(refused.is_err());
        assert!(shop.is_taken(40) && !shop.is_taken(41));
        order
            .batch(|batch| match is_removal {
                true => shop.remove(batch, 4),
                false => shop.update(batch, 4, 41, 0),
            })
            .unwrap();
        // It may come back still: if the transaction takes the batch back.
        assert!(shop.is_taken(40));
        assert_eq!(shop.is_taken(41), !is_removal);
        order.commit().unwrap();
        assert!(!shop.is_taken(40));
        let mut items = three();
        if !is_removal {
            items.insert(4, (41, 0));
        }
        assert_eq!(shop.now(), items);
        shop.check();
    }
}

#[test]
fn a_key_between_two_changes_of_a_batch_is_taken() {
    let shop = shop();
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let mut order = shop.begin(how);
        order
            .batch(|batch| {
                assert!(shop.update(batch, 1, 10, 0)?);
                let inner: Result<(), Error> = batch.batch(|inner| {
                    assert!(shop.update(inner, 1, 11, 0)?);
                    assert!(shop.is_taken(1) && shop.is_taken(10) && shop.is_taken(11));
                    Err(no())
                });
                assert!(inner.is_err());
                assert!(shop.is_taken(1) && shop.is_taken(10) && !shop.is_taken(11));
                Ok(())
            })
            .unwrap();
        // Its own statements may have the keys that it has given up.
        shop.insert(&mut order, 9, 1).unwrap();
        assert!(shop.update(&mut order, 2, 12, 0).unwrap());
        shop.insert(&mut order, 8, 2).unwrap();
        order.abort().unwrap();
        assert_eq!(shop.now(), three());
        shop.check();
    }
}

#[test]
fn a_key_that_is_given_up_before_the_commit_is_taken_until_then() {
    let shop = shop();
    let mut order = shop.database.begin_with(&at_commit()).unwrap();
    assert!(shop.update(&mut order, 1, 10, 0).unwrap());
    let refused: Result<(), Error> = order.batch(|batch| {
        assert!(shop.update(batch, 1, 11, 0)?);
        assert!(shop.is_taken(10));
        Err(no())
    });
    assert!(refused.is_err());
    order.commit().unwrap();
    assert!(!shop.is_taken(1) && shop.is_taken(10) && !shop.is_taken(11));
    shop.check();
}

#[test]
fn a_batch_that_a_crash_has_lost_gives_its_keys_back() {
    let shop = shop();
    let mut order = shop.database.begin().unwrap();
    shop.insert(&mut order, 4, 40).unwrap();
    let token = order.token();
    let _: Result<(), Error> = order.batch(|batch| {
        assert!(shop.remove(batch, 4)?);
        // Nobody gets the name before a crash in which this batch is lost.
        assert!(shop.is_taken(40));
        Err(no())
    });
    order.suspend();
    let shop = shop.reopened();
    assert!(shop.is_taken(40));
    let Resumed::Open(order) = shop.database.resume(token).unwrap() else { panic!("it is open") };
    order.commit().unwrap();
    assert_eq!(shop.now()[&4], (40, 0));
    shop.check();
}

/// A name goes from row to row, and nobody ever sees it twice.
#[test]
fn names_that_batches_give_up_and_take_back_are_never_had_twice() {
    let shop = shop();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = |thread: u32| {
            let shop = &shop;
            move || {
                for round in 0..800 {
                    let how = match (thread + round) % 2 {
                        0 => Durability::EachStatement,
                        _ => Durability::AtCommit,
                    };
                    let mut by = shop.begin(how);
                    // Refused, or not.
                    let _ = change(shop, &mut by, thread, round);
                    let _ = if round % 5 == 0 { by.abort() } else { by.commit() };
                }
            }
        };
        let workers: Vec<_> = (0..3).map(|thread| scope.spawn(work(thread))).collect();
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                names_are_unique(&shop);
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    names_are_unique(&shop);
    shop.check();
}

fn names_are_unique(shop: &Shop) {
    let items = shop.now();
    let mut names: Vec<u32> = items.values().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "{items:?}");
}

/// Gives the row of a thread a name that all threads want, after it was given up for a moment.
fn change(shop: &Shop, by: &mut Transaction<'_>, thread: u32, round: u32) -> Result<(), Error> {
    let (number, name) = (10 + thread, 100 + round % 2);
    shop.remove(by, number)?;
    shop.insert(by, number, name)?;
    let refused: Result<(), Error> = by.batch(|batch| {
        match round % 3 {
            0 => shop.remove(batch, number).map(drop),
            _ => shop.update(batch, number, 200 + thread, 1).map(drop),
        }?;
        thread::yield_now();
        Err(no())
    });
    assert!(refused.is_err());
    by.batch(|batch| {
        shop.update(batch, number, 200 + thread, 2)?;
        thread::yield_now();
        shop.update(batch, number, name, 3).map(drop)
    })
}
