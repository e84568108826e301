//! Layouts that are not fixed, borrows, unbounded parameters, and options that do not exist.

use std::marker::PhantomData;

use remanent_pmem::Persistent;

#[derive(Clone, Copy, Persistent)]
struct Unordered {
    key: u64,
}

#[derive(Clone, Copy, Persistent)]
#[repr(align(8))]
struct AlignedOnly {
    key: u64,
}

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Borrowing<'a> {
    key: u64,
    owner: PhantomData<&'a u64>,
}

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Unbounded<T> {
    key: u64,
    value: T,
}

#[derive(Clone, Copy, Persistent)]
#[persistent(name = "other")]
#[repr(C)]
struct Named {
    key: u64,
}

fn main() {}
