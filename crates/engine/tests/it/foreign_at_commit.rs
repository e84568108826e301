//! Foreign keys that are checked when a transaction commits, whose statements are durable.

use std::thread;
use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, ForeignKeys, Isolation, NewForeignKey, Resumed, TableSpec,
    Transaction, TransactionOptions, Type, Value,
};
use remanent_pmem::Pool;

use crate::foreign::{Shop, has_children, has_no_parent, is_conflict, shop};

fn begin(shop: &Shop) -> Transaction<'_> {
    begin_with(shop, TransactionOptions::new())
}

fn begin_with(shop: &Shop, options: TransactionOptions) -> Transaction<'_> {
    shop.database.begin_with(&options.foreign_keys(ForeignKeys::AtCommit)).unwrap()
}

fn resumed(shop: &Shop, token: remanent_engine::Token) -> Transaction<'_> {
    match shop.database.resume(token).unwrap() {
        Resumed::Open(transaction) => transaction,
        ended => panic!("it is {ended:?}"),
    }
}

fn customer_of(shop: &Shop, order: u32) -> Option<Option<u32>> {
    let get = shop.orders.prepare_get("primary").unwrap();
    get.run(&shop.database.snapshot(), &[order.into()], |row| row.get(1)).unwrap()
}

#[test]
fn a_child_may_come_before_its_parent_and_a_parent_go_before_its_child() {
    let shop = shop();
    let mut change = begin(&shop);
    shop.order_in(&mut change, 9, 9).unwrap();
    shop.add_in(&mut change, 9).unwrap();
    assert!(shop.remove_in(&mut change, 1).unwrap());
    assert!(shop.cancel_in(&mut change, 1).unwrap());
    change.commit().unwrap();
    assert_eq!(customer_of(&shop, 9), Some(Some(9)));
    assert_eq!(customer_of(&shop, 1), None);
    shop.check();
}

#[test]
fn what_is_not_whole_at_the_commit_is_given_up_and_can_be_asked_for_before() {
    let shop = shop();
    let mut change = begin(&shop);
    shop.order_in(&mut change, 9, 9).unwrap();
    assert!(has_no_parent(change.check_foreign_keys()));
    // It goes on.
    shop.add_in(&mut change, 9).unwrap();
    change.check_foreign_keys().unwrap();
    assert!(shop.remove_in(&mut change, 1).unwrap());
    assert!(has_children(change.check_foreign_keys()));
    let token = change.token();
    assert!(has_children(change.commit()));
    assert!(matches!(shop.database.resume(token).unwrap(), Resumed::Aborted));
    assert_eq!(customer_of(&shop, 9), None);
    assert!(shop.order(2, 1).is_ok(), "customer 1 is there");
    // All of its rows are free again.
    shop.order(9, 2).unwrap();
    assert!(shop.remove(3).unwrap());
    shop.check();
}

#[test]
fn a_last_statement_is_checked_too() {
    let shop = shop();
    for parent in [None, Some(9)] {
        let mut change = begin(&shop);
        if let Some(parent) = parent {
            shop.add_in(&mut change, parent).unwrap();
        }
        let committed = change.commit_with(|last| shop.order_in(last, 9, 9));
        assert_eq!(committed.is_ok(), parent.is_some(), "{committed:?}");
    }
    assert_eq!(customer_of(&shop, 9), Some(Some(9)));
    shop.check();
}

#[test]
fn a_batch_and_what_is_durable_at_the_commit_are_checked_at_the_commit() {
    let shop = shop();
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        for is_whole in [false, true] {
            let mut change = begin_with(&shop, TransactionOptions::new().durability(durability));
            change
                .batch(|batch| {
                    shop.order_in(batch, 8, 8)?;
                    shop.order_in(batch, 9, 9)?;
                    assert!(matches!(batch.check_foreign_keys(), Err(Error::InBatch)));
                    shop.add_in(batch, 8)
                })
                .unwrap();
            if is_whole {
                shop.add_in(&mut change, 9).unwrap();
                change.check_foreign_keys().unwrap();
            } else {
                assert!(has_no_parent(change.check_foreign_keys()));
            }
            assert_eq!(change.commit().is_ok(), is_whole, "{durability:?}");
        }
        for number in [8, 9] {
            assert!(shop.orders.prepare_delete("primary").unwrap().run(&[number.into()]).unwrap());
            assert!(shop.remove(number).unwrap());
        }
    }
    shop.check();
}

