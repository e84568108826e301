//! A reference means nothing once the process has ended.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Record {
    key: u64,
    owner: &'static u64,
}

fn main() {}
