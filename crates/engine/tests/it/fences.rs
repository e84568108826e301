//! Fences of statements, counted by a simulated medium.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_engine::{
    Database, Durability, Error, ForeignKeys, LockMode, NewColumn, NewForeignKey, NewIndex, Order,
    Placement, Resumed, Row, Table, TableSpec, Transaction, TransactionOptions, Type, Value,
};
use remanent_pmem::Pool;
use remanent_pmem::pool::{Format, Guarantee};

use crate::subscribers;

fn sim_pool(guarantee: Guarantee) -> Pool<Arc<Sim>> {
    let size_max = 64 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    Pool::format(Arc::new(sim), &Format { guarantee, ..Format::new(size_max) }).unwrap()
}

fn fences(pool: &Pool<Arc<Sim>>, action: impl FnOnce()) -> u64 {
    pool.medium().reset_counters();
    action();
    pool.medium().counters().fences
}

#[test]
fn an_insert_takes_one_fence_and_a_read_none() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let insert = |id: u32| {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    };
    insert(0); // makes the first tile
    for id in 1..40 {
        assert_eq!(fences(&pool, || insert(id)), 1);
    }
    let get = table.prepare_get("by_number").unwrap();
    let read = || {
        let number = format!("{:015}", 7);
        let found =
            get.run(&database.snapshot(), &[number.as_str().into()], |row| row.get::<u32>(0));
        assert_eq!(found.unwrap(), Some(7));
        let visit = |_: &Row<'_, _>| ControlFlow::<()>::Continue(());
        table.scan(&database.snapshot(), visit).unwrap();
    };
    assert_eq!(fences(&pool, read), 0);
    let refused = || assert!(table.insert(&[3.into(), "3".into(), 1.into()]).is_err());
    assert_eq!(fences(&pool, refused), 0);
}

#[test]
fn rows_with_cells_of_added_columns_take_one_fence() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let number = |id: u32| format!("{id:015}");
    table.insert(&[0.into(), number(0).as_str().into(), 1.into()]).unwrap();
    let add = |name: &str| {
        let mut added = None;
        let column = NewColumn::new(name, Type::U64).default(7);
        let fences = fences(&pool, || added = Some(database.add_column(&table, &column).unwrap()));
        // The catalog, and blocks for it.
        assert!((2..=4).contains(&fences), "{fences}");
        added.unwrap()
    };
    let mut knows = add("a");
    let insert = |table: &Table<_>, id: u32, added: &[Value<'_>]| {
        let number = number(id);
        let mut values = vec![id.into(), number.as_str().into(), 1.into()];
        values.extend(added);
        table.insert(&values).unwrap();
    };
    // Rows with the default need no extension.
    assert_eq!(fences(&pool, || insert(&knows, 1, &[7.into()])), 1);
    for (id, next) in [(2, "b"), (102, "c")] {
        // The first row of the tile that is to have something else.
        let added = vec![8.into(); knows.columns().len() - 3];
        let of_first = fences(&pool, || insert(&knows, id, &added));
        assert!((3..=1 + 2 + 3).contains(&of_first), "{of_first}");
        for id in id + 1..id + 20 {
            assert_eq!(fences(&pool, || insert(&knows, id, &added)), 1);
        }
        assert_eq!(fences(&pool, || insert(&table, id + 20, &[])), 1);
        let update = knows.prepare_update("primary").unwrap();
        for id in id + 1..id + 10 {
            let update = || {
                update.run(&[id.into()], |_, row| row.set(3, 9)).unwrap();
            };
            // One of them takes a chunk for versions.
            assert!((1..=4).contains(&fences(&pool, update)));
        }
        knows = add(next);
    }
    let read = || {
        let scan = knows.prepare_scan(["a", "b"]).unwrap();
        assert!(scan.sum::<u64>(&database.snapshot(), 1).unwrap().is_some());
    };
    assert_eq!(fences(&pool, read), 0);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn locking_a_row_takes_no_fence() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..3u32 {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    }
    let get = table.prepare_get("primary").unwrap();
    for is_commit in [true, false] {
        let lock = || {
            let mut transaction = database.begin().unwrap();
            for id in 0..3u32 {
                let locked = get.lock_in(&mut transaction, &[id.into()], LockMode::Wait, |row| {
                    row.get::<u32>(0)
                });
                assert_eq!(locked.unwrap(), Some(id));
            }
            match is_commit {
                true => transaction.commit().unwrap(),
                false => transaction.abort().unwrap(),
            }
        };
        assert_eq!(fences(&pool, lock), 0);
    }
}

