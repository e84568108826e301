//! A block is written but neither flushed nor fenced when it is published.

use remanent_pmem::{Dirty, Fresh, Link, Medium, Persistent, Word};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn publish<M: Medium>(link: Link<'_, M>, mut node: Fresh<'_, Node, Dirty, M>) {
    node.write_word(8, 1);
    let _ = link.publish(Word::NULL, node);
}

fn main() {}
