//! A skip list (Pugh, CACM 1990) in a pool: transient as it stands in books, or persistent, with
//! every change made durable at once.
//!
//! Node: a word with the key in its upper half and the value in its lower one, then the links of
//! its levels, the lowest first, as offsets of nodes; 0 ends a level. The header has the same form,
//! with the links of all levels and no entry.
//!
//! The lowest level is the list. The levels above it are shortcuts: if a crash leaves a node out of
//! some of them, it is found all the same.

use std::collections::HashSet;
use std::sync::Mutex;

use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Medium, Result};

/// Levels, for 4^12 entries.
const LEVELS: usize = 12;
const WORD_LEN: u64 = 8;
/// The link that ends a level.
const NONE: u64 = 0;

/// Whether inserts are durable when they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No flush, no fence: a crash may leave anything.
    Transient,
    Persistent,
}

/// The list. One thread changes it at a time.
pub(super) struct SkipList<M: Medium> {
    heap: Heap<M>,
    /// Number of heights drawn.
    drawn: Mutex<u64>,
}

/// Place of a link in a node.
fn link(node: u64, level: usize) -> u64 {
    node + WORD_LEN * (1 + level as u64)
}

fn entry(key: u32, value: u32) -> u64 {
    u64::from(key) << 32 | u64::from(value)
}

fn key_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl<M: Medium> SkipList<M> {
    /// The value of a key.
    pub(super) fn get(&self, key: u32) -> Option<u32> {
        let found = self.find(key, |_, _| ())?;
        Some(self.heap.medium().load(found) as u32)
    }

    /// The node with the key. Calls `visit` for each level, from the top, with the last node before
    /// the key.
    fn find(&self, key: u32, mut visit: impl FnMut(usize, u64)) -> Option<u64> {
        let medium = self.heap.medium();
        let (mut at, mut next) = (self.heap.header(), NONE);
        for level in (0..LEVELS).rev() {
            loop {
                next = medium.load(link(at, level));
                if next == NONE || key_of(medium.load(next)) >= key {
                    break;
                }
                at = next;
            }
            visit(level, at);
        }
        (next != NONE && key_of(medium.load(next)) == key).then_some(next)
    }

    /// Inserts an entry, or replaces the value of its key.
    ///
    /// # Errors
    ///
    /// When the pool is full.
    pub(super) fn insert(&self, kind: Kind, key: u32, value: u32) -> Result<()> {
        let mut drawn = self.drawn.lock().expect("inserting does not panic");
        let medium = self.heap.medium();
        let mut before = [NONE; LEVELS];
        if let Some(found) = self.find(key, |level, node| before[level] = node) {
            medium.store(found, entry(key, value));
            if kind == Kind::Persistent {
                // Flush and fence: the value, in the same word as its key.
                medium.persist(found, WORD_LEN);
            }
            return Ok(());
        }
        *drawn += 1;
        let height = height(*drawn);
        let mut lane = self.heap.enter().prepare_to_write();
        let node_len = WORD_LEN * (1 + height as u64);
        let node = lane.allocate(node_len)?.offset;
        medium.store(node, entry(key, value));
        for (level, before) in before.iter().enumerate().take(height) {
            medium.store(link(node, level), medium.load(link(*before, level)));
        }
        if kind == Kind::Persistent {
            // Flush and fence: the node, before the link that makes it part of the list.
            medium.flush(node, node_len);
            lane.fence();
        }
        for (level, before) in before.iter().enumerate().take(height) {
            medium.store(link(*before, level), node);
            if kind == Kind::Persistent {
                // Flush and fence: the link, before one on a level above. So whatever a level leads
                // to is durably in the list.
                medium.flush(link(*before, level), WORD_LEN);
                lane.fence();
            }
        }
        Ok(())
    }

    /// All entries in their order.
    pub(super) fn entries(&self) -> Vec<(u32, u32)> {
        let medium = self.heap.medium();
        let entries = self.nodes(0).map(|node| medium.load(node));
        entries.map(|entry| (key_of(entry), entry as u32)).collect()
    }

    /// The nodes of a level.
    fn nodes(&self, level: usize) -> impl Iterator<Item = u64> {
        let next = move |node: &u64| {
            Some(self.heap.medium().load(link(*node, level))).filter(|next| *next != NONE)
        };
        std::iter::successors(Some(self.heap.header()), next).skip(1)
    }
}

/// Levels of the node of this number: each level has a quarter of the nodes of the level below.
fn height(number: u64) -> usize {
    let zeros = crate::workloads::keys::mix(number).trailing_zeros();
    (1 + zeros as usize / 2).min(LEVELS)
}

impl<M: Medium> RootObject<M> for SkipList<M> {
    fn root_type() -> RootType {
        RootType { name: "SkipList of the bench".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<M>) -> Result<Self> {
        // The header is zeros, durably: an empty list.
        Ok(SkipList { heap, drawn: Mutex::new(0) })
    }

    fn open(heap: Heap<M>) -> Result<Self> {
        let list = SkipList { heap, drawn: Mutex::new(0) };
        let medium = list.heap.medium();
        let mut nodes: HashSet<u64> = HashSet::new();
        for node in list.nodes(0) {
            nodes.insert(node);
            // Flush: the links decide what is free. The heap fences before it changes anything.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(link(node, 0), WORD_LEN);
        }
        *list.drawn.lock().expect("it is new") = nodes.len() as u64;
        list.heap.recover(|block| nodes.contains(&block.offset))?;
        Ok(list)
    }
}
