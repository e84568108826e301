//! Snapshots: read-only views of earlier content.
//!
//! Making a snapshot copies nothing. Its line keeps the top of the map, and the generation of the
//! disk is incremented. Nodes of an earlier generation are copied before they change. A block that
//! the newest snapshot has is kept when it is replaced. Removing a snapshot compares its nodes with
//! those of the snapshots before and after it, and frees the blocks that neither has. Below a node
//! that they share it compares nothing.
//!
//! ```text
//! line of a snapshot
//! byte 0   generation (32 bits; 0: none) | height (32 bits)
//!      8   top of its map
//!     16   bytes of the disk
//!     24   creation time, in seconds since 1970
//!     32   name, UTF-8, 24 bytes, zero-padded
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{LINE_LEN, Medium};

use super::base::Base;
use super::layout::{
    Block, Child, Entry, NODE_ENTRIES, SNAPSHOT_COUNT, SNAPSHOTS, State, Tree, leaves,
};
use super::map::Map;
use super::record::Changes;
use super::tree::{Node, node_at, place_word};
use crate::line::WORDS;
use crate::seal::Owner;
use crate::{Error, Result};

/// Maximal length of a snapshot's name in bytes.
pub const SNAPSHOT_NAME_LEN: usize = 24;
/// One bit of a generation's word in memory has another use.
pub(crate) const GENERATION_MAX: u32 = i32::MAX as u32;

/// A snapshot, as its line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) generation: u32,
    pub(crate) tree: Tree,
    pub(crate) size: u64,
    pub(crate) created_unix_s: u64,
    pub(crate) name: String,
}

impl Snapshot {
    fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let [counts, top, size, created_unix_s, name @ ..] = *words;
        let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let tree = Tree { top: Child::decode(top), height: (counts >> 32) as u32 };
        let name = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let generation = counts as u32;
        (generation > 0).then_some(Snapshot { generation, tree, size, created_unix_s, name })
    }

    fn encode(&self) -> [u64; WORDS] {
        let mut name = [0; SNAPSHOT_NAME_LEN];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let counts = u64::from(self.tree.height) << 32 | u64::from(self.generation);
        let mut words = [counts, self.tree.top.encode(), self.size, self.created_unix_s, 0, 0, 0];
        let places = words[4..].iter_mut().zip(name.as_chunks::<8>().0);
        places.for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        words
    }
}

/// All snapshots of a disk; the index is that of the line.
#[derive(Debug)]
pub(crate) struct List([Option<Snapshot>; SNAPSHOT_COUNT]);

impl Default for List {
    fn default() -> Self {
        List([const { None }; SNAPSHOT_COUNT])
    }
}

impl List {
    pub(crate) fn read<M: Medium>(base: &Base<M>) -> Result<Self> {
        let mut list = List::default();
        for (snapshot, number) in list.0.iter_mut().zip(0..) {
            let at = line(base.meta(), number);
            *snapshot =
                Snapshot::decode(&base.key.load_line(base.medium(), at, Owner::NONE)?.words);
        }
        Ok(list)
    }

    /// Oldest first.
    pub(crate) fn sorted(&self) -> Vec<&Snapshot> {
        let mut all: Vec<&Snapshot> = self.0.iter().flatten().collect();
        all.sort_by_key(|snapshot| snapshot.generation);
        all
    }

    fn newest(&self) -> Option<&Snapshot> {
        self.0.iter().flatten().max_by_key(|snapshot| snapshot.generation)
    }

