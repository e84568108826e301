//! A fence waits for flushes; one of the blocks has not been flushed.

use remanent_pmem::{Dirty, Fresh, Medium, Persistent, fence};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn make_durable<'m, M: Medium>(a: Fresh<'m, Node, Dirty, M>, b: Fresh<'m, Node, Dirty, M>) {
    let _ = fence((a.flush(), b));
}

fn main() {}
