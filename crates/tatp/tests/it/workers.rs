//! The check of the workers accepts what they did, and notices what is missing.

use std::fs;
use std::path::Path;

use remanent_engine::Database;
use remanent_pmem::Pool;
use remanent_tatp::workers::{Found, Known, POPULATION, Place, WORKERS, Worker, check};
use remanent_tatp::{Population, Tables};

const ROOT: &str = "tatp";
const SEED: u64 = 5;
/// Units between two places, of which certainly some change something.
const UNITS: u64 = 50;

fn create(path: &Path) -> (Pool, Database) {
    let pool = Pool::options().size_max(64 << 20).create(path).unwrap();
    let database = Database::create(&pool, ROOT).unwrap();
    Population::new(POPULATION).load(&Tables::create(&database).unwrap()).unwrap();
    (pool, database)
}

/// Checks that the first worker is at `place`, and returns where it is found.
fn check_at(database: &Database, place: Place, lead: u64) -> Result<(Place, Found), String> {
    let population = Population::new(POPULATION);
    let place_of = |number| if number == 0 { place } else { Place::default() };
    let known = |number| Known::new(&population, SEED, number, place_of(number));
    let mut known: Vec<Known> = (0..WORKERS).map(known).collect();
    let mut found = Found::default();
    check(database, &mut known, lead, &mut found).map_err(|error| format!("{error:#}"))?;
    Ok((known[0].place(), found))
}

#[test]
fn units_that_are_missing_or_were_not_acknowledged_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (_pool, database) = create(&directory.path().join("workers.pool"));
    let worker = Worker::new(&database, SEED, 0).unwrap();
    let mut place = Place::default();
    while place.done < 2 * UNITS {
        place = worker.finish_unit(place, &mut |_| {}).unwrap();
    }
    let at = |done, lead| check_at(&database, Place { done, open: None }, lead);
    assert_eq!(at(2 * UNITS, 0).unwrap().0, place);
    let missing = at(3 * UNITS, 1_000).unwrap_err();
    assert!(missing.contains("expected"), "{missing}");
    let too_much = at(UNITS, 3).unwrap_err();
    assert!(too_much.contains("expected"), "{too_much}");
    // Units at the end that change nothing are not counted.
    let caught_up = at(UNITS, 1_000).unwrap().0;
    assert!((UNITS + 1..=2 * UNITS).contains(&caught_up.done), "{caught_up}");
}

#[test]
fn statements_of_an_open_transaction_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (original, copy) =
        (directory.path().join("workers.pool"), directory.path().join("crashed.pool"));
    let (_pool, database) = create(&original);
    let worker = Worker::new(&database, SEED, 0).unwrap();
    let (mut place, mut open) = (Place::default(), None);
    while open.is_none() {
        let mut tell = |place: Place| {
            // As a kill at this moment leaves it.
            if open.is_none() && place.open.is_some_and(|(_, statements)| statements == 2) {
                fs::copy(&original, &copy).unwrap();
                open = Some(place);
            }
        };
        place = worker.finish_unit(place, &mut tell).unwrap();
    }
    let open = open.unwrap();
    let (token, _) = open.open.unwrap();
    let pool = Pool::options().open(&copy).unwrap();
    let crashed = Database::open(&pool, ROOT).unwrap();
    let with = |statements| Place { done: open.done, open: Some((token, statements)) };
    let lost = check_at(&crashed, with(3), 1_000).unwrap_err();
    assert!(lost.contains("3 statements were acknowledged, and 2 took effect"), "{lost}");
    let too_much = check_at(&crashed, with(0), 1).unwrap_err();
    assert!(too_much.contains("0 statements were acknowledged, and 2 took effect"), "{too_much}");
    let (found_at, found) = check_at(&crashed, with(1), 1).unwrap();
    assert_eq!((found_at, found.open), (open, 1));
    // The next process goes on with it.
    let after = Worker::new(&crashed, SEED, 0).unwrap().finish_unit(found_at, &mut |_| {}).unwrap();
    assert_eq!(after, Place { done: open.done + 1, open: None });
    assert_eq!(check_at(&crashed, after, 0).unwrap().0, after);
}
