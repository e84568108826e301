//! Panics in code that a pool calls.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};

use remanent_pmem::{Emulated, Mapped, Options, Pool};

use super::slots::Slots;
use super::support::{assert_sound, pattern, simulated};

/// More often than a heap has lanes, and the header room for roots.
const PANICS: usize = 300;

#[test]
fn a_root_whose_creation_panics_is_not_there() {
    let pool = simulated(64 << 20);
    for _ in 0..PANICS {
        let created = catch_unwind(AssertUnwindSafe(|| {
            pool.create_root_with("slots", |heap| -> remanent_pmem::Result<Slots<_>> {
                heap.enter().prepare_to_write().allocate(1 << 20)?;
                resume_unwind(Box::new("meant"))
            })
        }));
        assert!(created.is_err());
    }
    assert_eq!(pool.roots().unwrap(), []);
    assert_eq!(pool.check().unwrap().violations, []);
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(1, &pattern(1, 100)).unwrap();
    assert_eq!(pool.roots().unwrap()[0].id.0, 1, "the entry is used again");
    assert_sound(&pool, &slots);
}

/// That it compiles is the test.
#[test]
fn pools_may_be_shared_with_threads_and_used_after_panics() {
    fn assert_handle<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    assert_handle::<Pool<Mapped>>();
    assert_handle::<Pool<Emulated>>();
    assert_handle::<Options>();
}
