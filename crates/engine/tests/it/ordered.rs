//! Ordered indexes: ranges of rows against a model, beside all that other indexes do.

use std::cmp::Ordering as Compared;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use remanent_engine::{
    Database, Error, KeyBound, Moment, Order, Placement, Rebuild, Row, RowId, Structure, Table,
    TableSpec, Type, Value,
};
use remanent_pmem::Pool;

/// Ordered indexes over several types.
fn things(placement: Placement) -> TableSpec {
    let indexes = ["primary", "by_kind", "by_label", "by_weight"];
    TableSpec::new("things")
        .column("id", Type::I32)
        .nullable("kind", Type::Int { len: 1 })
        .nullable("label", Type::Bytes { max: 3 })
        .column("weight", Type::F64)
        .column("remark", Type::U32)
        .primary_key(["id"])
        .index("by_kind", ["kind", "id"])
        .unique("by_label", ["label"])
        .index("by_weight", ["weight"])
        .ordered(indexes)
        .place(indexes, placement)
        .tile_rows(7)
}

/// What a thing is besides its key.
#[derive(Clone, Debug, PartialEq)]
struct Thing {
    kind: Option<i8>,
    label: Option<Vec<u8>>,
    weight: f64,
}

/// Things by their keys, with the numbers of their rows.
type Things = BTreeMap<i32, (RowId, Thing)>;

#[derive(Clone, Debug)]
enum Action {
    Insert(i32, Thing),
    Update(i32, Thing),
    Delete(i32),
    /// Statements of one transaction, and whether it commits.
    Together(Vec<Action>, bool),
    Collect,
    Reopen,
}

/// Few labels, some of which have zero bytes or begin with others.
fn label() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 0xff]), 0..3))
}

fn weight() -> impl Strategy<Value = f64> {
    let ends = [-0.0, 0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 1.5];
    prop::sample::select(ends.to_vec())
}

fn thing() -> impl Strategy<Value = Thing> {
    let kind = prop::option::of(prop::sample::select(vec![i8::MIN, -1, 0, 1, i8::MAX]));
    (kind, label(), weight()).prop_map(|(kind, label, weight)| Thing { kind, label, weight })
}

fn id() -> impl Strategy<Value = i32> {
    prop::sample::select(vec![i32::MIN, -300, -1, 0, 1, 2, 255, 256, 70_000, i32::MAX])
}

fn statement() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (id(), thing()).prop_map(|(id, thing)| Action::Insert(id, thing)),
        3 => (id(), thing()).prop_map(|(id, thing)| Action::Update(id, thing)),
        1 => id().prop_map(Action::Delete),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => statement(),
        2 => (prop::collection::vec(statement(), 1..6), any::<bool>())
            .prop_map(|(statements, commits)| Action::Together(statements, commits)),
        1 => Just(Action::Collect),
        1 => Just(Action::Reopen),
    ]
}

/// The values of an index's columns.
fn key<'t>(index: &str, id: i32, thing: &'t Thing) -> Vec<Value<'t>> {
    match index {
        "primary" => vec![id.into()],
        "by_kind" => vec![thing.kind.into(), id.into()],
        "by_label" => vec![thing.label.as_deref().into()],
        "by_weight" => vec![thing.weight.into()],
        _ => panic!("no index {index}"),
    }
}

/// The order of two values of a column.
fn compared(one: &Value<'_>, other: &Value<'_>) -> Compared {
    match (one, other) {
        (Value::Null, Value::Null) => Compared::Equal,
        (Value::Null, _) => Compared::Less,
        (_, Value::Null) => Compared::Greater,
        (Value::Float(one), Value::Float(other)) => one.total_cmp(other),
        _ => one.partial_cmp(other).unwrap(),
    }
}

/// The order of two keys, or of one and the beginning of another, as far as both reach.
fn compared_keys(one: &[Value<'_>], other: &[Value<'_>]) -> Compared {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| compared(one, other)).find(|of| of.is_ne()).unwrap_or(Compared::Equal)
}

