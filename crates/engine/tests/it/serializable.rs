//! Serializable transactions: what others change of what they have read, and how they commit.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_engine::{
    Database, Durability, Error, Isolation, LockMode, Moment, Order, Resumed, Row, Table,
    TableSpec, Transaction, TransactionOptions, Type, Upserted,
};
use remanent_pmem::pool::Format;
use remanent_pmem::{Mapped, Medium, Pool};

/// Rows of a number, a group by which they are ordered, and a value.
pub(crate) struct Things<M: Medium = Mapped> {
    pub(crate) pool: Pool<M>,
    pub(crate) database: Database<M>,
    pub(crate) table: Table<M>,
}

const FIRST: u32 = 1;
const LAST: u32 = 20;

pub(crate) fn things() -> Things {
    things_in(Pool::options().create_in_memory().unwrap())
}

fn things_in<M: Medium>(pool: Pool<M>) -> Things<M> {
    let database = Database::create(&pool, "things").unwrap();
    let spec = TableSpec::new("things")
        .column("number", Type::U32)
        .column("group", Type::U32)
        .column("value", Type::I64)
        .primary_key(["number"])
        .index("by_group", ["group"])
        .ordered(["by_group"]);
    let table = database.create_table(&spec).unwrap();
    let things = Things { pool, database, table };
    (FIRST..=LAST).for_each(|number| things.insert(number, number / 4));
    things
}

