//! Crash exploration as it runs each time; `remanent crash-test` does the same at length.
//!
//! What survives *write disturbance*, garbage in a line that was being written when the power failed: the
//! superblock (`pool/disturbed`), since one of its two copies is always at rest; on a pool that declares it, what else it
//! keeps of itself, transactional objects (`line_tx/checked`), disks (`disk/disturbed`), and files that are written by
//! whole lines (`file/disturbed`). The maps do not: they change lines that also hold what was at rest; nor does the
//! nvramdisk paper's own device with explicit cache flushes, which is asserted. Where writes mask the other words of a line,
//! it does (`nvramdisk/masked`).
//!
//! What survives *memory that cannot be read*: nothing can, so it must be told. `hashmap/faults` poisons lines
//! and cuts the file short, and every answer after the fault has to be an error.

#[path = "crash/coverage.rs"]
mod coverage;
#[path = "crash/methods.rs"]
mod methods;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent::HashMap;
use remanent::Pool;
use remanent::crash_test::{Progress, Redundant, SOURCES, Scenario, counterexamples, scenarios};
use remanent::pmem::pool::Format;
use remanent::pmem::pool::layout::{CHUNK_LEN, DATA_FIRST};
use remanent_crashsim::{Config, Faults, Mutation, Sim, SimOptions, Site};

/// Scenarios whose name begins so.
fn of(prefix: &str) -> Vec<Scenario> {
    let mut chosen = scenarios();
    chosen.retain(|scenario| scenario.name.starts_with(prefix));
    assert!(!chosen.is_empty(), "nothing begins with {prefix}");
    chosen
}

/// Explores them; so many images at least must have been judged, none may be wrong, and each scenario must have reached
/// what it states. The flushes and fences that were called.
fn explore(prefix: &str, images_min: u64) -> BTreeSet<Site> {
    let (mut images, mut sites) = (0, BTreeSet::new());
    for scenario in of(prefix) {
        let config = Config { seeds: 0..scenario.weight, ..scenario.config.clone() };
        let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
        assert!(report.is_clean(), "{}: {report}", scenario.name);
        assert!(report.images > 0, "{} explored nothing", scenario.name);
        let missed = scenario.missed(&report);
        assert!(missed.is_empty(), "{} never reached: {missed:?}", scenario.name);
        images += report.images;
        sites.extend(report.sites);
    }
    assert!(images >= images_min, "{prefix}: {images} images, less than {images_min}");
    sites
}

/// As [`explore`]; every flush and fence of these sources, but for some, must have been called.
fn explore_all_of(prefix: &str, images_min: u64, sources: &[&str], but: &[&str]) {
    assert_reached(prefix, &explore(prefix, images_min), sources, but);
}

/// Every flush and fence of these sources, but for some, must be among the sites.
fn assert_reached(what: &str, sites: &BTreeSet<Site>, sources: &[&str], but: &[&str]) {
    let missed = coverage::unreached(sources, but, sites);
    assert!(missed.is_empty(), "no scenario of {what} comes to these: {missed:#?}");
}

/// Leaves out each flush and fence of these sources that the scenarios meet, and that the sources
/// do not explain.
fn mutate(paths: &[&str], scenarios: &[Scenario], seeds: u64) -> Mutation {
    let go_on = |_: Progress<'_>| ControlFlow::Continue(());
    let mutation =
        remanent::crash_test::mutate(paths, scenarios, seeds, 1, Redundant::Believed, go_on);
    println!("{mutation}");
    mutation
}

#[test]
fn pools_survive_every_crash() {
    explore_all_of("pool/", 500, &["pmem/src/pool"], &["pmem/src/pool/twice.rs"]);
}

#[test]
fn heaps_survive_every_crash() {
    explore_all_of("heap/", 7_000, &["pmem/src/heap"], &[]);
}

#[test]
fn hash_maps_survive_every_crash() {
    let mut sites = explore("hashmap/", 9_000);
    // Of records: what is put in another's place there is a node.
    sites.extend(explore("bytes/", 5_000));
    let multi_maps = ["structures/src/hashmap/multi.rs"];
    assert_reached("hashmap/ and bytes/", &sites, &["structures/src/hashmap"], &multi_maps);
}

#[test]
fn multi_maps_survive_every_crash() {
    explore_all_of("multimap/", 2_000, &["structures/src/hashmap/multi.rs"], &[]);
}

#[test]
fn line_transactions_survive_every_crash() {
    explore_all_of("line_tx/", 1_500, &["structures/src/line_tx"], &[]);
}

#[test]
fn batch_lists_survive_every_crash() {
    explore_all_of("batch_list/", 4_000, &["structures/src/batch_list"], &[]);
}

#[test]
fn disks_survive_every_crash() {
    explore_all_of("disk/", 15_000, &["blockdev/src/disk"], &[]);
}

/// Else a failure is not found again, and a run says nothing of the next.
#[test]
fn a_seed_alone_decides_what_a_run_does() {
    for name in ["pool/roots", "disk/snapshots", "file/writes", "batch_map/sequence"] {
        let scenarios = of(name);
        let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("its name");
        let config = Config { seeds: 1..2, ..scenario.config.clone() };
        let run = || {
            let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
            (report.digest, report.crash_points, report.images, report.nested_images)
        };
        assert_eq!(run(), run(), "{name}");
    }
}

/// Every flush and fence of disks is needed or explained, but for one at most.
#[test]
fn a_missing_flush_or_fence_of_a_disk_is_noticed() {
    let quick =
        ["writes", "trim", "snapshots", "spilled", "threads", "recovered", "disturbed-threads"];
    let mut disks = of("disk/");
    disks.retain(|scenario| quick.iter().any(|end| scenario.name == format!("disk/{end}")));
    let mutation = mutate(&["blockdev/src/disk"], &disks, 1);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    // What makes torn records harmless shows in few of the second crashes.
    assert!(survivors.len() <= 1 && mutation.killed() >= 12, "{survivors:?}");
}

