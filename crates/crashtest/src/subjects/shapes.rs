//! How the trees of a scenario look while it runs.

use std::any::Any;

use super::blink_tree::subject::{TestTree as BlinkTree, Texts, Words};
use super::bptree::subject::{TestTree as BpTree, Wide};
use crate::pools::Open;
use crate::scenario::Scenario;

/// Levels and leaves of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Levels, that of the leaves included.
    pub levels: u64,
    /// Leaves.
    pub leaves: u64,
}

/// The shapes that the tree of a scenario takes, before the first operation of a seed and after each; operations of threads
/// one after the other, without a crash.
///
/// # Panics
///
/// Panics if the scenario is of something else than a tree.
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
