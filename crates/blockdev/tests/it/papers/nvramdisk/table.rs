//! Every state of the paper's Table 2, made by hand, with every kind of garbage, and opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_blockdev::papers::nvramdisk::{Places, Policy, Recovered};
use remanent_crashsim::{Config, Faults, Nested, Outcome, Rng, Sim, Subject, explore};
use remanent_pmem::{Medium, Pool};

use super::{BLOCK, LBA, LBAS, OTHER, SimDisk, bytes, disk, entry, options, read, reopen};

const NULL: u64 = 0;
/// Stamp of the new content of the block.
const NEW: u64 = 77;

/// What a field holds that was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Garbage {
    Word(u64),
    Null,
    Lba,
    OtherLba,
    OldBlock,
    NewBlock,
    OtherBlock,
}

const GARBAGE: [Garbage; 11] = [
    Garbage::Word(0xdead_beef_0bad_f00d),
    Garbage::Word(u64::MAX),
    // No logical block, but the next that there might be; no block, but the next.
    Garbage::Word(LBAS + 1),
    Garbage::Word(LBAS + 33),
    Garbage::Word(1),
    Garbage::Null,
    Garbage::Lba,
    Garbage::OtherLba,
    Garbage::OldBlock,
    Garbage::NewBlock,
    Garbage::OtherBlock,
];

/// One state of the table.
#[derive(Clone, Copy, Debug)]
struct Forged {
    state: usize,
    garbage: Garbage,
    lane: usize,
    policy: Policy,
}

/// What there was before.
#[derive(Clone, Debug)]
struct Before {
    entries: Vec<u64>,
    shadow: u64,
}

impl Forged {
    /// Writes the record, the map's entry and the shadow block of the state into a disk.
    fn forge(&self, sim: &Sim, disk: &SimDisk) -> Before {
        let places = disk.places();
        let entries: Vec<u64> = (0..LBAS).map(|lba| entry(sim, disk, lba)).collect();
        let (old, lba) = (entries[LBA as usize], Places::word(LBA));
        let is_free = |vpn: &u64| !entries.contains(vpn);
        let shadow = (1..=LBAS + 32).rev().find(is_free).expect("32 are free");
        let x = match self.garbage {
            Garbage::Word(word) => word,
            Garbage::Null => NULL,
            Garbage::Lba => lba,
            Garbage::OtherLba => Places::word(OTHER),
            Garbage::OldBlock => old,
            Garbage::NewBlock => shadow,
            Garbage::OtherBlock => entries[OTHER as usize],
        };
        // The paper's table, row by row. That VPN does not matter in S0 is shown by a block that
        // another one has.
        let [vpn, l1, l2, map] = match self.state {
            0 => [entries[OTHER as usize], NULL, NULL, old],
            1 => [x, NULL, NULL, old],
            2 => [shadow, NULL, NULL, old],
            3 => [shadow, x, NULL, old],
            4 => [shadow, lba, NULL, old],
            5 => [shadow, lba, x, old],
            6 => [shadow, lba, lba, old],
            7 => [shadow, lba, lba, x],
            8 => [shadow, lba, lba, shadow],
            9 => [shadow, x, lba, shadow],
            10 => [shadow, NULL, lba, shadow],
            11 => [shadow, NULL, x, shadow],
            other => panic!("there is no S{other}"),
        };
        let block = places.block(shadow).expect("it exists");
        sim.write(block, &bytes(NEW));
        sim.persist(block, BLOCK as u64);
        for (at, word) in places.record(self.lane).into_iter().zip([vpn, l1, l2]) {
            sim.store(at, word);
            sim.persist(at, 8);
        }
        sim.store(places.entry(LBA), map);
        sim.persist(places.entry(LBA), 8);
        Before { entries, shadow }
    }

    /// Whether the write has happened. The paper says so of S6 and later; S5 cannot be told from S6
    /// if L2 is right by chance.
    fn is_new(&self) -> bool {
        self.state >= 6 || self.state == 5 && self.garbage == Garbage::Lba
    }

    /// What the paper has recovery do; nothing where it finds nothing.
    fn fate(&self) -> Recovered {
        let is_null = self.garbage == Garbage::Null;
        let nothing_is_left = self.state <= 2 || (self.state == 3 || self.state == 11) && is_null;
        match self.is_new() {
            _ if nothing_is_left => Recovered::default(),
            false => Recovered { undone: 1, redone: 0 },
            true => Recovered { undone: 0, redone: 1 },
        }
    }
}

fn all() -> impl Iterator<Item = Forged> {
    let policies = [Policy::P1, Policy::P4, Policy::P6];
    (0..12).flat_map(move |state| {
        GARBAGE.into_iter().zip(0..).map(move |(garbage, turn)| {
            let lane = [0, 7, 31][turn % 3];
            Forged { state, garbage, lane, policy: policies[turn % 3] }
        })
    })
}

