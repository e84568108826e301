//! Scenarios of lists that become safe in batches: the same for each variant.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested, Oracle};
use remanent_structures::batch_list::Log;
use remanent_structures::papers::{Append, FlushAlways, Table};

use super::subject::{Lists, Tested};
use crate::presets::{
    SIZE_MAX, alone, at_stores, briefly, class, killed, pages, prepared, together,
};
use crate::scenario::Scenario;

/// All scenarios of a variant, with a common beginning of their names.
macro_rules! every_way {
    ($variant:ty, $oracle:ident, $name:literal) => {{
        let mut all = lists_by_one_thread::<$variant>(
            Oracle::$oracle,
            [
                $name,
                concat!($name, "-stores"),
                concat!($name, "-recovery"),
                concat!($name, "-pages"),
                concat!($name, "-process"),
                concat!($name, "-segments"),
                concat!($name, "-long"),
                concat!($name, "-faults"),
            ],
        );
        all.extend(lists_by_threads::<$variant>(
            Oracle::$oracle,
            [
                concat!($name, "-threads"),
                concat!($name, "-threads-brief"),
                concat!($name, "-threads-pages"),
            ],
        ));
        all
    }};
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new(
            "batch_list/killed",
            "killed, then power lost",
            Lists { hurried: true, ..lists::<Table>(4, &[0, 40, 200]) },
            Config { oracle: Oracle::Buffered, ..killed(alone(3, 7)) },
        ),
        Scenario::new(
            "batch_list/always-killed",
            "killed, then power lost",
            lists::<FlushAlways>(4, &[0, 40, 200]),
            killed(alone(3, 7)),
        ),
    ];
    let variants = [
        every_way!(FlushAlways, Durable, "batch_list/always"),
        every_way!(Append, Buffered, "batch_list/append"),
        every_way!(Log, Buffered, "batch_list/log"),
        every_way!(Table, Buffered, "batch_list/table"),
    ];
    // An undo that counts too early is noticed between few stores only.
    let often = |scenario: Scenario| match scenario.name {
        "batch_list/log-stores" => scenario.with_weight(4),
        _ => scenario,
    };
    all.extend(variants.into_iter().flatten().map(often));
    all
}

/// Lists whose writers make their own batches safe when about five elements are unsafe.
fn lists<V>(keys: u64, lens: &'static [u64]) -> Lists<V> {
    Lists {
        keys,
        lens,
        lag_bytes: 800,
        hurried: false,
        base_len: 0,
        size_max: SIZE_MAX,
        variant: PhantomData,
    }
}

fn lists_by_one_thread<V: Tested>(oracle: Oracle, names: [&'static str; 8]) -> Vec<Scenario> {
    let config = |config| Config { oracle, ..config };
    let mixed = lists::<V>(4, &[0, 1, 40, 200, 1_500, 5_000]);
    let short = lists::<V>(4, &[0, 8, 40]);
    // The first segment then has room for two or three more elements.
    let base_len = (1 << 20) - (3 << 12);
    let segments = Lists { base_len, lag_bytes: 3_000, ..lists::<V>(4, &[40, 3_000, 4_000]) };
    let long = Lists { lag_bytes: 2 << 20, ..lists::<V>(2, &[40, (1 << 20) + 100]) };
    let again = Nested { depth: 2, one_in: 2, samples: 4 };
    let nested = Nested { one_in: 16, samples: 2, ..again };
    let [alone_, stores, recovery, pages_, process, by_segments, by_long, faulty] = names;
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 5)
    };
    vec![
        Scenario::new(alone_, "every operation", mixed.clone(), config(alone(4, 10))),
        Scenario::new(
            stores,
            "between any two stores",
            short.clone(),
            config(at_stores(alone(4, 6))),
        ),
        Scenario::new(
            recovery,
            "crashes inside recovery and after it",
            short.clone(),
            config(Config { nested: again, after: 5, ..alone(4, 5) }),
        ),
        Scenario::new(
            pages_,
            "a page-cache file",
            mixed.clone(),
            config(Config { nested, ..pages(alone(3, 8)) }),
        ),
        Scenario::new(
            process,
            "the process dies",
            short,
            config(class(Class::Process, alone(4, 8))),
        ),
        Scenario::new(faulty, "lines that cannot be read, a file cut short", mixed, config(faults)),
        Scenario::new(
            by_segments,
            "one segment after the other",
            segments,
            config(Config { nested: Nested { one_in: 16, ..again }, ..prepared(alone(0, 8)) }),
        ),
        Scenario::new(
            by_long,
            "values that are longer than a segment",
            long,
            config(Config { nested, samples: 2, ..prepared(alone(0, 3)) }),
        ),
    ]
}

fn lists_by_threads<V: Tested>(oracle: Oracle, names: [&'static str; 3]) -> Vec<Scenario> {
    let config = |config| Config { oracle, ..config };
    let [long, brief, by_pages] = names;
    vec![
        Scenario::new(
            long,
            "threads write in turns, search, and make batches safe meanwhile",
            Lists { hurried: true, ..lists::<V>(3, &[0, 40, 200]) },
            config(together(3, 3, 4)),
        )
        .with_weight(4),
        Scenario::new(
            brief,
            "short runs of threads on few elements",
            Lists { hurried: true, ..lists::<V>(2, &[8]) },
            config(briefly(3, 2, 3)),
        )
        .with_weight(20),
        Scenario::new(
            by_pages,
            "short runs of threads on a page-cache file",
            Lists { hurried: true, ..lists::<V>(2, &[8, 1_500]) },
            config(pages(briefly(3, 2, 3))),
        )
        .with_weight(20),
    ]
}
