//! A write goes through the states of the paper's Table 2, and through no others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use remanent_blockdev::papers::nvramdisk::{Places, Policy};
use remanent_crashsim::{
    Class, Config, Faults, Nested, Outcome, Points, Rng, Sim, SimOptions, Subject, Workload,
    explore_workload,
};
use remanent_pmem::order::Method;
use remanent_pmem::{Medium, Pool};

use super::{BLOCK, LBA, SimDisk, bytes, disk, entry, options, read, reopen};

/// The words of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    vpn: u64,
    l1: u64,
    l2: u64,
    map: u64,
}

fn words(sim: &Sim, places: &Places) -> Words {
    let [vpn, l1, l2] = places.record(0).map(|at| sim.load(at));
    Words { vpn, l1, l2, map: sim.load(places.entry(LBA)) }
}

/// Notes in which state each crash has left the disk, before it is recovered.
struct Watched {
    policy: Policy,
    places: Places,
    /// Before the write, and after it.
    ends: (Words, Words),
    /// Numbers of states, in the order in which they were met; 12 for the S0 at the end.
    met: Mutex<Vec<usize>>,
}

impl Watched {
    fn new(policy: Policy) -> Self {
        let sim = Arc::new(Sim::new(options()));
        let (_pool, disk) = disk(&sim, policy);
        let places = disk.places().clone();
        let before = words(&sim, &places);
        disk.write(LBA * BLOCK as u64, &bytes(77)).expect("on the disk");
        let ends = (before, words(&sim, &places));
        assert_eq!(entry(&sim, &disk, LBA), ends.1.map);
        Watched { policy, places, ends, met: Mutex::default() }
    }

    /// The state in the table; a word that is neither what it was nor what it is to be is garbage.
    fn classify(&self, found: Words) -> Option<usize> {
        let (before, after) = self.ends;
        let (null, lba) = (0, Places::word(LBA));
        let Words { vpn, l1, l2, map } = found;
        let [is_old, is_new] = [before, after].map(|words| map == words.map);
        let is_shadow = vpn == after.vpn;
        Some(match (l1, l2) {
            (0, 0) if is_old && vpn == before.vpn => 0,
            (0, 0) if is_old && is_shadow => 2,
            (0, 0) if is_old => 1,
            (0, 0) if is_new && is_shadow => 12,
            _ if !is_shadow => return None,
            (l1, 0) if is_old => {
                if l1 == lba {
                    4
                } else {
                    3
                }
            }
            (l1, l2) if is_old && l1 == lba => {
                if l2 == lba {
                    6
                } else {
                    5
                }
            }
            (l1, l2) if is_new && l2 == lba => {
                if l1 == lba {
                    8
                } else if l1 == null {
                    10
                } else {
                    9
                }
            }
            (0, _) if is_new => 11,
            (l1, l2) if (l1, l2) == (lba, lba) => 7,
            _ => return None,
        })
    }
}

impl Subject for Watched {
    type Op = ();
    type Ret = ();
    type State = bool;
    type Handle = (SimDisk, Pool<Arc<Sim>>);

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let (pool, disk) = disk(&medium, self.policy);
        Ok((disk, pool))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let found = words(&medium, &self.places);
        let state = self.classify(found).ok_or_else(|| format!("no state: {found:x?}"))?;
        let mut met = self.met.lock().expect("nobody panics");
        if met.last() != Some(&state) {
            met.push(state);
        }
        let (pool, disk) = reopen(&medium, self.policy);
        Ok((disk, pool))
    }

    fn apply(&self, (disk, _): &Self::Handle, (): &()) {
        disk.write(LBA * BLOCK as u64, &bytes(77)).expect("on the disk");
    }

    fn model(&self, is_written: &mut bool, (): &()) {
        *is_written = true;
    }

    fn observe(&self, (disk, _): &Self::Handle) -> Outcome<bool> {
        match read(disk, LBA) {
            found if found == bytes(77) => Ok(true),
            found if found == bytes(LBA) => Ok(false),
            _ => Err("the block is torn".into()),
        }
    }

    fn op(&self, _: &mut Rng) {}
}

fn config(sim: SimOptions) -> Config {
    let nested = Nested { depth: 0, one_in: 0, samples: 0 };
    Config { creation: false, after: 0, prune: false, nested, sim, ..Config::default() }
}

#[test]
fn a_write_goes_through_every_other_state_in_order() {
    for policy in [Policy::P1, Policy::P3, Policy::P5, Policy::P6] {
        let watched = Watched::new(policy);
        // Every store is there at once, and there is a crash after each.
        let sim = SimOptions { class: Class::Process, ..options() };
        let config = Config { points: Points::Stores, ..config(sim) };
        let report = explore_workload(&watched, &config, &Workload::sequence(vec![()]));
        assert!(report.is_clean(), "{report}");
        let met = watched.met.into_inner().expect("nobody panics");
        assert_eq!(met, [0, 2, 4, 6, 8, 10, 12], "{policy:?}");
    }
}

#[test]
fn a_power_failure_leaves_one_of_the_twelve_states() {
    for policy in [Policy::P1, Policy::P2, Policy::P3, Policy::P4, Policy::P5] {
        let watched = Watched::new(policy);
        let faults = Faults { disturbed_words: 64, ..Faults::default() };
        let config = Config { samples: 32, full_max: 32, faults, ..config(options()) };
        let report = explore_workload(&watched, &config, &Workload::sequence(vec![()]));
        assert!(report.is_clean(), "{report}");
        let met: BTreeSet<usize> =
            watched.met.into_inner().expect("nobody panics").into_iter().collect();
        assert_eq!(met, (0..=12).collect(), "{policy:?}");
    }
}

#[test]
fn mixes_of_methods_survive_a_power_failure() {
    let methods = Method::DURABLE;
    let mut images = 0;
    for number in 0..methods.len().pow(3) {
        let of = |region: u32| methods[number / methods.len().pow(region) % methods.len()];
        let policy = Policy::new(of(0), of(1), of(2));
        // A block with a fence for each word has 512 more points to crash at: it is enough to see
        // it with each method.
        if policy.data == Method::Uncacheable && policy.map != policy.journal {
            continue;
        }
        let config = Config { samples: 1, full_max: 1, ..config(options()) };
        let watched = Watched::new(policy);
        let report = explore_workload(&watched, &config, &Workload::sequence(vec![()]));
        assert!(report.is_clean(), "{policy:?}: {report}");
        images += report.images;
    }
    println!("{images} images");
    assert!(images > 2_000, "{images} images");
}
