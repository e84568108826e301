//! Copies that begin beside a database that is used, or take over from it; and what they refuse.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Change, Database, Durability, Error, Gate, LockMode, NewForeignKey, OwnedValue, Placement,
    Result, SchemaChange, SequenceSpec, TableSpec, Transaction, TransactionOptions, Type, Value,
    WriteSet,
};
use remanent_pmem::Pool;

use super::{Random, Told, allow_refusals, alter, change, dump, followed, in_memory, spec};

/// Ends threads, also if the one that they wait for panics.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An empty database that has become a copy, and from which stamp on it follows.
fn copied(database: &Database) -> Database {
    loop {
        let copy = in_memory();
        match database.export(|part| copy.restore(&part)) {
            Ok(stamp) => {
                assert!(copy.apply(stamp, &WriteSet::default()).unwrap());
                return copy;
            }
            Err(error) => assert!(matches!(error, Error::NoSuchTable { .. }), "{error}"),
        }
    }
}

#[test]
fn a_copy_that_begins_while_others_work_follows() {
    let (database, told) = followed();
    database.create_table(&spec("t")).unwrap();
    let is_over = AtomicBool::new(false);
    let copies = thread::scope(|scope| {
        let _over = Over(&is_over);
        for seed in 1..=3 {
            let (database, is_over) = (&database, &is_over);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(table) = database.table("t") else { continue };
                    let mut transaction = database.begin().unwrap();
                    for _ in 0..random.below(3) {
                        allow_refusals(change(&mut random, &table, &mut transaction));
                    }
                    allow_refusals(transaction.commit());
                }
            });
        }
        let mut random = Random(99);
        let copies: Vec<Database> = (0..12)
            .map(|_| {
                (0..5).for_each(|_| alter(&mut random, &database, "t"));
                copied(&database)
            })
            .collect();
        copies
    });
    let all = told.all.lock().unwrap();
    for copy in copies {
        for (stamp, write_set) in all.iter() {
            let applied = copy.apply(*stamp, write_set);
            assert!(applied.is_ok(), "{applied:?}: {write_set:?}");
        }
        assert_eq!(dump(&copy), dump(&database));
        assert_eq!(copy.check().unwrap(), []);
    }
}

#[test]
fn a_copy_has_sequences_and_goes_on_as_the_database_of_others() {
    let (database, _) = followed();
    let table = database.create_table(&spec("t")).unwrap();
    let key = NewForeignKey::new("up", ["code"], "t", ["code"]);
    database.add_foreign_key(&table, &key).unwrap();
    let numbers = SequenceSpec::new("numbers").block_len(5);
    database.create_sequence(&numbers).unwrap().next().unwrap();
    for a in 0..3_000_u16 {
        table.insert(&[a.into(), "x".into(), u32::from(a).into(), 0.into()]).unwrap();
    }
    let copy = copied(&database);
    assert_eq!(dump(&copy), dump(&database));
    assert_eq!(copy.sequence("numbers").unwrap().unreserved().unwrap(), Some(6));
    // It takes over: its transactions have places in the log of all.
    let told = Arc::new(Told::default());
    copy.set_gate(Some(told.clone()));
    let position = copy.applied().unwrap() + 10;
    let mut transaction = copy.begin().unwrap();
    let row = [7_000.into(), "y".into(), Value::Null, 1.into()];
    copy.table("t").unwrap().insert_in(&mut transaction, &row).unwrap();
    let agreed = transaction.write_set().unwrap();
    assert!(copy.set_applied_in(&mut transaction, position).unwrap());
    transaction.commit().unwrap();
    assert_eq!(copy.applied().unwrap(), position);
    assert_eq!(told.all.lock().unwrap()[0].1, agreed);
    // Those that follow it do not learn of the position, which is their own.
    assert!(database.apply(position, &agreed).unwrap());
    assert_eq!(dump(&copy), dump(&database));
    assert!(!copy.apply(position, &agreed).unwrap());
    let mut late = copy.begin().unwrap();
    assert!(!copy.set_applied_in(&mut late, position).unwrap());
}

