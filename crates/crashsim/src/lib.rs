//! `remanent-crashsim` tests data structures in persistent memory by crashing them in simulation.
//!
//! Describe a structure as a [`Subject`] and call [`explore`], or [`mutate`] to test the tests. On its own, [`Sim`] is a
//! [`Medium`](remanent_pmem::Medium) with [counters](Sim::counters), and [`litmus`] shows the persistency model at work.
//!
//! How the parts follow one another:
//!
//! | part | does |
//! |---|---|
//! | `explore/record.rs` | runs a [`Workload`] on a [`Sim`], under a [`Schedule`]; out come events and answers |
//! | `crash/pending.rs` | follows the events: what is durable for certain at each of them, and what is pending |
//! | `crash/image.rs` | numbers what a crash there may leave |
//! | `oracle/` | works out which states are right there |
//! | `explore/judge.rs` | recovers an image, compares, goes on |
//! | `explore/seed.rs` | does it for all points and images, and again for the life after the crash |
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
