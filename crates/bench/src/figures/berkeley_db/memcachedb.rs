//! The paper's memcachedb (nvramdisk, section 7.4, Figure 11) without its sockets: Berkeley DB as
//! memcachedb opens it, one thread, keys of 16 bytes and values of 512, and a transaction for each
//! insert, update and delete.
//!
//! The bench compares directories from the command line, which the caller has mounted. Without any,
//! it compares the tmpfs of `--dir` with disks in pools there. Berkeley DB reads and writes these
//! disks in this process, as a kernel calls the paper's driver: without a file system and without a
//! server.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use remanent_pmem::Emulation;

use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, process_cpu, turns};
use crate::peers::berkeley_db::{BerkeleyDb, KEY_LEN, Key};
use crate::peers::berkeley_files::OnDisk;
use crate::peers::disk_files::DiskFiles;
use crate::report::{Ground, Report, backing_of, number};
use crate::setup::{Place, Setup};
use crate::workloads::keys::{mix, shuffled};

const VALUE_LEN: usize = 512;
type Value = [u8; VALUE_LEN];

const ROUNDS_QUICK: usize = 3;
const ROUNDS: usize = 15;
const OPERATIONS_QUICK: u64 = 2_000;
const OPERATIONS: u64 = 20_000;

/// Beginning of our contenders' names.
const OURS: &str = "remanent";

/// What a commit waits for.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Until the log is on the disk, as memcachedb does by default.
    Sync,
    /// Nothing, as with memcachedb's `-N`.
    NoSync,
}

impl Mode {
    const ALL: [Mode; 2] = [Mode::Sync, Mode::NoSync];

    fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::NoSync => "nosync",
        }
    }

    /// The guarantee that is left if commits wait for nothing.
    fn limit(self, ground: Ground) -> Ground {
        match self {
            Mode::Sync => ground,
            Mode::NoSync => Ground { durability: "none".to_owned(), ..ground },
        }
    }
}

/// The guarantee of files after fdatasync has returned.
fn ground_of_files(path: &Path) -> Result<Ground> {
    let backing = backing_of(path)?;
    let (durability, promise) = match backing {
        "memory" => ("process", "a file's content survives the death of the process"),
        _ => ("power", "what fdatasync promises there"),
    };
    Ok(Ground::new(backing, durability, "none", promise))
}

/// The parts of a sample, in their order.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Insert,
    Update,
    Delete,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Insert, Phase::Update, Phase::Delete];

    fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Update => "update",
            Phase::Delete => "delete",
        }
    }
}

/// Measurements of a place in one mode.
#[derive(Default)]
struct Taken {
    /// Operations a second of each phase.
    rate: [Samples; Phase::ALL.len()],
    /// Microseconds of CPU time of an operation, including the pool's background work.
    cpu_us: [Samples; Phase::ALL.len()],
    /// Milliseconds of the checkpoint after each phase.
    checkpoint_ms: [Samples; Phase::ALL.len()],
}

/// Measures in all places in turn.
///
/// # Errors
///
/// When Berkeley DB reports an error, or does not hold what was put into it.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("berkeley-db")?;
    let mut contenders = contenders(setup)?;
    let (rounds, operations) = match setup.quick {
        true => (ROUNDS_QUICK, OPERATIONS_QUICK),
        false => (ROUNDS, OPERATIONS),
    };
    let operations = setup.operations.unwrap_or(operations);
    let keys: Vec<u64> = (0..operations).collect();
    let mut taken: Vec<[Taken; Mode::ALL.len()]> = Vec::new();
    taken.resize_with(contenders.len(), Default::default);
    let progress = Progress::new("berkeley-db", rounds * Mode::ALL.len() * contenders.len());
    for round in 0..rounds {
        for mode in Mode::ALL {
            for turn in turns(contenders.len(), round) {
                let what = format!("{}, {}", contenders[turn].name, mode.name());
                progress.step(what.clone());
                let taken = &mut taken[turn][mode as usize];
                sample(&mut contenders[turn], mode, &keys, round as u64, taken).context(what)?;
            }
        }
    }
    drop(progress);
    for (contender, taken) in contenders.iter().zip(&taken) {
        add_rows(contender, taken, &mut report);
    }
    add_claims(&contenders, &taken, &mut report);
    add_table(&contenders, &taken, &mut report);
    Ok(report)
}

