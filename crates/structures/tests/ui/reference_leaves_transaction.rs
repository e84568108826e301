//! Neither does anything that borrows from it leave the closure of `transact`.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    bytes: [u8; 30],
}

fn leak(queue: &mut QueueHandle) {
    let bytes: &mut [u8; 30] = queue.transact(|queue| &mut queue.bytes).unwrap();
    bytes[0] = 1;
}

fn main() {}
