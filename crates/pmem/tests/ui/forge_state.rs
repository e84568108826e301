//! No other crate can make up a state, or take a block through a fence that never was.

use remanent_pmem::{Durable, Fenceable, State};

enum Trusted {}

impl State for Trusted {}

fn pretend<F: Fenceable>(blocks: F) -> F::Durable {
    blocks.into_durable(())
}

fn main() {
    let _: Option<Durable> = None;
}
