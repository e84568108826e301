//! `remanent-crashsim` tests data structures in persistent memory by crashing them in simulation.
//!
//! Describe a structure as a [`Subject`] and call [`explore`], or [`mutate`] to test the tests. On its own, [`Sim`] is a
//! [`Medium`](remanent_pmem::Medium) with [counters](Sim::counters), and [`litmus`] shows the persistency model at work.
//!
//! How the parts follow one another:
//!
//! | part | does |
//! |---|---|
//! | `record` | runs a [`Workload`] on a [`Sim`], under a [`Schedule`]; out come events and answers |
//! | `pending` | follows the events: what is durable for certain at each of them, and what is pending |
//! | `image` | numbers what a crash there may leave |
//! | `oracle` | works out which states are right there |
//! | `judge` | recovers an image, compares, goes on |
//! | `explore` | does it for all points and images, and again for the life after the crash |
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod explore;
mod fault;
mod hashes;
mod image;
mod judge;
mod litmus;
mod mutate;
mod mutation;
mod oracle;
mod panics;
mod pending;
mod prune;
mod record;
mod report;
mod rng;
mod schedule;
mod sim;
mod sources;
mod subject;
mod trace;
mod violation;

pub use config::{Config, Nested, Only, Points};
pub use explore::{explore, explore_with, explore_workload};
pub use fault::Faults;
pub use litmus::litmus;
pub use mutate::{mutate, mutate_with};
pub use mutation::{Fate, Mutant, Mutation};
pub use oracle::Oracle;
pub use report::{Report, States};
pub use rng::Rng;
pub use schedule::Schedule;
pub use sim::{Class, Counters, Granularity, Sim, SimOptions};
pub use sources::Sources;
pub use subject::{Outcome, Steps, Subject, Workload};
pub use trace::{Site, SiteKind};
pub use violation::{Broken, Crash, Violation};
