//! Prepared statements: reads and changes by a key, reads of ranges, the rows that they find;
//! scans, and what they sum up.

mod change;
mod find;
mod get;
mod number;
mod prepared;
mod range;
mod row;
mod scan;
mod select;
mod upsert;

pub use self::change::{Changes, Delete, Update};
pub use self::find::Find;
pub use self::get::Get;
pub(crate) use self::prepared::Asked;
pub use self::range::{KeyBound, Range};
pub use self::row::Row;
pub use self::select::{Cells, Scan};
pub use self::upsert::Upsert;
