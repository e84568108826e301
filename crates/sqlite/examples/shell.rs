//! Runs what is written on standard input, a line of SQL at a time, on a database in a pool, and
//! prints the first column of each row.
//!
//! ```console
//! $ echo 'create table t(a); insert into t values (7); select a from t' |
//!       cargo run -p remanent-sqlite --example shell 'file:/dev/shm/app.pool?vfs=remanent'
//! ```

use std::io::{BufRead, Write};

use remanent_sqlite::Host;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::Value;
use rusqlite::{Batch, Connection, ffi};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host {
        vfs_find: ffi::sqlite3_vfs_find as *const (),
        vfs_register: ffi::sqlite3_vfs_register as *const (),
        uri_parameter: ffi::sqlite3_uri_parameter as *const (),
        malloc: ffi::sqlite3_malloc as *const (),
        log: ffi::sqlite3_log as *const (),
        libversion_number: ffi::sqlite3_libversion_number as *const (),
        compileoption_used: ffi::sqlite3_compileoption_used as *const (),
    };
    // SAFETY: these are the functions of the fields' names, all of the SQLite that rusqlite brings.
    unsafe { remanent_sqlite::register(&host) }?;

    let uri = std::env::args().nth(1).ok_or("which database? write file:POOL?vfs=remanent")?;
    let connection = Connection::open(uri)?;
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut statements = Batch::new(&connection, &line);
        while let Some(mut statement) = statements.next()? {
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                match row.get(0)? {
                    Value::Null => writeln!(output)?,
                    Value::Integer(number) => writeln!(output, "{number}")?,
                    Value::Real(number) => writeln!(output, "{number}")?,
                    Value::Text(text) => writeln!(output, "{text}")?,
                    Value::Blob(bytes) => writeln!(output, "{} bytes", bytes.len())?,
                }
            }
        }
        output.flush()?;
    }
    Ok(())
}
