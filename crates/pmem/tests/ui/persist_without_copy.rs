//! A value in a pool is copied in and out, never dropped.

use remanent_pmem::Persistent;

#[derive(Persistent)]
#[repr(C)]
struct Record {
    key: u64,
}

fn main() {}
