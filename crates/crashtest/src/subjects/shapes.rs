//! Shapes of a scenario's tree while it runs.

use std::any::Any;

use super::blink_tree::subject::{TestTree as BlinkTree, Texts, Words};
use super::bptree::subject::{TestTree as BpTree, Wide};
use crate::pools::Open;
use crate::scenario::Scenario;

/// Levels and leaves of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of levels, including that of the leaves.
    pub levels: u64,
    /// Number of leaves.
    pub leaves: u64,
}

/// The shapes of a scenario's tree: before the first operation of a seed and after each, without a
/// crash, with the operations of several threads one after the other.
///
/// # Panics
///
/// When the scenario's subject is not a tree.
pub fn shapes(scenario: &Scenario, seed: u64) -> Vec<Shape> {
    let mut shapes = Vec::new();
    scenario.subject.run(&scenario.config, seed, &mut |handle| shapes.push(shape(handle)));
    shapes
}

fn shape(handle: &dyn Any) -> Shape {
    macro_rules! shape_of {
        ($($tree:ty),*) => {
            $(if let Some(open) = handle.downcast_ref::<Open<$tree>>() {
                let (levels, leaves) = open.object.levels_and_leaves().expect("a whole tree");
                return Shape { levels, leaves };
            })*
        };
    }
    shape_of!(BlinkTree<Words>, BlinkTree<Texts>, BpTree<u64>, BpTree<Wide>);
    panic!("a scenario of something else");
}