impl<M: Medium> Things<M> {
    pub(crate) fn begin(&self) -> Transaction<'_, M> {
        self.begin_with(Durability::EachStatement)
    }

    fn begin_with(&self, durability: Durability) -> Transaction<'_, M> {
        let options = TransactionOptions::new().isolation(Isolation::Serializable);
        self.database.begin_with(&options.durability(durability)).unwrap()
    }

    pub(crate) fn insert(&self, number: u32, group: u32) {
        self.table.insert(&[number.into(), group.into(), 0.into()]).unwrap();
    }

    pub(crate) fn insert_in(&self, by: &mut Transaction<'_, M>, number: u32, group: u32) {
        self.table.insert_in(by, &[number.into(), group.into(), 0.into()]).unwrap();
    }

    pub(crate) fn get(&self, moment: &impl Moment<M>, number: u32) -> Option<i64> {
        let get = self.table.prepare_get("primary").unwrap();
        get.run(moment, &[number.into()], |row| row.get(2)).unwrap()
    }

    pub(crate) fn set(&self, number: u32, value: i64) {
        let update = self.table.prepare_update("primary").unwrap();
        assert!(update.run(&[number.into()], |_, row| row.set(2, value)).unwrap().is_some());
    }

    pub(crate) fn set_in(&self, by: &mut Transaction<'_, M>, number: u32, value: i64) -> bool {
        let update = self.table.prepare_update("primary").unwrap();
        update.run_in(by, &[number.into()], |_, row| row.set(2, value)).unwrap().is_some()
    }

    pub(crate) fn move_to(&self, number: u32, group: u32) {
        let update = self.table.prepare_update("primary").unwrap();
        assert!(update.run(&[number.into()], |_, row| row.set(1, group)).unwrap().is_some());
    }

    pub(crate) fn delete(&self, number: u32) -> bool {
        self.table.prepare_delete("primary").unwrap().run(&[number.into()]).unwrap()
    }

    /// Numbers of the rows of these groups; the first `most` of them.
    pub(crate) fn range(
        &self,
        moment: &impl Moment<M>,
        groups: [u32; 2],
        most: usize,
        order: Order,
    ) -> Vec<u32> {
        let range = self.table.prepare_range("by_group").unwrap();
        let [from, to] = groups.map(|group| [group.into()]);
        let mut found = Vec::new();
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        range
            .run(moment, bounds, order, |row| {
                found.push(row.get(0).unwrap());
                if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        found
    }

    fn find(&self, moment: &impl Moment<M>, group: u32) -> usize {
        let (find, mut count) = (self.table.prepare_find("by_group").unwrap(), 0);
        find.run(moment, &[group.into()], |_| {
            count += 1;
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
        count
    }

    fn count(&self, moment: &impl Moment<M>) -> u64 {
        self.table.prepare_scan(["number"]).unwrap().count(moment).unwrap()
    }
}

pub(crate) fn is_refused(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::NotSerializable { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Whether a transaction that reads, and changes row 20, is refused if others act meanwhile.
fn refuses(read: impl Fn(&Things, &mut Transaction<'_>), others: impl Fn(&Things)) -> bool {
    let mut answers = Vec::new();
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        for is_read_first in [true, false] {
            let things = things();
            let mut by = things.begin_with(durability);
            if is_read_first {
                read(&things, &mut by);
                others(&things);
            }
            assert!(things.set_in(&mut by, LAST, 7));
            if !is_read_first {
                others(&things);
                // As of the moment before.
                read(&things, &mut by);
            }
            let is_refused = is_refused(by.commit());
            let expected = if is_refused { 0 } else { 7 };
            assert_eq!(things.get(&things.database.snapshot(), LAST), Some(expected));
            assert_eq!(things.database.check().unwrap(), []);
            answers.push(is_refused);
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    answers[0]
}

#[test]
fn write_skew_is_refused() {
    let skew = |isolation| {
        let things = things();
        let options = TransactionOptions::new().isolation(isolation);
        let mut both = [1, 2].map(|_| things.database.begin_with(&options).unwrap());
        for (by, numbers) in both.iter_mut().zip([[1, 2], [2, 1]]) {
            assert_eq!(things.get(by, numbers[0]), Some(0));
            assert!(things.set_in(by, numbers[1], 1));
        }
        both.map(|by| by.commit())
    };
    assert!(skew(Isolation::Snapshot).iter().all(Result::is_ok));
    let [first, second] = skew(Isolation::Serializable);
    assert!(!is_refused(first));
    let told = second.unwrap_err().to_string();
    assert!(told.contains("things") && told.contains("\"primary\" key (2)"), "{told}");
}

#[test]
fn rows_that_were_read_are_as_they_were() {
    let get = |things: &Things, by: &mut Transaction<'_>| assert_eq!(things.get(by, 5), Some(0));
    assert!(refuses(get, |things| things.set(5, 1)));
    assert!(refuses(get, |things| assert!(things.delete(5))));
    // Another row with the same content.
    assert!(refuses(get, |things| {
        assert!(things.delete(5));
        things.insert(5, 1);
    }));
    assert!(!refuses(get, |things| things.set(6, 1)));
    // Nobody has changed it.
    assert!(!refuses(get, |_| {}));
}

#[test]
fn ranges_finds_and_scans_have_no_phantoms() {
    let range = |things: &Things, by: &mut Transaction<'_>| {
        assert_eq!(things.range(by, [1, 2], 100, Order::Ascending).len(), 8);
    };
    let find = |things: &Things, by: &mut Transaction<'_>| assert_eq!(things.find(by, 2), 4);
    let count = |things: &Things, by: &mut Transaction<'_>| assert_eq!(things.count(by), 20);
    let into: &dyn Fn(&Things) = &|things| things.insert(30, 2);
    let away: &dyn Fn(&Things) = &|things| things.move_to(8, 9);
    let gone: &dyn Fn(&Things) = &|things| assert!(things.delete(8));
    let set: &dyn Fn(&Things) = &|things| things.set(8, 1);
    for others in [into, away, gone, set] {
        assert!(refuses(range, others) && refuses(find, others) && refuses(count, others));
    }
    // Rows that were read by none of them but the scan.
    let beside: &dyn Fn(&Things) = &|things| things.insert(30, 3);
    let moved: &dyn Fn(&Things) = &|things| things.move_to(17, 9);
    for others in [beside, moved] {
        assert!(!refuses(range, others) && !refuses(find, others) && refuses(count, others));
    }
    let scan = |things: &Things, by: &mut Transaction<'_>| {
        let visit = |_: &Row<'_>| ControlFlow::<()>::Continue(());
        things.table.scan(by, visit).unwrap();
    };
    assert!(refuses(scan, beside));
}

#[test]
fn a_range_is_read_until_its_visitor_breaks() {
    for (order, beyond) in [(Order::Ascending, 4), (Order::Descending, 1)] {
        let first = |things: &Things, by: &mut Transaction<'_>| {
            assert_eq!(things.range(by, [1, 4], 5, order).len(), 5);
        };
        assert!(!refuses(first, |things| things.insert(30, beyond)), "{order:?}");
        assert!(refuses(first, |things| things.insert(30, 5 - beyond)), "{order:?}");
    }
    // The entry at which it breaks counts, too.
    let one = |things: &Things, by: &mut Transaction<'_>| {
        assert_eq!(things.range(by, [1, 4], 1, Order::Ascending), [4]);
    };
    assert!(refuses(one, |things| things.set(4, 1)));
    assert!(!refuses(one, |things| things.set(5, 1)));
}

#[test]
fn rows_that_are_not_there_are_read() {
    let key = 40;
    let get = |things: &Things, by: &mut Transaction<'_>| assert_eq!(things.get(by, key), None);
    let update = |things: &Things, by: &mut Transaction<'_>| {
        assert!(!things.set_in(by, key, 1));
    };
    let delete = |things: &Things, by: &mut Transaction<'_>| {
        let delete = things.table.prepare_delete("primary").unwrap();
        assert!(!delete.run_in(by, &[key.into()]).unwrap());
    };
    let lock = |things: &Things, by: &mut Transaction<'_>| {
        let get = things.table.prepare_get("primary").unwrap();
        let locked = get.lock_in(by, &[key.into()], LockMode::Wait, |_| Ok(()));
        assert!(locked.unwrap().is_none());
    };
    type Read<'r> = &'r dyn Fn(&Things, &mut Transaction<'_>);
    for read in [&get as Read<'_>, &update, &delete, &lock] {
        assert!(refuses(read, |things| things.insert(key, 1)));
        assert!(!refuses(read, |things| things.insert(key + 1, 1)));
    }
}

#[test]
fn an_upsert_inserts_what_nobody_else_has() {
    let upsert = |things: &Things, by: &mut Transaction<'_>, number: u32| {
        let upsert = things.table.prepare_upsert("primary").unwrap();
        let values = [number.into(), 1.into(), 1.into()];
        upsert.run_in(by, &values, |_, row| row.set(2, 1))
    };
    let things = things();
    let mut by = things.begin();
    assert!(matches!(upsert(&things, &mut by, 40).unwrap(), Upserted::Inserted(_)));
    assert!(matches!(upsert(&things, &mut by, 5).unwrap(), Upserted::Changed(())));
    // It has seen that nobody had the key; refused as a transaction with a snapshot is.
    things.insert(41, 1);
    assert!(matches!(upsert(&things, &mut by, 41), Err(Error::Overtaken { .. })));
    assert!(is_refused(by.commit()));
    let mut by = things.begin();
    assert!(matches!(upsert(&things, &mut by, 42).unwrap(), Upserted::Inserted(_)));
    things.insert(43, 1);
    assert!(!is_refused(by.commit()));
}

