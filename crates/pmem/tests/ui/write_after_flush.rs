//! A store after the flush would not be covered by the fence.

use remanent_pmem::{Dirty, Fresh, Medium, Persistent, fence};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn fill<M: Medium>(node: Fresh<'_, Node, Dirty, M>) {
    let mut node = node.flush();
    node.write_word(8, 1);
    let _ = fence(node);
}

fn main() {}
