//! Named roots: limits, types, removal.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use remanent_crashsim::Sim;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::layout::HEADER_ROOT_COUNT;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error, Mapped, Medium, Pool, Result};

use super::slots::Slots;
use super::support::{assert_sound, memory_dir, pattern, simulated};

/// A heap and nothing else, under a type name of its own choosing.
struct Bare<M: Medium, const NAME_LEN: usize = 4>(#[expect(dead_code, reason = "held")] Heap<M>);

impl<M: Medium, const NAME_LEN: usize> RootObject<M> for Bare<M, NAME_LEN> {
    fn root_type() -> RootType {
        RootType { name: "B".repeat(NAME_LEN), layout: NAME_LEN as u64 }
    }
    fn create(heap: Heap<M>) -> Result<Self> {
        Ok(Bare(heap))
    }
    fn open(heap: Heap<M>) -> Result<Self> {
        heap.recover(|_| false)?;
        Ok(Bare(heap))
    }
}

#[test]
fn the_directory_grows_by_256_roots_and_uses_entries_again() {
    let pool = simulated(128 << 20);
    let (first_growth, second_growth) = (HEADER_ROOT_COUNT, HEADER_ROOT_COUNT + 256);
    let directories = |pool: &Pool<_>| pool.check().unwrap().chunks_used - pool_roots(pool);
    for number in 0..second_growth + 20 {
        pool.create_root::<Bare<_>>(&format!("root {number}")).unwrap();
        if number < first_growth {
            assert_eq!(directories(&pool), 0);
        }
    }
    assert_eq!(directories(&pool), 2);
    // Entries in each part are used again, the first ones first, and no further chunk is taken for
    // them. The first one has the number that the first directory chunk has for an owner.
    for number in [0, 100, 300, 490] {
        pool.remove_root(&format!("root {number}")).unwrap();
    }
    for number in 0..4 {
        pool.create_root::<Bare<_>>(&format!("again {number}")).unwrap();
    }
    assert_eq!((pool_roots(&pool), directories(&pool)), (500, 2));
    assert_eq!(pool.check().unwrap().violations, []);
    let ids: Vec<u16> = pool.roots().unwrap().iter().map(|root| root.id.0).collect();
    assert_eq!(ids, (1..=500).collect::<Vec<u16>>());
    let error = pool.open_root::<Bare<_>>("no such").err().unwrap().to_string();
    assert!(error.contains("and 480 more"), "{error}");

    let medium = Arc::clone(pool.medium());
    drop(pool);
    let pool = Pool::recover(medium).unwrap();
    for name in ["root 1", "root 224", "root 499", "again 1"] {
        pool.open_root::<Bare<_>>(name).unwrap();
    }
    assert_eq!((pool_roots(&pool), directories(&pool)), (500, 2));
    assert_eq!(pool.check().unwrap().violations, []);
}

fn pool_roots(pool: &Pool<Arc<Sim>>) -> u64 {
    pool.roots().unwrap().len() as u64
}

/// Place of what leads to the first directory chunk.
const LINK: u64 = 8192 + 40;

#[test]
fn what_leads_to_directory_chunks_is_not_believed_when_it_is_damaged() {
    let damaged = |change: fn(u64, u32) -> u64, bit: u32| {
        let pool = simulated(64 << 20);
        for number in 0..HEADER_ROOT_COUNT + 1 {
            pool.create_root::<Bare<_>>(&format!("root {number}")).unwrap();
        }
        let medium = Arc::clone(pool.medium());
        drop(pool);
        medium.store(LINK, change(medium.load(LINK), bit));
        Pool::recover(medium)
    };
    for bit in [0, 1, 16, 31, 32, 63] {
        let refused = damaged(|word, bit| word ^ 1 << bit, bit).unwrap_err().to_string();
        assert!(refused.contains("leads to directory chunk 0 is damaged"), "bit {bit}: {refused}");
    }
    // Where nothing leads to it any more, the pool opens, and is told to have lost it.
    let pool = damaged(|_, _| 0, 0).unwrap();
    assert_eq!(pool_roots(&pool), u64::from(HEADER_ROOT_COUNT));
    let found = pool.check().unwrap().violations;
    assert!(found.iter().any(|found| found.what.contains("does not lead there")), "{found:?}");
}

#[test]
fn names_have_limits() {
    let pool = simulated(32 << 20);
    let longest = "ü".repeat(32);
    for name in ["a", " ", &longest] {
        pool.create_root::<Bare<_>>(name).unwrap();
        pool.open_root::<Bare<_>>(name).unwrap();
    }
    for name in ["", "a\0b", &"a".repeat(65)] {
        let error = pool.create_root::<Bare<_>>(name).err().unwrap();
        assert!(error.to_string().contains("a name has 1 to 64 bytes and no NUL"), "{error}");
    }
    pool.create_root::<Bare<_, 128>>("longest type").unwrap();
    pool.open_root::<Bare<_, 128>>("longest type").unwrap();
    let error = pool.create_root::<Bare<_, 129>>("longer type").err().unwrap();
    assert!(error.to_string().contains("more than 128 bytes"), "{error}");
    assert_eq!(pool.roots().unwrap().len(), 4);
    assert_eq!(pool.check().unwrap().violations, []);
}

#[test]
fn a_root_is_refused_as_another_type_with_both_names() {
    let pool = simulated(32 << 20);
    pool.create_root::<Bare<_, 4>>("root").unwrap();
    let error = pool.open_root::<Bare<_, 5>>("root").err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, Error::WrongType { .. }), "{text}");
    assert!(text.contains("root \"root\" has type BBBB and was opened as BBBBB"), "{text}");
    pool.open_root::<Bare<_, 4>>("root").unwrap();
}

