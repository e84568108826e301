//! Uses of indexes are counted, and indexes are placed by them.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use remanent_engine::{
    Database, Error, IndexUse, Order, Placement, PlacementPlan, Rebuild, Structure, Table,
    TableSpec, Type,
};
use remanent_pmem::Pool;

const ALL: [&str; 4] = ["primary", "by_code", "by_year", "in_order"];

/// A table with an index of each kind, all of them in DRAM.
fn create(pool: &Pool, rows: u32) -> (Database, Table) {
    let database = Database::create(pool, "db").unwrap();
    let spec = TableSpec::new("people")
        .column("id", Type::U32)
        .column("code", Type::U32)
        .column("year", Type::U16)
        .primary_key(["id"])
        .unique("by_code", ["code"])
        .index("by_year", ["year"])
        .index("in_order", ["year", "id"])
        .ordered(["in_order"])
        .place(ALL, Placement::Dram);
    let table = database.create_table(&spec).unwrap();
    for id in 0..rows {
        table.insert(&[id.into(), (id + 1_000_000).into(), (id % 50).into()]).unwrap();
    }
    (database, table)
}

fn in_memory(rows: u32) -> (Database, Table) {
    create(&Pool::options().create_in_memory().unwrap(), rows)
}

fn used(database: &Database, index: &str) -> IndexUse {
    let found = database.index_uses().into_iter().find(|used| used.index == index);
    found.unwrap_or_else(|| panic!("{index} is not there"))
}

fn counts(database: &Database, index: &str) -> [u64; 3] {
    let used = used(database, index);
    [used.lookups, used.ranges, used.changes]
}

/// Looks for this code so often.
fn look(database: &Database, table: &Table, count: u32) {
    let get = table.prepare_get("by_code").unwrap();
    for _ in 0..count {
        get.run(&database.snapshot(), &[1_000_001.into()], |_| Ok(())).unwrap();
    }
}

#[test]
fn lookups_ranges_and_changes_are_counted() {
    let (database, table) = in_memory(10);
    // An insert looks for others with its unique keys.
    for (index, expected) in
        [("primary", [10, 0, 10]), ("by_code", [10, 0, 10]), ("by_year", [0, 0, 10])]
    {
        assert_eq!(counts(&database, index), expected, "{index}");
    }
    look(&database, &table, 3);
    assert_eq!(counts(&database, "by_code"), [13, 0, 10]);
    let range = table.prepare_range("in_order").unwrap();
    let all = (Bound::Unbounded, Bound::Unbounded);
    range.run(&database.snapshot(), all, Order::Ascending, |_| ControlFlow::Break(())).unwrap();
    assert_eq!(counts(&database, "in_order"), [0, 1, 10]);
    // A new year is a new key of two indexes, found by the primary one.
    let update = table.prepare_update("primary").unwrap();
    update.run(&[3.into()], |_, row| row.set(2, 40)).unwrap();
    assert_eq!(counts(&database, "primary"), [11, 0, 10]);
    assert_eq!(counts(&database, "by_year"), [0, 0, 11]);
    // A moved index keeps its counts.
    database.place_index(&table, "by_code", Placement::Pmem).unwrap();
    assert_eq!(counts(&database, "by_code"), [13, 0, 10]);
    look(&database, &table, 1);
    assert_eq!(counts(&database, "by_code"), [14, 0, 10]);
}

#[test]
fn sizes_are_about_right() {
    let (database, _) = in_memory(20_000);
    for used in database.index_uses() {
        assert!((18_000..22_000).contains(&used.rows), "{used:?}");
        let of_row = if used.structure == Structure::Hash { 12..20 } else { 30..70 };
        assert!(of_row.contains(&(used.bytes / used.rows)), "{used:?}");
    }
}

