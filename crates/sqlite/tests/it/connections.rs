//! One process, one connection and several.

use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use remanent_pmem::{Durability, Pool};
use rusqlite::{Connection, ErrorCode, ffi};

use super::support::{MODES, assert_whole, code, directory, open, text, try_open, uri};

/// Fills a table, empties a part of it and shortens the file.
fn exercise(connection: &Connection, mode: &str) {
    assert_eq!(text(connection, &format!("pragma journal_mode={mode}")), mode);
    connection
        .execute_batch(
            "create table t(a integer primary key, b);
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
                 insert into t select i, hex(randomblob(i % 300)) from n;
             create index t_b on t(b);
             delete from t where a % 3 = 0;
             vacuum;",
        )
        .unwrap_or_else(|error| panic!("{mode}: {error}"));
    if mode != "off" {
        connection.execute_batch("begin; update t set b = 'never'; rollback").expect("SQL");
    }
    assert_eq!(text(connection, "select count(*) from t where b != 'never'"), "3334");
}

fn assert_exercised(connection: &Connection) {
    assert_eq!(text(connection, "pragma integrity_check"), "ok");
    assert_eq!(
        text(connection, "select sum(a) from t"),
        (12_502_500 - 3 * 1666 * 1667 / 2).to_string()
    );
}

#[test]
fn every_journal_mode_works_and_lasts() {
    let directory = directory();
    let pool = directory.path().join("modes.pool");
    let place = |mode: &str| uri(Path::new(&format!("{}:{mode}", pool.display())), "");
    for mode in MODES {
        exercise(&open(&place(mode)), mode);
    }
    assert_whole(&pool);
    for mode in MODES {
        assert_exercised(&open(&place(mode)));
    }
}

#[test]
fn a_connection_that_is_alone_needs_no_shared_memory() {
    let directory = directory();
    let path = directory.path().join("alone.pool");
    for mode in ["wal", "delete", "persist"] {
        let connection = open(&uri(&path, ""));
        connection
            .execute_batch("drop table if exists t; pragma locking_mode=exclusive")
            .expect("SQL");
        exercise(&connection, mode);
        assert_exercised(&connection);
        let other = open(&uri(&path, ""));
        other.busy_timeout(Duration::ZERO).expect("a timeout");
        let error = other.query_row("select a from t", [], |_| Ok(()));
        let error = error.expect_err("somebody is alone with it");
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    }
    assert_exercised(&open(&uri(&path, "")));
}

#[test]
fn journals_alone_lie_in_a_pool() {
    let directory = directory();
    let pool = directory.path().join("journals.pool");
    for mode in MODES {
        let path = directory.path().join(format!("{mode}.db"));
        let uri =
            format!("file:{}?vfs=remanent-journal&journal={}", path.display(), pool.display());
        let connection = open(&uri);
        exercise(&connection, mode);
        for suffix in ["-journal", "-wal"] {
            assert!(
                !directory.path().join(format!("{mode}.db{suffix}")).exists(),
                "{mode}{suffix}"
            );
        }
        drop(connection);
        // Closed properly, it is a database like any other.
        assert_exercised(&Connection::open(path).expect("it opens"));
        assert_exercised(&open(&uri));
    }
    assert_whole(&pool);
}

#[test]
fn a_transaction_needs_no_journal_where_sqlite_can_do_that() {
    // Set for the whole workspace in .cargo/config.toml.
    assert!(has_batches(), "the tests' SQLite was built without SQLITE_ENABLE_BATCH_ATOMIC_WRITE");
    let directory = directory();
    let path = directory.path().join("batch.pool");
    let connection = open(&uri(&path, ""));
    connection
        .execute_batch(
            "pragma cache_size=-20000;
             create table t(a);
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 500)
                 insert into t select randomblob(3000) from n;
             update t set a = randomblob(3001);",
        )
        .expect("SQL");
    drop(connection);
    let pool = Pool::options().open(&path).expect("the pool opens");
    let journal = remanent_blockdev::file::File::open(&pool, "main-journal").expect("it is there");
    // The first transaction of a database has one. The pages that the update changed would take 1.5
    // MB of it.
    assert!(journal.allocated() <= 256 << 10, "{} bytes of journal", journal.allocated());
}

/// Whether the SQLite of this process was built for batches.
fn has_batches() -> bool {
    let connection = Connection::open_in_memory().expect("SQLite runs");
    text(&connection, "select sqlite_compileoption_used('ENABLE_BATCH_ATOMIC_WRITE')") == "1"
}

#[test]
fn readers_of_a_log_see_what_was_when_they_began() {
    let directory = directory();
    let path = directory.path().join("readers.pool");
    let writer = open(&uri(&path, ""));
    assert_eq!(text(&writer, "pragma journal_mode=wal"), "wal");
    writer
        .execute_batch("pragma wal_autocheckpoint=20; create table t(round, i)")
        .expect("a table is made");
    let (rounds, rows) = (200, 10);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = open(&uri(&path, ""));
                reader.busy_timeout(Duration::from_secs(30)).expect("a timeout");
                start.wait();
                let mut last = 0;
                while last < rounds {
                    let counted = reader.query_row(
                        "select count(*), coalesce(max(round), 0), count(distinct round) from t",
                        [],
                        |row| {
                            Ok((
                                row.get::<_, i64>(0)?,
                                row.get::<_, i64>(1)?,
                                row.get::<_, i64>(2)?,
                            ))
                        },
                    );
                    let (count, round, distinct) = counted.expect("readers are not in the way");
                    assert_eq!((count, distinct), (round * rows, round));
                    assert!(round >= last, "time goes back");
                    last = round;
                }
            });
        }
        start.wait();
        for round in 1..=rounds {
            writer.execute_batch("begin").expect("it begins");
            for i in 0..rows {
                writer.execute("insert into t values (?1, ?2)", [round, i]).expect("it writes");
            }
            writer.execute_batch("commit").expect("nobody else writes");
        }
    });
    drop(writer);
    assert_whole(&path);
}

