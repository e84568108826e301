//! Tables that are made and dropped.

use remanent_engine::{Database, Error, Placement, Table, TableSpec, Type};
use remanent_pmem::Pool;

use crate::subscribers;

fn fill(table: &Table, count: u32) {
    for id in 0..count {
        table.insert(&[id.into(), id.to_string().as_str().into(), id.into()]).unwrap();
    }
}

fn used(pool: &Pool) -> u64 {
    pool.check().unwrap().chunks_used
}

#[test]
fn a_dropped_table_gives_its_space_back() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    fill(
        &database
            .create_table(&TableSpec::new("first").column("id", Type::U32))
            .map(|_| database.create_table(&subscribers()).unwrap())
            .unwrap(),
        5_000,
    );
    let mut chunks = Vec::new();
    for round in 0..4 {
        chunks.push(used(&pool));
        let placement = if round % 2 == 0 { Placement::Pmem } else { Placement::Dram };
        let spec = TableSpec::new("others")
            .column("id", Type::U32)
            .column("number", Type::Text { max: 15 })
            .nullable("location", Type::U32)
            .primary_key(["id"])
            .place(["primary"], placement);
        let table = database.create_table(&spec).unwrap();
        fill(&table, 20_000);
        let update = table.prepare_update("primary").unwrap();
        for id in (0..20_000u32).step_by(3) {
            update.run(&[id.into()], |_, row| row.set(2, 7u32)).unwrap();
        }
        drop((table, update));
        assert!(used(&pool) > chunks[0] + 8);
        database.drop_table("others").unwrap();
        assert_eq!(database.check().unwrap(), []);
    }
    // The allocator keeps a few chunks for what comes.
    assert!(chunks[3] <= chunks[1] + 2, "{chunks:?}");
    let kept = database.table("subscribers").unwrap();
    let get = kept.prepare_get("by_number").unwrap();
    for id in (0..5_000u32).step_by(7) {
        let found =
            get.run(&database.snapshot(), &[id.to_string().as_str().into()], |row| row.get(0));
        assert_eq!(found.unwrap(), Some(id));
    }
}

#[test]
fn handles_of_a_dropped_table_answer_that_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    fill(&table, 100);
    let mut open = database.begin().unwrap();
    let update = table.prepare_update("primary").unwrap();
    update.run_in(&mut open, &[1.into()], |_, row| row.set(2, 9u32)).unwrap();
    let (get, find) =
        (table.prepare_get("primary").unwrap(), table.prepare_find("primary").unwrap());
    let delete = table.prepare_delete("primary").unwrap();
    database.drop_table("subscribers").unwrap();
    let is_gone =
        |error: Error| matches!(error, Error::NoSuchTable { table } if table == "subscribers");
    let now = database.snapshot();
    assert!(is_gone(get.run(&now, &[1.into()], |_| Ok(())).unwrap_err()));
    assert!(is_gone(
        find.run(&now, &[1.into()], |_| std::ops::ControlFlow::<()>::Continue(())).unwrap_err()
    ));
    assert!(is_gone(table.scan(&now, |_| std::ops::ControlFlow::<()>::Continue(())).unwrap_err()));
    assert!(is_gone(update.run(&[1.into()], |_, row| row.set(2, 8u32)).unwrap_err()));
    assert!(is_gone(delete.run_in(&mut open, &[2.into()]).unwrap_err()));
    assert!(is_gone(table.insert(&[200.into(), "200".into(), 1.into()]).unwrap_err()));
    assert!(is_gone(database.drop_table("subscribers").unwrap_err()));
    drop(now);
    // Another one has the name, and no row of the first.
    let again = database.create_table(&subscribers()).unwrap();
    fill(&again, 10);
    open.commit().unwrap();
    drop((get, find, delete, update, table));
    database.collect().unwrap();
    assert_eq!(database.check().unwrap(), []);
    drop((again, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.tables(), ["subscribers"]);
    let get = database.table("subscribers").unwrap().prepare_get("primary").unwrap();
    assert!(get.run(&database.snapshot(), &[11.into()], |_| Ok(())).unwrap().is_none());
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn threads_use_tables_that_others_drop_and_make_again() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = |number: u32| {
        let placement = if number == 0 { Placement::Pmem } else { Placement::Dram };
        TableSpec::new(format!("table {number}"))
            .column("id", Type::U32)
            .column("value", Type::U32)
            .primary_key(["id"])
            .place(["primary"], placement)
            .tile_rows(40)
    };
    for number in 0..2 {
        database.create_table(&spec(number)).unwrap();
    }
    let use_tables = |thread: u32| {
        let mut done = 0;
        for round in 0..600u32 {
            let Ok(table) = database.table(&format!("table {}", round % 2)) else { continue };
            let in_a_transaction = || -> Result<(), Error> {
                let mut transaction = database.begin()?;
                let id = (thread << 20 | round).into();
                table.insert_in(&mut transaction, &[id, 1u32.into()])?;
                let update = table.prepare_update("primary")?;
                update.run_in(&mut transaction, &[id], |_, row| row.set(1, round))?;
                if round % 3 == 0 { transaction.abort() } else { transaction.commit() }
            };
            let alone = || -> Result<(), Error> {
                table.insert(&[(thread << 20 | 1 << 19 | round).into(), 0u32.into()])?;
                let delete = table.prepare_delete("primary")?;
                delete.run(&[(thread << 20 | 1 << 19 | (round / 2)).into()]).map(drop)
            };
            match in_a_transaction().and_then(|()| alone()) {
                Ok(()) => done += 1,
                Err(Error::NoSuchTable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        done
    };
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..3).map(|thread| scope.spawn(move || use_tables(thread))).collect();
        let mut round = 0;
        while !users.iter().all(|user| user.is_finished()) {
            round += 1;
            database.drop_table(&format!("table {}", round % 2)).unwrap();
            database.create_table(&spec(round % 2)).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let done: u32 = users.into_iter().map(|user| user.join().unwrap()).sum();
        assert!(done > 0);
    });
    assert_eq!(database.check().unwrap(), []);
    for number in 0..2 {
        database.drop_table(&format!("table {number}")).unwrap();
    }
    assert_eq!(database.check().unwrap(), []);
    assert!(database.tables().is_empty());
}
