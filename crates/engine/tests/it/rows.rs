//! Rows of all types, and databases that are opened again.

use std::ops::ControlFlow;

use remanent_engine::{Database, Row, TableSpec, Type, Value};
use remanent_pmem::Pool;

use crate::subscribers;

/// The values of all rows, by the first column.
fn all(database: &Database, table: &str) -> Vec<Vec<String>> {
    let table = database.table(table).unwrap();
    let mut rows = Vec::new();
    let columns = table.columns().len();
    let visit = |row: &Row<'_>| {
        rows.push((0..columns).map(|column| row.value(column).unwrap().to_string()).collect());
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    rows.sort();
    rows
}

#[test]
fn values_of_every_type_come_back_after_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("types.pool");
    let types = [
        ("bool", Type::Bool, Value::Bool(true)),
        ("i8", Type::I8, Value::Int(-128)),
        ("int3", Type::Int { len: 3 }, Value::Int(-8_388_608)),
        ("i64", Type::I64, Value::Int(i64::MIN)),
        ("u16", Type::U16, Value::Uint(65_535)),
        ("uint5", Type::Uint { len: 5 }, Value::Uint((1 << 40) - 1)),
        ("u64", Type::U64, Value::Uint(u64::MAX)),
        ("f64", Type::F64, Value::Float(-0.5)),
        ("text", Type::Text { max: 9 }, Value::Text("größer")),
        ("bytes", Type::Bytes { max: 255 }, Value::Bytes(&[7; 255])),
        ("nothing", Type::Text { max: 9 }, Value::Null),
    ];
    let spec = TableSpec::new("all").column("id", Type::U32);
    let spec = types.iter().fold(spec, |spec, (name, of_type, _)| spec.nullable(*name, *of_type));
    let spec = types.iter().fold(spec.primary_key(["id"]), |spec, (name, ..)| {
        spec.unique(format!("by {name}"), [*name])
    });
    {
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&spec).unwrap();
        let values = types.iter().map(|(_, _, value)| *value);
        let row: Vec<Value<'_>> = std::iter::once(1.into()).chain(values).collect();
        table.insert(&row).unwrap();
        let none: Vec<Value<'_>> =
            std::iter::once(2.into()).chain(types.iter().map(|_| Value::Null)).collect();
        table.insert(&none).unwrap();
    }
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let table = database.table("all").unwrap();
    for (column, (name, _, value)) in types.iter().enumerate() {
        let get = table.prepare_get(&format!("by {name}")).unwrap();
        let found = get.run(&database.snapshot(), &[*value], |row| {
            assert_eq!(row.value(column + 1).unwrap(), *value, "{name}");
            row.get::<u32>(0)
        });
        let expected = if *value == Value::Null { None } else { Some(1) };
        assert_eq!(found.unwrap(), expected, "{name}");
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn keys_of_several_columns_are_told_apart() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("facilities")
        .column("data", Type::Text { max: 5 })
        .column("subscriber", Type::U32)
        .column("kind", Type::U8)
        .primary_key(["subscriber", "kind"]);
    let table = database.create_table(&spec).unwrap();
    for subscriber in 0..500u32 {
        for kind in 1..=3u8 {
            let data = format!("{}", subscriber * 3 + u32::from(kind));
            table.insert(&[data.as_str().into(), subscriber.into(), kind.into()]).unwrap();
        }
    }
    let get = table.prepare_get("primary").unwrap();
    let now = database.snapshot();
    for subscriber in 0..500u32 {
        for kind in 0..=4u8 {
            let found = get.run(&now, &[subscriber.into(), kind.into()], |row| {
                Ok(row.get::<&str>(0)?.parse::<u32>().unwrap())
            });
            let expected = (1..=3).contains(&kind).then_some(subscriber * 3 + u32::from(kind));
            assert_eq!(found.unwrap(), expected);
        }
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_snapshot_does_not_see_what_comes_later() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    table.insert(&[1.into(), "1".into(), Value::Null]).unwrap();
    let before = database.snapshot();
    table.insert(&[2.into(), "2".into(), Value::Null]).unwrap();
    let get = table.prepare_get("primary").unwrap();
    for (snapshot, rows) in [(before, 1), (database.snapshot(), 2)] {
        let mut seen = 0;
        let count = |_: &Row<'_>| {
            seen += 1;
            ControlFlow::<()>::Continue(())
        };
        table.scan(&snapshot, count).unwrap();
        assert_eq!(seen, rows);
        let is_there = get.run(&snapshot, &[2.into()], |_| Ok(())).unwrap().is_some();
        assert_eq!(is_there, rows == 2);
    }
    assert_eq!(table.scan(&database.snapshot(), |_| ControlFlow::Break(7)).unwrap(), Some(7));
}

