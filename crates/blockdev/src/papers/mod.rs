//! Structures as their papers describe them, for comparison.
//!
//! They are measured and tested beside this crate's own structures. Programs use those.
//!
//! | paper's structure | use instead |
//! |---|---|
//! | [`nvramdisk::Nvramdisk`] | [`Disk`](crate::Disk): one fence a write and not seven a block, checksums, snapshots |

pub mod nvramdisk;
