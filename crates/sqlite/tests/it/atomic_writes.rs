//! A SQLite that is built with `SQLITE_ENABLE_ATOMIC_WRITE` and `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`:
//! what it commits with a batch, other connections do not notice, so it must not be offered any.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::extension;
use super::support::{assert_whole, directory, uri};

/// One connection changes a row that another has read, again and again; says what the other one
/// reads.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "sqlite3.h"

static void must(sqlite3 *connection, int code) {
    if (code != SQLITE_OK) {
        fprintf(stderr, "%d: %s\n", code, sqlite3_errmsg(connection));
        exit(1);
    }
}

static int print(void *unused, int count, char **values, char **names) {
    (void)unused, (void)count, (void)names;
    printf("%s ", values[0]);
    return 0;
}

int main(int count, char **arguments) {
    sqlite3 *loader = NULL, *writer = NULL, *reader = NULL;
    (void)count;
    must(NULL, sqlite3_config(SQLITE_CONFIG_URI, 1));
    must(loader, sqlite3_open(":memory:", &loader));
    must(loader, sqlite3_enable_load_extension(loader, 1));
    must(loader, sqlite3_load_extension(loader, arguments[1], NULL, NULL));
    must(writer, sqlite3_open(arguments[2], &writer));
    must(reader, sqlite3_open(arguments[2], &reader));
    must(writer, sqlite3_exec(writer, "create table t(a); insert into t values (0)", NULL, NULL, NULL));
    for (int step = 0; step < 3; step++) {
        must(reader, sqlite3_exec(reader, "select a from t", print, NULL, NULL));
        must(writer, sqlite3_exec(writer, "update t set a = a + 1", NULL, NULL, NULL));
    }
    must(reader, sqlite3_exec(reader, "select a from t", print, NULL, NULL));
    must(reader, sqlite3_exec(reader, "select sqlite_compileoption_used('ENABLE_ATOMIC_WRITE')", print, NULL, NULL));
    must(reader, sqlite3_close(reader));
    must(writer, sqlite3_close(writer));
    return 0;
}
"#;

/// Where cargo has the source of the SQLite that rusqlite brings.
fn sqlite_source() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform"]);
    cargo.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).arg("--manifest-path");
    let output = cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output();
    let text = String::from_utf8(output.expect("cargo runs").stdout).expect("JSON");
    let is_manifest =
        |path: &&str| path.contains("/libsqlite3-sys-") && path.ends_with("/Cargo.toml");
    let manifest = text.split('"').find(is_manifest).expect("rusqlite depends on it");
    Path::new(manifest).with_file_name("sqlite3")
}

#[test]
fn a_sqlite_with_atomic_writes_shows_other_connections_what_it_commits() {
    let directory = directory();
    let (source, program) = (directory.path().join("program.c"), directory.path().join("program"));
    std::fs::write(&source, PROGRAM).expect("room");
    let sqlite = sqlite_source();
    let mut compiler = Command::new("cc");
    compiler.args([
        "-DSQLITE_ENABLE_ATOMIC_WRITE",
        "-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE",
        "-w",
        "-I",
    ]);
    compiler.arg(&sqlite).arg(&source).arg(sqlite.join("sqlite3.c")).arg("-o").arg(&program);
    let compiled = compiler.args(["-lpthread", "-ldl", "-lm"]).output().expect("a C compiler");
    assert!(compiled.status.success(), "{compiled:?}");
    let pool = directory.path().join("app.pool");
    let output = Command::new(program).arg(extension()).arg(uri(&pool, "")).output();
    let output = output.expect("it was compiled");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 1 2 3 1 ", "{output:?}");
    assert_whole(&pool);
}
