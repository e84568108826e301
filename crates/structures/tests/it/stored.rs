//! Stored forms: what was written is read, in order, and what was written otherwise is refused.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;
use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::{BlinkTree, Error, HashMap, Key, Map, OrderedKey, Stored};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Stored, Key, OrderedKey)]
enum Level {
    Low,
    Middle,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Stored, Key, OrderedKey)]
enum Code {
    Refused = -7,
    Fine = 0,
    Lost = 1 << 20,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Stored, Key, OrderedKey)]
struct Everything {
    text: String,
    level: Level,
    number: i64,
    bytes: Vec<u8>,
    maybe: Option<u16>,
    pair: (bool, char),
    array: [i8; 3],
    wide: u128,
    code: Code,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Stored, Key, OrderedKey)]
struct Pair<A, B>(A, B);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Stored, Key, OrderedKey)]
struct Unit;

fn levels() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Low), Just(Level::Middle), Just(Level::High)]
}

fn codes() -> impl Strategy<Value = Code> {
    prop_oneof![Just(Code::Refused), Just(Code::Fine), Just(Code::Lost)]
}

/// Bytes that often have zeros, and what zeros are followed by.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..6)
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[\0\u{1}ab]{0,4}", any::<String>()]
}

prop_compose! {
    fn everything()(
        text in texts(),
        level in levels(),
        number in any::<i64>(),
        bytes in bytes(),
        maybe in any::<Option<u16>>(),
        pair in any::<(bool, char)>(),
        array in any::<[i8; 3]>(),
        wide in any::<u128>(),
        code in codes(),
    ) -> Everything {
        Everything { text, level, number, bytes, maybe, pair, array, wide, code }
    }
}

fn stored<T: Stored + ?Sized>(value: &T) -> Vec<u8> {
    value.with_bytes(<[u8]>::to_vec)
}

fn ordered<T: OrderedKey + ?Sized>(key: &T) -> Vec<u8> {
    key.with_ordered(<[u8]>::to_vec)
}

fn comes_back<T: OrderedKey + PartialEq + Clone>(value: &T) -> bool {
    let whole = |found: &T| found == value;
    T::with_stored(&stored(value), whole)
        && T::from_ordered(&ordered(value), whole)
        && T::LEN.is_none_or(|len| stored(value).len() == len as usize)
        && stored(value).len() == ordered(value).len()
}

fn has_order_of<T: OrderedKey + Ord>(one: &T, other: &T) -> bool {
    ordered(one).cmp(&ordered(other)) == one.cmp(other)
}

proptest! {
    #[test]
    fn values_come_back_and_keep_their_order(one in everything(), other in everything()) {
        prop_assert!(comes_back(&one));
        prop_assert!(has_order_of(&one, &other));
        let (near, far) = (Pair(one.text, one.number), Pair(other.text, other.number));
        prop_assert!(comes_back(&near) && has_order_of(&near, &far));
    }

    #[test]
    fn tuples_come_back_and_keep_their_order(
        one in any::<(u8, i128, bool)>(),
        other in any::<(u8, i128, bool)>(),
        text in (texts(), bytes(), any::<Option<i32>>(), any::<char>()),
        another in (texts(), bytes(), any::<Option<i32>>(), any::<char>()),
    ) {
        prop_assert!(comes_back(&one) && has_order_of(&one, &other));
        prop_assert!(comes_back(&text) && has_order_of(&text, &another));
    }

    #[test]
    fn floats_are_in_the_total_order(one in any::<u64>(), other in any::<u64>()) {
        let (one, other) = (f64::from_bits(one), f64::from_bits(other));
        prop_assert_eq!(ordered(&one).cmp(&ordered(&other)), one.total_cmp(&other));
        let back = f64::with_stored(&stored(&one), |found| found.to_bits());
        prop_assert_eq!(back, one.to_bits());
        let (one, other) = (one as f32, other as f32);
        prop_assert_eq!(ordered(&one).cmp(&ordered(&other)), one.total_cmp(&other));
    }

    #[test]
    fn anything_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        Everything::with_stored(&bytes, |found| assert!(comes_back(found)));
        <(String, Option<Level>)>::with_stored(&bytes, |found| assert!(comes_back(found)));
        Option::<Code>::with_stored(&bytes, |found| assert!(comes_back(found)));
    }

    #[test]
    fn a_tree_with_derived_keys_does_as_a_standard_map(
        entries in prop::collection::vec((texts(), any::<u8>(), everything()), 1..60),
        from in (texts(), any::<u8>()),
    ) {
        let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
        let tree: BlinkTree<Pair<String, u8>, Everything> = BlinkTree::create(&pool, "t").unwrap();
        let words: BlinkTree<(u16, Level), u64> = BlinkTree::create(&pool, "w").unwrap();
        let map: HashMap<(Level, bool), Pair<String, Option<Code>>> = HashMap::create(&pool, "m").unwrap();
        let (mut model, mut words_model, mut map_model) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (text, number, value) in entries {
            let key = Pair(text.clone(), number);
            tree.put(&key, &value).unwrap();
            let word = (u16::from(number) << 4, value.level);
            words.put(&word, &value.wide.try_into().unwrap_or(1)).unwrap();
            words_model.insert(word, value.wide.try_into().unwrap_or(1_u64));
            let short = (value.level, value.pair.0);
            let long = Pair(text, Some(value.code));
            map.put(&short, &long).unwrap();
            map_model.insert(short, long);
            model.insert(key, value);
        }
        let from = Pair(from.0, from.1);
        let found: Vec<_> = tree.range(from.clone()..).map(Result::unwrap).collect();
        let expected: Vec<_> = model.range(from..).map(|(k, v)| (k.clone(), v.clone())).collect();
        prop_assert_eq!(found, expected);
        let found: Vec<_> = words.range(..).map(Result::unwrap).collect();
        prop_assert_eq!(found, words_model.into_iter().collect::<Vec<_>>());
        for (key, value) in map_model {
            prop_assert_eq!(map.get(&key).unwrap(), Some(value));
        }
        prop_assert_eq!(Map::check(&tree).unwrap(), []);
    }
}