#[test]
fn a_refused_insert_has_read_the_row_that_has_the_key() {
    let insert = |things: &Things, by: &mut Transaction<'_>| {
        let refused = things.table.insert_in(by, &[5.into(), 1.into(), 0.into()]);
        assert!(matches!(refused, Err(Error::Unique { .. } | Error::Overtaken { .. })));
    };
    let things = things();
    let mut by = things.begin();
    assert!(things.set_in(&mut by, LAST, 7));
    insert(&things, &mut by);
    assert!(things.delete(5));
    assert!(is_refused(by.commit()));
    let mut by = things.begin();
    things.insert(5, 1);
    by.refresh().unwrap();
    assert!(things.set_in(&mut by, LAST, 7));
    insert(&things, &mut by);
    things.set(6, 1);
    assert!(!is_refused(by.commit()));
}

#[test]
fn a_statement_that_changes_nothing_has_read_the_row() {
    let keep = |things: &Things, by: &mut Transaction<'_>| {
        let update = things.table.prepare_update("primary").unwrap();
        update.run_in(by, &[5.into()], |row, _| row.get::<i64>(2)).unwrap();
    };
    let fail = |things: &Things, by: &mut Transaction<'_>| {
        let update = things.table.prepare_update("primary").unwrap();
        let failed = update.run_in(by, &[5.into()], |_, row| row.set(7, 1));
        assert!(matches!(failed, Err(Error::NoSuchColumn { .. })));
    };
    let spare = |things: &Things, by: &mut Transaction<'_>| {
        let delete = things.table.prepare_delete("primary").unwrap();
        assert_eq!(delete.run_if_in(by, &[5.into()], |_| Ok(false)).unwrap(), Some(false));
    };
    // Before others act: it would be overtaken afterwards.
    type Read<'r> = &'r dyn Fn(&Things, &mut Transaction<'_>);
    for (read, number) in [(&keep as Read<'_>, 5), (&fail, 5), (&spare, 5), (&keep, 6)] {
        let things = things();
        let mut by = things.begin();
        read(&things, &mut by);
        things.set(number, 1);
        assert!(things.set_in(&mut by, LAST, 7));
        assert_eq!(is_refused(by.commit()), number == 5);
    }
}

#[test]
fn what_is_taken_back_has_been_read() {
    for (durability, is_batch) in [
        (Durability::EachStatement, false),
        (Durability::EachStatement, true),
        (Durability::AtCommit, false),
        (Durability::AtCommit, true),
    ] {
        for number in [5, 6] {
            let things = things();
            let mut by = things.begin_with(durability);
            assert!(things.set_in(&mut by, LAST, 7));
            let before = by.statement();
            let change = |by: &mut Transaction<'_>| {
                assert!(things.set_in(by, 5, 1));
                things.insert_in(by, 50, 1);
                Err::<(), Error>(Error::InBatch)
            };
            match is_batch {
                true => assert!(by.batch(change).is_err()),
                false => {
                    change(&mut by).unwrap_err();
                    by.take_back_to(before).unwrap();
                }
            }
            things.set(number, 2);
            // Nobody has read it.
            things.insert(50, 1);
            assert_eq!(is_refused(by.commit()), number == 5, "{durability:?} {is_batch}");
        }
    }
}