fn is_inside(key: &[Value<'_>], (lower, upper): (KeyBound<'_>, KeyBound<'_>)) -> bool {
    let is_above = match lower {
        Bound::Included(bound) => compared_keys(key, bound).is_ge(),
        Bound::Excluded(bound) => compared_keys(key, bound).is_gt(),
        Bound::Unbounded => true,
    };
    let is_below = match upper {
        Bound::Included(bound) => compared_keys(key, bound).is_le(),
        Bound::Excluded(bound) => compared_keys(key, bound).is_lt(),
        Bound::Unbounded => true,
    };
    is_above && is_below
}

fn id_of(row: &Row<'_>) -> i32 {
    row.get(0).unwrap()
}

fn thing_of(row: &Row<'_>) -> Thing {
    let label: Option<&[u8]> = row.get(2).unwrap();
    let label = label.map(<[u8]>::to_vec);
    Thing { kind: row.get(1).unwrap(), label, weight: row.get(3).unwrap() }
}

/// Compares by bits: NaN is itself.
fn is_same(one: &Thing, other: &Thing) -> bool {
    (one.kind, &one.label, one.weight.to_bits())
        == (other.kind, &other.label, other.weight.to_bits())
}

/// The rows of a range, at most `limit`.
fn range(
    table: &Table,
    moment: &impl Moment,
    index: &str,
    bounds: (KeyBound<'_>, KeyBound<'_>),
    order: Order,
    limit: usize,
) -> Vec<(RowId, i32, Thing)> {
    let mut found = Vec::new();
    let visit = |row: &Row<'_>| {
        found.push((row.id(), id_of(row), thing_of(row)));
        if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let range = table.prepare_range(index).unwrap();
    let is_cut = range.run(moment, bounds, order, visit).unwrap().is_some();
    assert_eq!(is_cut, found.len() == limit);
    found
}

fn expect_range(
    table: &Table,
    moment: &impl Moment,
    expected: &Things,
    index: &str,
    bounds: (KeyBound<'_>, KeyBound<'_>),
) {
    let inside =
        expected.iter().filter(|(id, (_, thing))| is_inside(&key(index, **id, thing), bounds));
    let mut inside: Vec<_> = inside.map(|(id, (row, thing))| (*row, *id, thing)).collect();
    inside.sort_by(|(row, id, thing), (other_row, other, other_thing)| {
        compared_keys(&key(index, *id, thing), &key(index, *other, other_thing))
            .then(row.cmp(other_row))
    });
    for order in [Order::Ascending, Order::Descending] {
        for limit in [usize::MAX, 1, 3] {
            let found = range(table, moment, index, bounds, order, limit);
            let is_as_expected = found.len() == inside.len().min(limit)
                && found.iter().zip(&inside).all(|((row, id, thing), of)| {
                    (*row, *id) == (of.0, of.1) && is_same(thing, of.2)
                });
            assert!(is_as_expected, "{index} {bounds:?} {order:?}: {found:?}, not {inside:?}");
        }
        inside.reverse();
    }
}

/// Compares all indexes, whole and between bounds that keys of the model and others are.
fn expect(table: &Table, moment: &impl Moment, expected: &Things, others: &[(i32, Thing)]) {
    for index in ["primary", "by_kind", "by_label", "by_weight"] {
        let all = (Bound::Unbounded, Bound::Unbounded);
        expect_range(table, moment, expected, index, all);
        for pair in others.windows(2) {
            let [one, other] = [0, 1].map(|at| key(index, pair[at].0, &pair[at].1));
            for len in 0..=one.len() {
                let bounds = (Bound::Included(&one[..len]), Bound::Excluded(&other[..]));
                expect_range(table, moment, expected, index, bounds);
                let bounds = (Bound::Excluded(&one[..]), Bound::Included(&other[..len]));
                expect_range(table, moment, expected, index, bounds);
                let bounds = (Bound::Included(&one[..len]), Bound::Included(&one[..len]));
                expect_range(table, moment, expected, index, bounds);
            }
        }
    }
    let by_label = table.prepare_get("by_label").unwrap();
    let find = table.prepare_find("by_weight").unwrap();
    for (id, (row, thing)) in expected {
        let label = [thing.label.as_deref().into()];
        let found = by_label.run(moment, &label, |row| Ok(row.id())).unwrap();
        // No row has NULL for a key.
        assert_eq!(found, thing.label.is_some().then_some(*row), "{id} {thing:?}");
        let mut is_found = false;
        let visit = |found: &Row<'_>| {
            is_found |= found.id() == *row;
            ControlFlow::<()>::Continue(())
        };
        find.run(moment, &[thing.weight.into()], visit).unwrap();
        assert!(is_found, "{id} {thing:?}");
    }
}

