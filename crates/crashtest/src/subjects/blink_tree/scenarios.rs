//! Scenarios of the B-link tree.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested, SimOptions};

use super::subject::{Form, Mix, THINNED, Texts, Tree, Words};
use crate::presets::{
    SIZE_MAX, alone, at_stores, briefly, class, killed, pages, prepared, refusing, together,
};
use crate::scenario::Scenario;

/// Number of entries that nearly fill a pool of [`Form::SIZE_FULL`].
const FULL_BASE: u64 = 48;

/// The keys, of 16, whose removal leaves two leaves under the first node.
const SPARSE: [u64; 9] = [0, 1, 2, 3, 4, 5, 7, 10, 11];

fn tree<F>(mix: Mix) -> Tree<F> {
    Tree {
        keys: 0..10,
        base: 0..0,
        inherited: false,
        thinned: &[],
        cleared: false,
        reopened: false,
        uncounted: false,
        mix,
        size_max: SIZE_MAX,
        form: PhantomData,
    }
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = by_one_thread::<Words>([
        "blink_tree/sequence",
        "blink_tree/stores",
        "blink_tree/recovery",
        "blink_tree/process",
        "blink_tree/pages",
        "blink_tree/faults",
        "blink_tree/reopened",
    ]);
    all.extend(by_one_thread::<Texts>([
        "blink_tree/records",
        "blink_tree/records-stores",
        "blink_tree/records-recovery",
        "blink_tree/records-process",
        "blink_tree/records-pages",
        "blink_tree/records-faults",
        "blink_tree/records-reopened",
    ]));
    all.extend(shapes::<Words>([
        "blink_tree/split",
        "blink_tree/root-split",
        "blink_tree/merge",
        "blink_tree/root-merge",
        "blink_tree/full",
        "blink_tree/chunks",
        "blink_tree/inherited",
        "blink_tree/loads",
    ]));
    all.extend(shapes::<Texts>([
        "blink_tree/records-split",
        "blink_tree/records-root-split",
        "blink_tree/records-merge",
        "blink_tree/records-root-merge",
        "blink_tree/records-full",
        "blink_tree/records-chunks",
        "blink_tree/records-inherited",
        "blink_tree/records-loads",
    ]));
    all.extend(by_threads::<Words>([
        "blink_tree/threads",
        "blink_tree/threads-brief",
        "blink_tree/threads-visits",
        "blink_tree/threads-split",
        "blink_tree/threads-merge",
        "blink_tree/threads-reopened",
        "blink_tree/threads-pages",
    ]));
    all.extend(by_threads::<Texts>([
        "blink_tree/records-threads",
        "blink_tree/records-threads-brief",
        "blink_tree/records-threads-visits",
        "blink_tree/records-threads-split",
        "blink_tree/records-threads-merge",
        "blink_tree/records-threads-reopened",
        "blink_tree/records-threads-pages",
    ]));
    all.extend(of_nodes());
    all.extend(in_steps());
    all
}

fn of_nodes() -> [Scenario; 2] {
    [
        Scenario::new(
            "blink_tree/threads-nodes",
            "threads join leaves under nodes that others divide",
            Tree { base: 0..25, thinned: &THINNED, keys: 25..28, ..tree::<Words>(Mix::Shape) },
            briefly(3, 0, 2),
        )
        .with_weight(20),
        Scenario::new(
            "blink_tree/unposted",
            "leaves that no node knows since a crash lie between those that are joined",
            Tree { keys: 0..16, ..tree::<Words>(Mix::Entries) },
            Config { after: 12, ..prepared(alone(20, 8)) },
        )
        .with_weight(4),
    ]
}

fn killed_tree<F: Form + Clone + Send>(name: &'static str) -> Scenario {
    let tree = Tree { base: 2..6, ..tree::<F>(Mix::All) };
    Scenario::new(name, "killed, then power lost", tree, killed(alone(2, 6)))
}