#[test]
fn what_is_taken_back_is_not_looked_at() {
    let shop = shop();
    let mut change = begin(&shop);
    shop.pass_on_in(&mut change, 1, 2).unwrap();
    let before = change.statement();
    shop.order_in(&mut change, 9, 9).unwrap();
    shop.pass_on_in(&mut change, 1, 9).unwrap();
    assert!(has_no_parent(change.check_foreign_keys()));
    change.take_back_to(before).unwrap();
    change.commit().unwrap();
    assert_eq!(customer_of(&shop, 1), Some(Some(2)));
    shop.check();
}

#[test]
fn a_parent_may_get_another_row_or_another_number() {
    let shop = shop();
    // Order 1 is of whoever has number 1.
    let mut change = begin(&shop);
    assert!(shop.remove_in(&mut change, 1).unwrap());
    shop.add_in(&mut change, 1).unwrap();
    change.commit().unwrap();
    let mut change = begin(&shop);
    shop.renumber_in(&mut change, 1, 11).unwrap();
    assert!(has_children(change.check_foreign_keys()));
    shop.renumber_in(&mut change, 2, 1).unwrap();
    change.commit().unwrap();
    let mut change = begin(&shop);
    shop.renumber_in(&mut change, 1, 2).unwrap();
    shop.pass_on_in(&mut change, 1, 2).unwrap();
    change.commit().unwrap();
    assert_eq!(customer_of(&shop, 1), Some(Some(2)));
    shop.check();
}

#[test]
fn it_is_still_so_when_the_database_was_opened_again() {
    let mut shop = shop();
    for is_whole in [false, true] {
        let mut change = begin(&shop);
        shop.order_in(&mut change, 9, 9).unwrap();
        assert!(shop.remove_in(&mut change, 1).unwrap());
        let token = change.suspend();
        shop = shop.reopened();
        let mut change = resumed(&shop, token);
        assert_eq!(change.statement(), 2);
        assert!(change.check_foreign_keys().is_err());
        shop.order_in(&mut change, 10, 10).unwrap();
        if is_whole {
            shop.add_in(&mut change, 9).unwrap();
            shop.pass_on_in(&mut change, 1, 9).unwrap();
            let token = change.suspend();
            shop = shop.reopened();
            change = resumed(&shop, token);
            assert!(has_no_parent(change.check_foreign_keys()), "of order 10");
            assert!(shop.cancel_in(&mut change, 10).unwrap());
        }
        assert_eq!(change.commit().is_ok(), is_whole);
        shop.check();
    }
    assert_eq!(customer_of(&shop, 1), Some(Some(9)));
}

#[test]
fn others_meet_what_is_not_checked_yet() {
    let shop = shop();
    let mut change = begin(&shop);
    shop.order_in(&mut change, 9, 2).unwrap();
    assert!(shop.remove_in(&mut change, 3).unwrap());
    // Customer 2 may have an order, and customer 3 may be gone.
    assert!(is_conflict(shop.remove(2)));
    assert!(is_conflict(shop.order(10, 3)));
    // Two that wait for the commits of each other.
    let mut other = begin(&shop);
    assert!(shop.remove_in(&mut other, 2).unwrap());
    assert!(is_conflict(other.check_foreign_keys()));
    assert!(is_conflict(change.check_foreign_keys()));
    assert!(is_conflict(other.commit()));
    change.commit().unwrap();
    assert!(has_children(shop.remove(2)));
    shop.check();
}

#[test]
fn a_commit_waits_for_who_decides_whether_there_is_a_parent() {
    let shop = shop();
    for is_kept in [true, false] {
        let mut other = shop.begin(Durability::EachStatement);
        assert!(shop.remove_in(&mut other, 3).unwrap());
        let wait = TransactionOptions::new().wait(Duration::from_secs(60));
        let mut change = begin_with(&shop, wait);
        shop.order_in(&mut change, 9, 3).unwrap();
        let committed = thread::scope(|scope| {
            let commit = scope.spawn(|| change.commit());
            thread::sleep(Duration::from_millis(5));
            match is_kept {
                true => other.abort().unwrap(),
                false => other.commit().unwrap(),
            }
            commit.join().unwrap()
        });
        assert_eq!(committed.is_ok(), is_kept, "{committed:?}");
        if is_kept {
            assert!(shop.orders.prepare_delete("primary").unwrap().run(&[9.into()]).unwrap());
        }
    }
    shop.check();
}

