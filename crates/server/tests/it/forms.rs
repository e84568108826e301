//! Pools of older versions, whose entries are in another map.

use remanent_pmem::{Error as PoolError, Pool};
use remanent_server::store::{
    CONVERSION_ROOT, Conversion, Form, ROOT, TABLE_ROOT, convert, has_two_maps,
};
use remanent_server::{BatchStore, Keyspace, MapStore, check_collections};
use remanent_structures::{BatchMap, BatchOptions, Error, ExtendibleMap, HashMap};

use super::session::Connection;

/// A pool as older versions made it, without entries.
fn older(directory: &tempfile::TempDir, size_max: u64) -> Pool {
    let pool = Pool::options().size_max(size_max).create(directory.path().join("pool")).unwrap();
    drop(HashMap::<[u8], [u8]>::create(&pool, ROOT).unwrap());
    pool
}

fn fill(pool: &Pool, count: u64) {
    let mut connection = Connection::to(MapStore::open(pool).unwrap());
    for number in 0..count {
        let request = format!("SET key{number} value{number}");
        assert_eq!(connection.exchange(&request), "+OK\r\n");
    }
    assert_eq!(connection.exchange("ZADD set 1 one 2 two"), ":2\r\n");
}

fn assert_filled(pool: &Pool, count: u64) {
    let mut connection = Connection::to(MapStore::open(pool).unwrap());
    for number in 0..count {
        let value = format!("value{number}");
        let answer = format!("${}\r\n{value}\r\n", value.len());
        assert_eq!(connection.exchange(&format!("GET key{number}")), answer);
    }
    assert_eq!(connection.exchange("DBSIZE"), format!(":{}\r\n", count + 1));
    assert_eq!(connection.exchange("ZRANGE set 0 -1"), "*2\r\n$3\r\none\r\n$3\r\ntwo\r\n");
    drop(connection);
    let keys = Keyspace::open(MapStore::open(pool).unwrap()).unwrap();
    assert_eq!(keys.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_pool_of_an_older_version_is_served_as_it_is_and_converted() {
    const COUNT: u64 = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let pool = older(&directory, 256 << 20);
    fill(&pool, COUNT);
    assert_eq!(Form::of(&pool).unwrap(), Some(Form::HashMap));
    assert_filled(&pool, COUNT);
    // What a conversion has left that was killed is not what is served.
    drop(HashMap::<[u8], [u8]>::create(&pool, CONVERSION_ROOT).unwrap());
    let left: ExtendibleMap<[u8], [u8]> = ExtendibleMap::create(&pool, TABLE_ROOT).unwrap();
    left.insert(b"key0", b"garbage").unwrap();
    left.insert(b"more", b"garbage").unwrap();
    drop(left);
    assert_filled(&pool, COUNT);

    let mut told = 0;
    assert_eq!(convert(&pool, |count| told = count).unwrap(), Conversion::Moved(COUNT + 1));
    assert_eq!(told, COUNT + 1);
    assert_eq!(Form::of(&pool).unwrap(), Some(Form::ExtendibleMap));
    assert_filled(&pool, COUNT);
    assert_eq!(convert(&pool, |_| ()).unwrap(), Conversion::Unneeded);
    assert_eq!(pool.check().unwrap().violations, []);
    assert!(!pool.has_root(CONVERSION_ROOT).unwrap());
}

/// An older version knows nothing of entries in an `ExtendibleMap`, and begins with none.
#[test]
fn entries_beside_those_of_an_older_version_are_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = Pool::options().size_max(64 << 20).create(path).unwrap();
    fill(&pool, 10);
    let map = HashMap::<[u8], [u8]>::create(&pool, ROOT).unwrap();
    map.put(b"key", b"value").unwrap();
    drop(map);
    let is_told = |error: &Error| matches!(error, Error::Pool(PoolError::RootExists { .. }));
    assert!(has_two_maps(&pool).unwrap());
    assert!(is_told(&convert(&pool, |_| ()).unwrap_err()));
    // To serve one of them would remove the sorted sets that the other names.
    assert!(is_told(&MapStore::open(&pool).unwrap_err()));
    assert_eq!(check_collections(&pool).unwrap().len(), 1);
    pool.remove_root(ROOT).unwrap();
    drop(BatchMap::<[u8], [u8]>::create(&pool, ROOT, BatchOptions::default()).unwrap());
    assert!(has_two_maps(&pool).unwrap());
    assert!(is_told(&BatchStore::open(&pool, BatchOptions::default()).unwrap_err()));
    pool.remove_root(ROOT).unwrap();
    // As a crash leaves it at the end of a conversion.
    drop(HashMap::<[u8], [u8]>::create(&pool, CONVERSION_ROOT).unwrap());
    assert_filled(&pool, 10);
    assert!(!pool.has_root(CONVERSION_ROOT).unwrap());
}

/// An older version that was started by mistake, and stopped before anybody used it.
#[test]
fn an_empty_map_of_an_older_version_is_removed_by_a_conversion() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = Pool::options().size_max(64 << 20).create(path).unwrap();
    fill(&pool, 10);
    for is_batched in [false, true] {
        match is_batched {
            false => drop(HashMap::<[u8], [u8]>::create(&pool, ROOT).unwrap()),
            true => {
                let options = BatchOptions::default();
                drop(BatchMap::<[u8], [u8]>::create(&pool, ROOT, options).unwrap());
            }
        }
        assert!(has_two_maps(&pool).unwrap());
        assert!(MapStore::open(&pool).is_err());
        assert_eq!(convert(&pool, |_| ()).unwrap(), Conversion::EmptyRemoved);
        assert_filled(&pool, 10);
    }
    // A map that becomes safe in batches was never being converted.
    drop(HashMap::<[u8], [u8]>::create(&pool, CONVERSION_ROOT).unwrap());
    let map = BatchMap::<[u8], [u8]>::create(&pool, ROOT, BatchOptions::default()).unwrap();
    map.put(b"key", b"value").unwrap();
    drop(map);
    assert!(has_two_maps(&pool).unwrap());
    assert!(convert(&pool, |_| ()).is_err());
    pool.remove_root(ROOT).unwrap();
    assert_filled(&pool, 10);
}

