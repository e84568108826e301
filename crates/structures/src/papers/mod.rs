//! Structures as their papers describe them: to compare with, and to reproduce the papers' figures.
//!
//! They are as safe in a crash as the others, and are tested as they are. A program has a better choice:
//!
//! | here | after | use instead |
//! |---|---|---|
//! | [`BpTree`] | NVB+-Tree, HYRISE-NV (IMDM 2015) | [`BlinkTree`](crate::BlinkTree) |
//! | [`BpMultiTree`] | the same, several values a key | [`HashMultiMap`](crate::HashMultiMap) |
//!
//! `remanent-bench` runs the papers' evaluations with them.

pub mod bptree;

pub use self::bptree::{BpMultiTree, BpTree};
