//! Fences, counted by the simulator.

use std::sync::Arc;

use remanent_blockdev::file::File;
use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

/// Fences of `act`.
fn fences(sim: &Sim, act: impl FnOnce()) -> u64 {
    let before = sim.counters().fences;
    act();
    sim.counters().fences - before
}

fn file() -> (Arc<Sim>, Pool<Arc<Sim>>, File<Arc<Sim>>) {
    let options = SimOptions { len: 64 << 10, capacity: 64 << 20, ..SimOptions::default() };
    let sim = Arc::new(Sim::new(options));
    let pool = Pool::format(Arc::clone(&sim), &Format::new(64 << 20)).expect("room");
    let file = File::create(&pool, "file").expect("room");
    (sim, pool, file)
}

#[test]
fn a_sync_takes_one_fence_and_two_where_the_file_grew() {
    let (sim, _pool, file) = file();
    file.write(0, &[1; 60_000]).expect("room");
    assert_eq!(fences(&sim, || file.sync().expect("no fault")), 2, "the data, then the length");
    assert_eq!(fences(&sim, || file.sync().expect("no fault")), 0, "nothing was written");
    for len in [1, 8, 64, 4096, 50_000] {
        let count = fences(&sim, || file.write(100, &vec![2; len]).expect("room"));
        assert_eq!(count, 0, "a write of {len} bytes");
        assert_eq!(fences(&sim, || file.sync().expect("no fault")), 1, "{len} bytes in place");
    }
    assert_eq!(fences(&sim, || file.write(60_000, &[3; 1_000]).expect("room")), 0);
    assert_eq!(fences(&sim, || file.sync().expect("no fault")), 2, "appended");
    let mut found = [0; 100];
    let count = fences(&sim, || assert_eq!(file.read(0, &mut found).expect("no fault"), 100));
    assert_eq!(count, 0);
}

#[test]
fn creating_and_deleting_takes_one_fence_and_no_extent() {
    let (sim, _pool, file) = file();
    file.write(0, &[1; 300_000]).expect("room");
    let allocated = file.allocated();
    assert_eq!(fences(&sim, || file.set_present(false).expect("no fault")), 1);
    assert_eq!(fences(&sim, || file.set_present(false).expect("no fault")), 0, "it is not there");
    assert_eq!(fences(&sim, || file.set_present(true).expect("no fault")), 1);
    assert!(file.is_present() && file.is_empty());
    assert_eq!(fences(&sim, || file.write(0, &[2; 300_000]).expect("room")), 0);
    assert_eq!(fences(&sim, || file.set_len(1_000).expect("room")), 2, "its data, and the length");
    assert_eq!(fences(&sim, || file.set_len(10).expect("room")), 1);
    assert_eq!(fences(&sim, || file.set_len(10).expect("room")), 0);
    assert_eq!(file.allocated(), allocated);
}

#[test]
fn an_extent_takes_three_fences_and_a_long_file_has_few() {
    let (sim, _pool, file) = file();
    let count = fences(&sim, || file.write(0, &[1; 10]).expect("room"));
    assert_eq!(count, 3, "the first extent");
    let mut extents = 1;
    for at in (0..8 << 20).step_by(4096) {
        let allocated = file.allocated();
        let count = fences(&sim, || file.write(at, &[2; 4096]).expect("room"));
        if file.allocated() > allocated {
            extents += 1;
            // The pool may have to grow for it.
            assert!(count <= 4, "{count} fences");
        } else {
            assert_eq!(count, 0);
        }
    }
    assert!(extents <= 8, "{extents} extents");
    assert!(file.allocated() <= 16 << 20);
}

#[test]
fn scattered_writes_are_made_durable_in_between() {
    let (sim, _pool, file) = file();
    file.set_len(4 << 20).expect("room");
    let count = fences(&sim, || {
        for piece in 0..1_000 {
            file.write(piece * 4096 % (4 << 20), &[4; 8]).expect("room");
        }
    });
    assert!((10..=16).contains(&count), "{count} fences for 1,000 pieces");
}
