//! Structures as their papers describe them: to compare with, and to reproduce the papers' figures.
//!
//! They are crash-safe and tested like the others, but a program has a better choice:
//!
//! | here | after | use instead |
//! |---|---|---|
//! | [`BoundedBuffer`] | cache-line transactions (PLOS 2019) | [`transactional`](crate::transactional) on a struct |
//! | [`BpTree`] | NVB+-Tree of HYRISE-NV (IMDM 2015) | [`BlinkTree`](crate::BlinkTree) |
//! | [`BpMultiTree`] | the same, with several values a key | [`HashMultiMap`](crate::HashMultiMap) |
//!
//! `remanent-bench` runs the papers' evaluations with them.

mod bounded_buffer;
pub mod bptree;

pub use self::bounded_buffer::{BoundedBuffer, BoundedBufferHandle, BoundedBufferShared};
pub use self::bptree::{BpMultiTree, BpTree};