#[test]
fn a_change_that_a_batch_undoes_has_read_the_row() {
    for number in [5, 6] {
        let things = things();
        let mut by = things.begin();
        assert!(things.set_in(&mut by, LAST, 7));
        by.batch(|batch| {
            assert!(things.set_in(batch, 5, 1));
            assert!(things.set_in(batch, 5, 0));
            Ok(())
        })
        .unwrap();
        things.set(number, 2);
        assert_eq!(is_refused(by.commit()), number == 5);
    }
}

/// Fekete, O'Neil and O'Neil, 2004: two transactions that could be one after the other, and one
/// that changes nothing and sees the second one without the first.
#[test]
fn what_a_reader_sees_is_a_state_between_commits() {
    let run = |isolation: Isolation, is_reader: bool| {
        let things = things();
        let (checking, savings) = (1, 2);
        let options = TransactionOptions::new().isolation(isolation);
        let begin = || things.database.begin_with(&options).unwrap();
        let mut withdrawal = begin();
        let sum =
            things.get(&withdrawal, checking).unwrap() + things.get(&withdrawal, savings).unwrap();
        let mut deposit = begin();
        assert_eq!(things.get(&deposit, savings), Some(0));
        assert!(things.set_in(&mut deposit, savings, 20));
        deposit.commit().unwrap();
        if is_reader {
            let reader = begin();
            let seen = [checking, savings].map(|number| things.get(&reader, number));
            assert_eq!(seen, [Some(0), Some(20)]);
            reader.commit().unwrap();
        }
        // A fee, as there was nothing.
        assert!(things.set_in(&mut withdrawal, checking, sum - 11));
        withdrawal.commit()
    };
    assert!(run(Isolation::Snapshot, true).is_ok());
    assert!(is_refused(run(Isolation::Serializable, true)));
}

#[test]
fn who_changes_nothing_is_refused_only_if_it_has_seen_two_moments() {
    for (is_refreshed, number) in [(false, 5), (true, 5), (true, 6)] {
        let things = things();
        let mut by = things.begin();
        assert_eq!(things.get(&by, 5), Some(0));
        things.set(number, 1);
        if is_refreshed {
            by.refresh().unwrap();
        }
        assert_eq!(things.get(&by, LAST), Some(0));
        assert_eq!(is_refused(by.commit()), is_refreshed && number == 5);
    }
}

