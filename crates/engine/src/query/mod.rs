//! Prepared statements: reads and changes by a key, reads of ranges, the rows that they find;
//! scans.

mod change;
mod find;
mod get;
mod prepared;
mod range;
mod row;
mod scan;

pub use self::change::{Changes, Delete, Update};
pub use self::find::Find;
pub use self::get::Get;
pub use self::range::{KeyBound, Range};
pub use self::row::Row;