/// A place of Berkeley DB's files.
struct Contender {
    name: String,
    path: PathBuf,
    ground: Ground,
    /// For a disk of ours: the disk, and the directory of its pool. Created once. Otherwise `None`.
    disk: Option<(DiskFiles, Scratch)>,
}

impl Contender {
    fn in_process(name: &str, path: &Path, emulation: Emulation) -> Result<Self> {
        let scratch = Scratch::new(path)?;
        let files = DiskFiles::create(&scratch.path().join("disk.pool"), emulation)?;
        let ground = Ground::of_pool(files.pool());
        let disk = Some((files, scratch));
        Ok(Contender { name: name.to_owned(), path: path.to_owned(), ground, disk })
    }

    fn on_files(name: &str, path: &Path) -> Result<Self> {
        let ground = ground_of_files(path)?;
        Ok(Contender { name: name.to_owned(), path: path.to_owned(), ground, disk: None })
    }

    fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }
}

fn contenders(setup: &Setup) -> Result<Vec<Contender>> {
    if !setup.on.is_empty() {
        let contender = |place: &Place| Contender::on_files(&place.name, &place.path);
        return setup.on.iter().map(contender).collect();
    }
    let dir = &setup.dir;
    Ok(vec![
        Contender::on_files("tmpfs", dir)?,
        Contender::in_process(OURS, dir, Emulation::None)?,
        Contender::in_process("remanent nvram", dir, Emulation::Nvram)?,
    ])
}

/// Measures a contender once.
fn sample(
    contender: &mut Contender,
    mode: Mode,
    keys: &[u64],
    seed: u64,
    taken: &mut Taken,
) -> Result<()> {
    let scratch = Scratch::new(&contender.path)?;
    let Some((files, pool)) = contender.disk.take() else {
        return work(scratch.path(), mode, keys, seed, taken);
    };
    let on_disk = OnDisk::new(files);
    work(scratch.path(), mode, keys, seed, taken)?;
    let mut files = on_disk.into_files()?;
    files.clear()?;
    contender.disk = Some((files, pool));
    Ok(())
}

/// Fills a new database in the directory, updates all entries and removes them, each in a different
/// order.
fn work(directory: &Path, mode: Mode, keys: &[u64], seed: u64, taken: &mut Taken) -> Result<()> {
    let mut db = BerkeleyDb::open(directory, mode == Mode::Sync)?;
    for phase in Phase::ALL {
        let order = shuffled(keys, keys.len(), seed * Phase::ALL.len() as u64 + phase as u64);
        let entry = |number| (key_of(number), value_of(number, phase));
        let entries: Vec<(Key, Value)> = order.into_iter().map(entry).collect();
        let (begin, cpu) = (Instant::now(), process_cpu());
        for (key, value) in &entries {
            match phase {
                Phase::Insert | Phase::Update => db.put(key, value)?,
                Phase::Delete => db.delete(key)?,
            }
        }
        let (done, cpu) = (Instant::now(), process_cpu() - cpu);
        db.checkpoint()?;
        let operations = keys.len() as f64;
        taken.rate[phase as usize].push(operations / (done - begin).as_secs_f64());
        taken.cpu_us[phase as usize].push(cpu.as_secs_f64() * 1e6 / operations);
        taken.checkpoint_ms[phase as usize].push(done.elapsed().as_secs_f64() * 1e3);
        verify(&mut db, keys, phase)?;
    }
    Ok(())
}

