//! Damage to maps of words and of bytes.

use std::ops::{Bound, ControlFlow};

use remanent_engine::{Database, Error as EngineError, NewColumn, Order, Row, TableSpec, Type};
use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::papers::BpTree;
use remanent_structures::{
    BatchMap, BatchOptions, BlinkTree, Error, ExtendibleMap, ExtendibleMultiMap, HashMap,
    HashMultiMap, Map, Result, RowId, RowIndex,
};

use super::content::{Answer, Content, Step, Values};
use super::{Answers, Subject};

const ROOT: &str = "tested";
const WORDS: Content = Content { changes: true, values: Values::Word };
const BYTES: Content = Content { changes: true, values: Values::Bytes { long: 70_000 } };
const WORDS_UNPROTECTED: Option<&str> = Some("words of eight bytes");

/// A map from numbers to their values.
trait Entries {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>>;
    fn put(&self, number: u64, value: &[u8]) -> Result<()>;
    fn remove(&self, number: u64) -> Result<()>;
    /// Visits entries until `visit` returns false. The number is `None` for a key that belongs to
    /// no number.
    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()>;
}

/// A kind of map under a root: how to create and how to open it.
struct MapSubject {
    name: &'static str,
    content: Content,
    unprotected: Option<&'static str>,
    create: fn(&Pool) -> Result<Box<dyn Entries>>,
    open: fn(&Pool) -> Result<Box<dyn Entries>>,
}

