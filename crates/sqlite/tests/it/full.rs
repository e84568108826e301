//! Pools that have no room left.

use rusqlite::{Connection, ffi};

use super::support::{assert_whole, code, directory, open, text, uri};

/// Inserts until there is no room, and returns how many rows were committed.
fn fill(connection: &Connection) -> i64 {
    for rows in 0.. {
        if let Err(error) = connection.execute_batch("insert into t select zeroblob(20000)") {
            assert_eq!(code(&error), ffi::SQLITE_FULL, "{error}");
            return rows;
        }
    }
    unreachable!("there is room for ever")
}

#[test]
fn a_full_pool_is_an_error_that_loses_nothing() {
    let directory = directory();
    let modes = ["delete", "truncate", "persist", "memory", "off", "wal"];
    for (mode, sync) in modes.map(|mode| (mode, "full")).into_iter().chain([("delete", "off")]) {
        let path = directory.path().join(format!("{mode}-{sync}.pool"));
        let connection = open(&uri(&path, "&size=24M"));
        assert_eq!(text(&connection, &format!("pragma journal_mode={mode}")), mode);
        connection.pragma_update(None, "synchronous", sync).expect("it is set");
        connection.execute_batch("create table t(b)").expect("a table is made");
        let rows = fill(&connection);
        assert!(rows > 20, "{mode}: only {rows} rows fit");
        let assert_there = |connection: &Connection| {
            assert_eq!(text(connection, "select count(*) from t"), rows.to_string(), "{mode}");
            assert_eq!(text(connection, "pragma integrity_check"), "ok", "{mode}");
        };
        assert_there(&connection);
        let copy = directory.path().join(format!("{mode}-{sync}-copy.pool"));
        connection
            .execute_batch(&format!("vacuum into '{}'", uri(&copy, "")))
            .unwrap_or_else(|error| panic!("{mode}: it cannot be copied: {error}"));
        drop(connection);
        assert_whole(&path);
        assert_there(&open(&uri(&path, "")));
        assert_there(&open(&uri(&copy, "")));
    }
}