#[test]
fn every_state_recovers_as_the_paper_says() {
    for forged in all() {
        let sim = Arc::new(Sim::new(options()));
        let (pool, made) = disk(&sim, forged.policy);
        let before = forged.forge(&sim, &made);
        drop((made, pool));

        let (pool, disk) = reopen(&sim, forged.policy);
        assert_eq!(disk.recovered(), forged.fate(), "{forged:?}");
        for (lba, old) in (0..LBAS).zip(&before.entries) {
            let is_new = lba == LBA && forged.is_new();
            let expected = if is_new { before.shadow } else { *old };
            assert_eq!(entry(&sim, &disk, lba), expected, "{forged:?}: block {lba}");
            let content = match lba {
                _ if is_new => bytes(NEW),
                lba if lba == LBAS - 1 => vec![0; BLOCK],
                lba => bytes(lba),
            };
            assert!(read(&disk, lba) == content, "{forged:?}: content of block {lba}");
        }
        // S0 again.
        let [_, l1, l2] = disk.places().record(forged.lane);
        assert_eq!((sim.load(l1), sim.load(l2)), (NULL, NULL), "{forged:?}");
        assert_eq!(disk.check().expect("no fault"), [], "{forged:?}");

        disk.write(LBA * BLOCK as u64, &bytes(88)).expect("on the disk");
        drop((disk, pool));
        let (_pool, disk) = reopen(&sim, forged.policy);
        assert_eq!(disk.recovered(), Recovered::default(), "{forged:?}");
        assert!(read(&disk, LBA) == bytes(88) && read(&disk, OTHER) == bytes(OTHER), "{forged:?}");
    }
}

/// The explorer's view of a forged state: stamps of what was written since.
impl Subject for Forged {
    type Op = (u64, u64);
    type Ret = ();
    type State = BTreeMap<u64, u64>;
    type Handle = (SimDisk, Pool<Arc<Sim>>);

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let (pool, disk) = disk(&medium, self.policy);
        self.forge(&medium, &disk);
        Ok((disk, pool))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let (pool, disk) = reopen(&medium, self.policy);
        Ok((disk, pool))
    }

    fn apply(&self, (disk, _): &Self::Handle, (lba, stamp): &(u64, u64)) {
        disk.write(lba * BLOCK as u64, &bytes(*stamp)).expect("on the disk");
    }

    fn model(&self, state: &mut Self::State, (lba, stamp): &(u64, u64)) {
        state.insert(*lba, *stamp);
    }

    fn observe(&self, (disk, _): &Self::Handle) -> Outcome<Self::State> {
        let mut state = BTreeMap::new();
        for lba in 0..LBAS {
            let found = read(disk, lba);
            let stamp = u64::from_le_bytes(*found.first_chunk().ok_or("empty")?) >> 32;
            // A second crash may leave in L2 what makes S5 an S6.
            let is_new = lba == LBA && stamp == NEW && self.state >= 3;
            let is_old = stamp == lba && (lba != LBA || self.state < 6);
            match lba {
                _ if lba == LBAS - 1 && found == vec![0; BLOCK] => {}
                _ if found != bytes(stamp) => return Err(format!("block {lba} is torn").into()),
                _ if is_new || is_old => {}
                _ => drop(state.insert(lba, stamp)),
            }
        }
        Ok(state)
    }

    fn check(&self, (disk, _): &Self::Handle) -> Outcome {
        let violations = disk.check()?;
        if violations.is_empty() { Ok(()) } else { Err(format!("{violations:?}").into()) }
    }

    fn op(&self, rng: &mut Rng) -> (u64, u64) {
        (LBA + rng.below(2), 100 + rng.below(100))
    }
}

#[test]
fn recovery_from_every_state_survives_crashes_and_garbage_at_each_of_its_steps() {
    let (mut images, mut faulty, mut count) = (0, 0, 0);
    for forged in all() {
        let config = Config {
            ops: 0,
            creation: false,
            // Writing on is another test's matter: here every crash is one of recovery.
            after: 0,
            nested: Nested { depth: 1, one_in: 1, samples: 2 },
            faults: Faults { disturbed_words: 2, ..Faults::default() },
            sim: options(),
            ..Config::default()
        };
        let report = explore(&forged, &config);
        assert!(report.is_clean(), "{forged:?}: {report}");
        images += report.images;
        faulty += report.faulty_images;
        count += 1;
    }
    println!("{count} states: {images} images, {faulty} with garbage");
    assert!(images > 1_000 && faulty > 300, "{images} images, {faulty} with garbage");
}
