//! Tests data structures in persistent memory by crashing them in simulation.
//!
//! Describe a structure as a [`Subject`] and call [`explore`]; call [`mutate`] to test the tests.
//! On its own, [`Sim`] is a [`Medium`](remanent_pmem::Medium) with [counters](Sim::counters), and
//! [`litmus`] lists what a crash may leave of a few stores.
//!
//! An exploration goes through these parts of the source:
//!
//! | part | what it does |
//! |---|---|
//! | `explore/record.rs` | runs a [`Workload`] on a [`Sim`] under a [`Schedule`]: events, answers |
//! | `crash/pending.rs` | follows the events: which stores are durable, and which are pending |
//! | `crash/image.rs` | numbers the images that a crash may leave |
//! | `oracle/` | finds the states that are right after a crash |
//! | `explore/judge.rs` | recovers an image, compares its state with the oracle, and uses it |
//! | `explore/seed.rs` | does this for all points and images, and for the life after a crash |
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod crash;
mod explore;
mod hashes;
mod mutate;
mod oracle;
mod panics;
mod report;
mod rng;
mod sim;
mod subject;

pub use config::{Config, Nested, Only, Points};
pub use crash::fault::Faults;
pub use crash::litmus::litmus;
pub use explore::{explore, explore_with, explore_workload};
pub use mutate::mutation::{Fate, Mutant, Mutation};
pub use mutate::sources::Sources;
pub use mutate::{mutate, mutate_with};
pub use oracle::Oracle;
pub use report::violation::{Broken, Crash, Violation};
pub use report::{Report, States};
pub use rng::Rng;
pub use sim::schedule::Schedule;
pub use sim::trace::{Site, SiteKind};
pub use sim::{Class, Counters, Granularity, Sim, SimOptions};
pub use subject::{Outcome, Steps, Subject, Workload};