#[test]
fn refreshing_keeps_what_was_read_before() {
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        for number in [4, 5, 6] {
            let things = things();
            let mut by = things.begin_with(durability);
            assert_eq!(things.get(&by, 4), Some(0));
            things.set(8, 1);
            by.refresh().unwrap();
            assert!(things.set_in(&mut by, LAST, 7));
            assert_eq!(things.get(&by, 5), Some(0));
            things.set(number, 1);
            by.refresh().unwrap();
            assert!(things.set_in(&mut by, 10, 7));
            by.refresh().unwrap();
            // What the first snapshot sees is kept.
            things.database.collect().unwrap();
            assert_eq!(is_refused(by.commit()), number != 6, "{durability:?} {number}");
            assert!(things.database.collect().unwrap() > 0);
            assert_eq!(things.database.check().unwrap(), []);
        }
    }
}

#[test]
fn own_changes_are_no_changes_by_others() {
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let things = things();
        let mut by = things.begin_with(durability);
        assert_eq!(things.count(&by), 20);
        assert_eq!(things.range(&by, [1, 2], 100, Order::Ascending).len(), 8);
        things.insert_in(&mut by, 30, 1);
        assert!(things.set_in(&mut by, 4, 1) && things.set_in(&mut by, 4, 2));
        let delete = things.table.prepare_delete("primary").unwrap();
        assert!(delete.run_in(&mut by, &[5.into()]).unwrap());
        let update = things.table.prepare_update("primary").unwrap();
        update.run_in(&mut by, &[6.into()], |_, row| row.set(1, 9)).unwrap();
        assert_eq!(things.range(&by, [1, 2], 100, Order::Ascending).len(), 7);
        assert_eq!((things.find(&by, 1), things.count(&by)), (3, 20));
        assert_eq!((things.get(&by, 4), things.get(&by, 30)), (Some(2), Some(0)));
        by.batch(|batch| {
            things.insert_in(batch, 31, 1);
            assert_eq!(things.find(batch, 1), 4);
            Ok(())
        })
        .unwrap();
        assert!(!is_refused(by.commit()));
        assert_eq!(things.count(&things.database.snapshot()), 21);
    }
}

#[test]
fn rows_that_are_locked_stay_as_they_are() {
    let things = things();
    let get = things.table.prepare_get("primary").unwrap();
    let mut by = things.begin();
    get.lock_in(&mut by, &[5.into()], LockMode::Wait, |_| Ok(())).unwrap().unwrap();
    assert!(things.set_in(&mut by, LAST, 7));
    let update = things.table.prepare_update("primary").unwrap();
    let refused = update.run(&[5.into()], |_, row| row.set(2, 1));
    assert!(matches!(refused, Err(Error::Conflict { .. })));
    things.set(6, 1);
    assert!(!is_refused(by.commit()));
}

#[test]
fn the_last_statement_is_validated_before_it_counts() {
    type Last<'l> = &'l dyn Fn(&Things, &mut Transaction<'_>) -> Result<(), Error>;
    let update: Last<'_> = &|things, last| {
        let update = things.table.prepare_update("primary")?;
        update.run_in(last, &[LAST.into()], |_, row| row.set(2, 7)).map(drop)
    };
    let insert: Last<'_> =
        &|things, last| things.table.insert_in(last, &[30.into(), 1.into(), 7.into()]).map(drop);
    let delete: Last<'_> = &|things, last| {
        things.table.prepare_delete("primary")?.run_in(last, &[LAST.into()]).map(drop)
    };
    let batch: Last<'_> = &|things, last| last.batch(|batch| update(things, batch));
    // What it says of it is as good as nothing.
    let silent: Last<'_> = &|things, last| {
        let _ = update(things, last);
        Ok(())
    };
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        for last in [update, insert, delete, batch, silent] {
            for number in [5, 6] {
                let things = things();
                let mut by = things.begin_with(durability);
                assert_eq!(things.get(&by, 5), Some(0));
                things.insert_in(&mut by, 31, 1);
                things.set(number, 1);
                let committed = is_refused(by.commit_with(|by| last(&things, by)));
                assert_eq!(committed, number == 5);
                assert!(matches!(by.commit(), Err(Error::TransactionEnded)));
                let is_there = things.get(&things.database.snapshot(), 31).is_some();
                assert_eq!(is_there, number == 6);
                assert_eq!(things.database.check().unwrap(), []);
            }
        }
    }
}