#[test]
fn an_update_and_a_removal_take_one_fence_each() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..600u32 {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    }
    let update = table.prepare_update("by_number").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    let mut of_updates = 0;
    for id in 0..500u32 {
        let number = format!("{id:015}");
        let of_one = fences(&pool, || {
            let updated = update.run(&[number.as_str().into()], |_, row| row.set(2, id + 7));
            assert_eq!(updated.unwrap(), Some(()));
        });
        assert!((1..=1 + 6).contains(&of_one), "{of_one}");
        of_updates += of_one;
    }
    // Folding takes one for 32 rows, and freeing and taking blocks a few.
    assert!(of_updates < 500 * 12 / 10, "{of_updates} fences for 500 updates");
    let nothing = || assert!(update.run(&["7".into()], |_, _| Ok(())).unwrap().is_none());
    assert_eq!(fences(&pool, nothing), 0);
    let of_removals = fences(&pool, || {
        for id in 0..500u32 {
            assert!(delete.run(&[id.into()]).unwrap());
        }
    });
    assert!(of_removals < 500 * 12 / 10, "{of_removals} fences for 500 removals");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn tiles_and_segments_take_few_fences() {
    const COUNT: u32 = 20_000;
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let found = fences(&pool, || {
        for id in 0..COUNT {
            table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
        }
    });
    assert!(found < u64::from(COUNT) * 102 / 100, "{found} fences for {COUNT} rows");
}

#[test]
fn a_table_takes_two_fences_beside_those_of_the_allocator() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let make = |number: u32| {
        let spec = TableSpec::new(format!("table {number}")).column("id", Type::U32);
        let spec = (0..12).fold(spec, |spec, at| spec.unique(format!("index {at}"), ["id"]));
        database.create_table(&spec).unwrap();
    };
    let of_each: Vec<u64> = (0..20).map(|number| fences(&pool, || make(number))).collect();
    // Twelve segments of 16 KiB are three chunks, each of which is taken and left with fences.
    assert!(of_each.iter().all(|fences| (2..=2 + 3 * 6).contains(fences)), "{of_each:?}");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_tile_takes_four_fences() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let spec = TableSpec::new("no index").column("id", Type::U64);
    let table = database.create_table(&spec).unwrap();
    let of_each: Vec<u64> = (0..10_000u64)
        .map(|id| fences(&pool, || assert!(table.insert(&[id.into()]).is_ok())))
        .filter(|&fences| fences != 1)
        .collect();
    // The statement's own, and of the first one also those of a run of tiles.
    assert_eq!(of_each[1..], [1 + 4; 3], "{of_each:?}");
    assert!(of_each[0] <= 1 + 4 + 2, "{of_each:?}");
}

#[test]
fn a_statement_of_a_transaction_takes_one_fence_and_the_last_one_commits_for_it() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..64u32 {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    }
    let update = table.prepare_update("primary").unwrap();
    let get = table.prepare_get("primary").unwrap();
    let set = |transaction: &mut Transaction<'_, Arc<Sim>>, id: u32, value: u32| {
        let found = update.run_in(transaction, &[id.into()], |_, row| row.set(2, value)).unwrap();
        assert!(found.is_some());
        Ok(())
    };
    // Chunks for versions are taken before they are counted.
    for id in 0..8 {
        update.run(&[id.into()], |_, row| row.set(2, 2)).unwrap();
    }
    let nothing = || {
        let mut transaction = database.begin().unwrap();
        get.run(&transaction, &[7.into()], |_| Ok(())).unwrap();
        assert!(update.run_in(&mut transaction, &[99.into()], |_, _| Ok(())).unwrap().is_none());
        let twice = [7.into(), "7".into(), 1.into()];
        assert!(table.insert_in(&mut transaction, &twice).is_err());
        transaction.commit().unwrap();
        drop(database.begin().unwrap());
    };
    assert_eq!(fences(&pool, nothing), 0);
    let two = || {
        let mut transaction = database.begin().unwrap();
        set(&mut transaction, 1, 10).unwrap();
        transaction.commit_with(|last| set(last, 2, 11)).unwrap();
    };
    assert_eq!(fences(&pool, two), 2);
    let with_commit = || {
        let mut transaction = database.begin().unwrap();
        table.insert_in(&mut transaction, &[100.into(), "100".into(), 1.into()]).unwrap();
        set(&mut transaction, 3, 10).unwrap();
        transaction.commit().unwrap();
    };
    assert_eq!(fences(&pool, with_commit), 3);
    // One for what leads to the last version, one for the record, and one for the suspects.
    let given_up = || {
        let mut transaction = database.begin().unwrap();
        set(&mut transaction, 4, 10).unwrap();
        set(&mut transaction, 5, 10).unwrap();
        transaction.abort().unwrap();
    };
    assert_eq!(fences(&pool, given_up), 2 + 3);
    let resumed = || {
        let mut transaction = database.begin().unwrap();
        set(&mut transaction, 6, 10).unwrap();
        let token = transaction.suspend();
        let Resumed::Open(transaction) = database.resume(token).unwrap() else { panic!("it is") };
        transaction.commit().unwrap();
    };
    assert_eq!(fences(&pool, resumed), 2);
}

