//! The attribute is for structs and their `impl` blocks.

use remanent_structures::transactional;

#[transactional]
enum Kind {
    Free,
    Used,
}

#[transactional]
union Either {
    number: u64,
    bytes: [u8; 8],
}

#[transactional]
trait Queue {
    fn add(&mut self, byte: u8);
}

#[transactional]
fn add(bytes: &mut [u8; 8], byte: u8) {
    bytes[0] = byte;
}

#[transactional]
const LEN: usize = 8;

struct Plain;

#[transactional]
impl Queue for &mut Plain {
    fn add(&mut self, _: u8) {}
}

impl Plain {
    #[transactional]
    fn clear(&mut self) {}
}

fn main() {}
