//! A durable block is written only after it was reopened.

use remanent_pmem::{Durable, Fresh, Medium, Persistent};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn fill<M: Medium>(mut node: Fresh<'_, Node, Durable, M>) {
    node.write_value(Node { next: 0, key: 1 });
}

fn main() {}
