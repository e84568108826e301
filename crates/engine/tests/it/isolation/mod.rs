//! Whether what threads see together is snapshot isolation.
//!
//! Transactions append numbers to lists, and read lists, as in Elle (Kingsbury and Alvaro, VLDB
//! 2020): a list tells which transactions came before the one that has read it, and in which order.
//! With the order of each thread, that gives three relations: *before* in a list or in a thread,
//! *read from*, and *overwritten by others after it was read*. A history is one of snapshot
//! isolation if steps of the first two, each perhaps followed by one of the third, make no cycle
//! (Cerone and Gotsman, PODC 2016). So lost updates and every cycle with a single anti-dependency
//! are found, and write skew is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use remanent_engine::{Database, Error, Table, TableSpec, Transaction, Type};
use remanent_pmem::{Emulation, Pool};

/// Transactions of each thread.
const ROUNDS: u32 = 3_000;
/// After so many, threads wait for each other, and go on with other lists.
const TOGETHER: u32 = 25;
const LISTS: u32 = ROUNDS / TOGETHER * 2 + 4;
const THREADS: usize = 4;

/// Numbers in a list.
type List = Vec<u16>;

/// What a transaction did.
#[derive(Clone, Debug, Default)]
struct Done {
    thread: usize,
    /// Lists as they were before it appended to them.
    reads: BTreeMap<u32, List>,
    appends: BTreeMap<u32, List>,
    is_committed: bool,
}

/// What is wrong with a history; `None` if it is one of snapshot isolation.
fn anomaly(history: &[Done]) -> Option<String> {
    let mut writers: BTreeMap<(u32, u16), usize> = BTreeMap::new();
    for (number, done) in history.iter().enumerate() {
        for (key, list) in &done.appends {
            writers.extend(list.iter().map(|value| ((*key, *value), number)));
        }
    }
    // The longest list of each key; all others are beginnings of it.
    let mut lists: BTreeMap<u32, List> = BTreeMap::new();
    for done in history.iter().filter(|done| done.is_committed) {
        for (key, list) in &done.reads {
            let longest = lists.entry(*key).or_default();
            let shorter = longest.len().min(list.len());
            if longest[..shorter] != list[..shorter] {
                return Some(format!("{key} was read as {longest:?} and as {list:?}"));
            }
            if list.len() > shorter {
                longest.clone_from(list);
            }
        }
    }
    for (key, list) in &lists {
        let by: Vec<usize> = list.iter().map(|value| writers[&(*key, *value)]).collect();
        for (place, writer) in by.iter().enumerate() {
            if !history[*writer].is_committed {
                return Some(format!("aborted read of {} in {key}", list[place]));
            }
            let own = &history[*writer].appends[key];
            if !list.windows(own.len()).any(|part| part == own) {
                return Some(format!("intermediate read of {key}: {list:?}, {own:?}"));
            }
        }
    }
    let mut steps: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); history.len()];
    let mut overwritten: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); history.len()];
    let mut last_of_thread: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, done) in history.iter().enumerate().filter(|(_, done)| done.is_committed) {
        if let Some(before) = last_of_thread.insert(done.thread, number) {
            steps[before].insert(number);
        }
        for (key, list) in &done.reads {
            if let Some(value) = list.last() {
                steps[writers[&(*key, *value)]].insert(number);
            }
            if let Some(value) = lists[key].get(list.len()) {
                overwritten[number].insert(writers[&(*key, *value)]);
            }
        }
    }
    for (key, list) in &lists {
        for two in list.windows(2) {
            steps[writers[&(*key, two[0])]].insert(writers[&(*key, two[1])]);
        }
    }
    for number in 0..history.len() {
        steps[number].remove(&number);
        overwritten[number].remove(&number);
    }
    cycle(&steps, &overwritten)
}

