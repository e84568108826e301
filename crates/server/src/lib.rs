//! Serves Redis clients from Remanent maps.
//!
//! Strings lie in a hash map, the members of sorted sets in an ordered map. The codec ([`resp`]),
//! the commands and a connection ([`Session`]) turn bytes into answers, and contain no networking.
//! [`Server`] carries the bytes over TCP. What is stored goes through the trait [`Store`]:
//! persistent maps implement it, and [`Volatile`] for tests.
//!
//! A write is answered when it is durable in the pool's class. With a [`BatchStore`] it is answered
//! at once, and becomes safe within a bound; `WAITAOF` waits for that.
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
