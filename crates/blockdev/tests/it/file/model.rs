//! Random operations on a file and on an array, alone and by threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use remanent_blockdev::file::File;
use remanent_pmem::Pool;

use super::{TestPool, bytes, content};

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8),
    Read(u64, usize),
    SetLen(u64),
    SetPresent(bool),
    Sync,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || prop_oneof![0..300u64, 0..300_000u64, Just(65_536), Just(131_072)];
    let len = || prop_oneof![0..40usize, 1..20_000usize];
    prop_oneof![
        8 => (at(), len(), any::<u8>()).prop_map(|(at, len, stamp)| Op::Write(at, len, stamp)),
        3 => (at(), len()).prop_map(|(at, len)| Op::Read(at, len)),
        2 => at().prop_map(Op::SetLen),
        1 => any::<bool>().prop_map(Op::SetPresent),
        2 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Debug)]
struct Model {
    content: Vec<u8>,
    is_present: bool,
}

fn apply(file: &File, model: &mut Model, op: &Op) {
    match *op {
        Op::Write(at, len, stamp) => {
            file.write(at, &bytes(len, stamp)).expect("room");
            let end = at as usize + len;
            if len > 0 {
                model.content.resize(model.content.len().max(end), 0);
                model.content[at as usize..end].copy_from_slice(&bytes(len, stamp));
            }
        }
        Op::Read(at, len) => {
            let mut found = vec![0; len];
            let count = file.read(at, &mut found).expect("no fault");
            let expected = model.content.iter().skip(at as usize).take(len);
            assert!(found[..count].iter().eq(expected), "what was read at {at}");
        }
        Op::SetLen(len) => {
            file.set_len(len).expect("room");
            model.content.resize(len as usize, 0);
        }
        Op::SetPresent(is_present) => {
            file.set_present(is_present).expect("no fault");
            model.is_present = is_present;
            if !is_present {
                model.content.clear();
            }
        }
        Op::Sync => file.sync().expect("no fault"),
        Op::Reopen => unreachable!("done by the caller"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_is_an_array_of_bytes(ops in prop::collection::vec(op(), 1..40)) {
        let pool = TestPool::new(256 << 20);
        let mut file = pool.file();
        let mut model = Model { content: Vec::new(), is_present: true };
        for op in &ops {
            if matches!(op, Op::Reopen) {
                drop(file);
                file = File::open(&pool.pool, "file").expect("a file that was closed");
                continue;
            }
            apply(&file, &mut model, op);
            prop_assert_eq!(file.len(), model.content.len() as u64);
            prop_assert_eq!(file.is_present(), model.is_present);
        }
        prop_assert!(content(&file) == model.content);
        prop_assert_eq!(file.check().expect("no fault"), []);
    }
}

#[test]
fn threads_write_side_by_side_and_any_of_them_syncs() {
    let pool = TestPool::new(256 << 20);
    let file = pool.file();
    let stamp = |thread: u64, round: u64| (thread * 10 + round % 10 + 1) as u8;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..500u64 {
                    // Neighbours in one word belong to different threads.
                    let at = (round * 4 + thread) * 5;
                    file.write(at, &[stamp(thread, round); 5]).expect("room");
                    if round % 16 == thread {
                        file.sync().expect("no fault");
                    }
                    let mut found = [0; 5];
                    assert_eq!(file.read(at, &mut found).expect("no fault"), 5);
                    assert_eq!(found, [stamp(thread, round); 5]);
                }
            });
        }
    });
    let found = content(&file);
    assert_eq!(found.len(), 4 * 500 * 5);
    for (part, number) in found.chunks(5).zip(0..) {
        assert_eq!(part, [stamp(number % 4, number / 4); 5], "part {number}");
    }
    assert_eq!(file.check().expect("no fault"), []);
}

#[test]
fn a_reader_finds_what_the_length_says() {
    let pool = TestPool::new(256 << 20);
    let file = pool.file();
    let (start, is_over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for round in 0..20_000u64 {
                file.write(round * 24, &[round as u8 | 1; 24]).expect("room");
            }
            // Relaxed: the end of the loop is all that it says.
            is_over.store(true, Ordering::Relaxed);
        });
        start.wait();
        while !is_over.load(Ordering::Relaxed) {
            let Some(last) = (file.len() / 24).checked_sub(1) else { continue };
            let mut found = [0; 24];
            assert_eq!(file.read(last * 24, &mut found).expect("no fault"), 24);
            assert_eq!(found, [last as u8 | 1; 24], "record {last}");
        }
    });
}

#[test]
fn what_another_opening_reads_is_what_was_written() {
    let old = TestPool::new(64 << 20);
    let file = old.file();
    file.write(10, &bytes(100_000, 9)).expect("room");
    drop(file);
    let TestPool { pool, path, _directory } = old;
    drop(pool);
    let pool = Pool::options().open(&path).expect("it was closed");
    let file = File::open(&pool, "file").expect("it was closed");
    let found = content(&file);
    assert!(found[..10] == [0; 10] && found[10..] == bytes(100_000, 9));
    assert!(File::<remanent_pmem::Mapped>::is_one(&pool.roots().expect("whole")[0]));
}