#[test]
fn a_refused_last_statement_leaves_the_transaction_open() {
    let things = things();
    let mut by = things.begin();
    assert_eq!(things.get(&by, 5), Some(0));
    let insert = |by: &mut Transaction<'_>, number: u32| {
        things.table.insert_in(by, &[number.into(), 1.into(), 0.into()])
    };
    assert!(matches!(by.commit_with(|by| insert(by, 6)), Err(Error::Unique { .. })));
    // Its stamp is nobody's: others go on.
    things.set(7, 1);
    assert!(by.commit_with(|by| insert(by, 30)).is_ok());
    assert_eq!(things.get(&things.database.snapshot(), 30), Some(0));
}

#[test]
fn a_suspended_transaction_keeps_what_it_has_read() {
    for number in [5, 6] {
        let things = things();
        let mut by = things.begin();
        assert_eq!(things.get(&by, 5), Some(0));
        assert!(things.set_in(&mut by, LAST, 7));
        let token = by.suspend();
        things.set(number, 1);
        let Ok(Resumed::Open(by)) = things.database.resume(token) else { panic!("it is open") };
        assert_eq!(is_refused(by.commit()), number == 5);
    }
}

#[test]
fn after_opening_it_has_read_everything() {
    for meanwhile in [None, Some(false), Some(true)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("things.pool");
        let things = things_in(Pool::options().create(&path).unwrap());
        let mut by = things.begin();
        assert_eq!(things.get(&by, 5), Some(0));
        assert!(things.set_in(&mut by, LAST, 7));
        let token = by.suspend();
        if meanwhile == Some(true) {
            things.set(6, 1);
        }
        drop(things);
        let pool = Pool::options().open(&path).unwrap();
        let database = Database::open(&pool, "things").unwrap();
        let table = database.table("things").unwrap();
        let things = Things { pool, database, table };
        if meanwhile == Some(false) {
            things.set(6, 1);
        }
        let Ok(Resumed::Open(mut by)) = things.database.resume(token) else { panic!("it is open") };
        by.refresh().unwrap();
        assert!(things.set_in(&mut by, 10, 7));
        assert_eq!(is_refused(by.commit()), meanwhile.is_some());
        let expected = if meanwhile.is_some() { 0 } else { 7 };
        assert_eq!(things.get(&things.database.snapshot(), LAST), Some(expected));
    }
}

#[test]
fn many_reads_count_as_one_of_the_table() {
    for (reads, others, expected) in [(4_096, 6, false), (4_097, 6, true), (5_000, 5, true)] {
        let things = things();
        let spec = TableSpec::new("others").column("number", Type::U32).primary_key(["number"]);
        let beside = things.database.create_table(&spec).unwrap();
        let mut by = things.begin();
        assert!(things.set_in(&mut by, LAST, 7));
        (0..reads).for_each(|_| assert_eq!(things.get(&by, 5), Some(0)));
        beside.insert(&[1.into()]).unwrap();
        things.set(others, 1);
        assert_eq!(is_refused(by.commit()), expected, "{reads} {others}");
    }
    // Other tables count no more than before.
    let things = things();
    let spec = TableSpec::new("others").column("number", Type::U32).primary_key(["number"]);
    let beside = things.database.create_table(&spec).unwrap();
    let mut by = things.begin();
    assert!(things.set_in(&mut by, LAST, 7));
    (0..5_000).for_each(|_| assert_eq!(things.get(&by, 5), Some(0)));
    beside.insert(&[1.into()]).unwrap();
    assert!(!is_refused(by.commit()));
}

#[test]
fn indexes_and_tables_may_go_meanwhile() {
    let read = |things: &Things, by: &mut Transaction<'_>| {
        assert_eq!(things.find(by, 1), 4);
        assert_eq!(things.range(by, [1, 1], 100, Order::Ascending).len(), 4);
    };
    for (number, is_dropped) in [(5, false), (8, false), (5, true), (8, true)] {
        let things = things();
        let mut by = things.begin();
        read(&things, &mut by);
        assert!(things.set_in(&mut by, LAST, 7));
        things.set(number, 1);
        match is_dropped {
            true => things.database.drop_index(&things.table, "by_group").unwrap(),
            false => {
                let place = remanent_engine::Placement::Dram;
                things.database.place_index(&things.table, "by_group", place).unwrap();
            }
        }
        // Without the index, all rows count.
        assert_eq!(is_refused(by.commit()), number == 5 || is_dropped);
    }
    let things = things();
    let spec = TableSpec::new("others").column("number", Type::U32).primary_key(["number"]);
    let beside = things.database.create_table(&spec).unwrap();
    let mut by = things.begin();
    assert_eq!(beside.prepare_scan(["number"]).unwrap().count(&by).unwrap(), 0);
    assert!(things.set_in(&mut by, LAST, 7));
    things.database.drop_table("others").unwrap();
    assert!(is_refused(by.commit()));
}

