//! A pointer means nothing once the process has ended.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Record {
    key: u64,
    owner: *const u64,
}

fn main() {}
