//! Do scenarios of trees reach what they are named after?

use remanent_crashtest::{Scenario, scenarios, shapes};

/// What one operation may do to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Split,
    Join,
    Rise,
    Fall,
}

use Change::{Fall, Join, Rise, Split};

/// What occurs in the seeds that are explored each time.
fn changes(scenario: &Scenario) -> Vec<Change> {
    let mut changes = Vec::new();
    for seed in 0..scenario.weight {
        for pair in shapes(scenario, seed).windows(2) {
            let (before, after) = (pair[0], pair[1]);
            for (change, happened) in [
                (Split, after.leaves > before.leaves),
                (Join, after.leaves < before.leaves),
                (Rise, after.levels > before.levels),
                (Fall, after.levels < before.levels),
            ] {
                if happened && !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
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
