//! Trees in a closed pool with overwritten words: each call ends soon, with an answer or an error.

use std::any::Any;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use remanent_crashsim::Rng;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped};
use remanent_structures::{BlinkTree, Error, OrderedKey, Result, Stored};

use super::edges::{Few, FewBytes};
use crate::support::{options, scratch};

/// Where the tree's header lies, and what follows is of the tree.
const FIRST: u64 = ChunkId(DATA_FIRST).offset();
const LINE: usize = 64;
/// Keys that are there.
const KEYS: u64 = 60;
/// What is asked of a damaged tree, for messages.
const QUESTIONS: [&str; 10] =
    ["get", "ascend", "descend", "len", "check", "put", "insert", "remove", "bulk_load", "clear"];
/// Answers take microseconds.
const SOON: Duration = Duration::from_secs(20);

/// A tree of some levels whose keys and values are made of numbers.
trait Form: 'static {
    type K: OrderedKey;
    type V: Stored + ?Sized;

    fn key(number: u64) -> Self::K;
    fn with_value<R>(number: u64, use_value: impl FnOnce(&Self::V) -> R) -> R;
}

struct Words;
struct Records;

impl Form for Words {
    type K = Few;
    type V = u64;

    fn key(number: u64) -> Few {
        Few(number)
    }

    fn with_value<R>(number: u64, use_value: impl FnOnce(&u64) -> R) -> R {
        use_value(&number)
    }
}

impl Form for Records {
    type K = FewBytes;
    type V = [u8];

    fn key(number: u64) -> FewBytes {
        FewBytes(format!("a common beginning {number:04}").into_bytes())
    }

    fn with_value<R>(number: u64, use_value: impl FnOnce(&[u8]) -> R) -> R {
        use_value(&vec![7; number as usize % 40])
    }
}

type Tree<F> = BlinkTree<<F as Form>::K, <F as Form>::V>;

/// A closed pool with a tree: its length, and those of its lines that are not zero.
struct Image {
    len: u64,
    lines: Vec<(u64, [u8; LINE])>,
}

impl Image {
    fn of_tree<F: Form>(path: &Path) -> Image {
        let pool = options().create(path).unwrap();
        let tree = Tree::<F>::create(&pool, "tree").unwrap();
        for number in 0..KEYS {
            F::with_value(number, |value| tree.insert(&F::key(number), value)).unwrap();
        }
        drop((tree, pool));
        let bytes = std::fs::read(path).unwrap();
        let lines = (0..).step_by(LINE).zip(bytes.as_chunks().0);
        let used = lines.filter(|(_, line)| line.iter().any(|&byte| byte != 0));
        Image { len: bytes.len() as u64, lines: used.map(|(at, line)| (at, *line)).collect() }
    }

    /// Writes the pool with some words of the tree changed.
    fn write_damaged(&self, path: &Path, rng: &mut Rng) {
        let file = File::create(path).unwrap();
        file.set_len(self.len).unwrap();
        for (at, line) in &self.lines {
            file.write_all_at(line, *at).unwrap();
        }
        let first = self.lines.partition_point(|&(at, _)| at < FIRST);
        let lines = &self.lines[first..];
        let word = |rng: &mut Rng| {
            let (at, line) = rng.pick(lines);
            let word = rng.below(LINE as u64 / 8);
            (at + word * 8, u64::from_le_bytes(line.as_chunks().0[word as usize]))
        };
        for _ in 0..=rng.below(3) {
            let (at, found) = word(rng);
            let garbage = match rng.below(7) {
                0 => 0,
                1 => rng.next_u64(),
                2 => found ^ 1 << rng.below(64),
                3 => found.wrapping_add(8 << rng.below(12)),
                4 => FIRST + rng.below(1 << 18) / 8 * 8,
                // What lies behind it begins at zero again.
                5 => u64::MAX - rng.below(1 << 10),
                // Most of all what leads elsewhere, or says what something else is.
                _ => word(rng).1,
            };
            file.write_all_at(&garbage.to_le_bytes(), at).unwrap();
        }
    }
}

/// Asks everything, from this question on. Notes what is asked.
fn look<F: Form>(path: &Path, first: usize, asked: &AtomicUsize) -> Result<()> {
    let pool = options().open(path)?;
    let tree = Tree::<F>::open(&pool, "tree")?;
    for question in (first..).take(QUESTIONS.len()).map(|number| number % QUESTIONS.len()) {
        asked.store(question, Ordering::Relaxed);
        // An error to one question says nothing about the next.
        if let Err(error) = ask::<F>(&tree, QUESTIONS[question]) {
            assert!(!error.to_string().is_empty(), "{error:?}");
        }
    }
    Ok(())
}

