//! A field of a struct that is not `Persistent` itself.

use remanent_pmem::Persistent;

#[derive(Clone, Copy)]
struct Inner(u64);

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Record(u64, [Inner; 2]);

fn main() {}