#[test]
fn a_commit_that_others_have_is_not_refused_for_its_position() {
    let database = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    table.insert(&[0.into(), "x".into(), 0.into(), 0.into()]).unwrap();
    let copy = copied(&database);
    let begin = |key: u16| {
        let mut transaction = database.begin().unwrap();
        let row = [key.into(), "x".into(), u32::from(key).into(), 0.into()];
        table.insert_in(&mut transaction, &row).unwrap();
        transaction
    };
    let propose = |transaction: &Transaction<'_>, position| {
        assert!(copy.apply(position, &transaction.write_set().unwrap()).unwrap());
    };
    let [mut first, mut second, mut third, mut late] = [1, 2, 3, 4].map(begin);
    propose(&first, 5);
    assert!(database.set_applied_in(&mut first, 5).unwrap());
    propose(&second, 6);
    // That of the first one is on its way.
    let refused = database.set_applied_in(&mut second, 6);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            second.set_wait(Duration::from_secs(30));
            assert!(database.set_applied_in(&mut second, 6).unwrap());
            second.commit().unwrap();
        });
        first.commit().unwrap();
        waiting.join().unwrap();
    });
    // The others' snapshots are older.
    propose(&third, 7);
    assert!(database.set_applied_in(&mut third, 7).unwrap());
    assert!(!database.set_applied_in(&mut third, 7).unwrap());
    third.commit().unwrap();
    assert_eq!(database.applied().unwrap(), 7);
    assert!(!database.set_applied_in(&mut late, 4).unwrap());
    late.abort().unwrap();
    assert_eq!(database.applied().unwrap(), 7);
    assert_eq!(dump(&copy), dump(&database));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn what_is_too_much_for_one_fence_is_applied_row_by_row() {
    let (database, told) = followed();
    let wide = TableSpec::new("wide")
        .column("id", Type::U32)
        .primary_key(["id"])
        .nullable("parent", Type::U32)
        .index("by_parent", ["parent"])
        .foreign_key("up", ["parent"], "wide", ["id"]);
    let wide =
        (0..100).fold(wide, |spec, at| spec.nullable(format!("c{at}"), Type::Text { max: 250 }));
    let wide = database.create_table(&wide).unwrap();
    let text = "x".repeat(250);
    let row = |id: u32, parent: Option<u32>| -> Vec<Value<'_>> {
        let text: &str = &text;
        let key = [id.into(), parent.into()].into_iter();
        key.chain((0..100).map(|_| text.into())).collect()
    };
    let copy = in_memory();
    for id in 0..600 {
        wide.insert(&row(id, None)).unwrap();
    }
    told.follow(&copy);
    // Versions of 25 KB. Each row refers to the next one.
    let update = wide.prepare_update("primary").unwrap();
    let other = "y".repeat(250);
    let rewrite = |transaction: &mut Transaction<'_>| {
        for id in 0..600_u32 {
            let set = update.run_in(transaction, &[id.into()], |_, new| {
                new.set(1, Some((id + 1) % 600))?;
                (2..102).try_for_each(|column| new.set(column, other.as_str()))
            });
            set.unwrap().unwrap();
        }
    };
    let at_commit = TransactionOptions::new().durability(Durability::AtCommit);
    let mut at_once = database.begin_with(&at_commit).unwrap();
    rewrite(&mut at_once);
    assert!(matches!(at_once.commit(), Err(Error::TooMuchAtOnce)));
    let mut transaction = database.begin().unwrap();
    rewrite(&mut transaction);
    wide.insert_in(&mut transaction, &row(1_000, Some(1_001))).unwrap_err();
    wide.insert_in(&mut transaction, &row(1_001, Some(3))).unwrap();
    wide.insert_in(&mut transaction, &row(1_000, Some(1_001))).unwrap();
    transaction.commit().unwrap();
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
    assert_eq!(copy.check().unwrap(), []);
}

