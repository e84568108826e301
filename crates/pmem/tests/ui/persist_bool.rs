//! After a crash the byte of a `bool` may be neither 0 nor 1.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Record {
    key: u64,
    is_live: bool,
}

fn main() {}
