//! A block is flushed, but no fence has waited for it when it is published.

use remanent_pmem::{Dirty, Fresh, Link, Medium, Persistent, Word};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn publish<M: Medium>(link: Link<'_, M>, node: Fresh<'_, Node, Dirty, M>) {
    let _ = link.publish(Word::NULL, node.flush());
}

fn main() {}
