//! What the papers describe, for comparison.

mod nvramdisk;