#[test]
fn a_refusal_by_a_foreign_key_has_read_the_other_side() {
    for is_batch in [false, true] {
        let things = things();
        let spec = TableSpec::new("parts")
            .column("number", Type::U32)
            .column("of", Type::U32)
            .primary_key(["number"])
            .index("by_thing", ["of"])
            .foreign_key("of_thing", ["of"], "things", ["number"]);
        let parts = things.database.create_table(&spec).unwrap();
        let mut by = things.begin();
        assert!(things.set_in(&mut by, LAST, 7));
        let insert = |by: &mut Transaction<'_>| parts.insert_in(by, &[1.into(), 30.into()]);
        let refused = if is_batch { by.batch(insert) } else { insert(&mut by) };
        assert!(matches!(refused, Err(Error::NoParent { .. })));
        things.insert(30, 1);
        assert!(is_refused(by.commit()));
    }
}

#[test]
fn serializable_transactions_take_no_more_fences() {
    let size_max = 64 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    let things = things_in(Pool::format(Arc::new(sim), &Format::new(size_max)).unwrap());
    let counted = |options: &TransactionOptions, kind: u32| {
        let mut by = things.database.begin_with(options).unwrap();
        let update = things.table.prepare_update("primary").unwrap();
        let add = |by: &mut Transaction<'_, _>| {
            update.run_in(by, &[(1 + kind).into()], |_, row| row.add(2, 1))
        };
        assert!(things.get(&by, 9).is_some());
        assert_eq!(things.range(&by, [3, 3], 100, Order::Ascending).len(), 4);
        // Others commit meanwhile, so that something is compared.
        update.run(&[10.into()], |_, row| row.add(2, 1)).unwrap();
        things.pool.medium().reset_counters();
        let changed = match kind {
            0 => add(&mut by),
            1 => by.commit_with(add),
            _ => by.batch(add),
        };
        assert_eq!(changed.unwrap(), Some(()));
        if by.statement() > 0 {
            by.commit().unwrap();
        }
        things.pool.medium().counters().fences
    };
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let snapshot = TransactionOptions::new().durability(durability);
        let serializable = snapshot.isolation(Isolation::Serializable);
        for kind in 0..3 {
            // Makes chunks of versions, and lists.
            for _ in 0..3 {
                counted(&snapshot, kind);
            }
            let expected = match (durability, kind) {
                (Durability::AtCommit, _) | (_, 1) => 1,
                _ => 2,
            };
            assert_eq!(counted(&snapshot, kind), expected, "{durability:?} {kind}");
            assert_eq!(counted(&serializable, kind), expected, "{durability:?} {kind}");
        }
    }
}

/// Single statements take part: each is as if it had happened at its commit.
#[test]
fn threads_keep_a_sum() {
    let things = things();
    let (things, rounds) = (&things, 300);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            scope.spawn(move || {
                let options = TransactionOptions::new().isolation(Isolation::Serializable);
                let own = 1 + thread;
                for round in 0..rounds {
                    // At most one of the four is 1.
                    let mut by = things.database.begin_with(&options).unwrap();
                    let sum: i64 = (1..=4).map(|number| things.get(&by, number).unwrap()).sum();
                    assert!((0..=1).contains(&sum), "{sum}");
                    let value = if things.get(&by, own) == Some(1) { 0 } else { 1 - sum };
                    if value != things.get(&by, own).unwrap() {
                        assert!(things.set_in(&mut by, own, value));
                    }
                    if round % 2 == 0 {
                        std::thread::yield_now();
                    }
                    is_refused(by.commit());
                }
            });
        }
    });
    assert_eq!(things.database.check().unwrap(), []);
}

#[test]
fn a_transaction_can_be_shared_by_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Transaction<'_>>();
    let things = things();
    let by = things.begin();
    std::thread::scope(|scope| {
        for number in 1..=4 {
            let (by, things) = (&by, &things);
            scope.spawn(move || assert_eq!(things.get(by, number), Some(0)));
        }
    });
    by.commit().unwrap();
}
