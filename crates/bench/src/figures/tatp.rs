//! TATP's tables in the engine, beside SQLite: loading, and the two transactions that read one row.
//! The others are to come, with what the engine needs for them.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use remanent_engine::{Database, TableSpec, Type, Value};
use remanent_pmem::{Emulation, Mapped, Pool};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, params_from_iter};

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, mean_ns};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::tatp::{
    AccessInfo, Random, Subscriber, access_infos, s_id, sub_nbr, subscribers,
};

pub(super) const BENCH: Bench = Bench::new(
    "tatp",
    "TATP's tables in the engine, loaded and read by key, beside SQLite in memory",
    run,
);

/// Bytes beyond which no pool of this bench grows.
const SIZE_MAX: u64 = 8 << 30;
const UNIT: &str = "ns/op";

/// What a contender was measured to take.
#[derive(Default)]
struct Times {
    insert_subscriber_ns: Samples,
    insert_access_ns: Samples,
    get_subscriber_ns: Samples,
    get_access_ns: Samples,
}

/// The rows, and how many are read.
struct Load {
    population: u32,
    subscribers: Vec<Subscriber>,
    access_infos: Vec<AccessInfo>,
    reads: u64,
}

/// Measures all contenders.
///
/// # Errors
///
/// When a pool cannot be made, or a row is not found.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let population = effort.pick(1_000_000, 100_000, 1_000);
    let rounds = effort.pick(5, 3, 1);
    let subscribers = subscribers(population);
    let load = Load {
        population,
        access_infos: access_infos(&subscribers),
        subscribers,
        reads: effort.pick(2_000_000, 500_000, 1_000),
    };
    let mut report = Report::new("tatp")?;
    let progress = Progress::new("tatp", rounds * 3);
    let [mut nvram, mut memory, mut sqlite] = [(); 3].map(|()| Times::default());
    let mut ground = None;
    for _ in 0..rounds {
        progress.step("the engine, as nvram");
        let scratch = Scratch::new(&setup.dir)?;
        let options = Pool::options().size_max(SIZE_MAX).emulation(Emulation::Nvram);
        let pool = options.create(scratch.path().join("tatp.pool"))?;
        ground = Some(Ground::of_pool(&pool));
        measure_engine(&pool, &load, &mut nvram)?;
        drop(pool);
        progress.step("the engine, in memory");
        let pool = Pool::options().size_max(SIZE_MAX).create_in_memory()?;
        measure_engine(&pool, &load, &mut memory)?;
        drop(pool);
        progress.step("SQLite, in memory");
        measure_sqlite(&load, &mut sqlite)?;
    }
    let ground = ground.unwrap_or_else(Ground::volatile);
    let volatile = Ground::volatile();
    for (series, ground, times) in [
        ("remanent", &ground, &nvram),
        ("remanent in memory", &volatile, &memory),
        ("SQLite in memory", &volatile, &sqlite),
    ] {
        let x = |name: &str| format!("{population} subscribers: {name}");
        report.row(series, &x("insert subscriber"), ground, UNIT, &times.insert_subscriber_ns);
        report.row(series, &x("insert access info"), ground, UNIT, &times.insert_access_ns);
        report.row(series, &x("GET_SUBSCRIBER_DATA"), ground, UNIT, &times.get_subscriber_ns);
        report.row(series, &x("GET_ACCESS_DATA"), ground, UNIT, &times.get_access_ns);
    }
    claim(&mut report, [&nvram, &memory, &sqlite]);
    report.chart("rows", "TATP: one row", UNIT, "", Shape::Bars);
    Ok(report)
}

fn claim(report: &mut Report, [nvram, memory, sqlite]: [&Times; 3]) {
    for (id, of) in [
        ("get_subscriber", (|times| &times.get_subscriber_ns) as fn(&Times) -> &Samples),
        ("get_access", |times| &times.get_access_ns),
    ] {
        let ours = of(nvram);
        let against = match id {
            "get_subscriber" => "600 ns, for 34 columns".to_owned(),
            _ => "nobody: 4 columns".to_owned(),
        };
        report.claim(&format!("tatp.{id}_ns"), ours, "ns", against, None);
        let against = format!(
            "ns: SQLite in memory {:.0}, remanent {:.0}, in memory {:.0}",
            of(sqlite).median(),
            ours.median(),
            of(memory).median()
        );
        let id = format!("tatp.{id}.nvram_vs_sqlite_memory");
        report.claim(&id, &of(sqlite).over(ours), "x", against, None);
    }
    let (ours, theirs) = (&nvram.insert_subscriber_ns, &sqlite.insert_subscriber_ns);
    let against = format!(
        "ns: SQLite in memory, which loses it, {:.0}; remanent, durable, {:.0}",
        theirs.median(),
        ours.median()
    );
    report.claim("tatp.insert.nvram_vs_sqlite_memory", &theirs.over(ours), "x", against, None);
}