/// A gate that takes its time.
#[derive(Default)]
struct Slow {
    is_closed: AtomicBool,
    taken: Mutex<BTreeSet<u64>>,
    waiting: Mutex<BTreeSet<u64>>,
}

impl Gate for Slow {
    fn take(&self, stamp: u64, _: Result<WriteSet>) {
        self.taken.lock().unwrap().insert(stamp);
    }

    fn wait(&self, stamp: u64) -> bool {
        assert!(self.taken.lock().unwrap().contains(&stamp), "{stamp} is waited for first");
        self.waiting.lock().unwrap().insert(stamp);
        while self.is_closed.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

#[test]
fn tables_that_refer_to_others_are_made_while_commits_wait_in_the_gate() {
    let database = in_memory();
    let gate = Arc::new(Slow::default());
    database.set_gate(Some(gate.clone()));
    let parents = database.create_table(&spec("parents")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for seed in 1..=2 {
            let (database, parents, is_over) = (&database, &parents, &is_over);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
                while !is_over.load(Ordering::Relaxed) {
                    let row = [(random.below(50) as u16).into(), "x".into(), Value::Null, 1.into()];
                    allow_refusals(parents.insert(&row));
                    let update = parents.prepare_update("primary").unwrap();
                    allow_refusals(update.run(&row[..2], |_, new| new.add(3, 1)));
                    if random.one_in(20) {
                        let _ = database.export(|_| Ok::<(), Error>(()));
                    }
                }
            });
        }
        for _ in 0..60 {
            let children = TableSpec::new("children")
                .column("id", Type::U32)
                .nullable("code", Type::U32)
                .primary_key(["id"])
                .index("by_code", ["code"])
                .foreign_key("of", ["code"], "parents", ["code"]);
            database.create_table(&children).unwrap();
            database.drop_table("children").unwrap();
        }
    });
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_commit_that_waits_in_a_gate_is_locked_for_nobody_and_an_earlier_gate_lets_it_go() {
    let database = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    table.insert(&[1.into(), "x".into(), Value::Null, 0.into()]).unwrap();
    table.insert(&[2.into(), "y".into(), Value::Null, 0.into()]).unwrap();
    let (one, other) = (Arc::new(Slow::default()), Arc::new(Slow::default()));
    database.set_gate(Some(one.clone()));
    one.is_closed.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut transaction = database.begin().unwrap();
            let update = table.prepare_update("primary").unwrap();
            let key = [1.into(), "x".into()];
            let get = table.prepare_get("primary").unwrap();
            let locked = [2.into(), "y".into()];
            get.lock_in(&mut transaction, &locked, LockMode::NoWait, |_| Ok(())).unwrap().unwrap();
            update.run_in(&mut transaction, &key, |_, new| new.set(3, 5)).unwrap().unwrap();
            transaction.commit().unwrap();
        });
        while one.waiting.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        // It is not seen, and who comes for the row is told at once.
        let get = table.prepare_get("primary").unwrap();
        let key = [1.into(), "x".into()];
        let seen = get.run(&database.snapshot(), &key, |row| row.get::<i64>(3)).unwrap();
        assert_eq!(seen, Some(0));
        let mut late = database.begin_with(&TransactionOptions::new()).unwrap();
        let refused = get.lock_in(&mut late, &key, LockMode::NoWait, |_| Ok(()));
        assert!(matches!(refused, Err(Error::Overtaken { .. })), "{refused:?}");
        // Nor does anybody wait for a row that it has locked, unless that is asked for.
        let locked = [2.into(), "y".into()];
        let refused = get.lock_in(&mut late, &locked, LockMode::NoWait, |_| Ok(()));
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        let passed_over = get.lock_in(&mut late, &locked, LockMode::Skip, |_| Ok(()));
        assert!(matches!(passed_over, Ok(None)), "{passed_over:?}");
        let patient = TransactionOptions::new().wait(Duration::from_secs(60));
        let (database, of_waiting) = (&database, get.clone());
        let waiting = scope.spawn(move || {
            let mut patient = database.begin_with(&patient).unwrap();
            let locked = [2.into(), "y".into()];
            let got = of_waiting.lock_in(&mut patient, &locked, LockMode::Wait, |_| Ok(()));
            assert!(matches!(got, Ok(Some(()))), "{got:?}");
        });
        let exchanging = scope.spawn(|| database.set_gate(Some(other.clone())));
        thread::sleep(Duration::from_millis(20));
        assert!(!exchanging.is_finished() && !waiting.is_finished());
        one.is_closed.store(false, Ordering::Relaxed);
    });
    let key = [1.into(), "x".into()];
    let update = table.prepare_update("primary").unwrap();
    update.run(&key, |_, new| new.add(3, 1)).unwrap().unwrap();
    assert_eq!((one.taken.lock().unwrap().len(), other.taken.lock().unwrap().len()), (1, 1));
    database.set_gate(None);
    update.run(&key, |_, new| new.add(3, 1)).unwrap().unwrap();
    assert_eq!(other.taken.lock().unwrap().len(), 1);
}

