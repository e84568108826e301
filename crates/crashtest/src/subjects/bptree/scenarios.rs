//! Scenarios of the versioned B+-tree.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::subject::{Mix, MultiTree, Tree, Wide};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, killed, pages, prepared,
    refusing, together,
};
use crate::scenario::Scenario;

fn tree<V>(mix: Mix, base: u64) -> Tree<V> {
    Tree { keys: 8, base, churn: 0, mix, size_max: SIZE_MAX, value: PhantomData }
}

/// A tree whose entries fit into a line.
fn narrow(mix: Mix, base: u64) -> Tree {
    tree(mix, base)
}

/// A tree whose entries lie in two lines.
fn wide(mix: Mix, base: u64) -> Tree<Wide> {
    tree(mix, base)
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = bptrees_by_one_thread();
    all.extend(bptrees_that_change_shape());
    all.extend(bptrees_that_shrink());
    all.extend(bptrees_by_threads());
    all
}

fn bptrees_by_one_thread() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 2, samples: 4 };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(6, 4)
    };
    let full = Tree { keys: 400, size_max: (OVERHEAD + 3) << 16, ..narrow(Mix::Growing, 820) };
    let multi = MultiTree { keys: 3, size_max: SIZE_MAX };
    vec![
        Scenario::new("bptree/sequence", "every operation", narrow(Mix::All, 0), alone(5, 8)),
        Scenario::new(
            "bptree/stores",
            "between any two stores",
            narrow(Mix::All, 0),
            at_stores(alone(5, 4)),
        ),
        Scenario::new(
            "bptree/recovery",
            "crashes inside recovery and after it",
            narrow(Mix::All, 0),
            Config { nested: again, after: 6, ..alone(4, 4) },
        ),
        Scenario::new(
            "bptree/lost",
            "one crash after the other, so that what a lost version left meets the next",
            narrow(Mix::Growing, 0),
            Config {
                creation: false,
                nested: Nested { depth: 2, one_in: 6, samples: 6 },
                after: 8,
                ..alone(3, 1)
            },
        )
        .with_weight(2),
        Scenario::new(
            "bptree/process",
            "the process dies",
            narrow(Mix::All, 0),
            class(Class::Process, alone(5, 8)),
        ),
        Scenario::new(
            "bptree/killed",
            "killed, then power lost",
            narrow(Mix::All, 0),
            killed(alone(5, 6)),
        )
        .with_weight(2),
        Scenario::new("bptree/pages", "a page-cache file", narrow(Mix::All, 0), pages(alone(5, 6))),
        Scenario::new(
            "bptree/faults",
            "lines that cannot be read, a file cut short",
            narrow(Mix::All, 0),
            faults,
        ),
        Scenario::new("bptree/full", "the pool is full", full, refusing(prepared(alone(4, 10)))),
        Scenario::new("bptree/multi", "several entries a key", multi.clone(), alone(5, 8)),
        Scenario::new(
            "bptree/multi-recovery",
            "several entries a key, crashes inside recovery and after it",
            multi,
            Config { nested: again, after: 6, ..alone(6, 3) },
        ),
    ]
}

fn bptrees_that_change_shape() -> Vec<Scenario> {
    let collect = Tree { keys: 3, churn: 85, ..narrow(Mix::All, 2) };
    let again = Nested { depth: 2, one_in: 8, samples: 3 };
    vec![
        Scenario::new(
            "bptree/shift",
            "entries make room for others, and a crash that catches them is followed by more",
            narrow(Mix::Growing, 0),
            Config { nested: again, after: 6, creation: false, ..at_stores(alone(2, 4)) },
        ),
        Scenario::new(
            "bptree/shift-wide",
            "entries in two lines make room for others, and crashes follow",
            wide(Mix::Growing, 0),
            Config {
                nested: Nested { one_in: 48, ..again },
                after: 6,
                creation: false,
                ..at_stores(alone(2, 3))
            },
        ),
        Scenario::new(
            "bptree/split-wide",
            "leaves of entries in two lines are split",
            wide(Mix::Growing, 8),
            prepared(alone(3, 6)),
        ),
        Scenario::new(
            "bptree/split",
            "leaves and inner nodes are split",
            narrow(Mix::Growing, 14),
            prepared(alone(3, 8)),
        ),
        Scenario::new(
            "bptree/root-split",
            "the first leaf becomes two under a root",
            narrow(Mix::Growing, 0),
            alone(3, 5),
        ),
        Scenario::new(
            "bptree/clear",
            "a tree of some levels is dismantled",
            narrow(Mix::Clears, 14),
            prepared(alone(1, 5)),
        )
        .with_weight(3),
        Scenario::new(
            "bptree/clear-recovery",
            "crashes while a tree is dismantled, and again after that",
            narrow(Mix::Clears, 8),
            Config {
                nested: Nested { depth: 2, one_in: 8, samples: 3 },
                after: 6,
                ..prepared(alone(1, 3))
            },
        ),
        Scenario::new(
            "bptree/suspects",
            "nodes are left behind in a chunk that nobody allocates from any more",
            Tree { keys: 3, ..narrow(Mix::Growing, 1_000) },
            prepared(alone(2, 10)),
        ),
        Scenario::new(
            "bptree/collect",
            "batches of old nodes are freed",
            collect,
            prepared(alone(0, 10)),
        ),
    ]
}

fn bptrees_that_shrink() -> [Scenario; 2] {
    [
        Scenario::new(
            "bptree/merge",
            "neighbours are joined, emptied leaves dropped",
            narrow(Mix::Shrinking, 8),
            prepared(alone(2, 14)),
        ),
        Scenario::new(
            "bptree/root-merge",
            "the last two leaves are joined, and the tree loses a level",
            narrow(Mix::Shrinking, 6),
            prepared(alone(2, 14)),
        ),
    ]
}

fn bptrees_by_threads() -> Vec<Scenario> {
    let few = |mix, base| Tree { keys: 4, ..narrow(mix, base) };
    let multi = MultiTree { keys: 2, size_max: SIZE_MAX };
    vec![
        Scenario::new(
            "bptree/threads",
            "threads write in turns and read meanwhile",
            few(Mix::All, 0),
            together(3, 4, 3),
        ),
        Scenario::new(
            "bptree/threads-shift",
            "threads read a leaf in which entries make room for others",
            few(Mix::Reads, 0),
            together(3, 3, 3),
        ),
        Scenario::new(
            "bptree/threads-wide",
            "threads read entries in two lines on the move",
            Tree { keys: 4, ..wide(Mix::Reads, 0) },
            together(2, 4, 3),
        ),
        Scenario::new(
            "bptree/threads-priority",
            "two threads, in long stretches",
            few(Mix::Reads, 6),
            prepared(by_priority(2, 2, 5)),
        ),
        Scenario::new(
            "bptree/threads-brief",
            "short runs of threads on few keys",
            Tree { keys: 2, ..narrow(Mix::Reads, 0) },
            briefly(3, 2, 2),
        )
        .with_weight(20),
        Scenario::new(
            "bptree/threads-clear",
            "threads read and write a tree that is cleared",
            few(Mix::Clears, 6),
            prepared(together(2, 2, 3)),
        ),
        Scenario::new(
            "bptree/threads-process",
            "two threads, the process dies",
            few(Mix::All, 0),
            class(Class::Process, together(2, 2, 4)),
        ),
        Scenario::new(
            "bptree/threads-multi",
            "two threads, several entries a key",
            multi,
            together(2, 4, 3),
        ),
    ]
}