struct Store {
    pool: Pool,
    database: Database,
    table: Table,
    rebuild: Rebuild,
}

impl Store {
    fn create(path: &Path, placement: Placement, rebuild: Rebuild) -> Self {
        let pool = Pool::options().create(path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&things(placement)).unwrap();
        Store { pool, database, table, rebuild }
    }

    fn reopened(self) -> Self {
        let Store { pool, database, table, rebuild } = self;
        drop((database, table));
        let path = pool.path().to_owned();
        drop(pool);
        let pool = Pool::options().open(path).unwrap();
        let database = Database::options().rebuild(rebuild).open(&pool, "db").unwrap();
        let table = database.table("things").unwrap();
        Store { pool, database, table, rebuild }
    }

    /// Makes a statement, of a transaction if there is one. Returns what was expected to be done.
    fn apply(
        &self,
        transaction: Option<&mut remanent_engine::Transaction<'_>>,
        expected: &mut Things,
        action: &Action,
    ) {
        let is_taken = |own: Option<i32>, thing: &Thing| {
            let mut others = expected.iter().filter(|(id, _)| Some(**id) != own);
            thing.label.is_some() && others.any(|(_, (_, of))| of.label == thing.label)
        };
        match action {
            Action::Insert(id, thing) => {
                let values = [
                    (*id).into(),
                    thing.kind.into(),
                    thing.label.as_deref().into(),
                    thing.weight.into(),
                    7.into(),
                ];
                let inserted = match transaction {
                    Some(transaction) => self.table.insert_in(transaction, &values),
                    None => self.table.insert(&values),
                };
                let is_taken = expected.contains_key(id) || is_taken(None, thing);
                match inserted {
                    Ok(row) => {
                        assert!(!is_taken, "{id} {thing:?} is taken");
                        expected.insert(*id, (row, thing.clone()));
                    }
                    Err(Error::Unique { .. }) => assert!(is_taken, "{id} {thing:?} is free"),
                    Err(error) => panic!("{error}"),
                }
            }
            Action::Update(id, thing) => {
                let update = self.table.prepare_update("primary").unwrap();
                let change = |_: &Row<'_>, row: &mut remanent_engine::Changes<'_>| {
                    row.set(1, thing.kind)?;
                    row.set(2, thing.label.as_deref())?;
                    row.set(3, thing.weight)
                };
                let key = [(*id).into()];
                let updated = match transaction {
                    Some(transaction) => update.run_in(transaction, &key, change),
                    None => update.run(&key, change),
                };
                let is_taken = is_taken(Some(*id), thing);
                match (updated, expected.get_mut(id)) {
                    (Ok(None), None) => {}
                    (Ok(Some(())), Some((_, of))) => {
                        assert!(!is_taken, "{id} {thing:?} is taken");
                        *of = thing.clone();
                    }
                    (Err(Error::Unique { .. }), Some(_)) => assert!(is_taken, "{id} {thing:?}"),
                    (other, of) => panic!("{other:?} of {of:?}"),
                }
            }
            Action::Delete(id) => {
                let delete = self.table.prepare_delete("primary").unwrap();
                let removed = match transaction {
                    Some(transaction) => delete.run_in(transaction, &[(*id).into()]),
                    None => delete.run(&[(*id).into()]),
                };
                assert_eq!(removed.unwrap(), expected.remove(id).is_some());
            }
            other => panic!("{other:?} is no statement"),
        }
    }
}