#[test]
fn going_back_takes_as_many_fences_as_giving_up_and_one_more() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..8u32 {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    }
    let update = table.prepare_update("primary").unwrap();
    let set = |transaction: &mut Transaction<'_, Arc<Sim>>, id: u32, value: u32| {
        let found = update.run_in(transaction, &[id.into()], |_, row| row.set(2, value)).unwrap();
        assert!(found.is_some());
    };
    let taken_back = |transaction: &mut Transaction<'_, Arc<Sim>>, value: u32| {
        let to = transaction.statement();
        set(transaction, 4, value);
        set(transaction, 5, value);
        transaction.take_back_to(to).unwrap();
    };
    let mut transaction = database.begin().unwrap();
    // A chunk for versions is taken before they are counted.
    set(&mut transaction, 6, 12);
    // Both statements; what leads to the last version, the record, the suspects, and the heads.
    assert_eq!(fences(&pool, || taken_back(&mut transaction, 11)), 2 + 4);
    transaction.commit().unwrap();
    let how = TransactionOptions::new().durability(Durability::AtCommit);
    let mut transaction = database.begin_with(&how).unwrap();
    assert_eq!(fences(&pool, || taken_back(&mut transaction, 12)), 0);
}

#[test]
fn a_batch_takes_one_fence_and_so_does_a_transaction_that_is_durable_at_its_commit() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let update = table.prepare_update("primary").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    let change = |by: &mut Transaction<'_, Arc<Sim>>, first: u32| {
        for id in first..first + 10 {
            let number = format!("{id:015}");
            table.insert_in(by, &[id.into(), number.as_str().into(), 1.into()])?;
        }
        for id in first..first + 5 {
            let set = update.run_in(by, &[id.into()], |_, row| row.set(2, 2))?;
            assert!(set.is_some());
            if first >= 10 {
                let set = update.run_in(by, &[(id - 10).into()], |_, row| row.set(2, first))?;
                assert!(set.is_some());
            }
        }
        assert!(first < 10 || delete.run_in(by, &[(first - 1).into()])?);
        Ok::<(), Error>(())
    };
    let batch = |first: u32| {
        let mut transaction = database.begin().unwrap();
        transaction.batch(|batch| change(batch, first)).unwrap();
        transaction.commit_with(|_| Ok(())).unwrap();
    };
    let at_commit = |first: u32| {
        let how = TransactionOptions::new().durability(Durability::AtCommit);
        let mut transaction = database.begin_with(&how).unwrap();
        change(&mut transaction, first).unwrap();
        transaction.commit().unwrap();
    };
    // The first ones take chunks, and make the tile and the two lists.
    for first in [0, 20, 40] {
        batch(first);
        at_commit(first + 10);
    }
    for first in [60, 80] {
        // So that none of them folds.
        database.collect().unwrap();
        assert_eq!(fences(&pool, || batch(first)), 2, "the batch, and the commit");
        assert_eq!(fences(&pool, || at_commit(first + 10)), 1);
    }
    // A longer one needs a longer list.
    let long = || {
        let how = TransactionOptions::new().durability(Durability::AtCommit);
        let mut transaction = database.begin_with(&how).unwrap();
        for first in (110..210).step_by(10) {
            change(&mut transaction, first).unwrap_or_else(|error| panic!("{error}"));
        }
        transaction.commit().unwrap();
    };
    at_commit(100);
    assert!((3..=3 + 12).contains(&fences(&pool, long)), "one, two for the list, and chunks");
    let nothing = || {
        let how = TransactionOptions::new().durability(Durability::AtCommit);
        database.begin_with(&how).unwrap().commit().unwrap();
        let mut transaction = database.begin_with(&how).unwrap();
        let values = [400.into(), "400".into(), 1.into()];
        table.insert_in(&mut transaction, &values).unwrap();
        table.insert_in(&mut transaction, &values).unwrap_err();
        transaction.abort().unwrap();
        let mut transaction = database.begin().unwrap();
        transaction.batch(|_| Ok(())).unwrap();
        transaction.commit().unwrap();
    };
    assert_eq!(fences(&pool, nothing), 0);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn an_ordered_index_in_the_pool_takes_two_fences_a_key_and_one_in_dram_none() {
    for (placement, of_a_key) in [(Placement::Pmem, 2), (Placement::Dram, 0)] {
        let pool = sim_pool(Guarantee::default());
        let database = Database::create(&pool, "tested").unwrap();
        let spec = TableSpec::new("ordered")
            .column("id", Type::U32)
            .column("value", Type::I64)
            .column("other", Type::U8)
            .primary_key(["id"])
            .index("by_value", ["value"])
            .ordered(["by_value"])
            .place(["by_value"], placement);
        let table = database.create_table(&spec).unwrap();
        let insert = |id: u32| {
            table.insert(&[id.into(), 7.into(), 0.into()]).unwrap();
        };
        let update = table.prepare_update("primary").unwrap();
        let set = |id: u32, column: usize, value: u32| {
            let updated = update.run(&[id.into()], |_, row| row.set(column, value));
            assert_eq!(updated.unwrap(), Some(()));
        };
        // Chunks are taken before fences are counted.
        insert(0);
        set(0, 2, 1);
        for id in 1..10 {
            assert_eq!(fences(&pool, || insert(id)), 1 + of_a_key);
        }
        for id in 1..10 {
            assert_eq!(fences(&pool, || set(id, 1, 8)), 1 + of_a_key);
            assert_eq!(fences(&pool, || set(id, 2, 9)), 1);
        }
        let range = table.prepare_range("by_value").unwrap();
        let read = || {
            let mut count = 0;
            let visit = |_: &Row<'_, _>| {
                count += 1;
                ControlFlow::<()>::Continue(())
            };
            let all = (Bound::Unbounded, Bound::Unbounded);
            range.run(&database.snapshot(), all, Order::Ascending, visit).unwrap();
            assert_eq!(count, 10);
        };
        assert_eq!(fences(&pool, read), 0);
        // Nine old keys are removed, beside what folding takes: one fence, and a few for blocks.
        let folding = fences(&pool, || assert!(database.collect().unwrap() > 0));
        let of_keys = 9 * of_a_key;
        assert!((of_keys + 1..=of_keys + 6).contains(&folding), "{folding}");
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn making_moving_and_dropping_an_index_take_two_fences_for_each_catalog() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..50u32 {
        table.insert(&[id.into(), format!("{id:015}").as_str().into(), 1.into()]).unwrap();
    }
    let index = |name: &str| NewIndex::secondary(name, ["location"]);
    // Of the allocator, which has no chunk of these sizes yet.
    for name in ["first", "another one"] {
        database.create_index(&table, &index(name)).unwrap();
    }
    for name in ["first", "another one"] {
        database.drop_index(&table, name).unwrap();
    }
    let in_dram = index("in DRAM").place(Placement::Dram);
    assert_eq!(fences(&pool, || database.create_index(&table, &in_dram).unwrap()), 2);
    let in_pool = index("in the pool");
    // Those of the allocator are for the chunk that the index lies in.
    let made = fences(&pool, || database.create_index(&table, &in_pool).unwrap());
    assert!((4..10).contains(&made), "{made}");
    assert_eq!(fences(&pool, || database.drop_index(&table, "in DRAM").unwrap()), 2);
    let to_pool = || database.place_index(&table, "by_number", Placement::Pmem).unwrap();
    assert_eq!(fences(&pool, to_pool), 0);
    // With those for giving the old one back.
    let to_dram = || database.place_index(&table, "by_number", Placement::Dram).unwrap();
    assert!((2..10).contains(&fences(&pool, to_dram)));
    let made = fences(&pool, to_pool);
    assert!((4..10).contains(&made), "{made}");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_change_of_the_schema_in_a_transaction_takes_one_fence_more_and_so_does_its_commit() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    table.insert(&[0.into(), "0".into(), 1.into()]).unwrap();
    let index = |name: &str| NewIndex::secondary(name, ["location"]).place(Placement::Dram);
    // Of the allocator, which has no chunk of these sizes yet.
    for name in ["first", "another one"] {
        database.create_index(&table, &index(name)).unwrap();
    }
    let mut by = database.begin().unwrap();
    database.create_index_in(&mut by, &table, &index("one more")).unwrap();
    database.drop_index_in(&mut by, &table, "one more").unwrap();
    by.abort().unwrap();
    for (how, of_record) in [(Durability::EachStatement, 1), (Durability::AtCommit, 0)] {
        let begin = || database.begin_with(&TransactionOptions::new().durability(how)).unwrap();
        // Each of the slot's two records gets a list with the first commit that needs one.
        for _ in 0..2 {
            let mut by = begin();
            database.create_index_in(&mut by, &table, &index("new")).unwrap();
            by.commit().unwrap();
            database.drop_index(&table, "new").unwrap();
        }
        let mut by = begin();
        let made = fences(&pool, || {
            database.create_index_in(&mut by, &table, &index("new")).unwrap();
        });
        assert_eq!(made, 2 + of_record);
        let before = by.statement();
        let dropped = fences(&pool, || {
            database.drop_index_in(&mut by, &table, "first").unwrap();
        });
        assert_eq!(dropped, 2 + of_record);
        // The same as without it, and one for the word of the catalog.
        let taken_back = fences(&pool, || by.take_back_to(before).unwrap());
        assert_eq!(taken_back, 1 + 2 * of_record);
        assert_eq!(fences(&pool, || by.commit().unwrap()), 2);
        let mut by = begin();
        database.drop_index_in(&mut by, &table, "new").unwrap();
        let given_up = fences(&pool, || by.abort().unwrap());
        assert_eq!(given_up, 1 + 2 * of_record);
        database.drop_index(&table, "new").unwrap();
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn moving_the_index_of_a_dictionary_takes_as_many_fences_as_stated() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let spec = subscribers().encoded(["number"]);
    let table = database.create_table(&spec).unwrap();
    let insert = |id: u32, number: u32| {
        table.insert(&[id.into(), format!("{number:03}").as_str().into(), 1.into()]).unwrap();
    };
    (0..20).for_each(|id| insert(id, id));
    let place = |to| database.place_dictionary(&table, "number", to).unwrap();
    // Of the allocator, which has no chunk of these sizes yet.
    [Placement::Dram, Placement::Pmem].into_iter().for_each(place);
    assert_eq!(fences(&pool, || place(Placement::Pmem)), 0);
    // With those for giving the old one back.
    let to_dram = fences(&pool, || place(Placement::Dram));
    assert!((2..10).contains(&to_dram), "{to_dram}");
    let to_pool = fences(&pool, || place(Placement::Pmem));
    assert!((4..10).contains(&to_pool), "{to_pool}");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn foreign_keys_that_are_checked_at_the_commit_have_it_come_by_itself() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let spec = TableSpec::new("things")
        .column("number", Type::U32)
        .column("before", Type::U32)
        .primary_key(["number"])
        .index("by_before", ["before"])
        .foreign_key("of_before", ["before"], "things", ["number"]);
    let things = database.create_table(&spec).unwrap();
    things.insert(&[0.into(), 0.into()]).unwrap();
    let options = TransactionOptions::new().foreign_keys(ForeignKeys::AtCommit);
    for first in [10u32, 20] {
        let mut transaction = database.begin_with(&options).unwrap();
        let insert = |by: &mut Transaction<'_, _>, number: u32, before: u32| {
            things.insert_in(by, &[number.into(), before.into()]).map(drop)
        };
        let statement = || insert(&mut transaction, first, first + 1).unwrap();
        assert_eq!(fences(&pool, statement), 1);
        let check = || assert!(transaction.check_foreign_keys().is_err());
        assert_eq!(fences(&pool, check), 0);
        let last = || transaction.commit_with(|by| insert(by, first + 1, first)).unwrap();
        assert_eq!(fences(&pool, last), 2);
    }
    let nothing = database.begin_with(&options).unwrap();
    assert_eq!(fences(&pool, || nothing.commit().unwrap()), 0);
}