fn ask<F: Form>(tree: &Tree<F>, question: &str) -> Result<()> {
    match question {
        "get" => (0..KEYS).try_for_each(|key| tree.get_with(&F::key(key), |_| ()).map(drop)),
        "ascend" => {
            tree.ascend(.., |_, _| ControlFlow::Continue(()))?;
            tree.ascend(F::key(20)..F::key(40), |_, _| ControlFlow::Continue(()))
        }
        "descend" => {
            tree.descend(.., |_, _| ControlFlow::Continue(()))?;
            tree.descend(F::key(20)..F::key(40), |_, _| ControlFlow::Continue(()))
        }
        "len" => tree.len().map(drop),
        "check" => tree.check().map(drop),
        "put" => each::<F>(0..KEYS, |key, value| tree.put(key, value).map(drop)),
        "insert" => each::<F>(0..2 * KEYS, |key, value| tree.insert(key, value).map(drop)),
        "remove" => each::<F>(0..KEYS, |key, _| tree.discard(key).map(drop)),
        "bulk_load" => {
            each::<F>(4 * KEYS..4 * KEYS + 8, |key, value| tree.bulk_load([(key, value)]).map(drop))
        }
        _ => tree.clear().map(drop),
    }
}

/// Does something with each of these keys and its value, whatever came of the others.
fn each<F: Form>(keys: Range<u64>, change: impl Fn(&F::K, &F::V) -> Result<()>) -> Result<()> {
    keys.map(|key| F::with_value(key, |value| change(&F::key(key), value)))
        .fold(Ok(()), Result::and)
}

fn told(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// Damages a tree in as many ways, and tells what did not end, or ended in a panic.
fn survey<F: Form>(seeds: Range<u64>) -> Vec<String> {
    let dir = scratch();
    let image = Image::of_tree::<F>(&dir.path().join("whole.pool"));
    let path = dir.path().join("damaged.pool");
    let mut failures = Vec::new();
    for seed in seeds {
        image.write_damaged(&path, &mut Rng::from_parts(&[seed, 0xda]));
        let asked = Arc::new(AtomicUsize::new(0));
        let (ended, end) = channel::<()>();
        let worker = thread::spawn({
            let (path, asked) = (path.clone(), Arc::clone(&asked));
            move || {
                let _ended = ended;
                let looked = look::<F>(&path, seed as usize, &asked);
                looked.is_err_and(|error| error.to_string().is_empty())
            }
        });
        let is_late = end.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout);
        let question = QUESTIONS[asked.load(Ordering::Relaxed)];
        if is_late {
            failures.push(format!("seed {seed}, {question}: no end"));
            // What it reads becomes a fault, and ends nearly everything.
            File::create(&path).unwrap();
            if end.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                failures.push(format!("seed {seed}, {question}: and not even without the file"));
                break;
            }
        }
        match worker.join() {
            Ok(false) => {}
            Ok(true) => failures.push(format!("seed {seed}: an error that says nothing")),
            Err(panic) => {
                failures.push(format!("seed {seed}, {question}: panic: {}", told(panic)));
            }
        }
    }
    failures
}

/// What is damaged: these, or as many as `REMANENT_DAMAGE` says.
fn seeds() -> Range<u64> {
    let named = std::env::var("REMANENT_DAMAGE").ok();
    let range = named.as_deref().and_then(|named| named.split_once(".."));
    let number = |text: &str| text.parse().expect("a number");
    range.map_or(0..150, |(start, end)| number(start)..number(end))
}

/// A root as trees had it whose inner nodes had eight bytes of each key.
struct Earlier;

impl RootObject<Mapped> for Earlier {
    fn root_type() -> RootType {
        RootType { name: "BlinkTree<u64, u64>".to_owned(), layout: 1 }
    }

    fn create(_: Heap<Mapped>) -> std::result::Result<Self, PoolError> {
        Ok(Earlier)
    }

    fn open(_: Heap<Mapped>) -> std::result::Result<Self, PoolError> {
        Ok(Earlier)
    }
}

#[test]
fn a_tree_of_an_earlier_layout_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("earlier.pool")).unwrap();
    pool.create_root::<Earlier>("tree").unwrap();
    let refused = BlinkTree::<u64, u64>::open(&pool, "tree").unwrap_err();
    assert!(matches!(&refused, Error::Pool(PoolError::WrongType { .. })), "{refused}");
    assert!(refused.to_string().contains("layout"), "{refused}");
}

#[test]
fn a_damaged_tree_of_words_gives_answers_or_errors() {
    assert_eq!(survey::<Words>(seeds()), [""; 0]);
}

#[test]
fn a_damaged_tree_of_records_gives_answers_or_errors() {
    assert_eq!(survey::<Records>(seeds()), [""; 0]);
}
