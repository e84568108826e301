//! What operations cost.

use remanent_pmem::pool::Guarantee;
use remanent_structures::{AppendVector, Vector};

use crate::support::{fences, sim_pool};

#[test]
fn adding_costs_one_fence() {
    let pool = sim_pool(Guarantee::default());
    let vector: Vector<u64, _> = Vector::create(&pool, "vector").unwrap();
    vector.push(&0).unwrap(); // takes the first run
    assert_eq!(
        fences(&pool, || {
            vector.push(&1).unwrap();
        }),
        1
    );
    assert_eq!(
        fences(&pool, || {
            vector.extend_from_slice(&[1; 100]).unwrap();
        }),
        1
    );
    assert_eq!(
        fences(&pool, || {
            vector.extend_from_slice(&[1; 8_000]).unwrap();
        }),
        1
    );
    vector.extend_from_slice(&[2; 91]).unwrap(); // in the second run
    assert_eq!(
        fences(&pool, || {
            vector.extend_from_slice(&[1; 8_193]).unwrap();
        }),
        2
    );
    assert_eq!(
        fences(&pool, || {
            vector.extend_from_slice(&[]).unwrap();
        }),
        0
    );
    let records: AppendVector<[u64; 9], _> = AppendVector::create(&pool, "records").unwrap();
    records.push(&[0; 9]).unwrap();
    assert_eq!(
        fences(&pool, || {
            records.push(&[1; 9]).unwrap();
        }),
        1
    );
}

#[test]
fn replacing_costs_one_fence() {
    let pool = sim_pool(Guarantee::default());
    let vector: Vector<[u64; 9], _> = Vector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[[0; 9]; 4]).unwrap();
    vector.push(&[1; 9]).unwrap();
    let set = |index| fences(&pool, || assert!(vector.set(index, &[2; 9]).unwrap()));
    assert_eq!(set(0), 1);
    assert_eq!(set(4), 2, "it was added last");
    assert_eq!([set(4), set(4), set(0)], [1; 3]);
    assert_eq!(fences(&pool, || assert!(!vector.set(5, &[2; 9]).unwrap())), 0);
}

#[test]
fn reading_costs_none_and_truncating_one() {
    let pool = sim_pool(Guarantee::default());
    let vector: Vector<u64, _> = Vector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[3; 100]).unwrap();
    let read = fences(&pool, || {
        assert_eq!(vector.get(99).unwrap(), Some(3));
        assert_eq!(vector.iter().count(), 100);
    });
    assert_eq!(read, 0);
    assert_eq!(fences(&pool, || vector.truncate(10).unwrap()), 1);
    assert_eq!(fences(&pool, || vector.truncate(10).unwrap()), 0);
}
