//! Vectors that several threads use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_structures::{AppendVector, Vector};

use crate::support::{options, scratch};

#[test]
fn what_threads_add_is_all_there_in_the_order_of_each() {
    const EACH: u64 = 3_000;
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let vector: AppendVector<[u64; 2]> = AppendVector::create(&pool, "vector").unwrap();
    thread::scope(|scope| {
        for writer in 0..4 {
            let vector = vector.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let index = vector.push(&[writer, number]).unwrap();
                    assert_eq!(vector.get(index).unwrap(), Some([writer, number]));
                }
            });
        }
        scope.spawn(|| {
            let mut seen = 0;
            while seen < 4 * EACH {
                let len = vector.len();
                vector.for_each_slice(seen, len, |slice| seen += slice.len() as u64).unwrap();
                assert_eq!(seen, len);
                thread::yield_now();
            }
        });
    });
    let mut next = [0; 4];
    vector
        .for_each_slice(0, u64::MAX, |slice| {
            for &[writer, number] in slice {
                assert_eq!(next[writer as usize], number);
                next[writer as usize] += 1;
            }
        })
        .unwrap();
    assert_eq!(next, [EACH; 4]);
}

#[test]
fn readers_never_see_a_part_of_a_record() {
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let vector: Vector<[u64; 12]> = Vector::create(&pool, "vector").unwrap();
    vector.extend_from_slice(&[[0; 12]; 8]).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for element in vector.iter().chain(vector.get(7).transpose()) {
                        let element = element.unwrap();
                        assert!(element.iter().all(|&word| word == element[0]), "{element:?}");
                    }
                }
            });
        }
        for number in 1..4_000 {
            assert!(vector.set(number % 4, &[number; 12]).unwrap());
            if number % 8 == 0 {
                vector.truncate(6).unwrap();
                vector.extend_from_slice(&[[number; 12]; 2]).unwrap();
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(vector.check().unwrap(), []);
}