fn run(placement: Placement, rebuild: Rebuild, actions: &[Action], others: &[(i32, Thing)]) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::create(&directory.path().join("things.pool"), placement, rebuild);
    let mut expected = Things::new();
    for action in actions {
        let before = (store.database.snapshot(), expected.clone());
        match action {
            Action::Together(statements, commits) => {
                let mut transaction = store.database.begin().unwrap();
                let mut seen = expected.clone();
                for statement in statements {
                    store.apply(Some(&mut transaction), &mut seen, statement);
                }
                expect(&store.table, &transaction, &seen, others);
                expect(&store.table, &store.database.snapshot(), &expected, &[]);
                match commits {
                    true => {
                        transaction.commit().unwrap();
                        expected = seen;
                    }
                    false => transaction.abort().unwrap(),
                }
            }
            Action::Collect => {
                store.database.collect().unwrap();
            }
            Action::Reopen => {
                drop(before);
                store = store.reopened();
                expect(&store.table, &store.database.snapshot(), &expected, others);
                continue;
            }
            statement => store.apply(None, &mut expected, statement),
        }
        expect(&store.table, &before.0, &before.1, &[]);
    }
    expect(&store.table, &store.database.snapshot(), &expected, others);
    store.database.collect().unwrap();
    expect(&store.table, &store.database.snapshot(), &expected, others);
    assert_eq!(store.database.check().unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn ranges_in_the_pool_are_those_of_the_model(
        actions in prop::collection::vec(action(), 0..60),
        others in prop::collection::vec((id(), thing()), 4),
    ) {
        run(Placement::Pmem, Rebuild::Wait, &actions, &others);
    }

    #[test]
    fn ranges_in_dram_are_those_of_the_model(
        actions in prop::collection::vec(action(), 0..60),
        others in prop::collection::vec((id(), thing()), 4),
        rebuild in prop::sample::select(vec![Rebuild::Wait, Rebuild::Steps, Rebuild::Background]),
    ) {
        run(Placement::Dram, rebuild, &actions, &others);
    }
}

/// A table of `count` rows whose second column has an ordered index.
fn numbered(pool: &Pool, placement: Placement, count: u32) -> (Database, Table) {
    let database = Database::create(pool, "db").unwrap();
    let spec = TableSpec::new("numbers")
        .column("id", Type::U32)
        .column("number", Type::U64)
        .primary_key(["id"])
        .index("by_number", ["number"])
        .ordered(["by_number"])
        .place(["by_number"], placement);
    let table = database.create_table(&spec).unwrap();
    for id in 0..count {
        table.insert(&[id.into(), u64::from(id * 7 % count).into()]).unwrap();
    }
    (database, table)
}

const ALL: (KeyBound<'static>, KeyBound<'static>) = (Bound::Unbounded, Bound::Unbounded);

#[test]
fn many_rows_come_in_order_from_both_ends() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::options().create(directory.path().join("many.pool")).unwrap();
        let (database, table) = numbered(&pool, placement, 3_000);
        let range = table.prepare_range("by_number").unwrap();
        for order in [Order::Ascending, Order::Descending] {
            let mut found = Vec::new();
            let visit = |row: &Row<'_>| {
                found.push(row.get::<u64>(1).unwrap());
                ControlFlow::<()>::Continue(())
            };
            range.run(&database.snapshot(), ALL, order, visit).unwrap();
            if order == Order::Descending {
                found.reverse();
            }
            assert_eq!(found, (0..3_000).collect::<Vec<_>>());
        }
    }
}

