//! Structures as their papers describe them, for comparison.
//!
//! Benchmarks and tests compare them with the structures of this crate, which programs should use.

pub mod nvramdisk;
