//! Redis clients served from Remanent maps: strings from a hash map, sorted sets from an ordered one.
//!
//! The codec ([`resp`]), the commands and the connection ([`Session`]) contain no networking: they
//! turn bytes into answers. [`Server`] carries those bytes over TCP. What is stored goes through
//! the trait [`Store`], which persistent maps implement, and [`Volatile`] for tests.
//!
//! Every answer to a write is given after the write is durable in the pool's class. With a [`BatchStore`]
//! it is given at once, and the write is safe within a bound; `WAITAOF` waits for that.
#![forbid(unsafe_code)]

mod check;
mod clients;
mod command;
mod guard;
mod keyspace;
mod memory;
mod net;
pub mod resp;
mod session;
mod shared;
mod statistics;
pub mod store;
mod syncs;
mod version;

pub use check::check_collections;
pub use keyspace::Keyspace;
pub use net::{BindError, Server};
pub use resp::Protocol;
pub use session::{Progress, Session};
pub use shared::{Config, Shared};
pub use store::{BatchStore, MapStore, Store, Volatile};
