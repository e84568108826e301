//! Padding would carry undefined bytes into the pool: before a field, at the end, in generic types.

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Before {
    kind: u8,
    key: u64,
}

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct After {
    key: u64,
    kind: u32,
}

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Generic<T: Persistent> {
    kind: u8,
    value: T,
}

const GENERIC: u64 = <Generic<u64> as Persistent>::LAYOUT;

fn main() {}