#[test]
fn a_conversion_without_room_leaves_the_entries_where_they_are() {
    const COUNT: u64 = 60_000;
    let directory = tempfile::tempdir().unwrap();
    let pool = older(&directory, 26 << 20);
    fill(&pool, COUNT);
    let error = convert(&pool, |_| ()).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(!pool.has_root(TABLE_ROOT).unwrap());
    assert_filled(&pool, COUNT);
}

#[test]
fn a_conversion_waits_for_nobody_who_has_the_entries() {
    let directory = tempfile::tempdir().unwrap();
    let pool = older(&directory, 64 << 20);
    fill(&pool, 10);
    let store = MapStore::open(&pool).unwrap();
    let error = convert(&pool, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::RootInUse { .. })), "{error}");
    drop(store);
    assert_filled(&pool, 10);
}

#[test]
fn entries_of_one_form_are_not_served_as_another() {
    let directory = tempfile::tempdir().unwrap();
    let pool = |name| {
        let path = directory.path().join(name);
        Pool::options().size_max(64 << 20).create(path).unwrap()
    };
    let (immediate, batched) = (pool("immediate"), pool("batched"));
    fill(&immediate, 10);
    let refused = BatchStore::open(&immediate, BatchOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::Pool(PoolError::WrongType { .. })), "{refused}");
    drop(BatchStore::open(&batched, BatchOptions::default()).unwrap());
    assert_eq!(Form::of(&batched).unwrap(), Some(Form::BatchMap));
    let refused = MapStore::open(&batched).unwrap_err();
    assert!(matches!(refused, Error::Pool(PoolError::WrongType { .. })), "{refused}");
    assert_eq!(convert(&batched, |_| ()).unwrap(), Conversion::Unneeded);
}
