//! Nothing that borrows from the object leaves its transaction.

use remanent_structures::transactional;

#[transactional]
struct Queue {
    bytes: [u8; 30],
}

struct Bytes<'a>(&'a [u8]);

#[transactional]
impl Queue {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn first(&self) -> Option<&u8> {
        self.bytes.first()
    }

    fn named<'a>(&'a self, _: &u8) -> (u8, &'a [u8]) {
        (0, &self.bytes)
    }

    fn wrapped(&self) -> Bytes<'_> {
        Bytes(&self.bytes)
    }

    fn iterate(&self) -> impl Iterator<Item = u8> {
        self.bytes.iter().copied()
    }

    fn iterate_borrowing<'a>(&'a self) -> impl Iterator<Item = u8> + use<'a> {
        self.bytes.iter().copied()
    }

    fn in_trait_object(&self) -> Box<dyn Iterator<Item = u8> + '_> {
        Box::new(self.bytes.iter().copied())
    }

    fn of_argument(self, byte: &u8) -> &u8 {
        byte
    }

    fn never(&mut self) -> ! {
        panic!("out of order")
    }
}

fn main() {}