struct Panics;

impl Gate for Panics {
    fn take(&self, _: u64, _: Result<WriteSet>) {}

    fn wait(&self, _: u64) -> bool {
        panic!("the gate is broken")
    }
}

#[test]
fn a_gate_that_panics_leaves_rows_that_others_change() {
    let database = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    table.insert(&[1.into(), "x".into(), Value::Null, 0.into()]).unwrap();
    let (update, get) =
        (table.prepare_update("primary").unwrap(), table.prepare_get("primary").unwrap());
    let key: [Value<'_>; 2] = [1.into(), "x".into()];
    for durability in [Durability::AtCommit, Durability::EachStatement] {
        for with_last in [false, true] {
            database.set_gate(Some(Arc::new(Panics)));
            let commits = || {
                let options = TransactionOptions::new().durability(durability);
                let mut transaction = database.begin_with(&options).unwrap();
                let add = |transaction: &mut _| {
                    update.run_in(transaction, &key, |_, new| new.add(3, 1)).map(drop)
                };
                add(&mut transaction).unwrap();
                get.lock_in(&mut transaction, &key, LockMode::NoWait, |_| Ok(())).unwrap();
                match with_last {
                    true => transaction.commit_with(add).unwrap(),
                    false => transaction.commit().unwrap(),
                }
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(commits)).is_err());
            database.set_gate(None);
            update.run(&key, |_, new| new.add(3, 1)).unwrap().unwrap();
        }
    }
    let sum = get.run(&database.snapshot(), &key, |row| row.get::<i64>(3)).unwrap();
    assert_eq!(sum, Some(2 + 2 * 2 + 4));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn keys_that_only_their_bits_tell_apart_are_removed() {
    let (database, told) = followed();
    let copy = in_memory();
    let floats = TableSpec::new("f").column("key", Type::F64).primary_key(["key"]);
    let table = database.create_table(&floats).unwrap();
    table.insert(&[0.0.into()]).unwrap();
    table.insert(&[f64::NAN.into()]).unwrap();
    let update = table.prepare_update("primary").unwrap();
    update.run(&[0.0.into()], |_, new| new.set(0, -0.0)).unwrap().unwrap();
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
}

#[test]
fn changes_of_the_schema_have_versions_that_transactions_go_by() {
    let (database, told) = followed();
    let table = database.create_table(&spec("t")).unwrap();
    database.place_index(&table, "by_sum", Placement::Dram).unwrap();
    let mut transaction = database.begin().unwrap();
    table.insert_in(&mut transaction, &[1.into(), "x".into(), 1.into(), 0.into()]).unwrap();
    let agreed = transaction.write_set().unwrap();
    transaction.commit().unwrap();
    database.drop_index(&table, "by_sum").unwrap();
    let all = told.all.lock().unwrap();
    let versions: Vec<u64> = all.iter().map(|(_, told)| told.schema_version).collect();
    assert_eq!(versions, [1, 1, 2]);
    assert_eq!((all[1].1 == agreed, database.schema_version()), (true, 2));
}

#[test]
fn a_table_whose_dictionary_was_moved_is_not_made_again() {
    let (database, told) = followed();
    let table = database.create_table(&spec("t")).unwrap();
    let (_, made) = told.all.lock().unwrap().pop().unwrap();
    let copy = in_memory();
    assert!(copy.apply(1, &made).unwrap());
    let copied = copy.table("t").unwrap();
    copy.place_dictionary(&copied, "b", Placement::Dram).unwrap();
    // As after a crash that has come before the copy knew what it has applied.
    assert!(copy.apply(2, &made).unwrap());
    assert_eq!(copied.dictionary_placement("b").unwrap(), Placement::Dram);
    let versions = (copy.schema_version(), database.schema_version());
    database.place_dictionary(&table, "b", Placement::Dram).unwrap();
    // Nobody is told where an index lies.
    assert!(told.all.lock().unwrap().is_empty());
    assert_eq!((copy.schema_version(), database.schema_version()), versions);
    let other = TableSpec::new("t").column("a", Type::U16).primary_key(["a"]).encoded(["a"]);
    let plain = TableSpec::new("t").column("a", Type::U16).primary_key(["a"]);
    let (database, told) = followed();
    database.create_table(&other).unwrap();
    let (_, made) = told.all.lock().unwrap().pop().unwrap();
    let copy = in_memory();
    copy.create_table(&plain).unwrap();
    // Not the same: its column is not encoded.
    let refused = copy.apply(1, &made);
    assert!(matches!(refused, Err(Error::Schema { .. })), "{refused:?}");
}

#[test]
fn tables_of_the_database_itself_are_no_matter_of_write_sets() {
    let copy = in_memory();
    copy.apply(1, &WriteSet::default()).unwrap();
    let own = || "remanent.applied".to_owned();
    let put = Change::Put { table: own(), row: vec![OwnedValue::Uint(0), OwnedValue::Uint(99)] };
    for change in [
        put,
        Change::Remove { table: own(), key: vec![OwnedValue::Uint(0)] },
        Change::Schema(SchemaChange::DropTable { table: own() }),
        Change::Schema(SchemaChange::CreateTable(spec("remanent.sequences"))),
        Change::Schema(SchemaChange::CreateTable(spec("remanent.more"))),
    ] {
        let write_set = WriteSet { schema_version: 1, changes: vec![change] };
        assert!(copy.apply(2, &write_set).is_err(), "{write_set:?}");
        assert_eq!(copy.applied().unwrap(), 1);
    }
}

/// Write sets whose bytes were changed: by a network, or by somebody.
#[cfg(feature = "serde")]
#[test]
fn damaged_write_sets_are_refused_or_leave_a_database_that_opens() {
    let (database, told) = followed();
    let mut random = Random(7);
    database.create_table(&spec("t")).unwrap();
    for _ in 0..200 {
        if random.one_in(4) {
            alter(&mut random, &database, "t");
        } else if let Ok(table) = database.table("t") {
            let mut transaction = database.begin().unwrap();
            allow_refusals(change(&mut random, &table, &mut transaction));
            allow_refusals(transaction.commit());
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let all = told.all.lock().unwrap();
    let mut applied = 0;
    for round in 0..40 {
        let path = directory.path().join(format!("{round}.pool"));
        let pool = Pool::options().create(&path).unwrap();
        let copy = Database::create(&pool, "db").unwrap();
        for (stamp, write_set) in all.iter() {
            let mut bytes = postcard::to_allocvec(write_set).unwrap();
            if random.one_in(8) {
                for _ in 0..=random.below(2) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.below(256) as u8;
                }
            }
            let Ok(read) = postcard::from_bytes::<WriteSet>(&bytes) else { continue };
            applied += u32::from(copy.apply(*stamp, &read).is_ok_and(|done| done));
        }
        assert_eq!(copy.check().unwrap(), [], "{round}");
        let before = dump(&copy);
        drop((copy, pool));
        let pool = Pool::options().open(&path).unwrap();
        let copy = Database::open(&pool, "db").unwrap();
        assert_eq!(dump(&copy), before, "{round}");
        assert_eq!(copy.check().unwrap(), [], "{round}");
    }
    assert!(applied > 100, "{applied}");
}

#[test]
fn gates_come_and_go_while_threads_commit() {
    let database = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for a in 0..4_u16 {
            let (table, is_over) = (&table, &is_over);
            scope.spawn(move || {
                let row: [Value<'_>; 4] = [a.into(), "x".into(), Value::Null, 1.into()];
                table.insert(&row).unwrap();
                let update = table.prepare_update("primary").unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    update.run(&row[..2], |_, new| new.add(3, 1)).unwrap().unwrap();
                }
            });
        }
        for round in 0..300 {
            let gate: Option<Arc<dyn Gate>> = match round % 3 {
                0 => None,
                _ => Some(Arc::new(Told::default())),
            };
            database.set_gate(gate);
        }
    });
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn parents_hand_their_keys_on_row_by_row() {
    let (database, told) = followed();
    let parents = database
        .create_table(&TableSpec::new("p").column("id", Type::U32).primary_key(["id"]))
        .unwrap();
    let children = TableSpec::new("c")
        .column("id", Type::U32)
        .column("of", Type::U32)
        .primary_key(["id"])
        .index("by_of", ["of"])
        .foreign_key("up", ["of"], "p", ["id"]);
    let children = database.create_table(&children).unwrap();
    let copy = in_memory();
    for id in [1, 2] {
        parents.insert(&[id.into()]).unwrap();
    }
    children.insert(&[1.into(), 2.into()]).unwrap();
    let (of_parent, of_child) =
        (parents.prepare_update("primary").unwrap(), children.prepare_update("primary").unwrap());
    let mut transaction = database.begin().unwrap();
    transaction
        .batch(|batch| {
            of_parent.run_in(batch, &[2.into()], |_, new| new.set(0, 3))?;
            of_parent.run_in(batch, &[1.into()], |_, new| new.set(0, 2))?;
            of_child.run_in(batch, &[1.into()], |_, new| new.set(1, 3))
        })
        .unwrap();
    let agreed = transaction.write_set().unwrap();
    let removals = agreed.changes.iter().filter(|of| matches!(of, Change::Remove { .. }));
    assert_eq!(removals.count(), 1);
    transaction.commit().unwrap();
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
}

#[test]
fn what_changes_nothing_is_acknowledged_behind_what_it_has_seen() {
    let database = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    let row = [1.into(), "x".into(), Value::Null, 0.into()];
    table.insert(&row).unwrap();
    let gate = Arc::new(Slow::default());
    database.set_gate(Some(gate.clone()));
    gate.is_closed.store(true, Ordering::Relaxed);
    let update = table.prepare_update("primary").unwrap();
    let set = || update.run(&row[..2], |_, new| new.set(3, 5)).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(set);
        while gate.waiting.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        let again = scope.spawn(set);
        thread::sleep(Duration::from_millis(20));
        assert!(!again.is_finished());
        gate.is_closed.store(false, Ordering::Relaxed);
    });
    assert_eq!(gate.taken.lock().unwrap().len(), 1);
}
