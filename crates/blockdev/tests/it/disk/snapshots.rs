//! Snapshots that are written over, removed in any order, and read meanwhile.

use proptest::prelude::*;
use remanent_blockdev::{Error, SNAPSHOT_COUNT};

use super::TestPool;

const BLOCKS: u64 = 1_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_snapshot_stays_as_it_was(
        rounds in prop::collection::vec((prop::collection::vec((0..BLOCKS, 1..60u64, any::<bool>()), 1..8), 0..6usize), 1..12)
    ) {
        let pool = TestPool::new(256 << 20);
        let disk = pool.disk(BLOCKS * 4096);
        let mut now = vec![0u8; BLOCKS as usize];
        let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
        for (round, (changes, removed)) in rounds.iter().enumerate() {
            for &(first, count, is_trim) in changes {
                let end = (first + count).min(BLOCKS);
                let stamp = if is_trim { 0 } else { round as u8 * 16 + (first % 16) as u8 + 1 };
                now[first as usize..end as usize].fill(stamp);
                let (at, len) = (first * 4096, (end - first) * 4096);
                match is_trim {
                    true => disk.trim(at, len).expect("room"),
                    false => disk.write(at, &vec![stamp; len as usize]).expect("room"),
                }
            }
            if *removed < kept.len() {
                disk.remove_snapshot(&kept.remove(*removed).0).expect("it is there");
            }
            let name = format!("round {round}");
            disk.snapshot(&name).expect("room");
            kept.push((name, now.clone()));
        }
        let mut found = vec![0; (BLOCKS * 4096) as usize];
        for (name, blocks) in &kept {
            disk.open_snapshot(name).expect("it is there").read(0, &mut found).expect("whole");
            let stamps: Vec<u8> = found.chunks(4096).map(|block| block[0]).collect();
            prop_assert_eq!(&stamps, blocks, "{}", name);
        }
        prop_assert_eq!(disk.check().expect("no fault"), []);
        for (name, _) in kept {
            disk.remove_snapshot(&name).expect("it is there");
        }
        prop_assert_eq!(disk.check().expect("no fault"), []);
        disk.read(0, &mut found).expect("whole");
        let stamps: Vec<u8> = found.chunks(4096).map(|block| block[0]).collect();
        prop_assert_eq!(stamps, now);
    }
}

#[test]
fn snapshots_are_refused_with_a_reason() {
    let pool = TestPool::new(256 << 20);
    let disk = pool.disk(1 << 20);
    disk.snapshot("first").expect("room");
    let open = disk.open_snapshot("first").expect("it is there");
    let reason = |result: Result<(), Error>| result.expect_err("refused").to_string();
    assert!(reason(disk.snapshot("first")).contains("there is one of that name"));
    assert!(reason(disk.remove_snapshot("first")).contains("it is open"));
    assert!(reason(disk.remove_snapshot("second")).contains("there are: first"));
    assert!(reason(disk.snapshot("")).contains("1 to 24 bytes"));
    assert!(reason(disk.snapshot(&"x".repeat(25))).contains("1 to 24 bytes"));
    drop(open);
    for number in 1..SNAPSHOT_COUNT {
        disk.snapshot(&number.to_string()).expect("room");
    }
    assert!(reason(disk.snapshot("one more")).contains("at most 64"));
    disk.remove_snapshot("first").expect("nobody has it open");
}

#[test]
fn space_is_used_again() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(8 << 20);
    let data = vec![3; 6 << 20];
    for round in 0..20 {
        disk.snapshot("kept").expect("room");
        disk.write(0, &data).unwrap_or_else(|error| panic!("round {round}: {error}"));
        disk.remove_snapshot("kept").expect("it is there");
        disk.trim(1 << 20, 3 << 20).expect("room");
    }
    assert_eq!(disk.check().expect("no fault"), []);
    assert!(disk.info().allocated <= 16 << 20, "{:?}", disk.info());
}
