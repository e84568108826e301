//! Pools that were damaged: an error each time, and never a panic or wrong data.

use std::fs;
use std::path::Path;

use rusqlite::ffi;

use super::support::{code, directory, open, text, try_open, uri};

const MARK: &str = "a text that stands nowhere else";

fn make(path: &Path) {
    let connection = open(&uri(path, ""));
    connection
        .execute_batch(&format!("create table t(a, b); insert into t values (1, '{MARK}')"))
        .expect("a table is made");
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).expect("it is there")
}

#[test]
fn a_flipped_bit_of_a_page_is_an_error() {
    let directory = directory();
    let path = directory.path().join("flipped.pool");
    make(&path);
    let mut bytes = fs::read(&path).expect("it is read");
    let at = find(&bytes, MARK.as_bytes());
    bytes[at] ^= 1;
    fs::write(&path, &bytes).expect("it is written");
    let connection = open(&uri(&path, ""));
    let error = connection.query_row("select b from t", [], |_| Ok(())).expect_err("it is damaged");
    assert_eq!(code(&error), ffi::SQLITE_IOERR_DATA, "{error}");
}

#[test]
fn a_pool_that_was_shortened_is_an_error() {
    let directory = directory();
    let path = directory.path().join("short.pool");
    make(&path);
    let file = fs::OpenOptions::new().write(true).open(&path).expect("it opens");
    file.set_len(1 << 20).expect("it is shortened");
    let error = try_open(&uri(&path, "")).expect_err("most of it is gone");
    assert_eq!(code(&error), ffi::SQLITE_CORRUPT, "{error}");
}

/// Lines all over the pool, overwritten one after the other: whatever becomes of it, it is an
/// answer.
#[test]
fn no_damage_is_answered_by_a_panic() {
    let directory = directory();
    let path = directory.path().join("any.pool");
    make(&path);
    let whole = fs::read(&path).expect("it is read");
    let lines: Vec<usize> = (0..whole.len())
        .step_by(64)
        .filter(|&line| whole[line..].iter().take(64).any(|&byte| byte != 0))
        .collect();
    assert!(lines.len() > 100);
    let mut noticed = 0;
    for &line in lines.iter().step_by(lines.len() / 100) {
        let mut bytes = whole.clone();
        bytes[line..line + 64].fill(0xa5);
        fs::write(&path, &bytes).expect("it is written");
        let read = try_open(&uri(&path, "")).and_then(|connection| {
            connection.query_row("select b from t", [], |row| row.get::<_, String>(0))
        });
        match read {
            Ok(found) => assert_eq!(found, MARK, "line {line:#x}"),
            Err(error) => {
                noticed += 1;
                let primary = code(&error) & 0xff;
                let expected = [
                    ffi::SQLITE_CORRUPT,
                    ffi::SQLITE_IOERR,
                    ffi::SQLITE_NOTADB,
                    ffi::SQLITE_CANTOPEN,
                ];
                assert!(expected.contains(&primary), "line {line:#x}: {error}");
            }
        }
    }
    assert!(noticed > 0, "no damage was noticed");
    fs::write(&path, &whole).expect("it is written");
    assert_eq!(text(&open(&uri(&path, "")), "select b from t"), MARK);
}
