//! Loads, stores, exchanges and copies on mapped memory.

use proptest::prelude::*;
use remanent_pmem::{Emulation, Fault, Frozen, LINE_LEN, Medium, Pool, crc32c, lines};
use tempfile::TempDir;

use super::slots::Slots;
use super::support::{memory_dir, pattern};

/// A pool and a megabyte in it that belongs to nobody else.
pub(crate) fn scratch_pool(emulation: Emulation) -> (TempDir, Pool, u64) {
    let dir = memory_dir();
    let options = Pool::options().size_max(64 << 20).emulation(emulation);
    let pool = options.create(dir.path().join("a.pool")).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(0, &vec![0; 1 << 20]).unwrap();
    let offset = slots.content(0).unwrap().0.next_multiple_of(4096);
    (dir, pool, offset)
}

#[test]
fn words_are_exchanged_only_as_expected() {
    let (_dir, pool, at) = scratch_pool(Emulation::None);
    let medium = pool.medium();
    medium.store(at, 5);
    assert_eq!(medium.compare_exchange(at, 4, 6), Err(5));
    assert_eq!(medium.compare_exchange(at, 5, 6), Ok(5));
    assert_eq!(medium.fetch_or(at, 0x18), 6);
    assert_eq!(medium.fetch_and(at, !2), 0x1e);
    assert_eq!(medium.fetch_add(at, u64::MAX), 0x1c);
    assert_eq!(medium.load(at), 0x1b);
    let mut bytes = [0; 8];
    medium.read(at, &mut bytes);
    assert_eq!(bytes, [0x1b, 0, 0, 0, 0, 0, 0, 0], "words are little-endian");
}

#[test]
fn pairs_are_exchanged_as_one() {
    let (_dir, pool, at) = scratch_pool(Emulation::None);
    let medium = pool.medium();
    for (first, second) in [(1, 0), (0, 1)] {
        assert_eq!(medium.compare_exchange_pair(at, [first, second], [9, 9]), Err([0, 0]));
    }
    assert_eq!(medium.compare_exchange_pair(at, [0, 0], [1, u64::MAX]), Ok([0, 0]));
    assert_eq!((medium.load(at), medium.load(at + 8)), (1, u64::MAX));
    const ROUNDS: u64 = 20_000;
    medium.store(at, 0);
    medium.store(at + 8, 0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut current = [0, 0];
                    while let Err(found) =
                        medium.compare_exchange_pair(at, current, [current[0] + 1, current[1] + 2])
                    {
                        assert_eq!(found[1], 2 * found[0], "a pair is seen whole");
                        current = found;
                    }
                }
            });
        }
    });
    assert_eq!([medium.load(at), medium.load(at + 8)], [3 * ROUNDS, 6 * ROUNDS]);
}

#[test]
fn copies_of_any_alignment_touch_their_bytes_and_no_others() {
    const WINDOW: usize = 2048;
    for emulation in [Emulation::None, Emulation::Nvram] {
        let (_dir, pool, base) = scratch_pool(emulation);
        let medium = pool.medium();
        let mut expected = pattern(1, WINDOW);
        medium.write(base, &expected);
        let copies: [fn(&remanent_pmem::Mapped, u64, &[u8]); 3] = [
            |medium, at, bytes| medium.write_streaming(at, bytes),
            |medium, at, bytes| medium.write(at, bytes),
            |medium, at, bytes| medium.write_zeros(at, bytes.len() as u64),
        ];
        for start in 0..LINE_LEN as usize + 1 {
            for len in [0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 319, 320, 500, 512, 1000, 1024] {
                for (number, copy) in copies.iter().enumerate() {
                    let mut bytes = pattern((start * 4096 + len * 3 + number) as u64, len);
                    copy(medium, base + start as u64, &bytes);
                    medium.fence();
                    if number == 2 {
                        bytes.fill(0);
                    }
                    expected[start..start + len].copy_from_slice(&bytes);
                    assert!(medium.equals(base, &expected), "copy {number}, {len} at {start}");
                }
            }
        }
        assert_eq!(medium.fault(), None);
    }
}

#[test]
fn a_copy_is_summed_whatever_its_place_and_length() {
    const WINDOW: usize = 16 << 10;
    #[cfg(target_arch = "x86_64")]
    if !(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")) {
        eprintln!(
            "not run: the loop that copies and sums, which needs AVX-512 and VPCLMULQDQ; what stands in for it is"
        );
    }
    for emulation in [Emulation::None, Emulation::Nvram] {
        let (_dir, pool, base) = scratch_pool(emulation);
        let medium = pool.medium();
        let mut expected = pattern(1, WINDOW);
        medium.write(base, &expected);
        for len in [0, 1, 64, 255, 256, 257, 512, 768, 4095, 4096, 4160, 8192] {
            for start in [0, 1, 8, 63, 64, 4096] {
                // Read from a place that is not aligned, too.
                for skip in [0, 1] {
                    let bytes = pattern((len * 8192 + start * 2 + skip) as u64, len + skip);
                    let bytes = &bytes[skip..];
                    let sum = medium.write_streaming_summed(base + start as u64, bytes);
                    medium.fence();
                    assert_eq!(sum, crc32c(bytes), "{len} bytes at {start}");
                    expected[start..start + len].copy_from_slice(bytes);
                    assert!(medium.equals(base, &expected), "{len} bytes at {start}");
                }
            }
        }
        assert_eq!(medium.fault(), None);
    }
}

