//! Serializable transactions that take later snapshots, or change the schema: what they have read
//! before is not forgotten.

use std::ops::{Bound, ControlFlow};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Database, NewIndex, Order, Resumed, Row, TableSpec, Token, Transaction, Type,
};

use crate::serializable::{Things, is_refused, things};

fn reopened(things: Things) -> Things {
    let Things { pool, database, table } = things;
    drop((database, table));
    let database = Database::open(&pool, "things").unwrap();
    let table = database.table("things").unwrap();
    Things { pool, database, table }
}

fn resumed(things: &Things, token: Token) -> Transaction<'_> {
    match things.database.resume(token).unwrap() {
        Resumed::Open(transaction) => transaction,
        ended => panic!("it is {ended:?}"),
    }
}

/// What is behind a transaction that has read with one snapshot, and taken another one: a record of
/// a statement, or of a change of the schema.
fn make_a_record(things: &Things, by: &mut Transaction<'_>, is_schema: bool) {
    match is_schema {
        true => {
            let spec = TableSpec::new("more").column("a", Type::U8).primary_key(["a"]);
            things.database.create_table_in(by, &spec).unwrap();
        }
        false => assert!(things.set_in(by, 19, 7)),
    }
}

#[test]
fn what_was_read_before_a_refresh_is_not_forgotten_by_an_opening() {
    for (reopenings, is_changed, is_schema) in
        [(1, true, false), (1, true, true), (2, true, false), (1, false, false), (2, false, true)]
    {
        let mut things = things();
        let mut by = things.begin();
        assert_eq!(things.get(&by, 5), Some(0));
        assert!(things.set_in(&mut by, 20, 7));
        if is_changed {
            things.set(5, 1);
        }
        by.refresh().unwrap();
        make_a_record(&things, &mut by, is_schema);
        let mut token = by.suspend();
        things = reopened(things);
        if reopenings == 2 {
            let mut by = resumed(&things, token);
            by.refresh().unwrap();
            assert!(things.set_in(&mut by, 18, 7));
            token = by.suspend();
            things = reopened(things);
        }
        assert_eq!(is_refused(resumed(&things, token).commit()), is_changed, "{reopenings}");
    }
}

#[test]
fn a_later_snapshot_of_one_that_is_resumed_does_not_hide_what_was_changed_before() {
    let mut things = things();
    let mut by = things.begin();
    assert_eq!(things.get(&by, 5), Some(0));
    assert!(things.set_in(&mut by, 20, 7));
    let token = by.suspend();
    things.set(5, 1);
    things = reopened(things);
    let mut by = resumed(&things, token);
    by.refresh().unwrap();
    assert!(things.set_in(&mut by, 19, 7));
    let token = by.suspend();
    things = reopened(things);
    assert!(is_refused(resumed(&things, token).commit()));
}

#[test]
fn a_stamp_of_a_refused_commit_is_not_given_again_while_somebody_sees_it() {
    let mut things = things();
    let mut refused = things.begin();
    assert_eq!(things.get(&refused, 5), Some(0));
    assert!(things.set_in(&mut refused, 20, 7));
    things.set(5, 1);
    assert!(is_refused(refused.commit()));
    let mut by = things.database.begin().unwrap();
    assert!(things.set_in(&mut by, 19, 7));
    let token = by.suspend();
    things = reopened(things);
    things.set(5, 2);
    things.insert(30, 2);
    let by = resumed(&things, token);
    assert_eq!([things.get(&by, 5), things.get(&by, 30)], [Some(1), None]);
}

#[test]
fn the_snapshot_of_a_read_is_kept_while_the_schema_is_changed() {
    for is_moved in [false, true] {
        let things = things();
        let mut by = things.begin();
        assert!(things.set_in(&mut by, 20, 7));
        assert_eq!(things.get(&by, 5), Some(0));
        match is_moved {
            true => {
                let update = things.table.prepare_update("primary").unwrap();
                let done = update.run(&[5.into()], |_, row| row.set(0, 50u32));
                assert!(done.unwrap().is_some());
            }
            false => assert!(things.delete(5)),
        }
        by.refresh().unwrap();
        make_a_record(&things, &mut by, true);
        while things.database.collect().unwrap() > 0 {}
        assert!(is_refused(by.commit()), "{is_moved}");
    }
}

/// Says what a closure returns, unless it takes longer than anything here can.
fn in_time<R: Send>(done: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || sender.send(done()));
        match receiver.recv_timeout(Duration::from_secs(120)) {
            Ok(result) => result,
            Err(_) => {
                // The thread would be waited for.
                eprintln!("it has no end");
                std::process::exit(1);
            }
        }
    })
}

#[test]
fn a_range_of_an_index_that_was_taken_back_is_validated() {
    let things = things();
    let mut by = things.begin();
    assert!(things.set_in(&mut by, 20, 7));
    let index = NewIndex::secondary("by_both", ["group", "value"]).ordered();
    things.database.create_index_in(&mut by, &things.table, &index).unwrap();
    let table = things.database.table_in(&by, "things").unwrap();
    let range = table.prepare_range("by_both").unwrap();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let first = |_: &Row<'_>| ControlFlow::Break(());
    assert!(range.run(&by, all, Order::Ascending, first).unwrap().is_some());
    drop((range, table));
    // Far behind the range.
    things.set(19, 1);
    by.take_back_to(1).unwrap();
    assert!(in_time(|| is_refused(by.commit())), "without the index, all rows count");
}

#[test]
fn one_that_drops_an_index_does_not_keep_a_reader_of_it_from_its_commit() {
    for _ in 0..50 {
        let things = things();
        let mut reader = things.begin();
        assert_eq!(things.range(&reader, [1, 1], 100, Order::Ascending).len(), 4);
        assert!(things.set_in(&mut reader, 20, 7));
        let mut other = things.database.begin().unwrap();
        things.database.drop_index_in(&mut other, &things.table, "by_group").unwrap();
        things.set(19, 1);
        let commit = || {
            thread::scope(|scope| {
                let one = scope.spawn(|| reader.commit());
                let other = scope.spawn(|| other.commit());
                (one.join().unwrap(), other.join().unwrap())
            })
        };
        let (one, other) = in_time(commit);
        other.unwrap();
        // It may be refused: without the index, all rows count.
        is_refused(one);
        assert_eq!(things.database.check().unwrap(), []);
    }
}