/// Scenarios of clearing and loading, and of a killed process.
fn in_steps() -> Vec<Scenario> {
    let mut all = vec![
        killed_tree::<Words>("blink_tree/killed"),
        killed_tree::<Texts>("blink_tree/records-killed"),
        cleared::<Words>("blink_tree/cleared"),
        cleared::<Texts>("blink_tree/records-cleared"),
    ];
    all.extend(pops::<Words>(["blink_tree/pops", "blink_tree/threads-pops"]));
    all.extend(pops::<Texts>(["blink_tree/records-pops", "blink_tree/records-threads-pops"]));
    all.extend(clears::<Words>(["blink_tree/clear", "blink_tree/threads-clear"]));
    all.extend(clears::<Texts>(["blink_tree/records-clear", "blink_tree/records-threads-clear"]));
    all.extend(tails::<Words>(["blink_tree/threads-loads", "blink_tree/threads-counts"]));
    all.extend(tails::<Texts>([
        "blink_tree/records-threads-loads",
        "blink_tree/records-threads-counts",
    ]));
    all
}

/// Scenarios of `clear`, which is not atomic: each entry that existed when it began is removed on
/// its own, in any order. So a crash leaves any subset of them. An entry that others put meanwhile
/// may stay or be removed, each time that it is put.
fn clears<F: Form + Clone + Send>(names: [&'static str; 2]) -> [Scenario; 2] {
    let [clear, threads] = names;
    let nested = Nested { depth: 2, one_in: 32, samples: 2 };
    let tree = || Tree { base: 0..8, keys: 0..8, ..tree::<F>(Mix::Clears) };
    [
        Scenario::new(
            clear,
            "entries are removed leaf by leaf, and again after a crash",
            tree(),
            Config { nested, after: 4, ..prepared(alone(1, 4)) },
        )
        .with_weight(2),
        Scenario::new(
            threads,
            "threads write into a tree that others clear",
            Tree { base: 0..6, keys: 0..6, ..tree() },
            briefly(3, 0, 3),
        )
        .with_weight(10),
    ]
}

/// Entries that are there from the start are taken from both ends, until nothing is left.
fn pops<F: Form + Clone + Send>(names: [&'static str; 2]) -> [Scenario; 2] {
    let [pops, threads] = names;
    let tree = || Tree { base: 0..8, keys: 0..8, ..tree::<F>(Mix::Pops) };
    [
        Scenario::new(
            pops,
            "entries are taken from both ends, and ranges removed",
            tree(),
            Config { after: 4, ..prepared(alone(0, 5)) },
        )
        .with_weight(2),
        Scenario::new(
            threads,
            "threads take entries from one tree",
            Tree { base: 0..6, keys: 0..6, ..tree() },
            briefly(3, 0, 3),
        )
        .with_weight(5),
    ]
}

/// Scenarios of loading, which is not atomic, because others write between its leaves: each entry
/// is put after the one before, and a crash leaves a prefix. A count taken meanwhile belongs to no
/// single moment, so counts are compared at the end.
fn tails<F: Form + Clone + Send>(names: [&'static str; 2]) -> [Scenario; 2] {
    let [loads, counts] = names;
    let tree = || Tree { base: 0..4, keys: 4..8, ..tree::<F>(Mix::Tail) };
    [
        Scenario::new(
            loads,
            "threads load entries behind a leaf that others divide and join",
            tree(),
            briefly(3, 0, 3),
        )
        .with_weight(10),
        Scenario::new(
            counts,
            "threads count entries while others write",
            Tree { reopened: true, uncounted: true, ..tree() },
            briefly(3, 0, 3),
        )
        .with_weight(10),
    ]
}

fn cleared<F: Form + Clone + Send>(name: &'static str) -> Scenario {
    // One leaf: joining other leaves to it would make durable what clearing it must make durable.
    let tree = Tree { base: 0..4, cleared: true, ..tree::<F>(Mix::All) };
    Scenario::new(name, "a tree that was cleared", tree, prepared(alone(0, 3)))
}

fn by_one_thread<F: Form + Clone + Send>(names: [&'static str; 7]) -> Vec<Scenario> {
    let [sequence, stores, recovery, process, by_pages, faulty, reopened] = names;
    let all = || tree::<F>(Mix::All);
    let nested = Nested { depth: 2, one_in: 8, samples: 3 };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(6, 6)
    };
    let again = Tree { base: 0..8, reopened: true, ..all() };
    vec![
        Scenario::new(sequence, "every operation", all(), alone(6, 8)),
        Scenario::new(stores, "between any two stores", all(), at_stores(alone(5, 5))),
        Scenario::new(
            recovery,
            "crashes inside recovery and after it",
            all(),
            Config { nested, after: 6, ..alone(5, 5) },
        ),
        Scenario::new(process, "the process dies", all(), class(Class::Process, alone(6, 8))),
        Scenario::new(by_pages, "a page-cache file", all(), pages(alone(6, 6))),
        Scenario::new(faulty, "lines that cannot be read, a file cut short", all(), faults),
        Scenario::new(
            reopened,
            "leaves that an earlier opening has left",
            again,
            Config { after: 6, ..prepared(alone(0, 6)) },
        ),
    ]
}

/// Freed memory keeps its content.
fn unpunched(config: Config) -> Config {
    Config { sim: SimOptions { releases: false, ..config.sim }, ..config }
}

fn shapes<F: Form + Clone + Send>(names: [&'static str; 8]) -> Vec<Scenario> {
    let [split, root_split, merge, root_merge, full, chunks, inherited, loads] = names;
    let nested = Nested { depth: 2, one_in: 16, samples: 2 };
    let shaped = |config| Config { nested, after: 6, ..config };
    let growth = || tree::<F>(Mix::Growth);
    let decay = || tree::<F>(Mix::Decay);
    vec![
        Scenario::new(
            split,
            "leaves are divided",
            Tree { base: 2..6, ..growth() },
            shaped(at_stores(prepared(alone(0, 6)))),
        ),
        Scenario::new(
            root_split,
            "the root is divided",
            Tree { base: 8..21, keys: 0..8, ..growth() },
            shaped(prepared(alone(0, 8))),
        ),
        Scenario::new(
            merge,
            "leaves are joined",
            Tree { base: 0..8, thinned: &[1, 2, 4, 5], keys: 0..4, ..decay() },
            Config { samples: 6, after: 6, ..at_stores(prepared(alone(1, 4))) },
        )
        .with_weight(2),
        Scenario::new(
            root_merge,
            "nodes are joined, and the tree loses a level",
            Tree { base: 0..16, thinned: &SPARSE, keys: 6..10, ..decay() },
            shaped(prepared(alone(0, 12))),
        ),
        Scenario::new(
            full,
            "the pool is full",
            Tree { keys: 0..160, base: 0..FULL_BASE, size_max: F::SIZE_FULL, ..growth() },
            refusing(Config { after: 6, ..prepared(alone(12, 12)) }),
        ),
        Scenario::new(
            chunks,
            "what is replaced lies where nothing is allocated any more",
            Tree { keys: 0..6, base: 0..120, ..decay() },
            Config { full_max: 4, samples: 3, ..prepared(alone(1, 3)) },
        ),
        Scenario::new(
            inherited,
            "memory that held another tree",
            Tree { inherited: true, ..growth() },
            unpunched(shaped(prepared(alone(0, 6)))),
        )
        .with_weight(4),
        Scenario::new(
            loads,
            "sorted entries are loaded",
            Tree { base: 0..3, ..tree::<F>(Mix::Loads) },
            shaped(prepared(alone(2, 8))),
        ),
    ]
}

fn by_threads<F: Form + Clone + Send>(names: [&'static str; 7]) -> Vec<Scenario> {
    let [threads, brief, visits, split, merge, reopened, by_pages] = names;
    let few = || Tree { keys: 0..6, ..tree::<F>(Mix::Entries) };
    vec![
        Scenario::new(threads, "three threads write", few(), together(3, 4, 4)).with_weight(2),
        Scenario::new(brief, "short runs of threads on few keys", few(), briefly(3, 3, 3))
            .with_weight(20),
        Scenario::new(
            visits,
            "threads visit leaves that others change",
            Tree { base: 0..4, ..tree::<F>(Mix::Visits) },
            briefly(3, 0, 3),
        )
        .with_weight(20),
        Scenario::new(
            split,
            "threads divide leaves that others read",
            Tree { base: 2..6, ..tree::<F>(Mix::Entries) },
            briefly(3, 0, 3),
        )
        .with_weight(20),
        Scenario::new(
            merge,
            "threads join leaves that others read",
            Tree { base: 0..6, keys: 0..6, ..tree::<F>(Mix::Decay) },
            briefly(3, 0, 3),
        )
        .with_weight(20),
        Scenario::new(
            reopened,
            "threads revive leaves",
            Tree { base: 0..6, reopened: true, ..few() },
            briefly(3, 0, 3),
        )
        .with_weight(20),
        Scenario::new(by_pages, "threads on a page-cache file", few(), pages(briefly(3, 3, 3)))
            .with_weight(10),
    ]
}
