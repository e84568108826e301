//! Reading: prepared statements, and the rows that they find.

mod find;
mod get;
mod prepared;
mod row;
mod scan;

pub use self::find::Find;
pub use self::get::Get;
pub use self::row::Row;
