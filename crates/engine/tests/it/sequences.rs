//! Sequences: numbers that nobody gets twice.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_engine::{Database, Error, Sequence, SequenceSpec, TableSpec, Type};
use remanent_pmem::Pool;

fn fresh() -> (Pool, Database) {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    (pool, database)
}

fn numbers(sequence: &Sequence, count: usize) -> Vec<i64> {
    (0..count).map(|_| sequence.next().unwrap()).collect()
}

#[test]
fn numbers_come_in_order_until_there_are_none() {
    let (_pool, database) = fresh();
    let make = |spec: SequenceSpec| database.create_sequence(&spec).unwrap();
    let up = make(SequenceSpec::new("up").block_len(3));
    assert_eq!(numbers(&up, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    let down = make(SequenceSpec::new("down").increment(-5));
    assert_eq!(numbers(&down, 3), [-1, -6, -11]);
    let some = make(SequenceSpec::new("some").increment(3).range(2..=9).start(3).block_len(2));
    assert_eq!(numbers(&some, 3), [3, 6, 9]);
    let exhausted = some.next().unwrap_err();
    assert!(matches!(exhausted, Error::SequenceExhausted { .. }));
    assert!(exhausted.to_string().contains("\"some\" has no more numbers in its range 2..=9"));
    some.restart(8).unwrap();
    assert_eq!(some.next().unwrap(), 8);
    assert!(some.next().is_err());
    let round = make(SequenceSpec::new("round").increment(-1).range(1..=3).cycling().block_len(2));
    assert_eq!(numbers(&round, 7), [3, 2, 1, 3, 2, 1, 3]);
    let last = make(SequenceSpec::new("last").start(i64::MAX - 1));
    assert_eq!(numbers(&last, 2), [i64::MAX - 1, i64::MAX]);
    assert!(matches!(last.next(), Err(Error::SequenceExhausted { .. })));
    assert_eq!(database.sequences().unwrap(), ["down", "last", "round", "some", "up"]);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn what_is_wrong_with_a_description_is_told() {
    let (_pool, database) = fresh();
    let wrong = [
        (SequenceSpec::new(""), "0 bytes"),
        (SequenceSpec::new("x".repeat(129)), "129 bytes"),
        (SequenceSpec::new("s").increment(0), "increment is 0"),
        #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
        (SequenceSpec::new("s").range(3..=2), "has no numbers"),
        (SequenceSpec::new("s").range(3..=9).start(2), "start 2 is not in its range 3..=9"),
        (SequenceSpec::new("s").block_len(0), "blocks have 0 numbers"),
    ];
    for (spec, reason) in wrong {
        let error = database.create_sequence(&spec).unwrap_err();
        assert!(matches!(error, Error::Sequence { .. }));
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(database.sequences().unwrap().is_empty());
    assert!(matches!(database.sequence("s"), Err(Error::NoSuchSequence { .. })));
    assert!(matches!(database.drop_sequence("s"), Err(Error::NoSuchSequence { .. })));
    let sequence = database.create_sequence(&SequenceSpec::new("s")).unwrap();
    let again = database.create_sequence(&SequenceSpec::new("s")).unwrap_err();
    assert!(again.to_string().contains("a sequence of this name is there"), "{again}");
    let error = sequence.restart(0).unwrap_err();
    assert!(error.to_string().contains("0 is not in its range 1.."), "{error}");
    assert!(matches!(database.sequence("t"), Err(Error::NoSuchSequence { .. })));
    assert_eq!(sequence.next().unwrap(), 1);
}

#[test]
fn a_dropped_sequence_gives_out_what_a_handle_has_reserved() {
    let (_pool, database) = fresh();
    let sequence = database.create_sequence(&SequenceSpec::new("s").block_len(2)).unwrap();
    assert_eq!(sequence.next().unwrap(), 1);
    database.drop_sequence("s").unwrap();
    assert_eq!(sequence.next().unwrap(), 2);
    assert!(matches!(sequence.next(), Err(Error::NoSuchSequence { .. })));
    assert!(matches!(sequence.restart(1), Err(Error::NoSuchSequence { .. })));
    database.create_sequence(&SequenceSpec::new("s").start(7)).unwrap();
    assert_eq!(sequence.next().unwrap(), 7);
}

#[test]
fn the_table_of_sequences_is_the_databases_own() {
    let (_pool, database) = fresh();
    database.create_sequence(&SequenceSpec::new("s")).unwrap();
    assert!(database.tables().is_empty());
    let name = "remanent.sequences";
    assert!(matches!(database.table(name), Err(Error::NoSuchTable { .. })));
    assert!(matches!(database.drop_table(name), Err(Error::NoSuchTable { .. })));
    let spec = TableSpec::new("remanent.mine").column("id", Type::U32).primary_key(["id"]);
    let refused = database.create_table(&spec).unwrap_err();
    assert!(refused.to_string().contains("are the database's own"), "{refused}");
}

#[test]
fn threads_and_handles_get_different_numbers() {
    let (_pool, database) = fresh();
    let shared = database.create_sequence(&SequenceSpec::new("s").block_len(5)).unwrap();
    let each = 2_000;
    let drawn: Vec<Vec<i64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (database, shared) = (&database, &shared);
                scope.spawn(move || {
                    let own = database.sequence("s").unwrap();
                    numbers(if thread % 2 == 0 { shared } else { &own }, each)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: BTreeSet<i64> = drawn.iter().flatten().copied().collect();
    assert_eq!(all.len(), 4 * each);
    assert_eq!(all.first(), Some(&1));
    // Only what handles have reserved and not given out is missing.
    assert!(*all.last().unwrap() <= 4 * each as i64 + 4 * 5);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn numbers_from_before_a_restart_are_not_given_out_behind_it() {
    let (_pool, database) = fresh();
    let shared = database.create_sequence(&SequenceSpec::new("s").block_len(3)).unwrap();
    for round in 1..200i64 {
        let least = round * 10_000;
        let drawing = Barrier::new(4);
        let is_restarted = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    drawing.wait();
                    for _ in 0..20 {
                        // Acquire: partner of the store below.
                        let is_behind = is_restarted.load(Ordering::Acquire);
                        let number = shared.next().unwrap();
                        assert!(!is_behind || number >= least, "{number} behind {least}");
                    }
                });
            }
            drawing.wait();
            shared.restart(least).unwrap();
            // Release: it is restarted.
            is_restarted.store(true, Ordering::Release);
        });
        assert!(shared.next().unwrap() >= least);
    }
}

#[test]
fn a_restart_beside_threads_does_not_exhaust_a_short_sequence() {
    let (_pool, database) = fresh();
    let shared = database.create_sequence(&SequenceSpec::new("s").range(1..=10)).unwrap();
    for _ in 0..500 {
        let drawing = Barrier::new(3);
        let drawn: usize = thread::scope(|scope| {
            let threads = [0, 1].map(|_| {
                scope.spawn(|| {
                    drawing.wait();
                    (0..3).filter(|_| shared.next().is_ok()).count()
                })
            });
            drawing.wait();
            shared.restart(1).unwrap();
            threads.map(|thread| thread.join().unwrap()).into_iter().sum()
        });
        // At most six numbers were given out since.
        assert!(drawn <= 6 && shared.next().is_ok());
        while shared.next().is_ok() {}
    }
}

#[test]
fn a_name_that_no_sequence_can_have_is_that_of_none() {
    let (_pool, database) = fresh();
    database.create_sequence(&SequenceSpec::new("s")).unwrap();
    let name = "s".repeat(200);
    assert!(matches!(database.sequence(&name), Err(Error::NoSuchSequence { .. })));
    assert!(matches!(database.drop_sequence(&name), Err(Error::NoSuchSequence { .. })));
    let created = database.create_sequence(&SequenceSpec::new(name));
    assert!(matches!(created, Err(Error::Sequence { .. })));
}

#[test]
fn no_number_comes_again_after_the_database_was_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let sequence = database.create_sequence(&SequenceSpec::new("s").block_len(10)).unwrap();
    assert_eq!(numbers(&sequence, 12).last(), Some(&12));
    drop((sequence, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.sequence("s").unwrap().next().unwrap(), 21);
}
