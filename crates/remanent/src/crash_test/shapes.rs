//! Do scenarios of trees reach what they are named after?

use std::any::Any;

use super::blink_tree::{TestTree as BlinkTree, Texts, Words};
use super::bptree::{TestTree as BpTree, Wide};
use super::{Open, Scenario, scenarios};

/// Levels and leaves of the tree of a scenario.
fn shape(handle: &dyn Any) -> (u64, u64) {
    macro_rules! shape_of {
        ($($tree:ty),*) => {
            $(if let Some(open) = handle.downcast_ref::<Open<$tree>>() {
                return open.object.levels_and_leaves().expect("a whole tree");
            })*
        };
    }
    shape_of!(BlinkTree<Words>, BlinkTree<Texts>, BpTree<u64>, BpTree<Wide>);
    panic!("a scenario of something else");
}

/// What one operation may do to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Split,
    Join,
    Rise,
    Fall,
}

use Change::{Fall, Join, Rise, Split};

/// What occurs in the seeds that `tests/crash.rs` explores.
fn changes(scenario: &Scenario) -> Vec<Change> {
    let mut changes = Vec::new();
    for seed in 0..scenario.weight {
        let mut before = None;
        scenario.subject.run(&scenario.config, seed, &mut |handle| {
            let (levels, leaves) = shape(handle);
            let (old_levels, old_leaves) =
                before.replace((levels, leaves)).unwrap_or((levels, leaves));
            for (change, happened) in [
                (Split, leaves > old_leaves),
                (Join, leaves < old_leaves),
                (Rise, levels > old_levels),
                (Fall, levels < old_levels),
            ] {
                if happened && !changes.contains(&change) {
                    changes.push(change);
                }
            }
        });
    }
    changes
}

#[test]
fn scenarios_of_trees_change_the_shape_that_they_are_named_after() {
    let all = scenarios();
    let mut missed = Vec::new();
    for (name, wanted) in [
        ("blink_tree/split", Split),
        ("blink_tree/root-split", Rise),
        ("blink_tree/merge", Join),
        ("blink_tree/root-merge", Fall),
        ("blink_tree/clear", Join),
        ("blink_tree/loads", Split),
        ("blink_tree/threads-split", Split),
        ("blink_tree/threads-merge", Join),
        ("blink_tree/threads-nodes", Split),
        ("blink_tree/threads-nodes", Join),
        ("blink_tree/threads-clear", Join),
        ("blink_tree/threads-loads", Split),
        ("blink_tree/threads-loads", Join),
        ("blink_tree/records-split", Split),
        ("blink_tree/records-root-split", Rise),
        ("blink_tree/records-merge", Join),
        ("blink_tree/records-root-merge", Fall),
        ("blink_tree/records-clear", Join),
        ("blink_tree/records-loads", Split),
        ("blink_tree/records-threads-split", Split),
        ("blink_tree/records-threads-merge", Join),
        ("blink_tree/records-threads-clear", Join),
        ("blink_tree/records-threads-loads", Split),
        ("blink_tree/records-threads-loads", Join),
        ("bptree/split", Split),
        ("bptree/split-wide", Split),
        ("bptree/root-split", Rise),
        ("bptree/merge", Join),
        ("bptree/root-merge", Fall),
        ("bptree/threads-clear", Fall),
        ("bptree/clear", Fall),
    ] {
        let scenario = all.iter().find(|scenario| scenario.name == name).expect("the scenario");
        let changes = changes(scenario);
        if !changes.contains(&wanted) {
            missed.push((name, wanted, changes));
        }
    }
    assert!(missed.is_empty(), "wanted, and what occurred instead: {missed:?}");
}
