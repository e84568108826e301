//! Structures in memory that has changed behind their back: each answer is right, or an error, and comes after a bounded
//! number of steps, which are counted.

#[path = "damage/blink_tree.rs"]
mod blink_tree;
#[path = "damage/hashmap.rs"]
mod hashmap;
#[path = "damage/memory.rs"]
mod memory;
#[path = "damage/ones.rs"]
mod ones;
