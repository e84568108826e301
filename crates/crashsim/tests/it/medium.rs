//! The simulated medium as a plain medium.

use std::sync::Arc;

use remanent_crashsim::{Counters, Sim, SimOptions};
use remanent_pmem::{Fault, Medium};

#[test]
fn bytes_are_words() {
    let medium = Sim::new(SimOptions::default());
    let bytes: Vec<u8> = (1..=200).collect();
    medium.store(96, u64::MAX);
    medium.store(96 + 200, u64::MAX);
    medium.write(99, &bytes);
    let mut found = vec![0; 206];
    medium.read(96, &mut found);
    assert_eq!(found[..3], [0xff; 3]);
    assert_eq!(found[3..203], bytes);
    assert_eq!(found[203..], [0xff; 3]);
    assert_eq!(medium.load(104), u64::from_le_bytes([6, 7, 8, 9, 10, 11, 12, 13]));
    assert!(medium.equals(99, &bytes) && !medium.equals(98, &bytes));
    medium.write_zeros(99, 200);
    assert_eq!(medium.load(96), 0xff_ffff);
    medium.write_streaming(101, &[7]);
    assert_eq!(medium.load(96), 0x0700_00ff_ffff);
}

#[test]
fn read_modify_writes_answer_what_was_there() {
    let medium = Sim::new(SimOptions::default());
    assert_eq!(medium.fetch_add(8, 5), 0);
    assert_eq!(medium.fetch_or(8, 8), 5);
    assert_eq!(medium.fetch_and(8, 9), 13);
    assert_eq!(medium.compare_exchange(8, 9, 1), Ok(9));
    assert_eq!(medium.compare_exchange(8, 9, 2), Err(1));
    assert_eq!(medium.compare_exchange_pair(0, [0, 1], [2, 3]), Ok([0, 1]));
    assert_eq!(medium.compare_exchange_pair(0, [0, 1], [4, 5]), Err([2, 3]));
    assert_eq!((medium.load(0), medium.load(8)), (2, 3));
}

#[test]
fn counters_count_what_was_done() {
    let medium = Arc::new(Sim::new(SimOptions::default()));
    medium.store(0, 1);
    medium.persist(0, 8);
    medium.flush(60, 8);
    medium.as_thread(2, |medium| medium.fence());
    let all = Counters { stores: 1, flushes: 2, flushed_lines: 3, fences: 2, syncs: 0 };
    assert_eq!(medium.counters(), all);
    assert_eq!(medium.counters_of(0), Counters { fences: 1, ..all });
    assert_eq!(medium.counters_of(2), Counters { fences: 1, ..Counters::default() });
    medium.reset_counters();
    assert_eq!(medium.counters(), Counters::default());
}

#[test]
fn a_medium_grows_up_to_its_capacity() {
    let options =
        SimOptions { len: 4096, capacity: 16384, grow_fails_at: Some(2), ..SimOptions::default() };
    let medium = Sim::new(options);
    assert_eq!(medium.load(4096), 0);
    assert_eq!(medium.fault(), Some(Fault::OutOfRange(4096)));
    medium.grow(5000).unwrap();
    assert_eq!(medium.len(), 8192);
    assert!(medium.grow(12288).unwrap_err().is_full());
    medium.grow(12288).unwrap();
    medium.store(12280, 1);
    assert!(medium.grow(16385).unwrap_err().is_full());
    assert_eq!((medium.len(), medium.load(12280)), (12288, 1));
}

#[test]
fn released_pages_read_as_zero() {
    let medium = Sim::new(SimOptions::default());
    medium.store(4096, 1);
    assert!(!medium.release(4096, 100), "not a whole page");
    assert_eq!(medium.load(4096), 1);
    assert!(medium.release(4096, 4096));
    assert_eq!(medium.load(4096), 0);
    let medium = Sim::new(SimOptions { releases: false, ..SimOptions::default() });
    assert!(!medium.release(4096, 4096));
}

#[test]
fn poison_reads_as_zero_and_is_reported() {
    let medium = Sim::new(SimOptions::default());
    medium.store(64, 1);
    medium.poison(70, 1);
    assert_eq!((medium.load(0), medium.fault()), (0, None));
    assert_eq!((medium.load(64), medium.fault()), (0, Some(Fault::Poisoned(64))));
}

#[test]
#[should_panic(expected = "misaligned offset 0x4")]
fn misaligned_words_are_refused() {
    Sim::new(SimOptions::default()).load(4);
}