fn tables() -> [TableSpec; 2] {
    let mut subscriber = TableSpec::new("subscriber")
        .column("s_id", Type::U32)
        .column("sub_nbr", Type::Text { max: 15 });
    for (name, of_type) in [("bit", Type::U8), ("hex", Type::U8), ("byte2", Type::U16)] {
        for number in 1..=10 {
            subscriber = subscriber.column(format!("{name}_{number}"), of_type);
        }
    }
    let subscriber = subscriber
        .column("msc_location", Type::U32)
        .column("vlr_location", Type::U32)
        .primary_key(["s_id"])
        .unique("by_sub_nbr", ["sub_nbr"]);
    let access_info = TableSpec::new("access_info")
        .column("s_id", Type::U32)
        .column("ai_type", Type::U8)
        .column("data1", Type::U16)
        .column("data2", Type::U16)
        .column("data3", Type::Text { max: 3 })
        .column("data4", Type::Text { max: 5 })
        .primary_key(["s_id", "ai_type"]);
    [subscriber, access_info]
}

/// Calls `insert` with the values of a subscriber, in the order of the columns.
fn with_values<R>(row: &Subscriber, insert: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let number = sub_nbr(row.s_id);
    let mut values: Vec<Value<'_>> = Vec::with_capacity(34);
    values.extend::<[Value<'_>; 2]>([row.s_id.into(), number.as_str().into()]);
    values.extend(row.bits.map(Value::from));
    values.extend(row.hexes.map(Value::from));
    values.extend(row.byte2s.map(Value::from));
    values.extend([row.msc_location, row.vlr_location].map(Value::from));
    insert(&values)
}

fn text(letters: &[u8]) -> &str {
    std::str::from_utf8(letters).expect("letters are ASCII")
}

fn with_access_values<R>(row: &AccessInfo, insert: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let (data3, data4) = (text(&row.data3), text(&row.data4));
    insert(&[
        row.s_id.into(),
        row.ai_type.into(),
        row.data1.into(),
        row.data2.into(),
        data3.into(),
        data4.into(),
    ])
}

/// Nanoseconds for each row.
fn each_ns<T>(rows: &[T], mut insert: impl FnMut(&T) -> Result<()>) -> Result<f64> {
    let mut failed = None;
    let time_ns = mean_ns(rows.len() as u64, |at| {
        if let Err(error) = insert(&rows[at as usize]) {
            failed.get_or_insert(error);
        }
    });
    failed.map_or(Ok(time_ns), Err)
}

fn measure_engine(pool: &Pool<Mapped>, load: &Load, times: &mut Times) -> Result<()> {
    let database = Database::create(pool, "tatp")?;
    let [subscriber, access_info] = tables();
    let subscriber = database.create_table(&subscriber)?;
    let access_info = database.create_table(&access_info)?;
    times.insert_subscriber_ns.push(each_ns(&load.subscribers, |row| {
        Ok(with_values(row, |values| subscriber.insert(values)).map(drop)?)
    })?);
    times.insert_access_ns.push(each_ns(&load.access_infos, |row| {
        Ok(with_access_values(row, |values| access_info.insert(values)).map(drop)?)
    })?);
    let by_id = subscriber.prepare_get("primary")?;
    let mut random = Random::new(5);
    let mut found = 0;
    times.get_subscriber_ns.push(mean_ns(load.reads, |_| {
        let key = [s_id(&mut random, load.population).into()];
        let read = by_id.run(&database.snapshot(), &key, |row| {
            (0..34).try_for_each(|column| {
                row.value(column).map(|value| {
                    black_box(value);
                })
            })
        });
        found += u64::from(read.is_ok_and(|found| found.is_some()));
    }));
    ensure!(found == load.reads, "{found} of {} subscribers were found", load.reads);
    let by_type = access_info.prepare_get("primary")?;
    let mut found = 0;
    times.get_access_ns.push(mean_ns(load.reads, |_| {
        let id = s_id(&mut random, load.population);
        let key = [id.into(), random.within(1, 4).into()];
        let read = by_type.run(&database.snapshot(), &key, |row| {
            (2..6).try_for_each(|column| {
                row.value(column).map(|value| {
                    black_box(value);
                })
            })
        });
        found += u64::from(read.is_ok_and(|found| found.is_some()));
    }));
    is_plausible(found, load.reads)
}

/// 62.5 % of the pairs are there.
fn is_plausible(found: u64, asked: u64) -> Result<()> {
    let share = found as f64 / asked as f64;
    ensure!((0.5..0.75).contains(&share), "{share} of the access infos were found");
    Ok(())
}

/// A value as SQLite takes it.
fn to_sqlite<'v>(value: &Value<'v>) -> ToSqlOutput<'v> {
    ToSqlOutput::Borrowed(match *value {
        Value::Uint(value) => ValueRef::Integer(value as i64),
        Value::Int(value) => ValueRef::Integer(value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        _ => ValueRef::Null,
    })
}

