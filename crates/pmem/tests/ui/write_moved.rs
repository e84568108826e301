//! The dirty handle is gone once the block is flushed.

use remanent_pmem::{Dirty, Fresh, Medium, Persistent, fence};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn fill<M: Medium>(mut node: Fresh<'_, Node, Dirty, M>) {
    let flushed = node.flush();
    node.write_word(8, 1);
    let _ = fence(flushed);
}

fn main() {}