#[test]
fn missing_and_present_roots_are_named() {
    let pool = simulated(32 << 20);
    let none = pool.open_root::<Bare<_>>("a").err().unwrap();
    assert!(none.to_string().contains("no root named \"a\"; it has: none"), "{none}");
    pool.create_root::<Bare<_>>("a").unwrap();
    pool.create_root::<Bare<_>>("b").unwrap();
    for error in [pool.open_root::<Bare<_>>("c").err().unwrap(), pool.remove_root("c").unwrap_err()]
    {
        assert!(error.to_string().contains("it has: a, b"), "{error}");
    }
    let again = pool.create_root::<Bare<_>>("a").err().unwrap();
    assert!(matches!(again, Error::RootExists { .. }), "{again}");
}

#[test]
fn a_root_is_open_once_in_a_process() {
    let pool = simulated(32 << 20);
    let first = pool.create_root::<Slots<_>>("slots").unwrap();
    let second = pool.open_root::<Slots<_>>("slots").unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    drop(first);
    let error = pool.remove_root("slots").unwrap_err();
    assert!(matches!(error, Error::RootInUse { .. }), "{error}");
    drop(second);
    pool.remove_root("slots").unwrap();
}

#[test]
fn a_removed_root_gives_everything_back() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    pool.create_root::<Slots<_>>("kept").unwrap().put(1, &pattern(1, 5000)).unwrap();
    let before = pool.check().unwrap().chunks_used;
    for round in 0..3 {
        let slots = pool.create_root::<Slots<_>>("dropped").unwrap();
        for index in 0..2000 {
            slots.put(index, &pattern(index, (index as usize * 37) % 30_000)).unwrap();
        }
        // The root before left bits and bytes behind; none of them is found here.
        assert_eq!(slots.get(2000), None);
        assert_sound(&pool, &slots);
        drop(slots);
        pool.remove_root("dropped").unwrap();
        assert_eq!(pool.check().unwrap().chunks_used, before, "round {round}");
    }
    drop(pool);
    let pool = Pool::options().open(&path).unwrap();
    let kept = pool.open_root::<Slots<_>>("kept").unwrap();
    assert_eq!(kept.get(1), Some(pattern(1, 5000)));
    assert_sound(&pool, &kept);
}

#[test]
fn a_root_that_cannot_be_created_leaves_nothing() {
    struct Failing;
    impl<M: Medium> RootObject<M> for Failing {
        fn root_type() -> RootType {
            RootType { name: "Failing".to_owned(), layout: 0 }
        }
        fn create(heap: Heap<M>) -> Result<Self> {
            let mut lane = heap.enter().prepare_to_write();
            lane.allocate(100)?;
            lane.allocate(1 << 20)?;
            lane.allocate(u64::MAX)?;
            Ok(Failing)
        }
        fn open(_: Heap<M>) -> Result<Self> {
            Ok(Failing)
        }
    }
    let pool = simulated(64 << 20);
    let error = pool.create_root::<Failing>("failing").err().unwrap();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(pool.roots().unwrap(), []);
    let report = pool.check().unwrap();
    assert_eq!((report.chunks_used, report.violations), (0, vec![]));
}

/// A structure whose end takes time, while another thread opens it again.
#[test]
fn opening_waits_for_the_end_of_the_last_handle() {
    struct Slow {
        heap: Heap<Mapped>,
        ending: std::sync::Mutex<Option<Sender<()>>>,
    }
    const ENDED: u64 = 8;
    impl RootObject<Mapped> for Slow {
        fn root_type() -> RootType {
            RootType { name: "Slow".to_owned(), layout: 0 }
        }
        fn create(heap: Heap<Mapped>) -> Result<Self> {
            Ok(Slow { heap, ending: std::sync::Mutex::default() })
        }
        fn open(heap: Heap<Mapped>) -> Result<Self> {
            assert_eq!(heap.medium().load(heap.header() + ENDED), 1, "opened before its end");
            Self::create(heap)
        }
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            if let Some(ending) = self.ending.lock().unwrap().take() {
                ending.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
            self.heap.medium().store(self.heap.header() + ENDED, 1);
        }
    }
    let dir = memory_dir();
    let pool = Pool::options().create(dir.path().join("a.pool")).unwrap();
    let slow = pool.create_root::<Slow>("slow").unwrap();
    let (sender, ending) = channel();
    *slow.ending.lock().unwrap() = Some(sender);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(slow));
        ending.recv().unwrap();
        pool.open_root::<Slow>("slow").unwrap();
    });
}
