//! Crash exploration and damage tests of Remanent's own pool, allocator and structures.
//!
//! A [`Subject`] is a structure under test, in a folder of [`SUBJECTS`]. It has operations, a
//! model, and [`Scenario`]s. A scenario says which operations run, in how many threads, and what a
//! crash may do. `remanent crash-test` explores them at length, the tests of this crate explore
//! them each time. Both use the list of [`scenarios`]. [`mutate`] leaves out flushes and fences,
//! and checks that a scenario fails.
//!
//! [`damage`] tests the answers of a pool whose bytes were changed while nobody had it open.
#![forbid(unsafe_code)]

mod answer;
pub mod damage;
mod keys;
mod maps;
mod mutation;
mod pools;
mod presets;
mod scenario;
mod subjects;

pub use mutation::{Progress, Redundant, SOURCES, mutate};
pub use scenario::{Scenario, one_in};

pub use subjects::{
    Chosen, MutationSample, SUBJECTS, Shape, Subject, counterexamples, scenarios, shapes,
};
