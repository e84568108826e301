//! Recovery of a heap that several structures share: each block in doubt is asked about where it
//! may belong.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::{Error as PoolError, Medium};

use super::{Member, Route, Shareable, Site};
use crate::Error;

/// The structures of a heap that is being opened; see the [module](super).
pub struct Recovery<M: Medium> {
    members: Vec<Arc<dyn Member<M>>>,
    /// Blocks that some structure leads to without a search.
    fixed: HashSet<u64>,
    kinds: Vec<Kind<M>>,
}

/// Structures whose blocks are of one kind, by what their blocks say.
struct Kind<M> {
    name: &'static str,
    read: fn(&M, u64) -> Option<u32>,
    members: HashMap<u32, Vec<usize>>,
}

/// A structure that was found in its heap, and may be used once that has
/// [recovered](Recovery::run).
#[must_use = "a structure is open once it is finished"]
pub struct Found<S: Shareable<M>, M: Medium> {
    member: Arc<S::Member>,
}

impl<S: Shareable<M>, M: Medium> Found<S, M> {
    /// Makes the structure ready for use.
    ///
    /// # Errors
    ///
    /// When it is damaged, or the medium met a fault.
    pub fn finish(self) -> Result<S, PoolError> {
        S::finish(self.member)
    }
}

impl<S: Shareable<M>, M: Medium> fmt::Debug for Found<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl<M: Medium> Recovery<M> {
    /// A recovery that knows no structure yet.
    #[must_use]
    pub fn new() -> Self {
        Recovery { members: Vec::new(), fixed: HashSet::new(), kinds: Vec::new() }
    }

    /// Finds the structure at `site`, which was made there by [`create_in`](Shareable::create_in).
    ///
    /// # Errors
    ///
    /// When its header is damaged.
    pub fn find<S: Shareable<M>>(&mut self, site: Site<M>) -> Result<Found<S, M>, PoolError>
    where
        S::Member: 'static,
    {
        let header = site.header();
        // Flush: fenced by the heap, before anything is decided by the header.
        // Redundant: but where a process was killed before, and the power fails later.
        site.medium().flush(header, S::header_len());
        let member = Arc::new(S::find(site)?);
        self.fixed.insert(header);
        self.fixed.extend(member.fixed_blocks());
        let index = self.members.len();
        if let Some(route) = member.route() {
            let Route { kind, read, key } = route;
            let known = self.kinds.iter().position(|known| known.name == kind);
            let known = known.unwrap_or_else(|| {
                self.kinds.push(Kind { name: kind, read, members: HashMap::new() });
                self.kinds.len() - 1
            });
            self.kinds[known].members.entry(key).or_default().push(index);
        }
        self.members.push(Arc::clone(&member) as Arc<dyn Member<M>>);
        Ok(Found { member })
    }

    /// Has the heap recover ([`Heap::recover`]): its bits are true afterwards. `is_own` says of a
    /// block whether the owner leads to it by itself.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn run(
        &self,
        heap: &Heap<M>,
        mut is_own: impl FnMut(Block) -> bool,
    ) -> Result<(), PoolError> {
        recover(heap, |block| Ok(is_own(block) || self.is_linked(heap.medium(), block)?))
    }

    fn is_linked(&self, medium: &M, block: Block) -> Result<bool, Error> {
        if self.fixed.contains(&block.offset) {
            return Ok(true);
        }
        for Kind { read, members, .. } in &self.kinds {
            let said = read(medium, block.offset);
            let members = said.and_then(|key| members.get(&key)).into_iter().flatten();
            for &member in members {
                if self.members[member].is_linked(block)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Has a heap recover, and tells the first error of `is_linked`, after which a block is kept: it is
/// not known to be free.
pub(crate) fn recover<M: Medium>(
    heap: &Heap<M>,
    mut is_linked: impl FnMut(Block) -> Result<bool, Error>,
) -> Result<(), PoolError> {
    let mut failed = None;
    heap.recover(|block| {
        is_linked(block).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            true
        })
    })?;
    failed.map_or(Ok(()), |error| Err(error.into_pool()))
}

impl<M: Medium> Default for Recovery<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Medium> fmt::Debug for Recovery<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("members", &self.members.len()).finish_non_exhaustive()
    }
}
