//! The size of an object is known, and it borrows nothing.

use remanent_structures::transactional;

#[transactional]
struct Borrowing<'a> {
    name: &'a str,
}

#[transactional]
struct Generic<T> {
    value: T,
}

fn main() {}
