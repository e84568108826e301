//! Faults that are looked for by hand.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent::{HashMap, Pool};
use remanent_crashsim::{Config, Faults, Sim, SimOptions};
use remanent_crashtest::counterexamples;
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::{CHUNK_LEN, DATA_FIRST};

/// What the paper says of explicit cache flushes: an entry of the map that nobody writes is
/// destroyed, with it a block.
#[test]
fn cache_flushes_of_the_map_destroy_neighbours_of_an_nvramdisks_entry() {
    let mut found = counterexamples();
    found.retain(|scenario| scenario.name == "nvramdisk/disturbed");
    let [scenario] = &found[..] else { panic!("{} scenarios", found.len()) };
    let config = Config { seeds: 0..4, ..scenario.config.clone() };
    let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
    println!("{report}");
    let violation = report.violations.first().expect("the paper is right");
    assert!(violation.crashes[0].survived.contains("garbage"), "{report}");
    // The same operations survive when only the words that are written can be garbage.
    let faults = Faults { disturbed_words: 12, ..Faults::default() };
    let report = scenario.explore(&Config { faults, ..config }, |_| ControlFlow::Continue(()));
    assert!(report.is_clean() && report.faulty_images > 500, "{report}");
}

#[test]
fn a_node_that_cannot_be_read_is_an_error() {
    let size_max = 40 << 20;
    let sim = Arc::new(Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() }));
    let pool = Pool::format(Arc::clone(&sim), &Format::new(size_max)).unwrap();
    let map = HashMap::<u64, u64, Arc<Sim>>::create(&pool, "map").unwrap();
    for key in 0..100 {
        map.insert(&key, &key).unwrap();
    }
    assert_eq!(map.get(&7).unwrap(), Some(7));
    // The heap's own chunk comes first, then that of the buckets, then that of the nodes.
    sim.poison(u64::from(DATA_FIRST + 2) * CHUNK_LEN, 64);
    let mut met = false;
    for key in 0..100 {
        match map.get(&key) {
            Ok(value) => assert_eq!((value, met), (Some(key), false), "an answer after the fault"),
            Err(_) => met = true,
        }
    }
    assert!(met, "the line holds nodes");
    assert!(map.insert(&200, &0).is_err() && map.remove(&5).is_err() && map.len().is_err());
}