/// Everything a medium offers, at a place outside of the pool: zeros, no effect, and the fault.
#[test]
fn a_wild_offset_is_a_fault_and_nothing_else() {
    let reserved = 64 << 20;
    for wild in
        [reserved, reserved - 4, reserved + (1 << 30), 1 << 48, u64::MAX - 15, u64::MAX - 64]
    {
        let (_dir, pool, at) = scratch_pool(Emulation::Nvram);
        let medium = pool.medium();
        let word = wild / 16 * 16;
        let before: Vec<u64> = (0..1024).map(|index| medium.load(at + index * 8)).collect();
        let mut bytes = vec![1; 100_000];
        medium.read(wild, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
        assert_eq!(medium.fault(), Some(Fault::OutOfRange(wild & ((1 << 48) - 1))));
        for copy in [8, 100, 1000, 100_000] {
            medium.write(wild, &bytes[..copy]);
            medium.write_streaming(wild, &bytes[..copy]);
            let sum = medium.write_streaming_summed(wild, &bytes[..copy]);
            assert_eq!(sum, crc32c(&bytes[..copy]));
            medium.write_zeros(wild, copy as u64);
            medium.flush(wild, copy as u64);
            // SAFETY: nobody writes outside of the pool.
            assert!(medium.view(unsafe { Frozen::new(wild, copy as u64) }).iter().all(|&b| b == 0));
        }
        medium.write_zeros(wild, u64::MAX);
        medium.flush(wild, u64::MAX);
        medium.prefetch(wild);
        medium.fence();
        if word >= reserved {
            medium.store(word, 7);
            assert_eq!(medium.load(word), 0);
            assert!(medium.window(word, 8).is_none());
            assert_eq!(medium.fetch_or(word, 7), 0);
            assert_eq!(medium.fetch_and(word, 7), 0);
            assert_eq!(medium.fetch_add(word, 7), 0);
            assert_eq!(medium.compare_exchange(word, 0, 7), Ok(0));
            assert_eq!(medium.compare_exchange(word, 7, 8), Err(0));
            assert_eq!(medium.compare_exchange_pair(word, [0, 0], [7, 7]), Ok([0, 0]));
        }
        assert_eq!(medium.fault(), Some(Fault::OutOfRange(wild & ((1 << 48) - 1))));
        let after: Vec<u64> = (0..1024).map(|index| medium.load(at + index * 8)).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn a_window_shows_the_words_of_its_range_and_no_others() {
    let (_dir, pool, at) = scratch_pool(Emulation::None);
    let medium = pool.medium();
    (0..8).for_each(|index| medium.store(at + 8 * index, index + 1));
    let load = medium.window(at + 8, 24).expect("the range lies in the pool");
    assert_eq!([0, 8, 16, 24, 32, u64::MAX - 7].map(&load), [2, 3, 4, 0, 0, 0]);
    assert_eq!(medium.fault(), None);
}

/// Behind the file's end, but inside the range that is reserved for its growth.
#[test]
fn an_offset_behind_the_end_is_a_fault() {
    let (_dir, pool, _) = scratch_pool(Emulation::None);
    let medium = pool.medium();
    let beyond = medium.len() + 4096;
    assert!(beyond < pool.size_max());
    assert_eq!(medium.load(beyond + 8), 0);
    assert_eq!(medium.fault(), Some(Fault::OutOfRange(beyond)));
}

proptest! {
    #[test]
    fn lines_are_those_that_a_range_touches(offset in 0_u64..1 << 20, len in 0_u64..5000) {
        let (first, count) = lines(offset, len);
        let mut touched: Vec<u64> = (offset..offset + len).map(|byte| byte / LINE_LEN).collect();
        touched.dedup();
        let listed: Vec<u64> = (0..count).map(|line| first / LINE_LEN + line).collect();
        prop_assert_eq!(first % LINE_LEN, 0);
        prop_assert_eq!(listed, touched);
    }

    #[test]
    fn lines_of_wild_ranges_do_not_wrap(offset in u64::MAX - 300.., len in any::<u64>()) {
        let (first, count) = lines(offset, len);
        prop_assert!(first.checked_add(count.saturating_sub(1) * LINE_LEN).is_some());
    }
}
