//! The attribute is on the `impl` block, and not on the struct.

use remanent_structures::transactional;

struct Queue {
    length: u64,
}

#[transactional]
impl Queue {
    fn clear(&mut self) {
        self.length = 0;
    }
}

fn main() {}