/// Refuses a measurement if the database does not hold what the phase should leave.
fn verify(db: &mut BerkeleyDb, keys: &[u64], phase: Phase) -> Result<()> {
    let mut found: Value = [0; VALUE_LEN];
    for number in keys {
        let len = db.get(&key_of(*number), &mut found)?;
        let is_right = match phase {
            Phase::Insert | Phase::Update => {
                len == Some(VALUE_LEN) && found == value_of(*number, phase)
            }
            Phase::Delete => len.is_none(),
        };
        ensure!(is_right, "key {number} is wrong after the phase {}", phase.name());
    }
    Ok(())
}

fn key_of(number: u64) -> Key {
    let mut key = [0; KEY_LEN];
    key.copy_from_slice(format!("{:016x}", mix(number)).as_bytes());
    key
}

/// A value without a pattern, of which no byte needs to be the same after another phase.
fn value_of(number: u64, phase: Phase) -> Value {
    let mut value = [0; VALUE_LEN];
    let mut word = mix(number ^ (phase as u64) << 56);
    for chunk in value.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = mix(word);
    }
    value
}

fn add_rows(contender: &Contender, taken: &[Taken; Mode::ALL.len()], report: &mut Report) {
    for (mode, taken) in Mode::ALL.iter().zip(taken) {
        let ground = &mode.limit(contender.ground.clone());
        for phase in Phase::ALL {
            let x = format!("{} {}", mode.name(), phase.name());
            report.row(&contender.name, &x, ground, "ops/s", &taken.rate[phase as usize]);
            report.row(&contender.name, &x, ground, "CPU µs/op", &taken.cpu_us[phase as usize]);
            let x = format!("{x}, checkpoint");
            report.row(&contender.name, &x, ground, "ms", &taken.checkpoint_ms[phase as usize]);
        }
    }
}

/// Our results over those of each other place.
fn add_claims(contenders: &[Contender], taken: &[[Taken; 2]], report: &mut Report) {
    let all = || contenders.iter().zip(taken);
    for (us, ours) in all().filter(|(contender, _)| contender.is_ours()) {
        for (them, theirs) in all().filter(|(contender, _)| !contender.is_ours()) {
            for (mode, (ours, theirs)) in Mode::ALL.iter().zip(ours.iter().zip(theirs)) {
                for phase in Phase::ALL {
                    let names = format!("{}_vs_{}", us.name.replace(' ', "_"), them.name);
                    let id = format!("berkeley_db.{}.{}.{names}", mode.name(), phase.name());
                    let mut claim = |id: &str, unit, ours: &Samples, theirs: &Samples| {
                        let (us, others) = (number(ours.median()), number(theirs.median()));
                        let against = format!("{} ({us} and {others} {unit})", them.name);
                        report.claim(id, &ours.over(theirs), "x", against, None);
                    };
                    claim(&id, "ops/s", &ours.rate[phase as usize], &theirs.rate[phase as usize]);
                    // If no other process works for the contender, CPU time is more meaningful on a
                    // busy machine.
                    if us.disk.is_some() {
                        let (ours, theirs) =
                            (&ours.cpu_us[phase as usize], &theirs.cpu_us[phase as usize]);
                        claim(&format!("{id}.cpu"), "CPU µs/op", ours, theirs);
                    }
                }
            }
        }
    }
}

/// In the form of the paper's figure: operations a second, followed by percent of the first
/// contender's.
fn add_table(contenders: &[Contender], taken: &[[Taken; 2]], report: &mut Report) {
    let head = ["commit", "phase"].map(str::to_owned).into_iter();
    let names = contenders.iter().flat_map(|contender| [contender.name.clone(), "%".to_owned()]);
    let mut lines = vec![head.chain(names).collect::<Vec<_>>()];
    for mode in Mode::ALL {
        for phase in Phase::ALL {
            let mut line = vec![mode.name().to_owned(), phase.name().to_owned()];
            for contender in taken {
                let rate = &contender[mode as usize].rate[phase as usize];
                let percent =
                    rate.over(&taken[0][mode as usize].rate[phase as usize]).median() * 100.0;
                line.extend([format!("{:.0}", rate.median()), format!("{percent:.1}")]);
            }
            lines.push(line);
        }
    }
    report.table("Figure 11: operations a second, and percent of the first", lines);
}