#[test]
fn nvramdisks_survive_every_crash() {
    explore_all_of("nvramdisk/", 10_000, &["blockdev/src/papers/nvramdisk"], &[]);
}

/// What the paper says of explicit cache flushes: an entry of the map that nobody writes is destroyed, with it a block.
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

/// Every flush and fence of the paper's device is needed or explained.
#[test]
fn a_missing_flush_or_fence_of_an_nvramdisk_is_noticed() {
    let quick = ["recovery", "masked-2", "masked-5", "masked-recovery"];
    let mut disks = of("nvramdisk/");
    disks.retain(|scenario| quick.iter().any(|end| scenario.name == format!("nvramdisk/{end}")));
    let paths = ["blockdev/src/papers/nvramdisk"];
    let mutation = mutate(&paths, &disks, 2);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    assert!(survivors.is_empty() && mutation.killed() >= 14, "{survivors:?}");
}

#[test]
fn files_survive_every_crash() {
    explore_all_of("file/", 1_000, &["blockdev/src/file"], &[]);
}

/// Every flush and fence of files is needed or explained.
#[test]
fn a_missing_flush_or_fence_of_a_file_is_noticed() {
    let some = ["writes", "lives", "extents", "threads-extents"];
    let mut files = of("file/");
    files.retain(|scenario| some.iter().any(|end| scenario.name == format!("file/{end}")));
    let mutation = mutate(&["blockdev/src/file"], &files, 4);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    assert!(survivors.is_empty() && mutation.killed() >= 6, "{survivors:?}");
}

/// Every flush and fence of the lists is needed or explained.
#[test]
fn a_missing_flush_or_fence_of_a_batch_list_is_noticed() {
    let mut quick = of("batch_list/");
    quick.retain(|scenario| !["-segments", "-long"].iter().any(|end| scenario.name.ends_with(end)));
    let paths = ["structures/src/batch_list"];
    let mutation = mutate(&paths, &quick, 1);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    assert!(survivors.is_empty() && mutation.killed() >= 11, "{survivors:?}");
}

/// Every flush and fence of line transactions is needed, and each of these few scenarios' images show it.
#[test]
fn a_missing_flush_or_fence_of_a_line_transaction_is_noticed() {
    let mut quick = of("line_tx/");
    quick.retain(|scenario| !scenario.config.killed);
    let paths = ["structures/src/line_tx"];
    let mutation = mutate(&paths, &quick, 2);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    assert!(survivors.is_empty(), "{survivors:?}");
    assert!(mutation.killed() >= 10, "{}", mutation.killed());
}

/// A sample of what `remanent crash-test --mutate` does: without any of these fences and flushes, one of these
/// two scenarios breaks.
#[test]
fn a_missing_flush_or_fence_is_noticed() {
    let chosen: Vec<Scenario> =
        ["pool/roots", "hashmap/sequence"].into_iter().flat_map(of).collect();
    let mutation = mutate(&SOURCES, &chosen, 1);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    assert!(mutation.killed() >= 15, "{survivors:?}");
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

#[test]
fn sorted_sets_survive_every_crash() {
    explore("sorted_sets/", 6_000);
}

#[test]
fn batch_maps_survive_every_crash() {
    let sources = ["structures/src/batch_map", "structures/src/segments.rs"];
    explore_all_of("batch_map/", 2_000, &sources, &[]);
}

/// A sample of what `remanent crash-test --mutate` does for the batched map.
#[test]
fn a_missing_flush_or_fence_of_a_batch_map_is_noticed() {
    let some = ["sequence", "recovery", "segments", "reused", "inherited"];
    let mut some_maps = of("batch_map/");
    some_maps.retain(|scenario| some.iter().any(|end| scenario.name == format!("batch_map/{end}")));
    let paths = ["structures/src/batch_map", "structures/src/segments"];
    let mutation = mutate(&paths, &some_maps, 8);
    assert!(mutation.killed() >= 11, "{} mutants were noticed", mutation.killed());
}

#[test]
fn blink_trees_survive_every_crash() {
    explore_all_of("blink_tree/", 2_000, &["structures/src/blink_tree"], &[]);
}

/// A sample of what `remanent crash-test --mutate` does for the ordered map.
#[test]
fn a_missing_flush_or_fence_of_a_blink_tree_is_noticed() {
    let some = ["split", "merge", "inherited", "records-merge"];
    let mut some_trees = of("blink_tree/");
    some_trees
        .retain(|scenario| some.iter().any(|end| scenario.name == format!("blink_tree/{end}")));
    let paths = ["structures/src/blink_tree"];
    let mutation = mutate(&paths, &some_trees, 1);
    assert!(mutation.killed() >= 20, "{} mutants were noticed", mutation.killed());
}

#[test]
fn bptrees_survive_every_crash() {
    explore_all_of("bptree/", 5_000, &["structures/src/bptree"], &[]);
}

/// Every flush and fence of the tree is needed or explained; two show in longer runs alone.
#[test]
fn a_missing_flush_or_fence_of_a_bptree_is_noticed() {
    // The others have much to explore, and notice nothing that these do not.
    let slow = ["bptree/lost", "bptree/shift-wide", "bptree/killed"];
    let mut quick = of("bptree/");
    quick.retain(|scenario| !slow.contains(&scenario.name));
    let paths = ["structures/src/bptree"];
    let mutation = mutate(&paths, &quick, 1);
    assert!(mutation.killed() >= 20, "{} mutants were noticed", mutation.killed());
    assert!(mutation.survivors().count() <= 2, "{mutation}");
}
