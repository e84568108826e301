//! A root whose heap has eight structures.

use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::shared::{Inspection, MemberId, Recovery, Shareable, Site};
use remanent_structures::{BlinkTree, Log, Result, SharedTx, Vector};

use crate::keys::TestKey;
use crate::maps::Kind;

type M = Arc<Sim>;

/// An object of two lines, which takes two fences of its own.
pub(super) type Object = [u64; 5];

/// The structures, of which two are of one type.
pub(super) struct Owner<D: Kind> {
    heap: Arc<Heap<M>>,
    headers: u64,
    pub(super) words: D::Words,
    pub(super) others: D::Words,
    pub(super) texts: D::Texts,
    pub(super) tree: BlinkTree<TestKey, u64, M>,
    pub(super) records: BlinkTree<[u8], [u8], M>,
    pub(super) vector: Vector<u64, M>,
    pub(super) log: Log<[u8], M>,
    pub(super) object: SharedTx<Object, M>,
}

/// Where the owner remembers the block with the headers.
const HEADERS: u64 = 0;
/// Bytes for the header of each structure.
const HEADER_LEN: u64 = 2048;
const STRUCTURES: u64 = 8;

/// Where a structure lies. Two of the hash maps have numbers that their entries cannot tell apart.
fn site(heap: &Arc<Heap<M>>, headers: u64, index: u64) -> Site<M> {
    let number = [1, 2, 258, 7, 9, 10, 11, 12][index as usize];
    let member = MemberId::new(number).expect("a number that fits");
    Site::shared(heap, headers + index * HEADER_LEN, member)
}

impl<D: Kind> RootObject<M> for Owner<D> {
    fn root_type() -> RootType {
        RootType { name: "Owner".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let medium = heap.medium();
        let headers = heap.enter().prepare_to_write().allocate(STRUCTURES * HEADER_LEN)?.offset;
        medium.write_zeros(headers, STRUCTURES * HEADER_LEN);
        // Flush: fenced by what makes a structure of the first header.
        medium.flush(headers, STRUCTURES * HEADER_LEN);
        let site = |index| site(&heap, headers, index);
        let owner = Owner {
            words: Shareable::create_in(site(0))?,
            others: Shareable::create_in(site(1))?,
            texts: Shareable::create_in(site(2))?,
            tree: Shareable::create_in(site(3))?,
            records: Shareable::create_in(site(4))?,
            vector: Shareable::create_in(site(5))?,
            object: Shareable::create_in(site(6))?,
            log: Shareable::create_in(site(7))?,
            headers,
            heap: Arc::clone(&heap),
        };
        medium.store(heap.header() + HEADERS, headers);
        // Flush and fence: before the root is live.
        medium.persist(heap.header() + HEADERS, 8);
        Ok(owner)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let headers = heap.medium().load(heap.header() + HEADERS);
        let site = |index| site(&heap, headers, index);
        let mut recovery = Recovery::new();
        let words = recovery.find(site(0))?;
        let others = recovery.find(site(1))?;
        let texts = recovery.find(site(2))?;
        let tree = recovery.find(site(3))?;
        let records = recovery.find(site(4))?;
        let vector = recovery.find(site(5))?;
        let object = recovery.find(site(6))?;
        let log = recovery.find(site(7))?;
        recovery.run(&heap, |block| block.offset == headers)?;
        Ok(Owner {
            words: words.finish()?,
            others: others.finish()?,
            texts: texts.finish()?,
            tree: tree.finish()?,
            records: records.finish()?,
            vector: vector.finish()?,
            object: object.finish()?,
            log: log.finish()?,
            headers,
            heap,
        })
    }
}

impl<D: Kind> Owner<D> {
    /// Compares what the structures reach with what is allocated.
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let inspections = [
            self.words.inspect()?,
            self.others.inspect()?,
            self.texts.inspect()?,
            self.tree.inspect()?,
            self.records.inspect()?,
            self.vector.inspect()?,
            self.object.inspect()?,
            self.log.inspect()?,
        ];
        let mut violations = Vec::new();
        let mut blocks = vec![self.headers];
        for Inspection { violations: found, blocks: reached } in inspections {
            violations.extend(found);
            blocks.extend(reached.into_iter().flatten());
        }
        violations.extend(self.heap.check(blocks.into_iter())?);
        Ok(violations)
    }

    /// The heap, for steps.
    pub(super) fn heap(&self) -> &Heap<M> {
        &self.heap
    }
}