#[test]
fn the_most_wanted_go_to_the_pool() {
    let (database, table) = in_memory(2_000);
    look(&database, &table, 10_000);
    let plan = database.plan_placement(0.3);
    assert_eq!(plan.indexes[0].used.index, "by_code");
    assert_eq!(plan.indexes[0].placement, Placement::Pmem);
    assert!((0.1..0.5).contains(&plan.share()), "{plan}");
    database.apply_placement(&plan).unwrap();
    for planned in &plan.indexes {
        assert_eq!(table.placement(&planned.used.index).unwrap(), planned.placement);
    }
    assert_eq!(table.placement("by_code").unwrap(), Placement::Pmem);
    assert_eq!(database.check().unwrap(), []);
    look(&database, &table, 1);
}

#[test]
fn a_plan_says_what_it_costs() {
    let (database, _) = in_memory(2_000);
    let (none, all) = (database.plan_placement(0.0), database.plan_placement(1.0));
    assert_eq!((none.share(), all.share()), (0.0, 1.0));
    assert_eq!(all.rebuild_time(1), Duration::ZERO);
    assert!(none.rebuild_time(1) > none.rebuild_time(2));
    assert!(none.rebuild_time(2) > Duration::ZERO);
    assert!(none.use_ns() > 0.0 && all.use_ns() > 0.0, "{none}\n{all}");
    let text = all.to_string();
    for index in ALL {
        assert!(text.contains(&format!("people.{index}")), "{text}");
    }
    assert!(text.contains("100 % of the bytes in the pool"), "{text}");
    // Whatever is no share is the nearest one.
    assert_eq!(database.plan_placement(f64::NAN).share(), 0.0);
    assert_eq!(database.plan_placement(-3.0).share(), 0.0);
    assert_eq!(database.plan_placement(f64::INFINITY).share(), 1.0);
}

#[test]
fn an_empty_database_has_an_empty_plan() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let plan = database.plan_placement(0.5);
    assert!(plan.indexes.is_empty() && plan.share() == 0.0 && plan.use_ns() == 0.0);
    assert!(plan.to_string().contains("0 % of the bytes"));
    database.apply_placement(&plan).unwrap();
}

#[test]
fn a_plan_for_what_was_dropped_is_refused() {
    let (database, table) = in_memory(10);
    let plan = database.plan_placement(1.0);
    database.drop_index(&table, "by_year").unwrap();
    let refused = database.apply_placement(&plan);
    assert!(matches!(refused, Err(Error::NoSuchIndex { .. })), "{refused:?}");
    // Those before it in the order of the names are moved.
    assert_eq!(table.placement("by_code").unwrap(), Placement::Pmem);
    assert_eq!(table.placement("in_order").unwrap(), Placement::Dram);
    database.drop_table("people").unwrap();
    let refused = database.apply_placement(&plan);
    assert!(matches!(refused, Err(Error::NoSuchTable { .. })), "{refused:?}");
}

#[test]
fn the_cost_of_rebuilding_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    drop(create(&Pool::options().create(&path).unwrap(), 20_000));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::options().rebuild(Rebuild::Steps).open(&pool, "db").unwrap();
    let usual = database.plan_placement(0.0).rebuild_ns;
    while database.rebuild_step().unwrap() {}
    let measured = database.plan_placement(0.0).rebuild_ns;
    assert!(measured > 0.0 && measured != usual, "{measured} {usual}");
}

/// A table of an encoded column that has so many values, each in two rows.
fn encoded(pool: &Pool, values: u32) -> (Database, Table) {
    let database = Database::create(pool, "db").unwrap();
    let spec = TableSpec::new("orders")
        .column("id", Type::U32)
        .column("country", Type::Text { max: 30 })
        .primary_key(["id"])
        .encoded(["country"])
        .place_dictionaries(["country"], Placement::Dram);
    let table = database.create_table(&spec).unwrap();
    for id in 0..2 * values {
        let country = format!("country {}", id % values);
        table.insert(&[id.into(), country.as_str().into()]).unwrap();
    }
    (database, table)
}