#[test]
fn two_that_wait_for_each_other_at_their_commits_do_not_wait_for_ever() {
    let shop = shop();
    let wait = TransactionOptions::new().wait(Duration::from_secs(60));
    let [mut first, mut second] = [(); 2].map(|()| begin_with(&shop, wait));
    shop.order_in(&mut first, 9, 2).unwrap();
    assert!(shop.remove_in(&mut first, 3).unwrap());
    shop.order_in(&mut second, 10, 3).unwrap();
    assert!(shop.remove_in(&mut second, 2).unwrap());
    let ends = thread::scope(|scope| {
        let ends = [first, second].map(|one| scope.spawn(|| one.commit()));
        ends.map(|end| end.join().unwrap())
    });
    assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "{ends:?}");
    assert!(ends.iter().any(|end| matches!(end, Err(Error::Deadlock { .. }))), "{ends:?}");
    shop.check();
}

#[test]
fn a_foreign_key_that_comes_meanwhile_is_checked_too() {
    let shop = shop();
    shop.database.drop_foreign_key(&shop.orders, "of_customer").unwrap();
    let mut change = begin(&shop);
    shop.order_in(&mut change, 9, 9).unwrap();
    let key = NewForeignKey::new("of_customer", ["customer"], "customers", ["number"]);
    let refused = shop.database.add_foreign_key(&shop.orders, &key);
    assert!(matches!(refused, Err(Error::NoParent { .. } | Error::Conflict { .. })), "{refused:?}");
    assert!(shop.cancel_in(&mut change, 9).unwrap());
    let before = change.statement();
    change.take_back_to(0).unwrap();
    assert!(before > 0);
    shop.database.add_foreign_key(&shop.orders, &key).unwrap();
    shop.order_in(&mut change, 9, 9).unwrap();
    assert!(has_no_parent(change.commit()));
    shop.check();
}

#[test]
fn a_serializable_one_is_refused_if_what_its_check_has_found_is_over() {
    let shop = shop();
    let serializable = TransactionOptions::new().isolation(Isolation::Serializable);
    let mut change = begin_with(&shop, serializable);
    shop.order_in(&mut change, 9, 9).unwrap();
    assert!(has_no_parent(change.check_foreign_keys()));
    assert!(shop.cancel_in(&mut change, 9).unwrap());
    shop.customers.insert(&[9.into(), 0.into()]).unwrap();
    assert!(matches!(change.commit(), Err(Error::NotSerializable { .. })));
    shop.check();
}

#[test]
fn rows_of_one_table_may_refer_to_each_other() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "company").unwrap();
    let spec = TableSpec::new("employees")
        .column("number", Type::U32)
        .nullable("boss", Type::U32)
        .primary_key(["number"])
        .index("by_boss", ["boss"])
        .foreign_key("of_boss", ["boss"], "employees", ["number"]);
    let employees = database.create_table(&spec).unwrap();
    let options = TransactionOptions::new().foreign_keys(ForeignKeys::AtCommit);
    // A ring of ten.
    let mut ring = database.begin_with(&options).unwrap();
    for number in 0..10u32 {
        let boss = Value::from((number + 1) % 10);
        employees.insert_in(&mut ring, &[number.into(), boss]).unwrap();
    }
    ring.commit().unwrap();
    // It is removed in any order, but not a part of it.
    let delete = employees.prepare_delete("primary").unwrap();
    for count in [9, 10] {
        let mut gone = database.begin_with(&options).unwrap();
        for number in (0..10).rev().take(count) {
            assert!(delete.run_in(&mut gone, &[number.into()]).unwrap());
        }
        assert_eq!(gone.commit().is_ok(), count == 10, "{count}");
    }
    assert_eq!(database.check().unwrap(), []);
}
