//! Values that serde encodes: they come back, and what cannot be decoded is an error. Needs the
//! feature `serde`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::{
    BatchMap, BatchOptions, BlinkTree, Encoded, EncodingError, Error, HashMap, Log, Stored,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Event {
    Opened,
    Renamed(String),
    Moved { from: (i32, i32), to: Option<(i32, i32)> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    user: u64,
    events: Vec<Event>,
    limits: BTreeMap<String, f64>,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Opened),
        any::<String>().prop_map(Event::Renamed),
        (any::<(i32, i32)>(), any::<Option<(i32, i32)>>())
            .prop_map(|(from, to)| Event::Moved { from, to }),
    ]
}

prop_compose! {
    fn sessions()(
        user in any::<u64>(),
        events in prop::collection::vec(events(), 0..5),
        limits in prop::collection::btree_map(".{0,8}", -1e9..1e9, 0..4),
    ) -> Session {
        Session { user, events, limits }
    }
}

fn session() -> Session {
    let moved = Event::Moved { from: (1, -2), to: None };
    let limits = BTreeMap::from([("rate".to_owned(), 0.5)]);
    Session { user: 7, events: vec![Event::Opened, Event::Renamed("a".repeat(100)), moved], limits }
}

fn decoded(bytes: &[u8]) -> Result<Session, EncodingError> {
    Encoded::<Session>::with_stored(bytes, Encoded::decode)
}

fn pool() -> Pool {
    Pool::options().size_max(64 << 20).create_in_memory().unwrap()
}

proptest! {
    #[test]
    fn values_come_back(session in sessions()) {
        let encoded: Encoded<Session> = Encoded::new(&session).unwrap();
        prop_assert_eq!(encoded.decode().unwrap(), session.clone());
        prop_assert_eq!(decoded(encoded.bytes()).unwrap(), session);
    }

    #[test]
    fn whatever_is_stored_is_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        match decoded(&bytes) {
            // Numbers may be written in more than one way, so that other bytes may be the same
            // value.
            Ok(session) => prop_assert!(Encoded::<Session>::new(&session).is_ok()),
            Err(EncodingError::Decode { len, .. }) => prop_assert_eq!(len, bytes.len()),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn every_structure_of_values_takes_them() {
    let (pool, session) = (pool(), session());
    let encoded: Encoded<Session> = Encoded::new(&session).unwrap();
    let hash: HashMap<str, Encoded<Session>> = HashMap::create(&pool, "hash").unwrap();
    let tree: BlinkTree<u64, Encoded<Session>> = BlinkTree::create(&pool, "tree").unwrap();
    let batched: BatchMap<u64, Encoded<Session>> =
        BatchMap::create(&pool, "batched", BatchOptions::default()).unwrap();
    let log: Log<Encoded<Session>> = Log::create(&pool, "log").unwrap();
    hash.put("key", &encoded).unwrap();
    remanent_structures::Map::put(&tree, &1, &encoded).unwrap();
    batched.put(&1, &encoded).unwrap();
    let position = log.append(&encoded).unwrap();
    let found = [
        hash.get("key").unwrap(),
        remanent_structures::Map::get(&tree, &1).unwrap(),
        batched.get(&1).unwrap(),
        log.read(position).unwrap(),
    ];
    for found in found {
        assert_eq!(found.unwrap().decode().unwrap(), session);
    }
    let decoded = hash.get_with("key", Encoded::decode).unwrap().unwrap();
    assert_eq!(decoded.unwrap(), session);
}

#[test]
fn every_truncation_is_an_error() {
    let encoded: Encoded<Session> = Encoded::new(&session()).unwrap();
    let bytes = encoded.bytes();
    for len in 0..bytes.len() {
        match decoded(&bytes[..len]) {
            Err(EncodingError::Decode { len: found, .. }) => assert_eq!(found, len),
            other => panic!("{len} of {} bytes: {other:?}", bytes.len()),
        }
    }
    let longer = [bytes, &[0]].concat();
    let told = decoded(&longer).unwrap_err().to_string();
    assert!(
        told.contains("Encoded<Session, 0>") && told.contains("1 bytes are left over"),
        "{told}"
    );
}

/// Bytes under the type name of an encoded session.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Stored for Raw {
    fn type_name() -> String {
        Encoded::<Session>::type_name()
    }

    const LEN: Option<u32> = None;

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&Raw(bytes.to_vec()))
    }
}

