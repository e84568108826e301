//! What is refused, and what it says.

use remanent_engine::{Database, Error, ErrorKind, Row, Table, TableSpec, Type, Value};
use remanent_pmem::{Mapped, Pool};

use crate::subscribers;

fn table() -> (Pool<Mapped>, Database, Table) {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    table.insert(&[1.into(), "0151".into(), Value::Null]).unwrap();
    (pool, database, table)
}

#[test]
fn inserts_that_are_refused_say_why_and_change_nothing() {
    let (_pool, database, table) = table();
    for (values, told) in [
        (vec![2.into()], "3 values are needed, in the order of the columns: got 1"),
        (vec![Value::Null, "2".into(), 1.into()], "column \"id\": NULL is not possible"),
        (vec![(-1).into(), "2".into(), 1.into()], "-1 does not fit UINT of 4 bytes"),
        (vec![2.into(), 2.into(), 1.into()], "2 is no TEXT(15)"),
        (vec![2.into(), "0123456789abcdef".into(), 1.into()], "16 bytes are more than TEXT(15)"),
        (vec![1.into(), "2".into(), 1.into()], "the same \"primary\" key (1) is there"),
        (vec![2.into(), "0151".into(), 1.into()], "the same \"by_number\" key (\"0151\") is there"),
    ] {
        let refused = table.insert(&values).unwrap_err();
        assert!(refused.to_string().contains(told), "{refused}");
        assert!(refused.to_string().contains("\"subscribers\""), "{refused}");
        assert!(!refused.is_full() && !refused.is_conflict());
        let is_unique = matches!(refused, Error::Unique { .. });
        let kind = if is_unique { ErrorKind::Constraint } else { ErrorKind::Usage };
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    let mut count = 0;
    let visit = |_: &Row<'_>| {
        count += 1;
        std::ops::ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    assert_eq!(count, 1);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn reads_that_are_refused_say_why() {
    let (_pool, database, table) = table();
    let get = table.prepare_get("primary").unwrap();
    let now = database.snapshot();
    let told = [
        get.run(&now, &[], |_| Ok(())).unwrap_err().to_string(),
        get.run(&now, &["x".into()], |_| Ok(())).unwrap_err().to_string(),
        get.run(&now, &[1.into()], |row| row.get::<u8>(1)).unwrap_err().to_string(),
        get.run(&now, &[1.into()], |row| row.get::<u8>(9)).unwrap_err().to_string(),
        table.prepare_get("by_name").unwrap_err().to_string(),
        table.column("name").unwrap_err().to_string(),
        database.table("subscriber").unwrap_err().to_string(),
    ];
    for (told, expected) in told.iter().zip([
        "1 values are needed",
        "\"x\" is no UINT of 4 bytes",
        "it is \"0151\", and was asked for as u8",
        "has no column \"9\"",
        "no index \"by_name\", or not a unique one",
        "has no column \"name\"",
        "no table \"subscriber\"; `Database::tables` lists",
    ]) {
        assert!(told.contains(expected), "{told}");
    }
    assert!(get.run(&now, &[Value::Null], |_| Ok(())).unwrap().is_none());
}

#[test]
fn a_snapshot_is_of_its_database_alone() {
    let (_pool, _database, table) = table();
    let other = Pool::options().create_in_memory().unwrap();
    let other = Database::create(&other, "db").unwrap();
    let get = table.prepare_get("primary").unwrap();
    let refused = get.run(&other.snapshot(), &[1.into()], |_| Ok(()));
    assert!(matches!(refused, Err(Error::OtherDatabase)));
}

#[test]
fn a_table_is_made_once() {
    let (_pool, database, _table) = table();
    let refused = database.create_table(&subscribers()).unwrap_err();
    assert!(matches!(refused, Error::Schema { .. }), "{refused}");
    assert_eq!(database.tables(), ["subscribers"]);
}

#[test]
fn a_full_pool_refuses_and_keeps_what_it_has() {
    let pool = Pool::options().size_max(24 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let mut count = 0u32;
    let refused = loop {
        let number = format!("{count:015}");
        match table.insert(&[count.into(), number.as_str().into(), 1.into()]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.is_full(), "{refused}");
    // More indexes than a chunk has room for, so that what is left of one is not enough.
    let spec = TableSpec::new("other").column("id", Type::U32);
    let spec = (0..8).fold(spec, |spec, at| spec.unique(format!("index {at}"), ["id"]));
    let number = format!("{count:015}");
    for _ in 0..3 {
        let again = table.insert(&[count.into(), number.as_str().into(), 1.into()]);
        assert!(again.is_err_and(|error| error.is_full()));
    }
    let made = database.create_table(&spec);
    assert!(made.is_err_and(|error| error.is_full()));
    let get = table.prepare_get("primary").unwrap();
    for id in (0..count).step_by(997) {
        assert!(get.run(&database.snapshot(), &[id.into()], |_| Ok(())).unwrap().is_some());
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_database_is_not_opened_as_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.pool");
    let pool = Pool::options().create(&path).unwrap();
    let told = Database::open(&pool, "db").unwrap_err().to_string();
    assert!(told.contains("db"), "{told}");
    remanent_structures::RowIndex::create(&pool, "db").unwrap();
    let told = Database::open(&pool, "db").unwrap_err().to_string();
    assert!(told.contains("RowIndex") && told.contains("Database"), "{told}");
}