#[test]
fn what_was_inserted_is_there_however_often_the_pool_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("again.pool");
    let mut expected = Vec::new();
    for round in 0..6u32 {
        let pool = Pool::options().open_or_create(&path).unwrap();
        let database = Database::open_or_create(&pool, "db").unwrap();
        let table = match database.table("subscribers") {
            Ok(table) => table,
            // Tiles are filled, and found to be full, in the rounds after.
            Err(_) => database.create_table(&subscribers().tile_rows(50)).unwrap(),
        };
        assert_eq!(all(&database, "subscribers"), expected);
        for id in round * 70..(round + 1) * 70 {
            let number = format!("{id:05}");
            let location = if id % 2 == 0 { Value::Null } else { id.into() };
            table.insert(&[id.into(), number.as_str().into(), location]).unwrap();
            expected.push(vec![id.to_string(), format!("{number:?}"), location.to_string()]);
        }
        expected.sort();
        assert_eq!(database.check().unwrap(), []);
    }
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.tables(), ["subscribers"]);
    assert_eq!(all(&database, "subscribers"), expected);
}

#[test]
fn hundreds_of_tables_share_a_heap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.pool");
    let name = |table: u32| format!("table {table}");
    {
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        for number in 0..300 {
            let spec = TableSpec::new(name(number)).column("id", Type::U32).primary_key(["id"]);
            database.create_table(&spec).unwrap().insert(&[number.into()]).unwrap();
        }
    }
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.tables(), (0..300).map(name).collect::<Vec<_>>());
    for number in 0..300 {
        let get = database.table(&name(number)).unwrap().prepare_get("primary").unwrap();
        assert!(get.run(&database.snapshot(), &[number.into()], |_| Ok(())).unwrap().is_some());
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_statement_that_never_was_does_not_come_back_with_the_same_cells() {
    // A record whose cells have not arrived stays in its slot while the pool is opened again and
    // again. A row that is refused gets the same cells then.
    use std::sync::Arc;

    use remanent_crashsim::{Sim, SimOptions};
    use remanent_pmem::Medium;
    use remanent_pmem::pool::Format;

    let size_max = 32 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    let medium = Arc::new(sim);
    let pool = Pool::format(Arc::clone(&medium), &Format::new(size_max)).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let cells = [7.into(), "0151".into(), 1.into()];
    let row = table.insert(&cells).unwrap();
    std::mem::forget((table, database, pool));
    // As if the row's cells and its head had been lost: zeros.
    let at = |needle: u64| {
        (0..medium.len()).step_by(8).filter(|&at| medium.load(at) == needle).collect::<Vec<_>>()
    };
    let head = at(0x5aa5 << 48 | 1);
    assert_eq!((head.len(), row.get()), (1, 0));
    let keys = at(u64::from_le_bytes(*b"\x07\0\0\0\x04015"));
    assert_eq!(keys.len(), 1);
    let (head, keys) = (head[0], keys[0]);
    let lost = medium.load(keys);
    medium.store(head, 0);
    medium.store(keys, 0);
    let pool = Pool::recover(Arc::clone(&medium)).unwrap();
    for _ in 0..3 {
        let database: Database<Arc<Sim>> = Database::open(&pool, "db").unwrap();
        let get = database.table("subscribers").unwrap().prepare_get("primary").unwrap();
        assert!(get.run(&database.snapshot(), &[7.into()], |_| Ok(())).unwrap().is_none());
        drop((get, database));
    }
    medium.store(keys, lost); // what a refused insert leaves
    let database: Database<Arc<Sim>> = Database::open(&pool, "db").unwrap();
    let get = database.table("subscribers").unwrap().prepare_get("primary").unwrap();
    assert!(get.run(&database.snapshot(), &[7.into()], |_| Ok(())).unwrap().is_none());
}

#[test]
fn a_secondary_index_finds_every_row_of_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.pool");
    let key_of = |id: u32| if id.is_multiple_of(7) { None } else { Some(id % 5) };
    {
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let spec = TableSpec::new("calls")
            .column("id", Type::U32)
            .nullable("subscriber", Type::U32)
            .primary_key(["id"])
            .index("by_subscriber", ["subscriber"]);
        let table = database.create_table(&spec).unwrap();
        for id in 0..2_000 {
            table.insert(&[id.into(), key_of(id).into()]).unwrap();
        }
        assert!(table.prepare_get("by_subscriber").is_err(), "it is not unique");
    }
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let table = database.table("calls").unwrap();
    let find = table.prepare_find("by_subscriber").unwrap();
    let found = |key: Value<'_>| {
        let mut ids = Vec::new();
        let visit = |row: &Row<'_>| {
            ids.push(row.get::<u32>(0).unwrap());
            ControlFlow::<()>::Continue(())
        };
        find.run(&database.snapshot(), &[key], visit).unwrap();
        ids
    };
    for key in 0..6 {
        let expected: Vec<u32> = (0..2_000).filter(|&id| key_of(id) == Some(key)).collect();
        assert_eq!(found(key.into()), expected);
    }
    assert!(found(Value::Null).is_empty());
    let first = find.run(&database.snapshot(), &[3.into()], |row| ControlFlow::Break(row.id()));
    assert!(first.unwrap().is_some());
    let one = table.prepare_find("primary").unwrap();
    let seen =
        one.run(&database.snapshot(), &[9.into()], |row| ControlFlow::Break(row.get::<u32>(0)));
    assert_eq!(seen.unwrap().unwrap().unwrap(), 9);
    assert_eq!(database.check().unwrap(), []);
}
