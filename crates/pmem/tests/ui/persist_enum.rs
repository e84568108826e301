//! After a crash the bytes of an enum may be no variant of it.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(u8)]
enum Kind {
    Free,
    Used,
}

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
union Either {
    number: u64,
    bytes: [u8; 8],
}

fn main() {}
