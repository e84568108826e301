//! An object has at most 1024 bytes, and 31 where it is to stay within one line.

use remanent_structures::transactional;

#[transactional]
struct Page {
    bytes: [u8; 1025],
}

#[transactional(line)]
struct Line {
    bytes: [u8; 32],
}

fn main() {}
