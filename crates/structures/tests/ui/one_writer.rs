//! Who has a handle only to look at may not change what it leads to.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    length: u64,
}

#[transactional]
impl Queue {
    fn clear(&mut self) {
        self.length = 0;
    }
}

fn clear(queue: &QueueHandle) {
    let _ = queue.clear();
}

fn main() {}