#[test]
fn small_types_are_keys_and_values() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let flags: HashMap<bool, ()> = HashMap::create(&pool, "flags").unwrap();
    flags.insert(&true, &()).unwrap();
    assert_eq!((flags.get(&true).unwrap(), flags.get(&false).unwrap()), (Some(()), None));
    let only: HashMap<(), String> = HashMap::create(&pool, "only").unwrap();
    only.put(&(), &"one".to_owned()).unwrap();
    assert_eq!(only.get(&()).unwrap().as_deref(), Some("one"));
    let unit: BlinkTree<Unit, f32> = BlinkTree::create(&pool, "unit").unwrap();
    unit.put(&Unit, &2.5).unwrap();
    assert_eq!(unit.range(..).map(Result::unwrap).collect::<Vec<_>>(), [(Unit, 2.5)]);
    // Owned forms are stored as what they own.
    drop(only);
    let owned: HashMap<String, Vec<u8>> = HashMap::create(&pool, "owned").unwrap();
    owned.put(&"key".to_owned(), &vec![1, 2]).unwrap();
    drop(owned);
    let borrowed: HashMap<str, [u8]> = HashMap::open(&pool, "owned").unwrap();
    assert_eq!(borrowed.get("key").unwrap(), Some(vec![1, 2]));
}

mod before {
    use remanent_structures::Stored;

    #[derive(Clone, Stored)]
    pub(super) struct Session {
        pub(super) user: u64,
        pub(super) level: super::Level,
    }
}

mod after {
    use remanent_structures::Stored;

    #[derive(Clone, Stored)]
    pub(super) struct Session {
        pub(super) level: super::Level,
        pub(super) user: u64,
    }

    #[derive(Clone, Stored)]
    pub(super) enum Level {
        _Middle,
        _Low,
    }
}

#[test]
fn a_type_that_is_stored_otherwise_than_before_is_refused() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let sessions: HashMap<u64, before::Session> = HashMap::create(&pool, "sessions").unwrap();
    sessions.put(&1, &before::Session { user: 2, level: Level::High }).unwrap();
    drop(sessions);
    match HashMap::<u64, after::Session>::open(&pool, "sessions").unwrap_err() {
        error @ Error::Pool(PoolError::WrongType { .. }) => {
            let told = error.to_string();
            let expected = "has type HashMap<u64, Session>, but the fields or variants of Session have changed";
            assert!(told.contains(expected), "{told}");
        }
        other => panic!("{other}"),
    }
    let again: HashMap<u64, before::Session> = HashMap::open(&pool, "sessions").unwrap();
    assert_eq!(again.get(&1).unwrap().map(|session| session.user), Some(2));
    assert_ne!(after::Level::type_name(), Level::type_name());
    assert_ne!(before::Session::type_name(), after::Session::type_name());
    let session = after::Session { level: Level::Low, user: 1 };
    assert_eq!(stored(&session).len(), 9);
    assert_eq!((session.level, session.user).0.cmp(&Level::Low), Ordering::Equal);
}
