//! Crashes of the persistent skip list in the simulator.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Config, Outcome, Rng, Sim, SimOptions, Sources, Subject, explore};
use remanent_pmem::{Format, Pool};

use super::list::{Kind, SkipList};

const ROOT: &str = "list";
const SIZE_MAX: u64 = 24 << 20;

struct Lists(Kind);

struct Open {
    list: Arc<SkipList<Arc<Sim>>>,
    _pool: Pool<Arc<Sim>>,
}

impl Subject for Lists {
    type Op = (u32, u32);
    type Ret = ();
    type State = BTreeMap<u32, u32>;
    type Handle = Open;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let pool = Pool::format(medium, &Format::new(SIZE_MAX))?;
        Ok(Open { list: pool.create_root(ROOT)?, _pool: pool })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let pool = Pool::recover(medium)?;
        Ok(Open { list: pool.open_root(ROOT)?, _pool: pool })
    }

    fn apply(&self, open: &Open, (key, value): &(u32, u32)) {
        open.list.insert(self.0, *key, *value).expect("there is room");
    }

    fn model(&self, state: &mut BTreeMap<u32, u32>, (key, value): &(u32, u32)) {
        state.insert(*key, *value);
    }

    fn observe(&self, open: &Open) -> Outcome<BTreeMap<u32, u32>> {
        let entries = open.list.entries();
        for (key, value) in &entries {
            let found = open.list.get(*key);
            if found != Some(*value) {
                return Err(format!("{key} has {value}, and the levels lead to {found:?}").into());
            }
        }
        Ok(entries.into_iter().collect())
    }

    fn op(&self, rng: &mut Rng) -> (u32, u32) {
        ((rng.next_u64() % 12) as u32, rng.next_u64() as u32)
    }
}

fn config() -> Config {
    let sim = SimOptions { capacity: SIZE_MAX, ..SimOptions::default() };
    Config { seeds: 0..6, ops: 12, after: 3, creation: false, sim, ..Config::default() }
}

#[test]
fn persistent_inserts_survive_every_crash() {
    let report = explore(&Lists(Kind::Persistent), &config());
    assert!(report.is_clean(), "{report}");
    assert!(!explore(&Lists(Kind::Transient), &config()).is_clean());
}

#[test]
fn each_flush_and_fence_of_an_insert_is_needed() {
    let sources = Sources::new().file("skip_list/list.rs", include_str!("list.rs"));
    let config = Config { violations_max: 1, ..config() };
    let sites = explore(&Lists(Kind::Persistent), &config).sites;
    let of_list = sites.into_iter().filter(|site| site.file.ends_with("skip_list/list.rs"));
    let (mut killed, mut survivors) = (0, Vec::new());
    for site in of_list {
        let mut config = config.clone();
        config.sim.mutant = Some(site);
        match explore(&Lists(Kind::Persistent), &config).is_clean() {
            false => killed += 1,
            true if sources.reason(&site).is_some() => {}
            true => survivors.push(site),
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
    // Three persists of an insert, and that of a new value.
    assert_eq!(killed, 6, "sites of the list");
}
