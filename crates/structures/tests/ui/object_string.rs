//! The text of a `String` is not in the struct.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    name: String,
}

fn main() {}