pub(super) fn subjects() -> Vec<Box<dyn Subject>> {
    let maps = [
        MapSubject {
            name: "hashmap",
            content: BYTES,
            unprotected: None,
            create: |pool| Ok(Box::new(Bytes(HashMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Bytes(HashMap::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "hashmap-words",
            content: WORDS,
            unprotected: WORDS_UNPROTECTED,
            create: |pool| Ok(Box::new(Words(HashMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Words(HashMap::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "extendible",
            content: BYTES,
            unprotected: None,
            create: |pool| Ok(Box::new(Bytes(ExtendibleMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Bytes(ExtendibleMap::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "extendible-words",
            content: WORDS,
            unprotected: Some("slots of words"),
            create: |pool| Ok(Box::new(Words(ExtendibleMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Words(ExtendibleMap::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "blink-tree",
            content: Content { values: Values::Bytes { long: 60_000 }, ..BYTES },
            unprotected: None,
            create: |pool| Ok(Box::new(Bytes(BlinkTree::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Bytes(BlinkTree::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "blink-tree-words",
            content: WORDS,
            unprotected: WORDS_UNPROTECTED,
            create: |pool| Ok(Box::new(Words(BlinkTree::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Words(BlinkTree::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "bptree-words",
            content: WORDS,
            unprotected: WORDS_UNPROTECTED,
            create: |pool| Ok(Box::new(Words(BpTree::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Words(BpTree::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "batch-map",
            content: BYTES,
            unprotected: None,
            create: |pool| Ok(Box::new(Bytes(BatchMap::create(pool, ROOT, batches())?))),
            open: |pool| Ok(Box::new(Bytes(BatchMap::open(pool, ROOT, batches())?))),
        },
    ];
    maps.into_iter()
        .chain(multimaps())
        .chain([rows(), tables(), ordered_tables(), encoded_tables()])
        .map(|map| Box::new(map) as Box<dyn Subject>)
        .collect()
}

fn multimaps() -> [MapSubject; 2] {
    [
        MapSubject {
            name: "multimap",
            content: BYTES,
            unprotected: None,
            create: |pool| Ok(Box::new(Multi(HashMultiMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Multi(HashMultiMap::open(pool, ROOT)?))),
        },
        MapSubject {
            name: "multimap-extendible",
            content: BYTES,
            unprotected: None,
            create: |pool| Ok(Box::new(Chains(ExtendibleMultiMap::create(pool, ROOT)?))),
            open: |pool| Ok(Box::new(Chains(ExtendibleMultiMap::open(pool, ROOT)?))),
        },
    ]
}

fn rows() -> MapSubject {
    MapSubject {
        name: "row-index",
        content: WORDS,
        unprotected: Some("words of rows"),
        create: |pool| Ok(Box::new(Rows(RowIndex::create(pool, ROOT)?, pool.clone()))),
        open: |pool| Ok(Box::new(Rows(RowIndex::open(pool, ROOT)?, pool.clone()))),
    }
}

fn tables() -> MapSubject {
    MapSubject {
        name: "engine",
        content: Content { changes: false, values: Values::Word },
        unprotected: Some("heads and cells of rows"),
        create: |pool| create_table(pool, &table()),
        open: |pool| Ok(Box::new(InTable(Database::open(pool, ROOT).map_err(of_engine)?))),
    }
}

fn ordered_tables() -> MapSubject {
    MapSubject {
        name: "engine-ordered",
        create: |pool| create_table(pool, &table().ordered(["primary", "by_twice"])),
        ..tables()
    }
}

fn encoded_tables() -> MapSubject {
    MapSubject {
        name: "engine-encoded",
        create: |pool| create_table(pool, &table().all_encoded()),
        ..tables()
    }
}

fn table() -> TableSpec {
    TableSpec::new(ROOT)
        .column("number", Type::U64)
        .column("twice", Type::U64)
        .primary_key(["number"])
        .unique("by_twice", ["twice"])
        .tile_rows(100)
}

fn create_table(pool: &Pool, spec: &TableSpec) -> Result<Box<dyn Entries>> {
    let database = Database::create(pool, ROOT).map_err(of_engine)?;
    let table = database.create_table(spec).map_err(of_engine)?;
    // So that its cells lie in extensions of tiles.
    let value = NewColumn::new("value", Type::Bytes { max: 8 }).default(&[][..]);
    database.add_column(&table, &value).map_err(of_engine)?;
    Ok(Box::new(InTable(database)))
}

fn batches() -> BatchOptions {
    BatchOptions::without_thread()
}

impl MapSubject {
    fn apply(&self, map: &dyn Entries, step: Step) -> Result<()> {
        match step {
            Step::Put(number, version) => map.put(number, &self.content.value(number, version)),
            Step::Remove(number) => map.remove(number),
        }
    }
}

impl Subject for MapSubject {
    fn name(&self) -> &'static str {
        self.name
    }

    fn unprotected(&self) -> Option<&'static str> {
        self.unprotected
    }

    fn fill(&self, pool: &Pool) -> anyhow::Result<()> {
        let map = (self.create)(pool)?;
        Ok(self.content.fill().try_for_each(|step| self.apply(&*map, step))?)
    }

    fn change(&self, pool: &Pool) -> anyhow::Result<()> {
        let map = (self.open)(pool)?;
        Ok(self.content.change().try_for_each(|step| self.apply(&*map, step))?)
    }

    fn read(&self, pool: &Pool) -> anyhow::Result<Answers> {
        let map = (self.open)(pool)?;
        let mut answers = Answers::default();
        for number in self.content.asked() {
            match map.get(number) {
                Ok(found) => self.content.judge(number, found.as_deref(), &mut answers),
                Err(error) => answers.note(Answer::Error, || error.to_string()),
            }
        }
        let mut walk = self.content.walk();
        let walked = map.walk(&mut |number, value| walk.meet(number, value, &mut answers));
        walk.end(walked.err().map(|error| error.to_string()), &mut answers);
        Ok(answers)
    }

    fn write(&self, pool: &Pool) {
        if let Ok(map) = (self.open)(pool) {
            for step in self.content.write() {
                let _ = self.apply(&*map, step);
            }
        }
    }
}

/// Keys of 5 to 34 bytes.
fn key_of(number: u64) -> Vec<u8> {
    let mut key = format!("key {number}").into_bytes();
    key.resize(key.len() + (number % 6 * 5) as usize, b'.');
    key
}

fn number_of(key: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(key).ok()?.strip_prefix("key ")?;
    let number = text.trim_end_matches('.').parse().ok()?;
    (key_of(number) == key).then_some(number)
}

/// Keys and values of bytes.
struct Bytes<T>(T);

impl<T: Map<[u8], [u8]>> Entries for Bytes<T> {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        self.0.get(&key_of(number))
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        self.0.put(&key_of(number), value).map(|_| ())
    }

    fn remove(&self, number: u64) -> Result<()> {
        self.0.discard(&key_of(number)).map(|_| ())
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        self.0.for_each(|key, value| flow(visit(number_of(key), value)))
    }
}

/// Keys and values of eight bytes.
struct Words<T>(T);

/// Distance of keys, so that ordered maps are not filled from one end.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
/// The inverse of `STRIDE`: `STRIDE * INVERSE` is 1 modulo 2^64.
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(STRIDE.wrapping_mul(INVERSE) == 1);

impl<T: Map<u64, u64>> Entries for Words<T> {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let found = self.0.get(&number.wrapping_mul(STRIDE))?;
        Ok(found.map(|value| value.to_le_bytes().to_vec()))
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        let value = u64::from_le_bytes(value.try_into().expect("values are words"));
        self.0.put(&number.wrapping_mul(STRIDE), &value).map(|_| ())
    }

    fn remove(&self, number: u64) -> Result<()> {
        self.0.discard(&number.wrapping_mul(STRIDE)).map(|_| ())
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        self.0.for_each(|key, value| {
            flow(visit(Some(key.wrapping_mul(INVERSE)), &value.to_le_bytes()))
        })
    }
}

/// Keys of bytes, each with one value, in a map that allows several.
struct Multi(HashMultiMap<[u8], [u8]>);

impl Entries for Multi {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut found = self.0.get_all(&key_of(number))?;
        // Two values are as wrong as another value: neither was stored.
        Ok(if found.len() > 1 { Some(found.concat()) } else { found.pop() })
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        self.0.remove_all(&key_of(number))?;
        self.0.insert(&key_of(number), value)
    }

    fn remove(&self, number: u64) -> Result<()> {
        self.0.remove_all(&key_of(number)).map(|_| ())
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        let (mut cursor, mut goes_on) = (0, true);
        loop {
            cursor = self.0.scan(cursor, 64, |key, value| {
                goes_on = goes_on && visit(number_of(key), value);
            })?;
            if cursor == 0 || !goes_on {
                return Ok(());
            }
        }
    }
}

/// Values that begin with the number of their entry, and many for each key.
struct Chains(ExtendibleMultiMap<[u8], [u8]>);

const CHAIN_KEYS: u64 = 12;

impl Chains {
    fn key_of(number: u64) -> Vec<u8> {
        key_of(number % CHAIN_KEYS)
    }

    /// The values of a number, each with the number before it.
    fn values_of(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.0.for_each(&Self::key_of(number), |value| {
            if value.starts_with(&number.to_le_bytes()) {
                found.push(value.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

impl Entries for Chains {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut found = self.values_of(number)?;
        // Two values are as wrong as another value: neither was stored.
        let found = if found.len() > 1 { Some(found.concat()) } else { found.pop() };
        Ok(found.map(|value| value[size_of::<u64>()..].to_vec()))
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        self.remove(number)?;
        self.0.insert(&Self::key_of(number), &[&number.to_le_bytes(), value].concat())
    }

    fn remove(&self, number: u64) -> Result<()> {
        let remove = |value: Vec<u8>| self.0.remove_one(&Self::key_of(number), &value).map(|_| ());
        self.values_of(number)?.into_iter().try_for_each(remove)
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        let (mut cursor, mut goes_on) = (0, true);
        loop {
            cursor = self.0.scan(cursor, 64, |_, value| {
                let (number, value) = value.split_first_chunk().unwrap_or((&[0xff; 8], value));
                goes_on = goes_on && visit(Some(u64::from_le_bytes(*number)), value);
            })?;
            if cursor == 0 || !goes_on {
                return Ok(());
            }
        }
    }
}

/// Rows that tell the number and the version of an entry.
struct Rows(RowIndex, Pool);

/// Keys of rows: each has so many that they are in a chain.
const ROW_KEYS: u64 = 12;
const VERSIONS: u64 = 2;

/// The row of a value, if that was ever stored.
fn row_of(number: u64, value: &[u8]) -> Option<RowId> {
    let version = (0..VERSIONS).find(|&version| WORDS.value(number, version) == value)?;
    RowId::new(number * VERSIONS + version)
}

/// The number and the value that a row stands for.
fn entry_of(row: RowId) -> (u64, Vec<u8>) {
    let number = row.get() / VERSIONS;
    (number, WORDS.value(number, row.get() % VERSIONS))
}

impl Entries for Rows {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut found = Vec::new();
        self.0.find(number % ROW_KEYS, |row| {
            let (of, value) = entry_of(row);
            if of == number {
                found.push(value);
            }
            ControlFlow::<()>::Continue(())
        })?;
        // Two values are as wrong as another value: neither was stored.
        Ok(if found.len() > 1 { Some(found.concat()) } else { found.pop() })
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        self.remove(number)?;
        let row = row_of(number, value).expect("a value of this number");
        self.0.insert(number % ROW_KEYS, row)?;
        self.1.medium().fence();
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<()> {
        for version in 0..VERSIONS {
            let row = row_of(number, &WORDS.value(number, version)).expect("a value of the number");
            self.0.remove(number % ROW_KEYS, row)?;
        }
        self.1.medium().fence();
        Ok(())
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        let mut goes_on = true;
        self.0.for_each(|row| {
            let (number, value) = entry_of(row);
            goes_on = goes_on && visit(Some(number), &value);
        })
    }
}

/// Rows of a table with two keys.
struct InTable(Database);

fn of_engine(error: EngineError) -> Error {
    match error {
        EngineError::Pool(error) => error.into(),
        EngineError::Structure(error) => error,
        error => PoolError::corrupt(0, error.to_string()).into(),
    }
}

impl InTable {
    fn find(&self, index: &str, key: u64) -> Result<Option<(u64, Vec<u8>)>, EngineError> {
        let get = self.0.table(ROOT)?.prepare_get(index)?;
        get.run(&self.0.snapshot(), &[key.into()], |row| {
            Ok((row.get(0)?, row.get::<&[u8]>(2)?.to_vec()))
        })
    }
}

impl Entries for InTable {
    fn get(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let found = self.find("primary", number).map_err(of_engine)?;
        let by_other = self.find("by_twice", 2 * number).map_err(of_engine)?;
        // What only one of the keys leads to is told as what that key finds.
        Ok(found.or(by_other).map(|(of, value)| match of == number {
            true => value,
            false => [&of.to_le_bytes()[..], &value].concat(),
        }))
    }

    fn put(&self, number: u64, value: &[u8]) -> Result<()> {
        let table = self.0.table(ROOT).map_err(of_engine)?;
        let row = [number.into(), (2 * number).into(), value.into()];
        table.insert(&row).map(drop).map_err(of_engine)
    }

    fn remove(&self, _: u64) -> Result<()> {
        unreachable!("the content has no removals")
    }

    fn walk(&self, visit: &mut dyn FnMut(Option<u64>, &[u8]) -> bool) -> Result<()> {
        let table = self.0.table(ROOT).map_err(of_engine)?;
        let mut visit_row = |row: &Row<'_>| {
            let number = row.get(0)?;
            Ok::<bool, EngineError>(visit(Some(number), row.get::<&[u8]>(2)?))
        };
        let visit = |row: &Row<'_>| match visit_row(row) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(None),
            Err(error) => ControlFlow::Break(Some(error)),
        };
        let failed = match table.prepare_range("by_twice") {
            Ok(range) => {
                let all = (Bound::Unbounded, Bound::Unbounded);
                range.run(&self.0.snapshot(), all, Order::Ascending, visit)
            }
            Err(_) => table.scan(&self.0.snapshot(), visit),
        };
        failed.map_err(of_engine)?.flatten().map_or(Ok(()), |error| Err(of_engine(error)))
    }
}

fn flow(goes_on: bool) -> ControlFlow<()> {
    if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
