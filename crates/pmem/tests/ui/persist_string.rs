//! A `String` keeps its bytes on the heap, which ends with the process.

use remanent_pmem::Persistent;

#[derive(Clone, Persistent)]
#[repr(C)]
struct Record {
    key: u64,
    name: String,
}

fn main() {}
