//! Real threads on few keys, while the map grows: each key's history is that of one register.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use remanent_pmem::Pool;
use remanent_structures::{BlinkTree, ExtendibleMap, HashMap, Key, Map, OrderedKey, Stored};

use crate::support::{options, scratch};

/// Keys and values made of a number.
trait Made: Stored {
    fn with_made<R>(number: u64, use_made: impl FnOnce(&Self) -> R) -> R;
    /// The number of which this was made whole.
    fn number(&self) -> u64;
}

impl Made for u64 {
    fn with_made<R>(number: u64, use_made: impl FnOnce(&u64) -> R) -> R {
        use_made(&number)
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl Made for [u8] {
    fn with_made<R>(number: u64, use_made: impl FnOnce(&[u8]) -> R) -> R {
        // Several lines, in which the number is everywhere.
        let count = 2 + number as usize % 29;
        use_made(&number.to_le_bytes().repeat(count))
    }

    fn number(&self) -> u64 {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("whole words"));
        let number = word(&self[..8]);
        assert!(self.chunks(8).all(|bytes| word(bytes) == number), "a torn value: {self:?}");
        assert_eq!(self.len() / 8, 2 + number as usize % 29, "a value of another length");
        number
    }
}

/// What was done with a key.
#[derive(Clone, Copy, Debug)]
enum Op {
    Get,
    Put(u64),
    Insert(u64),
    Update(u64),
    Remove,
}

/// What came of it: a value, or whether there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(Option<u64>),
    WasPresent(bool),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    key: u64,
    op: Op,
    answer: Answer,
    called_ns: u128,
    answered_ns: u128,
}

impl Op {
    fn draw(number: u64, value: u64) -> Self {
        match number % 8 {
            0..=2 => Op::Get,
            3 | 4 => Op::Put(value),
            5 => Op::Insert(value),
            6 => Op::Update(value),
            _ => Op::Remove,
        }
    }

    fn on<K: Made + Key + ?Sized, V: Made + ?Sized>(
        self,
        map: &impl Map<K, V>,
        key: u64,
    ) -> Answer {
        let value = |found: Option<V::Owned>| found.map(|value| value.borrow().number());
        K::with_made(key, |key| match self {
            Op::Get => Answer::Value(value(map.get(key).unwrap())),
            Op::Put(new) => {
                V::with_made(new, |new| Answer::WasPresent(!map.put(key, new).unwrap()))
            }
            Op::Insert(new) => {
                V::with_made(new, |new| Answer::WasPresent(!map.insert(key, new).unwrap()))
            }
            Op::Update(new) => {
                V::with_made(new, |new| Answer::WasPresent(map.update(key, new).unwrap()))
            }
            Op::Remove => Answer::Value(value(map.remove(key).unwrap())),
        })
    }

    /// What it does with a register, and answers.
    fn model(self, register: Option<u64>) -> (Option<u64>, Answer) {
        match self {
            Op::Get => (register, Answer::Value(register)),
            Op::Put(new) => (Some(new), Answer::WasPresent(register.is_some())),
            Op::Insert(new) => (register.or(Some(new)), Answer::WasPresent(register.is_some())),
            Op::Update(new) => (register.and(Some(new)), Answer::WasPresent(register.is_some())),
            Op::Remove => (None, Answer::Value(register)),
        }
    }
}

/// Whether a history of one key is that of a register: each call takes effect at once, between
/// call and answer.
fn is_linearizable(calls: &[Call], register: Option<u64>) -> bool {
    let mut events: Vec<(u128, bool, usize)> = calls
        .iter()
        .enumerate()
        .flat_map(|(index, call)| [(call.called_ns, false, index), (call.answered_ns, true, index)])
        .collect();
    // Calls before answers of the same moment: then they overlap, which allows more.
    events.sort_unstable();
    // What the register may have, and which of the calls in flight have taken effect by then.
    let mut possible: HashSet<(Option<u64>, Vec<usize>)> = [(register, vec![])].into();
    let mut in_flight: Vec<usize> = Vec::new();
    for (_, is_answer, index) in events {
        if !is_answer {
            in_flight.push(index);
            continue;
        }
        // All ways in which calls in flight may have taken effect by now.
        let mut reached = possible;
        let mut unvisited: Vec<_> = reached.iter().cloned().collect();
        while let Some((value, done)) = unvisited.pop() {
            for &next in in_flight.iter().filter(|next| !done.contains(next)) {
                let (new, answer) = calls[next].op.model(value);
                if answer == calls[next].answer {
                    let mut done = done.clone();
                    done.push(next);
                    done.sort_unstable();
                    if reached.insert((new, done.clone())) {
                        unvisited.push((new, done));
                    }
                }
            }
        }
        in_flight.retain(|&other| other != index);
        possible = reached
            .into_iter()
            .filter(|(_, done)| done.contains(&index))
            .map(|(value, mut done)| {
                done.retain(|&other| other != index);
                (value, done)
            })
            .collect();
        if possible.is_empty() {
            return false;
        }
    }
    true
}

