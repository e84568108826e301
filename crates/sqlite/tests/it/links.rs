//! Paths with symbolic links, and parameters as SQLite itself reads them.

use std::os::unix::fs::symlink;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, ffi};

use super::support::{assert_whole, code, directory, open, register, text, uri};

fn open_without_links(uri: &str) -> rusqlite::Result<Connection> {
    register();
    Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW)
}

#[test]
fn a_path_with_a_link_is_refused_where_none_is_to_be_followed() {
    let directory = directory();
    let real = directory.path().canonicalize().expect("it exists");
    symlink(&real, real.join("folder")).expect("links are possible");
    symlink("app.pool", real.join("link")).expect("links are possible");
    open(&uri(&real.join("app.pool"), "")).execute_batch("create table t(a)").expect("SQL");
    for path in ["app.pool", "app.pool:other", "new.pool"] {
        let connection = open_without_links(&uri(&real.join(path), "")).expect("there is no link");
        connection.execute_batch("pragma user_version=1").expect("SQL");
    }
    for path in ["link", "link:other", "folder/app.pool", "folder/app.pool:other", "folder/none"] {
        let place = uri(&real.join(path), "");
        let refused = open_without_links(&place).expect_err(path);
        assert_eq!(code(&refused), ffi::SQLITE_CANTOPEN_SYMLINK, "{path}: {refused}");
        assert!(!real.join("none").exists());
        open(&place);
    }
    let beside = |path: &str| {
        let (database, pool) = (real.join(path), real.join("journals.pool"));
        format!("file:{}?vfs=remanent-journal&journal={}", database.display(), pool.display())
    };
    open_without_links(&beside("app.db")).expect("there is no link");
    symlink("app.db", real.join("link.db")).expect("links are possible");
    let refused = open_without_links(&beside("link.db")).expect_err("a link");
    assert_eq!(code(&refused), ffi::SQLITE_CANTOPEN_SYMLINK, "{refused}");
}

#[test]
fn a_database_is_made_where_a_link_leads() {
    let directory = directory();
    let real = directory.path().canonicalize().expect("it exists");
    std::fs::create_dir(real.join("deep")).expect("room");
    symlink("deep/app.pool", real.join("link")).expect("links are possible");
    let by_link = open(&uri(&real.join("link"), ""));
    by_link.execute_batch("create table t(a); insert into t values (7)").expect("SQL");
    assert!(real.join("link").is_symlink(), "the link was replaced");
    let direct = open(&uri(&real.join("deep/app.pool"), ""));
    assert_eq!(text(&direct, "select a from t"), "7");
    drop((by_link, direct));
    assert_whole(&real.join("deep/app.pool"));
    symlink(Path::new("gone/app.pool"), real.join("nowhere")).expect("links are possible");
    super::support::try_open(&uri(&real.join("nowhere"), "")).expect_err("no such directory");
}

/// Whether SQLite relies on bytes beside a write.
fn is_overwrite_safe(connection: &Connection) -> bool {
    let mut answer = -1;
    // SAFETY: the handle is used while the connection is open.
    let handle = unsafe { connection.handle() };
    // SAFETY: the connection is open, and the operation takes a number and answers one.
    let code = unsafe {
        ffi::sqlite3_file_control(
            handle,
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE,
            (&raw mut answer).cast(),
        )
    };
    assert_eq!(code, ffi::SQLITE_OK);
    answer != 0
}

#[test]
fn booleans_are_read_as_sqlite_reads_them() {
    let directory = directory();
    let pool = directory.path().join("app.pool");
    for (value, expected) in
        [("0", false), ("FALSE", false), ("Off", false), ("NO", false), ("TRUE", true), ("1", true)]
    {
        let connection = open(&uri(&pool, &format!("&psow={value}")));
        assert_eq!(is_overwrite_safe(&connection), expected, "psow={value}");
    }
    assert!(is_overwrite_safe(&open(&uri(&pool, ""))));
}