fn of_dictionary(database: &Database) -> IndexUse {
    let uses = database.index_uses();
    let mut found = uses.into_iter().filter(|used| used.is_dictionary);
    let used = found.next().unwrap();
    assert_eq!(
        (found.next(), used.table.as_str(), used.index.as_str()),
        (None, "orders", "country")
    );
    used
}

#[test]
fn indexes_of_dictionaries_are_counted_planned_and_moved() {
    let pool = Pool::options().create_in_memory().unwrap();
    let (database, table) = encoded(&pool, 1_000);
    let used = of_dictionary(&database);
    assert_eq!([used.lookups, used.ranges, used.changes], [2_000, 0, 1_000]);
    assert_eq!((used.rows, used.placement), (1_000, Placement::Dram));
    assert!((1_000 * 12..1_000 * 40).contains(&used.bytes), "{used:?}");
    // One that is moved keeps its counts.
    database.place_dictionary(&table, "country", Placement::Pmem).unwrap();
    table.insert(&[5_000.into(), "country 7".into()]).unwrap();
    table.insert(&[5_001.into(), "another one".into()]).unwrap();
    let used = of_dictionary(&database);
    assert_eq!([used.lookups, used.changes, used.rows], [2_002, 1_001, 1_001]);
    assert_eq!(used.placement, Placement::Pmem);

    // The dictionary has as many uses as the primary key has, for fewer bytes.
    let plan = database.plan_placement(0.3);
    assert!(plan.indexes[0].used.is_dictionary, "{plan}");
    assert_eq!(plan.indexes[0].placement, Placement::Pmem, "{plan}");
    assert_eq!(plan.indexes[1].placement, Placement::Dram, "{plan}");
    assert!((0.2..0.5).contains(&plan.share()), "{plan}");
    assert!(plan.to_string().contains("orders.country (dictionary)"), "{plan}");
    assert!(plan.indexes.iter().all(|planned| planned.lookup_ns > 0.0), "{plan}");
    for share in [0.0, 0.3, 1.0] {
        let plan = database.plan_placement(share);
        database.apply_placement(&plan).unwrap();
        for planned in &plan.indexes {
            let placed = match planned.used.is_dictionary {
                true => table.dictionary_placement(&planned.used.index),
                false => table.placement(&planned.used.index),
            };
            assert_eq!(placed.unwrap(), planned.placement, "{plan}");
        }
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn plans_count_what_it_takes_to_rebuild_dictionaries() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    drop(encoded(&Pool::options().create(&path).unwrap(), 20_000));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::options().rebuild(Rebuild::Steps).open(&pool, "db").unwrap();
    let plan = database.plan_placement(0.0);
    let rows = |plan: &PlacementPlan| {
        let rows = plan.indexes.iter().map(|of| of.used.rows as f64);
        let (of_values, of_rows): (Vec<_>, Vec<_>) =
            rows.zip(&plan.indexes).partition(|(_, of)| of.used.is_dictionary);
        let sum = |of: Vec<(f64, _)>| of.into_iter().map(|(rows, _)| rows).sum::<f64>();
        (sum(of_rows), sum(of_values))
    };
    let (of_rows, of_values) = rows(&plan);
    assert!(of_values == 20_000.0 && of_rows > 30_000.0, "{plan}");
    let expected = (of_rows * plan.rebuild_ns + of_values * plan.rebuild_value_ns) / 1e9;
    assert!((plan.rebuild_time(1).as_secs_f64() - expected).abs() < 1e-6, "{plan}");
    assert_eq!(database.plan_placement(1.0).rebuild_time(1), Duration::ZERO);
    while database.rebuild_step().unwrap() {}
    let measured = database.plan_placement(0.0).rebuild_value_ns;
    assert!(measured > 0.0 && measured != plan.rebuild_value_ns, "{measured}");
}
