//! The object lies in the pool: nobody owns it in a `Box`, and nobody waits in the middle of a
//! transaction.

use std::pin::Pin;
use std::sync::Arc;

use remanent_structures::transactional;

#[transactional]
struct Queue {
    bytes: [u8; 30],
}

#[transactional]
impl Queue {
    fn boxed(self: Box<Self>) {}

    fn counted(self: &Arc<Self>) {}

    fn pinned(self: Pin<&mut Self>) {}

    async fn wait(&mut self) {}
}

fn main() {}
