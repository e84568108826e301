//! The attribute is on the struct, and not on the `impl` block.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    length: u64,
}

impl Queue {
    fn forget_all(&mut self) {
        self.length = 0;
    }
}

fn forget_all(queue: &mut QueueHandle) {
    queue.forget_all();
}

fn main() {}