/// A transaction that cannot be put in order.
fn cycle(steps: &[BTreeSet<usize>], overwritten: &[BTreeSet<usize>]) -> Option<String> {
    let next = |number: usize| -> BTreeSet<usize> {
        let of_step = |step: &usize| overwritten[*step].iter().copied().chain([*step]);
        steps[number].iter().flat_map(of_step).collect()
    };
    let next: Vec<BTreeSet<usize>> = (0..steps.len()).map(next).collect();
    let mut waits = vec![0; steps.len()];
    next.iter().flatten().for_each(|number| waits[*number] += 1);
    let mut ready: Vec<usize> = (0..steps.len()).filter(|number| waits[*number] == 0).collect();
    let mut ordered = 0;
    while let Some(number) = ready.pop() {
        ordered += 1;
        for after in &next[number] {
            waits[*after] -= 1;
            if waits[*after] == 0 {
                ready.push(*after);
            }
        }
    }
    let stuck = waits.iter().position(|waits| *waits > 0);
    (ordered < steps.len()).then(|| format!("transaction {stuck:?} is in a cycle"))
}

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn list_of(bytes: &[u8]) -> List {
    bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect()
}

/// Reads a list, or appends a number to it; false if somebody was in the way.
fn step(
    table: &Table,
    transaction: &mut Transaction<'_>,
    key: u32,
    append: Option<u16>,
    done: &mut Done,
) -> Result<bool, Error> {
    let before = match append {
        None => {
            let get = table.prepare_get("primary")?;
            get.run(transaction, &[key.into()], |row| Ok(list_of(row.get::<&[u8]>(1)?)))?
        }
        Some(value) => {
            let update = table.prepare_update("primary")?;
            let appended = update.run_in(transaction, &[key.into()], |row, changes| {
                let mut bytes = row.get::<&[u8]>(1)?.to_vec();
                bytes.extend(value.to_le_bytes());
                changes.set(1, bytes.as_slice())?;
                Ok(list_of(row.get::<&[u8]>(1)?))
            });
            match appended {
                Err(Error::Conflict { .. } | Error::Overtaken { .. }) => return Ok(false),
                appended => appended?,
            }
        }
    };
    let mut seen = before.expect("every list is there");
    let own = done.appends.entry(key).or_default();
    // What it has appended itself comes last.
    assert!(seen.ends_with(own), "{seen:?} {own:?}");
    seen.truncate(seen.len() - own.len());
    own.extend(append);
    assert_eq!(done.reads.entry(key).or_insert_with(|| seen.clone()), &seen, "it sees one moment");
    Ok(true)
}

/// Transactions of a thread.
fn run_thread(
    database: &Database,
    table: &Table,
    thread: usize,
    next: &[AtomicU32],
    together: &Barrier,
) -> Vec<Done> {
    let mut random = Random(thread as u64 + 1);
    let mut history = Vec::new();
    for round in 0..ROUNDS {
        if round % TOGETHER == 0 {
            together.wait();
        }
        let mut transaction = database.begin().unwrap();
        let mut done = Done { thread, ..Done::default() };
        let mut is_refused = false;
        for _ in 0..=random.below(4) {
            let key = round / TOGETHER * 2 + random.below(4) as u32;
            let append = (random.below(2) == 0)
                .then(|| next[key as usize].fetch_add(1, Ordering::Relaxed) as u16);
            is_refused |= !step(table, &mut transaction, key, append, &mut done).unwrap();
            if random.below(8) == 0 {
                // What was refused has left no trace: it may go on.
                let token = transaction.suspend();
                let remanent_engine::Resumed::Open(again) = database.resume(token).unwrap() else {
                    panic!("nobody has ended it");
                };
                transaction = again;
            }
        }
        done.appends.retain(|_, list| !list.is_empty());
        done.is_committed = match random.below(8) {
            0 => false,
            1 => true,
            _ => !is_refused,
        };
        match done.is_committed {
            true => transaction.commit().unwrap(),
            false => transaction.abort().unwrap(),
        }
        history.push(done);
    }
    history
}

