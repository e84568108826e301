//! Prepared statements: reads and changes by a key, the rows that they find; scans.

mod change;
mod find;
mod get;
mod prepared;
mod row;
mod scan;

pub use self::change::{Changes, Delete, Update};
pub use self::find::Find;
pub use self::get::Get;
pub use self::row::Row;