fn measure_sqlite(load: &Load, times: &mut Times) -> Result<()> {
    let connection = Connection::open_in_memory()?;
    for spec in tables() {
        connection.execute_batch(&create_statement(&spec))?;
    }
    let insert = |table: &str, columns: usize| {
        let places = vec!["?"; columns].join(", ");
        connection.prepare(&format!("INSERT INTO {table} VALUES ({places})"))
    };
    let execute = |statement: &mut Statement<'_>, values: &[Value<'_>]| -> Result<()> {
        statement.execute(params_from_iter(values.iter().map(to_sqlite)))?;
        Ok(())
    };
    let mut statement = insert("subscriber", 34)?;
    times.insert_subscriber_ns.push(each_ns(&load.subscribers, |row| {
        with_values(row, |values| execute(&mut statement, values))
    })?);
    let mut statement = insert("access_info", 6)?;
    times.insert_access_ns.push(each_ns(&load.access_infos, |row| {
        with_access_values(row, |values| execute(&mut statement, values))
    })?);
    let mut get = connection.prepare("SELECT * FROM subscriber WHERE s_id = ?")?;
    let mut random = Random::new(5);
    let mut found = 0;
    times.get_subscriber_ns.push(mean_ns(load.reads, |_| {
        let id = s_id(&mut random, load.population);
        found += read_columns(&mut get, &[i64::from(id)], 34).unwrap_or(0);
    }));
    ensure!(found == load.reads, "{found} of {} subscribers were found", load.reads);
    let query = "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = ? AND ai_type = ?";
    let mut get = connection.prepare(query)?;
    let mut found = 0;
    times.get_access_ns.push(mean_ns(load.reads, |_| {
        let id = s_id(&mut random, load.population);
        let key = [i64::from(id), random.within(1, 4) as i64];
        found += read_columns(&mut get, &key, 4).unwrap_or(0);
    }));
    is_plausible(found, load.reads)
}

/// Reads all columns of the row with a key; 1 if there is one.
fn read_columns(get: &mut Statement<'_>, key: &[i64], columns: usize) -> Result<u64> {
    let mut rows = get.query(params_from_iter(key))?;
    let Some(row) = rows.next()? else { return Ok(0) };
    for column in 0..columns {
        black_box(row.get_ref(column).context("a column that was asked for")?);
    }
    Ok(1)
}

fn create_statement(spec: &TableSpec) -> String {
    let (name, key) = match spec.columns().len() {
        34 => ("subscriber", "PRIMARY KEY (s_id), UNIQUE (sub_nbr)"),
        _ => ("access_info", "PRIMARY KEY (s_id, ai_type)"),
    };
    let columns: Vec<String> = spec
        .columns()
        .iter()
        .map(|column| match column.of_type {
            Type::Text { .. } => format!("{} TEXT NOT NULL", column.name),
            _ => format!("{} INTEGER NOT NULL", column.name),
        })
        .collect();
    // As SQLite recommends it for keys of several columns; the subscriber's key is the row's own.
    let rest = if name == "subscriber" { "" } else { " WITHOUT ROWID" };
    format!("CREATE TABLE {name} ({}, {key}){rest};", columns.join(", "))
}