#[test]
fn writers_take_turns() {
    let directory = directory();
    for mode in ["delete", "truncate", "persist", "wal"] {
        let path = directory.path().join(format!("{mode}.pool"));
        let first = open(&uri(&path, ""));
        assert_eq!(text(&first, &format!("pragma journal_mode={mode}")), mode);
        first
            .execute_batch("create table t(n); insert into t values (0)")
            .expect("a table is made");
        let (threads, rounds) = (3, 40);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let connection = open(&uri(&path, ""));
                    connection.busy_timeout(Duration::from_secs(60)).expect("a timeout");
                    for _ in 0..rounds {
                        let sql = "begin immediate; update t set n = n + 1; commit";
                        connection.execute_batch(sql).expect("its turn comes");
                    }
                });
            }
        });
        assert_eq!(text(&first, "select n from t"), (threads * rounds).to_string(), "{mode}");
        drop(first);
        assert_whole(&path);
    }
}

#[test]
fn two_pools_change_as_one() {
    let directory = directory();
    let (one, two) = (directory.path().join("one.pool"), directory.path().join("two.pool"));
    let connection = open(&uri(&one, ""));
    connection
        .execute_batch(&format!(
            "attach '{}' as two; create table a(x); create table two.b(y)",
            uri(&two, "")
        ))
        .expect("it attaches");
    connection
        .execute_batch("begin; insert into a values (1); insert into two.b values (2); commit")
        .expect("it commits");
    assert_eq!(text(&connection, "select x + y from a, two.b"), "3");
    drop(connection);
    assert_eq!(text(&open(&uri(&two, "")), "select y from b"), "2");
    let left: Vec<_> = directory.path().read_dir().expect("it exists").collect();
    assert_eq!(left.len(), 2, "something is left of the commit: {left:?}");
}

/// The durability that a pool was made for.
fn durability(path: &Path) -> Durability {
    let pool = Pool::options().open(path).expect("the pool opens");
    pool.info().expect("it is read").created_durability
}

#[test]
fn a_pool_survives_what_its_backing_can() {
    let memory = directory();
    let path = memory.path().join("memory.pool");
    drop(open(&uri(&path, "")));
    assert_eq!(durability(&path), Durability::Process);
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = disk.path().join("process.pool");
    drop(open(&uri(&path, "&durability=process")));
    assert_eq!(durability(&path), Durability::Process);
    let path = disk.path().join("power.pool");
    for mode in ["delete", "wal"] {
        let connection = open(&uri(&path, ""));
        assert_eq!(text(&connection, &format!("pragma journal_mode={mode}")), mode);
        let sql = "create table if not exists t(a); insert into t values (1)";
        connection.execute_batch(sql).expect("it is written");
    }
    assert_eq!(durability(&path), Durability::Power);
    let _open = open(&uri(&path, ""));
    let error = try_open(&uri(&path, "&durability=process")).expect_err("it is open as another");
    assert_eq!(code(&error), ffi::SQLITE_CANTOPEN);
    assert_eq!(text(&open(&uri(&path, "")), "select count(*) from t"), "2");
}

#[test]
fn what_cannot_be_opened_says_so() {
    let directory = directory();
    let here = |name: &str| directory.path().join(name);
    drop(open(&uri(&here("there.pool"), "")));
    std::fs::write(here("text"), "no pool".repeat(10_000)).expect("it can be written");
    for (path, parameters, expected) in [
        ("text", "", ffi::SQLITE_NOTADB),
        ("missing.pool", "&mode=rw", ffi::SQLITE_CANTOPEN),
        ("there.pool:missing", "&mode=ro", ffi::SQLITE_CANTOPEN),
        ("missing/a.pool", "", ffi::SQLITE_CANTOPEN),
        ("there.pool", "&db=other", ffi::SQLITE_CANTOPEN),
        ("there.pool", "&size=much", ffi::SQLITE_CANTOPEN),
        ("new.pool", "&size=1K", ffi::SQLITE_FULL),
    ] {
        let error = try_open(&uri(&here(path), parameters)).expect_err(path);
        assert_eq!(code(&error), expected, "{path}{parameters}: {error}");
    }
    assert!(!here("missing.pool").exists() && !here("new.pool").exists());
    let own = Pool::options().open(here("there.pool")).expect("nobody has it");
    let error = try_open(&uri(&here("there.pool"), "")).expect_err("somebody has it");
    assert_eq!(code(&error), ffi::SQLITE_BUSY, "{error}");
    drop(own);
    let reader = open(&uri(&here("there.pool"), "&mode=ro"));
    let error = reader.execute_batch("create table t(a)").expect_err("it is for reading");
    assert_eq!(code(&error), ffi::SQLITE_READONLY);
}
