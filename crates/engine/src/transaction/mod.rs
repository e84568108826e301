//! Transactions: slots and their records, stamps of commits, snapshots.

mod back;
mod batch;
pub(crate) mod change;
pub(crate) mod clock;
pub(crate) mod collect;
mod defer;
mod deferred;
mod distinct;
mod finish;
mod foreign;
mod held;
pub(crate) mod layout;
pub(crate) mod list;
mod lock;
mod moment;
pub(crate) mod notes;
mod noting;
pub(crate) mod ops;
mod orphans;
pub(crate) mod recover;
mod schema;
mod serial;
mod session;
pub(crate) mod slots;
mod snapshot;
pub(crate) mod snapshots;
pub(crate) mod stamps;
pub(crate) mod statement;
pub(crate) mod statuses;
mod sweep;
mod token;
pub(crate) mod unwritten;
mod upsert;
pub(crate) mod view;
mod wait;
pub(crate) mod waits;
mod write_out;

pub use self::lock::LockMode;
pub use self::moment::Moment;
pub(crate) use self::moment::Sealed;
pub use self::session::{
    Durability, Isolation, OpenTransaction, Resumed, Transaction, TransactionOptions,
};
pub use self::snapshot::Snapshot;
pub use self::token::Token;
pub use self::upsert::Upserted;
