//! Crash exploration and damage tests of Remanent's own pool, allocator and structures.
//!
//! A [`Subject`] is a structure under test, in a folder of [`SUBJECTS`]: operations, a model, and [`Scenario`]s, which say
//! what is done to it, by how many threads, and what a crash may do. `remanent crash-test` explores them at length, this
//! crate's tests each time; both take what [`scenarios`] returns. [`mutate`] leaves out flushes and fences and asks whether
//! the scenarios notice.
//!
//! [`damage`] is another question: what a pool answers whose bytes were changed while nobody had it open.
#![forbid(unsafe_code)]

mod answer;
pub mod damage;
mod keys;
mod mutation;
mod pools;
mod presets;
mod scenario;
mod subjects;

pub use mutation::{Progress, Redundant, SOURCES, mutate};
pub use scenario::Scenario;

pub use subjects::{
    Chosen, MutationSample, SUBJECTS, Shape, Subject, counterexamples, scenarios, shapes,
};