/// Threads that use keys 0 to `keys`, while another one adds others until the map has grown.
fn assert_linearizable<K, V, T>(map: &T, keys: u64)
where
    K: Made + Key + ?Sized,
    V: Made + ?Sized,
    T: Map<K, V> + Sync,
{
    const THREADS: u64 = 3;
    const CALLS: u64 = 3_000;
    let (start, begin) = (Instant::now(), Barrier::new(THREADS as usize + 1));
    let is_over = AtomicBool::new(false);
    let run = |thread: u64| {
        let mut calls = Vec::new();
        let mut random = thread + 1;
        begin.wait();
        for number in 0..CALLS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (key, op) = (random % keys, Op::draw(random >> 32, number * THREADS + thread));
            let called_ns = start.elapsed().as_nanos();
            let answer = op.on::<K, V>(map, key);
            calls.push(Call {
                key,
                op,
                answer,
                called_ns,
                answered_ns: start.elapsed().as_nanos(),
            });
        }
        calls
    };
    let calls: Vec<Call> = thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            while !is_over.load(Ordering::Relaxed) {
                // Segments are split, and joined again.
                (1_000..4_000).for_each(|key| _ = Op::Put(key).on::<K, V>(map, key));
                (1_000..4_000).for_each(|key| _ = Op::Remove.on::<K, V>(map, key));
            }
        });
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        let calls = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        calls
    });
    for key in 0..keys {
        let of_key: Vec<Call> = calls.iter().filter(|call| call.key == key).copied().collect();
        assert!(is_linearizable(&of_key, None), "the history of key {key} of {keys}: {of_key:?}");
    }
}

fn each(create: impl Fn(&Pool, &str, u64)) {
    let directory = scratch();
    let pool = options().create(directory.path().join("a.pool")).unwrap();
    for keys in [1, 4, 64] {
        create(&pool, &format!("map of {keys}"), keys);
    }
}

fn extendible<K: Made + Key + ?Sized + 'static, V: Made + ?Sized + 'static>() {
    each(|pool, name, keys| {
        let map: ExtendibleMap<K, V> = ExtendibleMap::create(pool, name).unwrap();
        assert_linearizable::<K, V, _>(&map, keys);
        assert_eq!(map.check().unwrap(), []);
    });
}

#[test]
fn an_extendible_map_of_words_is_linearizable() {
    extendible::<u64, u64>();
}

#[test]
fn an_extendible_map_of_records_is_linearizable() {
    extendible::<[u8], [u8]>();
}

#[test]
fn an_extendible_map_of_words_in_records_is_linearizable() {
    extendible::<[u8], u64>();
}

#[test]
fn a_hash_map_is_linearizable() {
    each(|pool, name, keys| {
        let map: HashMap<u64, [u8]> = HashMap::create(pool, name).unwrap();
        assert_linearizable::<u64, [u8], _>(&map, keys);
        assert_eq!(map.check().unwrap(), []);
    });
}

fn tree<K: Made + OrderedKey + ?Sized + 'static, V: Made + ?Sized + 'static>() {
    each(|pool, name, keys| {
        let tree: BlinkTree<K, V> = BlinkTree::create(pool, name).unwrap();
        assert_linearizable::<K, V, _>(&tree, keys);
        assert_eq!(tree.check().unwrap(), []);
    });
}

#[test]
fn a_tree_of_words_is_linearizable() {
    tree::<u64, u64>();
}

#[test]
fn a_tree_of_records_is_linearizable() {
    tree::<[u8], [u8]>();
}

/// The judge itself: a value that comes back, and one that is seen too late.
#[test]
fn histories_of_no_register_are_found() {
    let call =
        |op, answer, called_ns, answered_ns| Call { key: 0, op, answer, called_ns, answered_ns };
    let put = |value, was_present, from, to| {
        call(Op::Put(value), Answer::WasPresent(was_present), from, to)
    };
    let get = |value, from, to| call(Op::Get, Answer::Value(value), from, to);
    let calls = [put(1, false, 0, 10), put(2, true, 20, 30), get(Some(1), 25, 35)];
    assert!(is_linearizable(&calls, None));
    assert!(!is_linearizable(&[calls[0], calls[1], get(Some(1), 31, 40)], None));
    let back = [calls[0], calls[1], get(Some(2), 21, 23), get(Some(1), 24, 26)];
    assert!(!is_linearizable(&back, None));
}