    fn find(&self, name: &str) -> Result<(usize, &Snapshot)> {
        let found = self.0.iter().enumerate().find_map(|(number, snapshot)| {
            snapshot.as_ref().filter(|s| s.name == name).map(|snapshot| (number, snapshot))
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = self.sorted().iter().map(|s| s.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            refuse(name, format!("there is none of that name; there are: {names}"))
        })
    }

    fn vacant(&self, name: &str) -> Result<usize> {
        if name.is_empty() || name.len() > SNAPSHOT_NAME_LEN || name.contains('\0') {
            let reason = format!("a name has 1 to {SNAPSHOT_NAME_LEN} bytes and no NUL");
            return Err(refuse(name, reason));
        }
        if self.find(name).is_ok() {
            return Err(refuse(name, "there is one of that name".to_owned()));
        }
        self.0.iter().position(Option::is_none).ok_or_else(|| {
            refuse(name, format!("a disk has at most {SNAPSHOT_COUNT}; remove one first"))
        })
    }
}

fn refuse(name: &str, reason: String) -> Error {
    Error::Snapshot { name: name.to_owned(), reason }
}

fn line(meta: u64, number: u64) -> u64 {
    meta + SNAPSHOTS + number * LINE_LEN
}

/// The snapshots of a disk, and their readers.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// Taken before the lock of the map's state.
    known: PauseMutex<Known>,
}

#[derive(Debug)]
struct Known {
    list: List,
    /// Readers of each snapshot, by its generation.
    readers: HashMap<u32, Weak<()>>,
}

impl Snapshots {
    /// Snapshots that were read from the medium. From here on the map copies nodes that the newest
    /// one shares.
    pub(crate) fn new<M: Medium>(map: &Map<M>, list: List) -> Self {
        list.share_newest(map);
        Snapshots { known: PauseMutex::new(Known { list, readers: HashMap::new() }) }
    }

    /// Makes a snapshot of the present content.
    pub(crate) fn make<M: Medium>(&self, map: &Map<M>, name: &str) -> Result<()> {
        let created_unix_s = map.medium().unix_s();
        let base = &map.base;
        base.alone(|lanes| {
            let mut known = self.known.lock(map.medium());
            let mut old = map.state.lock(map.medium());
            let number = known.list.vacant(name)?;
            let State { size, tree, generation, .. } = *old;
            if generation >= GENERATION_MAX {
                return Err(refuse(name, format!("{GENERATION_MAX} were made, which are all")));
            }
            let name = name.to_owned();
            let snapshot = Snapshot { generation, tree, size, created_unix_s, name };
            let state = State { generation: generation + 1, ..*old };
            let at = line(base.meta(), number as u64);
            let mut changes = [base.rewrite(at, snapshot.encode())?, map.rewrite_state(&state)?];
            base.commit(&mut lanes[0], &mut changes, None, &[])?;
            known.list.0[number] = Some(snapshot);
            map.publish(&mut old, state);
            known.list.share_newest(map);
            Ok(())
        })
    }

    /// Removes a snapshot, and frees the blocks that only it has, atomically.
    pub(crate) fn remove<M: Medium>(&self, map: &Map<M>, name: &str) -> Result<()> {
        let base = &map.base;
        base.alone(|lanes| {
            let mut known = self.known.lock(map.medium());
            let (number, snapshot) = known.list.find(name)?;
            let generation = snapshot.generation;
            if known.is_read(generation) {
                return Err(refuse(name, "it is open; close it first".to_owned()));
            }
            let freed = known.list.find_freed(map, number)?;
            // Some of these blocks are nodes. When such a block is reused, no record may be left
            // with lines of the node.
            base.clear_records(lanes);
            let mut changes = Changes::new();
            changes.push(base.rewrite(line(base.meta(), number as u64), [0; WORDS])?);
            let _held = base.mark(&[], &freed, &mut changes)?;
            base.commit(&mut lanes[0], &mut changes, None, &[])?;
            base.release(freed);
            known.list.0[number] = None;
            known.readers.remove(&generation);
            known.list.share_newest(map);
            Ok(())
        })
    }

    /// All snapshots, oldest first.
    pub(crate) fn all<M: Medium>(&self, medium: &M) -> Vec<Snapshot> {
        self.known.lock(medium).list.sorted().into_iter().cloned().collect()
    }

