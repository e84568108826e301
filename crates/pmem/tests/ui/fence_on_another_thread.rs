//! A fence orders the flushes of the thread that issues it, and of no other.

use remanent_pmem::{Flushed, Fresh, Medium, Persistent, fence};

#[derive(Clone, Copy, Persistent)]
#[repr(C)]
struct Node {
    next: u64,
    key: u64,
}

fn hand_over<M: Medium>(node: Fresh<'_, Node, Flushed, M>) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = fence(node);
        });
    });
}

fn main() {}