#[test]
fn threads_see_snapshot_isolation() {
    let directory = tempfile::tempdir().unwrap();
    let options = Pool::options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("lists.pool")).unwrap();
    let database = Database::create(&pool, "lists").unwrap();
    let spec = TableSpec::new("lists")
        .column("key", Type::U32)
        .column("list", Type::Bytes { max: 255 })
        .primary_key(["key"]);
    let table = database.create_table(&spec).unwrap();
    for key in 0..LISTS {
        table.insert(&[key.into(), [].as_slice().into()]).unwrap();
    }
    let next: Vec<AtomicU32> = (0..LISTS).map(|_| AtomicU32::new(0)).collect();
    let (history, together) = (Mutex::new(Vec::new()), Barrier::new(THREADS));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (database, table, next, history) = (&database, &table, &next, &history);
            let together = &together;
            scope.spawn(move || {
                let of_thread = run_thread(database, table, thread, next, together);
                history.lock().unwrap().extend(of_thread);
            });
        }
    });
    // Who reads last sees everything.
    let last = database.begin().unwrap();
    let mut done = Done { thread: 9, is_committed: true, ..Done::default() };
    let get = table.prepare_get("primary").unwrap();
    for key in 0..LISTS {
        let list = get.run(&last, &[key.into()], |row| Ok(list_of(row.get::<&[u8]>(1)?)));
        done.reads.insert(key, list.unwrap().unwrap());
    }
    drop(last);
    let mut history = history.into_inner().unwrap();
    history.push(done);
    let committed = history.iter().filter(|done| done.is_committed).count();
    assert!(
        committed > 3_000 && committed < history.len() - 500,
        "{committed} of {} committed",
        history.len()
    );
    assert_eq!(anomaly(&history), None);
    assert_eq!(database.check().unwrap(), []);
}

/// Lists with their keys.
type Lists<'l> = &'l [(u32, &'l [u16])];

/// A history of transactions that each read lists and append to lists.
fn history(of: &[(Lists<'_>, Lists<'_>, bool)]) -> Vec<Done> {
    let map =
        |lists: &[(u32, &[u16])]| lists.iter().map(|(key, list)| (*key, list.to_vec())).collect();
    let done = |(thread, (reads, appends, is_committed)): (usize, &(&[_], &[_], bool))| Done {
        thread,
        reads: map(reads),
        appends: map(appends),
        is_committed: *is_committed,
    };
    of.iter().enumerate().map(done).collect()
}

#[test]
fn anomalies_are_told_from_write_skew() {
    // Each reads what the other one overwrites: write skew.
    let skew = history(&[
        (&[(1, &[]), (2, &[])], &[(1, &[1])], true),
        (&[(1, &[]), (2, &[])], &[(2, &[1])], true),
        (&[(1, &[1]), (2, &[1])], &[], true),
    ]);
    assert_eq!(anomaly(&skew), None);
    let lost_update = history(&[
        (&[(1, &[])], &[(1, &[1])], true),
        (&[(1, &[])], &[(1, &[2])], true),
        (&[(1, &[1, 2])], &[], true),
    ]);
    assert!(anomaly(&lost_update).is_some());
    // One that sees half of another.
    let single = history(&[
        (&[], &[(1, &[1]), (2, &[1])], true),
        (&[(1, &[1]), (2, &[])], &[], true),
        (&[(1, &[1]), (2, &[1])], &[], true),
    ]);
    assert!(anomaly(&single).is_some());
    let aborted = history(&[(&[], &[(1, &[1])], false), (&[(1, &[1])], &[], true)]);
    assert!(anomaly(&aborted).unwrap().contains("aborted"));
    let intermediate = history(&[(&[], &[(1, &[1, 2])], true), (&[(1, &[1])], &[], true)]);
    assert!(anomaly(&intermediate).unwrap().contains("intermediate"));
    let torn = history(&[
        (&[], &[(1, &[1])], true),
        (&[], &[(1, &[2])], true),
        (&[(1, &[1, 2])], &[], true),
        (&[(1, &[2])], &[], true),
    ]);
    assert!(anomaly(&torn).is_some());
}
