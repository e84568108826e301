//! TATP (Telecom Application Transaction Processing, description v1.0) on Remanent's engine.
//!
//! [`tables`] are its four tables, [`Population`] the rows that they begin with, [`Mix`] draws the
//! seven [requests](Request) as the description weights them, and [`Client`] executes them.
//! [`recovery`] kills a process that does so, and measures how it comes back. [`workers`] compares
//! what is left after a crash with what was acknowledged before.
//!
//! ```
//! use remanent_engine::Database;
//! use remanent_pmem::Pool;
//! use remanent_tatp::{Client, Mix, Population, Tables};
//!
//! # let directory = tempfile::tempdir()?;
//! let pool = Pool::options().create(directory.path().join("tatp.pool"))?;
//! let database = Database::create(&pool, "tatp")?;
//! let tables = Tables::create(&database)?;
//! let population = Population::new(100);
//! population.load(&tables)?;
//!
//! let client = Client::new(&database)?;
//! let mut mix = Mix::new(population.count(), 1);
//! let found = (0..1_000).filter(|_| client.run(&mix.draw()).unwrap()).count();
//! assert!((600..900).contains(&found)); // the others ask for rows that are not there
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What differs from the description
//!
//! - The tables declare no foreign keys: each needs an index of the children by their parents,
//!   which no request reads. Who inserts into `call_forwarding` has read the subscriber's
//!   facilities before, and nobody removes those.
//! - `UPDATE_SUBSCRIBER_DATA` looks for the facility before it changes the subscriber, so that it
//!   has nothing to take back when there is none.

#![forbid(unsafe_code)]

mod client;
mod random;
pub mod recovery;
mod request;
mod rows;
mod tables;
pub mod workers;

pub use self::client::Client;
pub use self::random::Random;
pub use self::request::{Kind, Mix, Request};
pub use self::rows::{
    AccessInfo, CallForwarding, Population, SpecialFacility, Subscriber, sub_nbr,
};
pub use self::tables::{Tables, tables};