    /// The snapshot of this name, and a guard against its removal.
    pub(crate) fn open<M: Medium>(&self, medium: &M, name: &str) -> Result<(Snapshot, Arc<()>)> {
        let mut known = self.known.lock(medium);
        let snapshot = known.list.find(name)?.1.clone();
        let reader = known.reader(snapshot.generation);
        Ok((snapshot, reader))
    }

    /// All snapshots, oldest first, with guards against their removal.
    pub(crate) fn open_all<M: Medium>(&self, medium: &M) -> Vec<(Snapshot, Arc<()>)> {
        let mut known = self.known.lock(medium);
        let all: Vec<Snapshot> = known.list.sorted().into_iter().cloned().collect();
        all.into_iter()
            .map(|snapshot| (snapshot.clone(), known.reader(snapshot.generation)))
            .collect()
    }
}

impl List {
    /// Makes the map copy nodes that the newest snapshot shares. Nobody changes anything meanwhile.
    fn share_newest<M: Medium>(&self, map: &Map<M>) {
        let newest = self.newest();
        let tree = newest.map(|snapshot| snapshot.tree).unwrap_or_default();
        map.share(newest.map_or(0, |snapshot| snapshot.generation), tree);
    }

    /// Blocks that a snapshot has, and neither its predecessor nor its successor, which may be the
    /// disk.
    fn find_freed<M: Medium>(&self, map: &Map<M>, number: usize) -> Result<Vec<Block>> {
        let sorted = self.sorted();
        let snapshot = self.0[number].as_ref().expect("found by its name");
        let place = sorted.iter().position(|s| s.generation == snapshot.generation);
        let place = place.expect("it is one of them");
        let before = place.checked_sub(1).map(|place| sorted[place].tree);
        let after = sorted.get(place + 1).map_or_else(|| map.tree(), |s| s.tree);
        let mut freed = Vec::new();
        let neighbours = [before.unwrap_or_default(), after];
        free_node(
            &map.base,
            &neighbours,
            snapshot.tree.top,
            (snapshot.tree.height, 0),
            &mut freed,
        )?;
        Ok(freed)
    }
}

/// Collects the blocks to free in a node `level` levels above the leaves, whose first leaf is
/// `leaf`.
fn free_node<M: Medium>(
    base: &Base<M>,
    neighbours: &[Tree; 2],
    node: Child,
    (level, leaf): (u32, u64),
    freed: &mut Vec<Block>,
) -> Result<()> {
    let (medium, space) = (base.medium(), &base.space);
    let node_of = |child| Node { child, level, leaf };
    let mut others = Vec::new();
    for &tree in neighbours {
        others.push(node_at(medium, space, tree, leaf, level)?);
    }
    if node.block.is_none() || others.iter().any(|other| other.block == node.block) {
        return Ok(());
    }
    freed.push(node.block);
    for place in 0..NODE_ENTRIES {
        let word = place_word(medium, space, node_of(node), place)?;
        if level > 0 {
            let below = leaf + place * leaves(level - 1);
            free_node(base, neighbours, Child::decode(word), (level - 1, below), freed)?;
            continue;
        }
        let block = Entry::decode(word).block;
        let mut is_shared = block.is_none();
        for other in others.iter().filter(|other| !other.block.is_none()) {
            let word = place_word(medium, space, node_of(*other), place)?;
            is_shared |= Entry::decode(word).block == block;
        }
        if !is_shared {
            freed.push(block);
        }
    }
    Ok(())
}

impl Known {
    fn reader(&mut self, generation: u32) -> Arc<()> {
        let known = self.readers.entry(generation).or_default();
        known.upgrade().unwrap_or_else(|| {
            let reader = Arc::new(());
            *known = Arc::downgrade(&reader);
            reader
        })
    }

    fn is_read(&self, generation: u32) -> bool {
        self.readers.get(&generation).is_some_and(|reader| reader.strong_count() > 0)
    }
}
