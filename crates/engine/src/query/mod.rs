//! Reading: prepared statements, and the rows that they find.

mod get;
mod row;
mod scan;

pub use self::get::Get;
pub use self::row::Row;