#[test]
fn foreign_keys_take_no_fence_at_statements_and_two_to_be_added_or_dropped() {
    let pool = sim_pool(Guarantee::default());
    let database = Database::create(&pool, "tested").unwrap();
    let parents = TableSpec::new("parents").column("id", Type::U32).primary_key(["id"]);
    let parents = database.create_table(&parents).unwrap();
    let children = TableSpec::new("children")
        .column("id", Type::U32)
        .column("parent", Type::U32)
        .primary_key(["id"])
        .index("by_parent", ["parent"])
        .foreign_key("of_parent", ["parent"], "parents", ["id"]);
    let children = database.create_table(&children).unwrap();
    for id in 0..40u32 {
        parents.insert(&[id.into()]).unwrap();
        children.insert(&[id.into(), id.into()]).unwrap();
    }
    let update = children.prepare_update("primary").unwrap();
    let (of_parent, of_child) =
        (parents.prepare_delete("primary").unwrap(), children.prepare_delete("primary").unwrap());
    let pass_on = |id: u32, to: u32| {
        assert!(update.run(&[id.into()], |_, row| row.set(1, to)).unwrap().is_some())
    };
    pass_on(1, 2); // makes the first chunk of versions
    assert!(of_parent.run(&[1.into()]).unwrap());
    assert_eq!(fences(&pool, || assert!(children.insert(&[50.into(), 3.into()]).is_ok())), 1);
    assert_eq!(fences(&pool, || pass_on(50, 4)), 1);
    assert_eq!(fences(&pool, || assert!(of_child.run(&[50.into()]).unwrap())), 1);
    parents.insert(&[60.into()]).unwrap();
    assert_eq!(fences(&pool, || assert!(of_parent.run(&[60.into()]).unwrap())), 1);
    assert_eq!(fences(&pool, || assert!(children.insert(&[51.into(), 60.into()]).is_err())), 0);
    assert_eq!(fences(&pool, || assert!(of_parent.run(&[2.into()]).is_err())), 0);
    let family = || {
        let mut by = database.begin().unwrap();
        by.batch(|batch| {
            children.insert_in(batch, &[61.into(), 61.into()])?;
            parents.insert_in(batch, &[61.into()])
        })
        .unwrap();
        by.commit().unwrap();
    };
    make_lists(&database, &parents);
    assert_eq!(fences(&pool, family), 2);
    let dropped = || database.drop_foreign_key(&children, "of_parent").unwrap();
    assert_eq!(fences(&pool, dropped), 2);
    let again = NewForeignKey::new("of_parent", ["parent"], "parents", ["id"]);
    assert_eq!(fences(&pool, || database.add_foreign_key(&children, &again).unwrap()), 2);
}

