//! Structures as their papers describe them; the variants of the batched list are tested with it.

mod bptree;