#[test]
fn an_entry_that_does_not_decode_is_an_error_and_the_others_are_read() {
    let pool = pool();
    let whole: Encoded<Session> = Encoded::new(&session()).unwrap();
    let raw: HashMap<u64, Raw> = HashMap::create(&pool, "sessions").unwrap();
    raw.put(&1, &Raw(whole.bytes().to_vec())).unwrap();
    raw.put(&2, &Raw(whole.bytes()[..3].to_vec())).unwrap();
    drop(raw);
    let sessions: HashMap<u64, Encoded<Session>> = HashMap::open(&pool, "sessions").unwrap();
    let read = |key: u64| -> remanent_structures::Result<Option<Session>> {
        Ok(sessions.get(&key)?.map(|found| found.decode()).transpose()?)
    };
    assert_eq!(read(1).unwrap(), Some(session()));
    let error = read(2).unwrap_err();
    assert!(matches!(&error, Error::Encoding(EncodingError::Decode { len: 3, .. })), "{error}");
    assert_eq!(read(3).unwrap(), None);
    assert!(sessions.iter().all(|entry| entry.is_ok()) && sessions.check().unwrap().is_empty());
    sessions.put(&2, &whole).unwrap();
    assert_eq!(read(2).unwrap(), Some(session()));
}

#[test]
fn another_version_and_another_type_are_refused() {
    let pool = pool();
    HashMap::<u64, Encoded<Session, 1>>::create(&pool, "sessions").unwrap();
    let told = |error: Error| match error {
        error @ Error::Pool(PoolError::WrongType { .. }) => error.to_string(),
        other => panic!("{other}"),
    };
    let other_version =
        told(HashMap::<u64, Encoded<Session, 2>>::open(&pool, "sessions").unwrap_err());
    let expected = "has type HashMap<u64, Encoded<Session, 1>> and was opened as HashMap<u64, Encoded<Session, 2>>";
    assert!(other_version.contains(expected), "{other_version}");
    let other_type = told(HashMap::<u64, Encoded<Event, 1>>::open(&pool, "sessions").unwrap_err());
    assert!(other_type.contains("was opened as HashMap<u64, Encoded<Event, 1>>"), "{other_type}");
    HashMap::<u64, Encoded<Session, 1>>::open(&pool, "sessions").unwrap();
}

#[test]
fn types_have_the_names_that_serde_knows() {
    #[derive(Serialize, Deserialize)]
    struct Unit;
    #[derive(Serialize, Deserialize)]
    struct Meters(f64);
    #[derive(Serialize, Deserialize)]
    struct Point(f64, f64);
    #[derive(Serialize, Deserialize)]
    #[serde(rename = "User")]
    struct Renamed {
        id: u64,
    }
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Id(u64);

    fn name<T: Serialize + serde::de::DeserializeOwned>() -> String {
        Encoded::<T>::type_name()
    }
    assert_eq!(name::<Session>(), "Encoded<Session, 0>");
    assert_eq!(name::<Event>(), "Encoded<Event, 0>");
    assert_eq!(name::<Unit>(), "Encoded<Unit, 0>");
    assert_eq!(name::<Meters>(), "Encoded<Meters, 0>");
    assert_eq!(name::<Point>(), "Encoded<Point, 0>");
    assert_eq!(name::<Renamed>(), "Encoded<User, 0>");
    assert_eq!(name::<Id>(), "Encoded<u64, 0>");
    assert_eq!(name::<String>(), "Encoded<str, 0>");
    assert_eq!(name::<(u8, bool)>(), "Encoded<tuple, 0>");
    assert_eq!(name::<Vec<Session>>(), "Encoded<sequence, 0>");
    assert_eq!(name::<BTreeMap<String, Session>>(), "Encoded<map, 0>");
    assert_eq!(name::<Option<Session>>(), "Encoded<option, 0>");
}

#[test]
fn types_that_need_names_in_the_format_are_refused() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        others: BTreeMap<String, u64>,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u64),
    }
    let refused = Encoded::<Flat>::new(&Flat { others: BTreeMap::new() }).unwrap_err();
    assert!(matches!(&refused, EncodingError::Encode { .. }), "{refused}");
    assert!(refused.to_string().contains("`flatten`"), "{refused}");
    let untagged = Encoded::<Untagged>::new(&Untagged::Number(7)).unwrap();
    assert!(matches!(untagged.decode(), Err(EncodingError::Decode { .. })));
}