#[test]
fn rows_may_be_changed_while_they_are_read() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::options().create(directory.path().join("changed.pool")).unwrap();
        let (database, table) = numbered(&pool, placement, 500);
        let range = table.prepare_range("by_number").unwrap();
        let update = table.prepare_update("primary").unwrap();
        let mut count = 0;
        // Each row goes behind those that are still to come, and is not seen there.
        let visit = |row: &Row<'_>| {
            assert_eq!(row.get::<u64>(1).unwrap(), count);
            count += 1;
            let id = row.get::<u32>(0).unwrap();
            update.run(&[id.into()], |_, changes| changes.set(1, 10_000 + count)).unwrap();
            ControlFlow::<()>::Continue(())
        };
        range.run(&database.snapshot(), ALL, Order::Ascending, visit).unwrap();
        assert_eq!(count, 500);
        let mut moved = 0;
        let visit = |_: &Row<'_>| {
            moved += 1;
            ControlFlow::<()>::Continue(())
        };
        let behind = [10_000.into()];
        let bounds = (Bound::Included(&behind[..]), Bound::Unbounded);
        range.run(&database.snapshot(), bounds, Order::Descending, visit).unwrap();
        assert_eq!(moved, 500);
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn readers_beside_writers_see_each_row_once_and_in_order() {
    const ROWS: u32 = 400;
    for placement in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::options().create(directory.path().join("beside.pool")).unwrap();
        let (database, table) = numbered(&pool, placement, ROWS);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..2u32 {
                let (table, is_over) = (table.clone(), &is_over);
                scope.spawn(move || {
                    let update = table.prepare_update("primary").unwrap();
                    let mut number = 1u64;
                    while !is_over.load(Ordering::Relaxed) {
                        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let id = ((number >> 33) as u32 % (ROWS / 2)) * 2 + writer;
                        let moved = number >> 50;
                        match update.run(&[id.into()], |_, changes| changes.set(1, moved)) {
                            Ok(changed) => assert!(changed.is_some()),
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                    }
                });
            }
            for turn in 0..300 {
                let order = if turn % 2 == 0 { Order::Ascending } else { Order::Descending };
                let (mut last, mut seen) = (None, vec![false; ROWS as usize]);
                let visit = |row: &Row<'_>| {
                    let key = (row.get::<u64>(1).unwrap(), row.id());
                    let is_behind = last.is_none_or(|last| match order {
                        Order::Ascending => last < key,
                        Order::Descending => last > key,
                    });
                    assert!(is_behind, "{key:?} comes after {last:?}");
                    last = Some(key);
                    let id = row.get::<u32>(0).unwrap() as usize;
                    assert!(!std::mem::replace(&mut seen[id], true), "row {id} comes twice");
                    ControlFlow::<()>::Continue(())
                };
                let range = table.prepare_range("by_number").unwrap();
                range.run(&database.snapshot(), ALL, order, visit).unwrap();
                assert!(seen.iter().all(|is_seen| *is_seen), "turn {turn}: rows are missing");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn text_has_the_order_of_its_characters() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().create(directory.path().join("text.pool")).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("words").column("word", Type::Text { max: 12 }).primary_key(["word"]);
    let table = database.create_table(&spec.ordered(["primary"])).unwrap();
    let words = ["", "\0", "\0\0", "\0a", "\u{1}", "a", "a\0", "a\0b", "a\u{1}", "aa", "ä", "語"];
    for word in words.iter().rev() {
        table.insert(&[(*word).into()]).unwrap();
    }
    let twice = table.insert(&["a\0b".into()]).unwrap_err().to_string();
    assert!(twice.contains("(\"a\\0b\")"), "{twice}");
    let mut found = Vec::new();
    let visit = |row: &Row<'_>| {
        found.push(row.get::<&str>(0).unwrap().to_owned());
        ControlFlow::<()>::Continue(())
    };
    let range = table.prepare_range("primary").unwrap();
    range.run(&database.snapshot(), ALL, Order::Ascending, visit).unwrap();
    assert_eq!(found, words);
    let get = table.prepare_get("primary").unwrap();
    for word in words {
        let found =
            get.run(&database.snapshot(), &[word.into()], |row| Ok(row.get::<&str>(0)? == word));
        assert_eq!(found.unwrap(), Some(true));
    }
}

