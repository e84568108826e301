//! A `usize` differs from one machine to the next.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Record {
    key: u64,
    length: usize,
}

fn main() {}
