//! Structures that share a heap, and steps over them.

use std::sync::Arc;
use std::time::Duration;

use remanent_crashsim::Sim;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{Guarantee, RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};
use remanent_structures::shared::{MemberId, Recovery, Shareable, Site, Step};
use remanent_structures::{
    Batch, BlinkTree, Error, ExtendibleMap, ExtendibleMultiMap, HashMap, Log, SharedTx, Vector,
};

use crate::support::{fences, scratch, sim_pool};

/// A root with a structure of each kind.
struct Owner<M: Medium> {
    heap: Arc<Heap<M>>,
    words: HashMap<u64, u64, M>,
    texts: HashMap<str, str, M>,
    tree: BlinkTree<u64, u64, M>,
    records: BlinkTree<str, str, M>,
    vector: Vector<u64, M>,
    log: Log<str, M>,
    object: SharedTx<[u64; 3], M>,
    table: ExtendibleMap<str, str, M>,
    cells: ExtendibleMap<u64, u64, M>,
    several: ExtendibleMultiMap<str, str, M>,
}

const HEADER_LEN: u64 = 2048;

fn site<M: Medium>(heap: &Arc<Heap<M>>, headers: u64, index: u32) -> Site<M> {
    let member = MemberId::new(index + 1).unwrap();
    Site::shared(heap, headers + u64::from(index) * HEADER_LEN, member)
}