/// Batches have lists from now on.
fn make_lists(database: &Database<Arc<Sim>>, table: &Table<Arc<Sim>>) {
    for id in 100..104u32 {
        let mut by = database.begin().unwrap();
        by.batch(|batch| table.insert_in(batch, &[id.into()])).unwrap();
        by.commit().unwrap();
    }
}

#[test]
fn a_value_that_is_new_in_a_dictionary_takes_one_fence_more() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let pool = sim_pool(Guarantee::default());
        let database = Database::create(&pool, "tested").unwrap();
        let columns = ["id", "number", "location"];
        let spec = subscribers().encoded(columns).place_dictionaries(columns, placement);
        let table = database.create_table(&spec).unwrap();
        let insert = |id: u32, number: &str, location: Option<u32>| {
            fences(&pool, || {
                table.insert(&[id.into(), number.into(), location.into()]).unwrap();
            })
        };
        insert(0, "0", Some(0)); // makes the first tile, and the first runs
        assert_eq!(insert(1, "1", Some(0)), 3); // two values are new
        assert_eq!(insert(2, "2", None), 3);
        let update = table.prepare_update("primary").unwrap();
        let set = |id: u32, location: u32| {
            fences(&pool, || {
                update.run(&[id.into()], |_, row| row.set(2, location)).unwrap();
            })
        };
        assert_eq!((set(2, 7), set(1, 7), set(1, 0)), (2, 1, 1));
        let delete = table.prepare_delete("primary").unwrap();
        assert_eq!(fences(&pool, || assert!(delete.run(&[2.into()]).unwrap())), 1);
        // All of its values are known.
        assert_eq!(insert(2, "2", Some(7)), 1);
        let get = table.prepare_get("by_number").unwrap();
        let read = || {
            let found = get.run(&database.snapshot(), &["2".into()], |row| row.get::<u32>(2));
            assert_eq!(found.unwrap(), Some(7));
        };
        assert_eq!(fences(&pool, read), 0);
    }
}
