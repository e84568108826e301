//! Scenarios of sorted sets.

use remanent_crashsim::{Class, Config, Nested};

use super::lagging::LaggingKeys;
use super::subject::{Keys, Mix};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, killed, pages, prepared,
    refusing, together,
};
use crate::scenario::Scenario;

fn keys(mix: Mix) -> Keys {
    Keys { keys: 2, members: 5, base: 0, mix, size_max: SIZE_MAX, padding: 0, sweeps: false }
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = durable();
    all.push(full());
    all.push(Scenario::new(
        "sorted_sets/killed",
        "killed, then power lost",
        keys(Mix::All),
        Config { nested: Nested { depth: 1, one_in: 64, samples: 3 }, ..killed(alone(2, 4)) },
    ));
    all.extend(swept());
    all.extend(batched());
    all
}

/// Scenarios with a sweeper beside the clients.
fn swept() -> Vec<Scenario> {
    let swept = Keys { base: 3, sweeps: true, ..keys(Mix::Sweep) };
    vec![
        Scenario::new(
            "sorted_sets/sweep",
            "members of sets that are gone are removed in between",
            swept.clone(),
            prepared(alone(0, 5)),
        ),
        Scenario::new(
            "sorted_sets/threads-sweep",
            "one removes members of sets that are gone, beside clients",
            swept,
            prepared(by_priority(3, 0, 3)),
        ),
    ]
}

/// Names become safe in batches, members at once.
fn batched() -> Vec<Scenario> {
    let nested = Nested { depth: 2, one_in: 32, samples: 2 };
    let with_members = |mix| LaggingKeys(Keys { base: 3, ..keys(mix) });
    let swept = LaggingKeys(Keys { base: 3, sweeps: true, ..keys(Mix::Sweep) });
    let one_swept = LaggingKeys(Keys { keys: 1, ..swept.0.clone() });
    vec![
        Scenario::new(
            "sorted_sets/batched",
            "names lag behind members",
            LaggingKeys(keys(Mix::All)),
            prepared(alone(2, 5)),
        ),
        Scenario::new(
            "sorted_sets/batched-names",
            "names lag behind, and sets are replaced and removed",
            with_members(Mix::Names),
            prepared(alone(0, 5)),
        ),
        Scenario::new(
            "sorted_sets/batched-recovery",
            "names lag behind, and crashes inside recovery and after it",
            with_members(Mix::All),
            Config { nested, after: 4, ..prepared(alone(0, 3)) },
        ),
        Scenario::new(
            "sorted_sets/batched-sweep",
            "names lag behind, and members of sets that are gone are removed in between",
            swept.clone(),
            prepared(alone(0, 5)),
        )
        .with_weight(4),
        Scenario::new(
            "sorted_sets/batched-threads",
            "names lag behind, and two clients change sets",
            with_members(Mix::Members),
            prepared(together(2, 0, 3)),
        ),
        Scenario::new(
            "sorted_sets/batched-threads-sweep",
            "names lag behind, and one removes members beside clients",
            one_swept,
            prepared(by_priority(3, 0, 2)),
        )
        .with_weight(2),
    ]
}

fn full() -> Scenario {
    // Room for the heap's header, the map, the tree's nodes, and chunks of records that the members
    // nearly fill.
    let full = Keys {
        base: 28,
        members: 90,
        padding: 3_000,
        size_max: (OVERHEAD + 16) << 16,
        ..keys(Mix::Members)
    };
    Scenario::new("sorted_sets/full", "the pool is full", full, refusing(prepared(alone(10, 5))))
}

fn durable() -> Vec<Scenario> {
    let nested = Nested { depth: 2, one_in: 32, samples: 2 };
    let with_members = |mix| Keys { base: 3, ..keys(mix) };
    vec![
        Scenario::new(
            "sorted_sets/sequence",
            "every command",
            keys(Mix::All),
            prepared(alone(2, 5)),
        ),
        Scenario::new(
            "sorted_sets/members",
            "members come, move and go",
            with_members(Mix::Members),
            prepared(alone(0, 5)),
        ),
        Scenario::new(
            "sorted_sets/names",
            "sets are replaced by strings, and removed",
            with_members(Mix::Names),
            prepared(alone(0, 5)),
        ),
        Scenario::new(
            "sorted_sets/recovery",
            "crashes inside recovery and after it",
            with_members(Mix::All),
            Config { nested, after: 4, ..prepared(alone(0, 3)) },
        ),
        Scenario::new(
            "sorted_sets/stores",
            "between any two stores",
            with_members(Mix::Members),
            prepared(at_stores(alone(0, 2))),
        ),
        Scenario::new(
            "sorted_sets/process",
            "the process dies",
            with_members(Mix::All),
            prepared(class(Class::Process, alone(0, 5))),
        ),
        Scenario::new(
            "sorted_sets/pages",
            "a page-cache file",
            keys(Mix::All),
            prepared(pages(alone(2, 3))),
        ),
        Scenario::new(
            "sorted_sets/threads",
            "three clients change sets",
            with_members(Mix::Members),
            prepared(together(3, 0, 3)),
        ),
        Scenario::new(
            "sorted_sets/threads-names",
            "clients replace and remove sets that others change",
            Keys { keys: 1, ..with_members(Mix::Names) },
            prepared(briefly(3, 0, 2)),
        )
        .with_weight(8),
    ]
}
