//! Debian's `sqlite3` and Python load the extension.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::support::{MODES, assert_whole, built, directory, uri};

pub(crate) fn extension() -> String {
    let path = built("deps/libremanent_sqlite.so");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The shell with a database open. What it prints comes line by line, and errors end it.
pub(crate) fn shell(uri: &str) -> Command {
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "sqlite3", "-bail", "-cmd"]).arg(format!(".load {}", extension()));
    command.args(["-cmd", ".log stderr", "-cmd"]).arg(format!(".open {uri}"));
    command
}

fn run(uri: &str, sql: &str) -> Output {
    let mut command = shell(uri);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("sqlite3 is installed: see ci/test");
    child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn lines(uri: &str, sql: &str) -> Vec<String> {
    let output = run(uri, sql);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn the_shell_works_in_every_journal_mode() {
    let directory = directory();
    let pool = directory.path().join("shell.pool");
    for mode in MODES {
        let uri = uri(Path::new(&format!("{}:{mode}", pool.display())), "");
        let sql = format!(
            "pragma journal_mode={mode};
             create table t(a integer primary key, b);
             insert into t select value, hex(randomblob(200)) from generate_series(1, 5000);
             delete from t where a % 2;
             vacuum;
             pragma integrity_check;
             select count(*) from t;\n"
        );
        assert_eq!(lines(&uri, &sql), [mode, "ok", "2500"]);
        assert_eq!(
            lines(&uri, "pragma integrity_check; select sum(a) from t;\n.vfsname\n"),
            ["ok", "6252500", "remanent"]
        );
    }
    assert_whole(&pool);
}

#[test]
fn a_second_process_is_told_who_has_the_pool() {
    let directory = directory();
    let path = directory.path().join("taken.pool");
    let sql = "create table t(a);\n";
    assert!(lines(&uri(&path, ""), sql).is_empty());
    let holder = remanent_pmem::Pool::options().open(&path).expect("nobody has it");
    let output = run(&uri(&path, ""), "select 1;\n");
    drop(holder);
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("database is locked"), "{error}");
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
}

#[test]
fn python_loads_it() {
    let directory = directory();
    let path = directory.path().join("python.pool");
    let script = format!(
        "import sqlite3
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension('{}')
loader.close()
uri = '{}'
one = sqlite3.connect(uri, uri=True)
one.execute('pragma journal_mode=wal')
one.execute('create table t(a)')
two = sqlite3.connect(uri, uri=True)
with one:
    one.executemany('insert into t values (?)', [(i,) for i in range(1000)])
assert two.execute('select sum(a) from t').fetchone() == (499500,)
one.close()
two.close()
print('done')
",
        extension().trim_end_matches(".so"),
        uri(&path, "")
    );
    // Debian's: others may be built without extensions.
    let output = Command::new("/usr/bin/python3").arg("-c").arg(script).output();
    let output = output.expect("python3 is installed: see ci/test");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
    assert_whole(&path);
}

/// As on systems whose Python is built without `enable_load_extension`.
#[test]
fn python_uses_it_without_loading_an_extension() {
    let directory = directory();
    let path = directory.path().join("python.pool");
    let script = format!(
        "import ctypes, sqlite3
library = ctypes.CDLL('{}')
assert ctypes.CDLL('libsqlite3.so.0').sqlite3_auto_extension(library.remanent_sqlite_auto_init) == 0
sqlite3.connect(':memory:').close()
for expected in 0, 1:
    database = sqlite3.connect('{}', uri=True)
    with database:
        database.execute('create table if not exists t(a)')
        assert database.execute('select count(*) from t').fetchone() == (expected,)
        database.execute('insert into t values (7)')
    database.close()
print('done')
",
        extension(),
        uri(&path, "")
    );
    let output = Command::new("/usr/bin/python3").arg("-c").arg(script).output();
    let output = output.expect("python3 is installed: see ci/test");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
    assert_whole(&path);
}

/// What docs/sqlite.md says of scripts.
#[test]
fn a_script_ends_with_a_status_that_tells_whether_all_was_done() {
    let directory = directory();
    let path = directory.path().join("script.pool");
    let script = |uri: &str, sql: &[&str]| {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", ":memory:"]).arg(format!(".load {}", extension()));
        command.arg(format!(".open {uri}")).args(sql).output().expect("sqlite3 is installed")
    };
    let place = uri(&path, "");
    let made = script(&place, &["create table t(a)", "insert into t values (7)"]);
    assert!(made.status.success(), "{made:?}");
    let read = script(&place, &["select a from t"]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "7\n", "{read:?}");
    assert!(!script(&place, &["insert into u values (7)"]).status.success());
    // The shell goes on without a pool, but has no table there.
    let missing = uri(&directory.path().join("none/script.pool"), "");
    assert!(!script(&missing, &["select a from t"]).status.success());
}

/// What docs/sqlite.md says of copies.
#[test]
fn a_copy_of_a_pool_takes_its_journals_along() {
    let directory = directory();
    let (path, copy) = (directory.path().join("first.pool"), directory.path().join("copy.pool"));
    let mut command = shell(&uri(&path, ""));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut child = child.expect("sqlite3 is installed");
    let sql = "pragma journal_mode=delete; pragma cache_size=2; create table t(a);
               insert into t select value from generate_series(1, 1000);
               begin; update t set a = -a || hex(zeroblob(1000));\n";
    child.stdin.as_mut().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
    // Pages have reached the pool that nothing but the journal can take back.
    let is_written = |path: &Path| {
        std::fs::read(path).is_ok_and(|pool| pool.windows(7).any(|part| part == b"-100000"))
    };
    let started = std::time::Instant::now();
    while !is_written(&path) && started.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    std::fs::copy(&path, &copy).expect("room");
    std::fs::remove_file(&path).expect("it is ours");
    let sql = "select count(*), sum(a) from t; pragma integrity_check;\n";
    assert_eq!(lines(&uri(&copy, ""), sql), ["1000|500500", "ok"]);
}
