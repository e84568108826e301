//! A reference means nothing once the process has ended.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    length: u64,
    name: &'static str,
}

fn main() {}
