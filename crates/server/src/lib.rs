//! Redis clients served from a Remanent hash map.
//!
//! The codec ([`resp`]), the commands and the connection ([`Session`]) contain no networking: they
//! turn bytes into answers. [`Server`] carries those bytes over TCP. What is stored goes through
//! the trait [`Store`], which the persistent hash map implements, and [`Volatile`] for tests.
//!
//! Every answer to a write is given after the write is durable in the pool's class.
#![forbid(unsafe_code)]

mod about;
mod clients;
mod command;
mod net;
pub mod resp;
mod session;
mod shared;
pub mod store;

pub use net::{BindError, Server};
pub use resp::Protocol;
pub use session::{Progress, Session};
pub use shared::{Config, Shared};
pub use store::{MapStore, Store, Volatile};