impl<M: Medium> RootObject<M> for Owner<M> {
    fn root_type() -> RootType {
        RootType { name: "Owner".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let headers = heap.enter().prepare_to_write().allocate(10 * HEADER_LEN)?.offset;
        heap.medium().write_zeros(headers, 10 * HEADER_LEN);
        heap.medium().persist(headers, 10 * HEADER_LEN);
        let site = |index| site(&heap, headers, index);
        let owner = Owner {
            words: Shareable::create_in(site(0))?,
            texts: Shareable::create_in(site(1))?,
            tree: Shareable::create_in(site(2))?,
            records: Shareable::create_in(site(3))?,
            vector: Shareable::create_in(site(4))?,
            log: Shareable::create_in(site(5))?,
            object: Shareable::create_in(site(6))?,
            table: Shareable::create_in(site(7))?,
            cells: Shareable::create_in(site(8))?,
            several: Shareable::create_in(site(9))?,
            heap: Arc::clone(&heap),
        };
        heap.medium().store(heap.header(), headers);
        heap.medium().persist(heap.header(), 8);
        Ok(owner)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let headers = heap.medium().load(heap.header());
        let mut recovery = Recovery::new();
        let words = recovery.find(site(&heap, headers, 0))?;
        let texts = recovery.find(site(&heap, headers, 1))?;
        let tree = recovery.find(site(&heap, headers, 2))?;
        let records = recovery.find(site(&heap, headers, 3))?;
        let vector = recovery.find(site(&heap, headers, 4))?;
        let log = recovery.find(site(&heap, headers, 5))?;
        let object = recovery.find(site(&heap, headers, 6))?;
        let table = recovery.find(site(&heap, headers, 7))?;
        let cells = recovery.find(site(&heap, headers, 8))?;
        let several = recovery.find(site(&heap, headers, 9))?;
        recovery.run(&heap, |block| block.offset == headers)?;
        Ok(Owner {
            words: words.finish()?,
            texts: texts.finish()?,
            tree: tree.finish()?,
            records: records.finish()?,
            vector: vector.finish()?,
            log: log.finish()?,
            object: object.finish()?,
            table: table.finish()?,
            cells: cells.finish()?,
            several: several.finish()?,
            heap,
        })
    }
}

fn owner() -> (Arc<Owner<Arc<Sim>>>, Pool<Arc<Sim>>) {
    let pool = sim_pool(Guarantee::default());
    let owner: Arc<Owner<Arc<Sim>>> = pool.create_root("owner").unwrap();
    // Chunks to allocate from are there, and neighbours that keys are put beside.
    for key in 1_000..1_020 {
        let text = format!("{key}");
        owner.words.put(&key, &0).unwrap();
        owner.texts.put(&text, &text).unwrap();
        owner.table.put(&text, &text).unwrap();
        owner.cells.put(&key, &0).unwrap();
        owner.several.insert(&text, &text).unwrap();
        owner.several.insert("all", &text).unwrap();
        owner.tree.put(&key, &0).unwrap();
        owner.records.put(&text, &text).unwrap();
        owner.vector.push(&key).unwrap();
        owner.log.append(&text).unwrap();
    }
    owner.texts.put("name 0", "a longer text, in a node").unwrap();
    (owner, pool)
}

#[test]
fn a_step_takes_the_fences_of_the_operation_that_takes_most() {
    let (owner, pool) = owner();
    let names: Vec<String> = (0..20_u64).map(|number| format!("name {number}")).collect();
    let numbers: Vec<u64> = (0..20).collect();
    // A new entry of a hash map takes two fences alone, so all of these together do.
    let found = fences(&pool, || {
        let mut step = Step::enter(&owner.heap);
        owner.words.put_in(&mut step, &numbers[1], &7).unwrap();
        owner.texts.put_in(&mut step, &names[1], "a longer text, in a node").unwrap();
        owner.table.put_in(&mut step, &names[1], "a longer text, in a record").unwrap();
        owner.table.put_in(&mut step, "1001", &names[1]).unwrap();
        owner.cells.put_in(&mut step, &numbers[1], &7).unwrap();
        owner.tree.put_in(&mut step, &1, &numbers[1]).unwrap();
        owner.tree.put_in(&mut step, &2, &numbers[2]).unwrap();
        owner.records.put_in(&mut step, "b", &names[2]).unwrap();
        owner.records.put_in(&mut step, "c", &names[3]).unwrap();
        owner.vector.extend_in(&mut step, &numbers).unwrap();
        owner.object.set_in(&mut step, [1, 2, 3]).unwrap();
        owner.log.append_in(&mut step, &["first", "second"]).unwrap();
        assert_eq!(step.len(), 12);
        step.commit().unwrap();
    });
    assert_eq!(found, 2);
    assert_eq!(owner.texts.get(&names[1]).unwrap().as_deref(), Some("a longer text, in a node"));
    let value = owner.table.get(&names[1]).unwrap();
    assert_eq!(value.as_deref(), Some("a longer text, in a record"));
    assert_eq!(owner.table.get("1001").unwrap().as_deref(), Some("name 1"));
    assert_eq!(owner.tree.get(&2).unwrap(), Some(2));
    assert_eq!(owner.records.get("c").unwrap().as_deref(), Some("name 3"));
    assert_eq!((owner.vector.len(), owner.object.get().unwrap()), (40, [1, 2, 3]));

    // What takes one fence alone takes one together.
    let found = fences(&pool, || {
        let mut step = Step::enter(&owner.heap);
        owner.words.put_in(&mut step, &numbers[1], &8).unwrap();
        owner.words.remove_in(&mut step, &1_001).unwrap();
        owner.texts.remove_in(&mut step, &names[1]).unwrap();
        owner.table.remove_in(&mut step, &names[1]).unwrap();
        owner.cells.put_in(&mut step, &numbers[1], &8).unwrap();
        owner.cells.put_in(&mut step, &1_002, &numbers[2]).unwrap();
        owner.cells.remove_in(&mut step, &1_001).unwrap();
        owner.tree.put_in(&mut step, &3, &numbers[3]).unwrap();
        owner.tree.remove_in(&mut step, &1).unwrap();
        owner.vector.extend_in(&mut step, &numbers[..3]).unwrap();
        owner.object.set_in(&mut step, [4, 5, 6]).unwrap();
        step.commit().unwrap();
    });
    assert_eq!(found, 1);
    // Replacing and removing records: the record or the suspect, then the slot.
    let found = fences(&pool, || {
        let mut step = Step::enter(&owner.heap);
        owner.records.put_in(&mut step, "b", &names[9]).unwrap();
        owner.records.remove_in(&mut step, "c").unwrap();
        step.commit().unwrap();
    });
    assert_eq!(found, 2);
    assert_eq!(owner.records.get("b").unwrap().as_deref(), Some("name 9"));
    assert_eq!(owner.words.get(&1).unwrap(), Some(8));
    assert_eq!(owner.words.len().unwrap(), 20);
}

#[test]
fn each_large_value_takes_two_fences_more() {
    let (owner, pool) = owner();
    let large = "a value of 30 KB".repeat(30_000 / 16);
    let put = |round: u64, count: u64| {
        let names: Vec<String> =
            (0..count).map(|number| format!("large {round} {number}")).collect();
        fences(&pool, || {
            let mut step = Step::enter(&owner.heap);
            for name in &names {
                owner.texts.put_in(&mut step, name, &large).unwrap();
                owner.records.put_in(&mut step, name, &large).unwrap();
            }
            owner.words.put_in(&mut step, &round, &round).unwrap();
            step.commit().unwrap();
        })
    };
    assert_eq!(put(0, 0), 2);
    // The first of them makes the heap's table of large blocks.
    put(1, 1);
    assert_eq!((put(2, 1), put(3, 2), put(4, 3)), (2 + 2 * 2, 2 + 4 * 2, 2 + 6 * 2));
    check(&owner);
}

#[test]
fn a_step_that_is_dropped_does_nothing_and_leaks_nothing() {
    let (owner, pool) = owner();
    for round in 0..50 {
        let mut step = Step::enter(&owner.heap);
        owner.texts.put_in(&mut step, "new", "a value that lies in a node").unwrap();
        owner.records.put_in(&mut step, "new", "a value that lies in a record").unwrap();
        owner.records.remove_in(&mut step, "1001").unwrap();
        owner.words.put_in(&mut step, &round, &round).unwrap();
        owner.table.put_in(&mut step, "new", "a text for which there is a record").unwrap();
        owner.table.put_in(&mut step, "1001", "one that replaces another").unwrap();
        owner.table.remove_in(&mut step, "1002").unwrap();
        owner.cells.put_in(&mut step, &round, &round).unwrap();
        drop(step);
    }
    assert_eq!(owner.table.get("new").unwrap(), None);
    assert_eq!(owner.table.get("1001").unwrap().as_deref(), Some("1001"));
    assert_eq!((owner.table.len().unwrap(), owner.cells.len().unwrap()), (20, 20));
    assert_eq!(owner.texts.get("new").unwrap(), None);
    assert_eq!(owner.records.get("1001").unwrap().as_deref(), Some("1001"));
    assert_eq!(owner.words.len().unwrap(), 20);
    check(&owner);
    drop(owner);
    let owner: Arc<Owner<Arc<Sim>>> = pool.open_root("owner").unwrap();
    assert_eq!(owner.records.len().unwrap(), 20);
    check(&owner);
}

/// Those whose blocks lie in more chunks than a lane names.
#[test]
fn steps_that_are_dropped_give_their_room_back() {
    let (owner, pool) = owner();
    let long = "a third of a chunk".repeat(20_000 / 18);
    let names: Vec<String> = (0..30).map(|number| format!("long {number}")).collect();
    // 64 MiB are room for some hundred such steps.
    for _ in 0..400 {
        let mut step = Step::enter(&owner.heap);
        names.iter().for_each(|name| owner.texts.put_in(&mut step, name, &long).unwrap());
    }
    // Blocks of another size.
    let half = "half a chunk".repeat(30_000 / 12);
    for number in 0..500 {
        owner.texts.put(&format!("half {number}"), &half).unwrap();
    }
    check(&owner);
    assert_eq!(pool.set_aside(), []);
}

fn check(owner: &Owner<Arc<Sim>>) {
    let inspections = [
        owner.words.inspect().unwrap(),
        owner.texts.inspect().unwrap(),
        owner.tree.inspect().unwrap(),
        owner.records.inspect().unwrap(),
        owner.vector.inspect().unwrap(),
        owner.log.inspect().unwrap(),
        owner.object.inspect().unwrap(),
        owner.table.inspect().unwrap(),
        owner.cells.inspect().unwrap(),
        owner.several.inspect().unwrap(),
    ];
    assert!(inspections.iter().all(|inspection| inspection.violations.is_empty()));
    let headers = owner.heap.medium().load(owner.heap.header());
    let blocks = inspections.into_iter().flat_map(|inspection| inspection.blocks.unwrap());
    assert_eq!(owner.heap.check(blocks.chain([headers])).unwrap(), []);
}

#[test]
fn a_step_has_room_for_128_operations() {
    let (owner, _pool) = owner();
    let keys: Vec<u64> = (0..129).collect();
    let mut step = Step::enter(&owner.heap);
    for key in &keys[..Step::<Arc<Sim>>::OPERATIONS_MAX] {
        owner.words.put_in(&mut step, key, key).unwrap();
    }
    let refused = owner.words.put_in(&mut step, &keys[128], &keys[128]);
    assert!(matches!(refused, Err(Error::TooMany { limit: 128 })), "{refused:?}");
    step.commit().unwrap();
    let mut step = Step::enter(&owner.heap);
    for key in &keys[..128] {
        owner.words.remove_in(&mut step, key).unwrap();
    }
    step.commit().unwrap();
    assert_eq!(owner.words.len().unwrap(), 20);
    check(&owner);
}

#[test]
fn structures_grow_beside_each_other() {
    let (owner, pool) = owner();
    for key in 0..20_000_u64 {
        let text = format!("text {key}");
        owner.words.put(&key, &key).unwrap();
        owner.records.put(&text, &text).unwrap();
        owner.log.append(&text).unwrap();
        if key % 3 == 0 {
            owner.texts.put(&text, &text).unwrap();
        }
    }
    check(&owner);
    drop(owner);
    let owner: Arc<Owner<Arc<Sim>>> = pool.open_root("owner").unwrap();
    assert_eq!(owner.records.len().unwrap(), 20_020);
    assert_eq!(owner.texts.get("text 9").unwrap().as_deref(), Some("text 9"));
    check(&owner);
}

#[test]
#[should_panic(expected = "belongs to the step of its structure's heap")]
fn a_step_is_of_one_heap() {
    let (owner, _pool) = owner();
    let (other, _other_pool) = self::owner();
    let mut step = Step::enter(&owner.heap);
    other.texts.put_in(&mut step, "key", "value that is long").unwrap();
}

#[test]
fn a_thread_that_holds_a_step_does_not_wait_for_batches() {
    let (owner, pool) = owner();
    let map: HashMap<u64, u64, _> = HashMap::create(&pool, "map").unwrap();
    let mut step = Step::enter(&owner.heap);
    owner.tree.put_in(&mut step, &7, &7).unwrap();
    let mut batch = Batch::new(&pool).unwrap();
    batch.put(&map, &1, &1).unwrap();
    assert!(matches!(batch.commit(), Err(Error::Nested)));
    assert!(matches!(map.clear(), Err(Error::Nested)));
    assert!(map.put(&1, &1).unwrap(), "no batch has closed the key");
    step.commit().unwrap();
    assert_eq!((owner.tree.get(&7).unwrap(), map.clear().unwrap()), (Some(7), 1));
    check(&owner);
}

#[test]
fn batches_refuse_members() {
    let (owner, pool) = owner();
    let mut batch = Batch::new(&pool).unwrap();
    assert!(matches!(batch.put(&owner.words, &1, &1), Err(Error::SharedHeap)));
    assert!(matches!(batch.remove(&owner.tree, &1), Err(Error::SharedHeap)));
}

/// Steps that change a vector and a log twice hold their locks while they want to write again.
#[test]
fn steps_and_truncation_do_not_wait_for_each_other_in_a_circle() {
    let directory = scratch();
    let pool = Pool::options().create(directory.path().join("circle.pool")).unwrap();
    let owner: Arc<Owner<Mapped>> = pool.create_root("owner").unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let threads = [0, 1].map(|thread| {
        let (owner, done) = (Arc::clone(&owner), done.clone());
        std::thread::spawn(move || {
            for _ in 0..2_000 {
                if thread == 0 {
                    let mut step = Step::enter(&owner.heap);
                    owner.vector.extend_in(&mut step, &[1]).unwrap();
                    owner.log.append_in(&mut step, &["one"]).unwrap();
                    owner.vector.extend_in(&mut step, &[2]).unwrap();
                    owner.log.append_in(&mut step, &["two"]).unwrap();
                    step.commit().unwrap();
                } else {
                    owner.vector.truncate(1).unwrap();
                    owner.log.truncate_front(owner.log.end()).unwrap();
                }
            }
            done.send(()).unwrap();
        })
    });
    for _ in &threads {
        is_done.recv_timeout(Duration::from_secs(60)).expect("nobody waits for ever");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Steps hold buckets while they want others, and so do those who split segments.
#[test]
fn steps_on_extendible_maps_and_splits_do_not_wait_for_each_other_in_a_circle() {
    const KEYS: u64 = 3_000;
    let directory = scratch();
    let pool = Pool::options().create(directory.path().join("splits.pool")).unwrap();
    let owner: Arc<Owner<Mapped>> = pool.create_root("owner").unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let threads = [0, 1, 2].map(|thread| {
        let (owner, done) = (Arc::clone(&owner), done.clone());
        std::thread::spawn(move || {
            for round in 0..1_500_u64 {
                let keys: Vec<u64> =
                    (0..8).map(|n| (round * 8 + n).wrapping_mul(0x9e37_79b9) % KEYS).collect();
                let names: Vec<String> = keys.iter().map(u64::to_string).collect();
                if thread == 2 {
                    owner.cells.put(&keys[0], &keys[0]).unwrap();
                    owner.table.put(&names[0], "a text of another length").unwrap();
                    owner.table.discard(&names[1]).unwrap();
                    if round % 500 == 0 {
                        owner.cells.clear().unwrap();
                        owner.table.clear().unwrap();
                    }
                    continue;
                }
                let mut step = Step::enter(&owner.heap);
                for (key, name) in keys.iter().zip(&names) {
                    owner.cells.put_in(&mut step, key, key).unwrap();
                    match (round + key) % 3 {
                        0 => owner.table.remove_in(&mut step, name).unwrap(),
                        _ => owner.table.put_in(&mut step, name, "a text of some length").unwrap(),
                    }
                }
                step.commit().unwrap();
            }
            done.send(()).unwrap();
        })
    });
    for _ in &threads {
        is_done.recv_timeout(Duration::from_secs(120)).expect("nobody waits for ever");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let cells: Vec<(u64, u64)> = owner.cells.iter().map(|entry| entry.unwrap()).collect();
    assert!(cells.iter().all(|(key, value)| key == value));
    assert_eq!(cells.len() as u64, owner.cells.len().unwrap());
    assert_eq!(owner.table.iter().count() as u64, owner.table.len().unwrap());
    assert_eq!(owner.cells.inspect().unwrap().violations, []);
    assert_eq!(owner.table.inspect().unwrap().violations, []);
}