#[test]
fn rows_with_null_come_first_and_do_not_collide() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("null.pool"), placement, Rebuild::Steps);
        let mut expected = Things::new();
        for (id, label) in [(1, None), (2, Some(vec![])), (3, None), (4, Some(vec![0]))] {
            let thing = Thing { kind: None, label, weight: 0.5 };
            store.apply(None, &mut expected, &Action::Insert(id, thing));
        }
        let store = store.reopened();
        let now = store.database.snapshot();
        let ids = |bounds| {
            let found = range(&store.table, &now, "by_label", bounds, Order::Ascending, 9);
            found.into_iter().map(|(_, id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(ids(ALL), [1, 3, 2, 4]);
        let null = [Value::Null];
        assert_eq!(ids((Bound::Included(&null), Bound::Included(&null))), [1, 3]);
        assert_eq!(ids((Bound::Excluded(&null), Bound::Unbounded)), [2, 4]);
        assert_eq!(ids((Bound::Unbounded, Bound::Excluded(&null))), [0; 0]);
        let get = store.table.prepare_get("by_label").unwrap();
        assert_eq!(get.run(&now, &null, |_| Ok(())).unwrap(), None);
        drop(now);
        assert_eq!(store.database.check().unwrap(), []);
    }
}

#[test]
fn what_is_wrong_with_a_range_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(&directory.path().join("wrong.pool"), Placement::Pmem, Rebuild::Wait);
    let hashed = TableSpec::new("hashed").column("id", Type::U8).primary_key(["id"]);
    let hashed = store.database.create_table(&hashed).unwrap();
    let refused = hashed.prepare_range("primary").unwrap_err();
    assert!(matches!(refused, Error::NotOrdered { .. }));
    assert!(refused.to_string().contains("`TableSpec::ordered`"), "{refused}");
    assert!(matches!(hashed.prepare_range("other"), Err(Error::NoSuchIndex { .. })));

    let range = store.table.prepare_range("by_kind").unwrap();
    let run = |values: &[Value<'_>]| {
        let visit = |_: &Row<'_>| ControlFlow::<()>::Continue(());
        let bounds = (Bound::Included(values), Bound::Unbounded);
        range.run(&store.database.snapshot(), bounds, Order::Ascending, visit)
    };
    assert!(matches!(run(&[0.into(); 3]), Err(Error::Values { expected: 2, got: 3, .. })));
    assert!(matches!(run(&[300.into()]), Err(Error::Value { .. })));
    assert!(matches!(run(&[0.into(), Value::Null]), Err(Error::Value { .. })));
    assert!(run(&[Value::Null, 0.into()]).is_ok());
    store.database.drop_table("things").unwrap();
    assert!(matches!(run(&[]), Err(Error::NoSuchTable { .. })));
}

#[test]
fn dropped_tables_give_back_their_trees() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dropped.pool");
    let mut store = Store::create(&path, Placement::Pmem, Rebuild::Wait);
    for turn in 0..3 {
        let mut expected = Things::new();
        for id in 0..300 {
            let label = format!("{:03}", id % 1000).into_bytes();
            let thing = Thing { kind: Some(id as i8), label: Some(label), weight: f64::from(id) };
            store.apply(None, &mut expected, &Action::Insert(id, thing));
        }
        expect_range(&store.table, &store.database.snapshot(), &expected, "by_weight", ALL);
        store.database.drop_table("things").unwrap();
        store.table = store.database.create_table(&things(Placement::Pmem)).unwrap();
        match turn {
            1 => store = store.reopened(),
            _ => assert_eq!(store.database.check().unwrap(), []),
        }
    }
    assert_eq!(store.database.tables(), ["things"]);
}

#[test]
fn rows_are_found_by_hash_and_ordered_indexes_of_one_table() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("both")
        .column("id", Type::U32)
        .column("size", Type::I64)
        .primary_key(["id"])
        .unique("by_size", ["size"])
        .ordered(["by_size"]);
    let table = database.create_table(&spec).unwrap();
    for id in 0..100u32 {
        table.insert(&[id.into(), (-i64::from(id)).into()]).unwrap();
    }
    let update = table.prepare_update("by_size").unwrap();
    let updated = update.run(&[(-50).into()], |row, changes| {
        changes.set(1, i64::MIN)?;
        row.get::<u32>(0)
    });
    assert_eq!(updated.unwrap(), Some(50));
    let range = table.prepare_range("by_size").unwrap();
    let first = |order| {
        let visit = |row: &Row<'_>| ControlFlow::Break(row.get::<u32>(0).unwrap());
        range.run(&database.snapshot(), ALL, order, visit).unwrap()
    };
    assert_eq!((first(Order::Ascending), first(Order::Descending)), (Some(50), Some(0)));
    assert!(matches!(
        table.insert(&[200.into(), i64::MIN.into()]),
        Err(Error::Unique { index, .. }) if index == "by_size"
    ));
    assert!(table.prepare_delete("by_size").unwrap().run(&[i64::MIN.into()]).unwrap());
    assert_eq!(first(Order::Ascending), Some(99));
    assert_eq!(Structure::default(), Structure::Hash);
    assert_eq!(database.check().unwrap(), []);
}
