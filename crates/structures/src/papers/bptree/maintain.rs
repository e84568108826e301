//! What is done bit by bit beside other changes: freeing the tree that a clearing left, and wiping off what a crash left
//! in the nodes.

use remanent_pmem::Medium;

use super::Core;
use super::layout::{END, LOST, LOST_COUNT, Place};
use super::node::{Node, View};
use super::version::{Record, Sweep, Writer};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Nodes of a tree that are freed at a time; fewer than the suspects that a lane has reserved.
const BATCH: usize = 24;

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// Does a bit of what is left to do. Not to be called inside a lane.
    #[cold]
    pub(super) fn maintain(&self, writer: &mut Writer) -> Result<()> {
        if writer.record.dismantled != 0 {
            // Readers of the versions before may still walk there.
            if self.heap.has_passed(writer.left_at) {
                self.dismantle(writer)?;
            }
            return Ok(());
        }
        match writer.sweep {
            Sweep::Done => {}
            Sweep::From(place) => {
                let next = self.clean_path(self.view(writer), writer.record.root, &place)?;
                writer.sweep = next.map_or(Sweep::Clean, Sweep::From);
            }
            // Their numbers would be used again if a version behind them were not the current one, durably.
            Sweep::Clean if self.lost.versions.iter().all(|&v| v < writer.record.version) => {
                self.forget_lost();
                writer.sweep = Sweep::Done;
            }
            Sweep::Clean => {}
        }
        Ok(())
    }

    /// Frees some nodes of the tree that a clearing left, which nobody reads any more.
    fn dismantle(&self, writer: &mut Writer) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let view = self.view(writer);
        let root = self.node(writer.record.dismantled)?;
        let Some((parent, slots)) = self.removable(view, root)? else {
            let suspect = lane.suspect(root.at);
            // Fence: the suspect, before a version that does not know the node.
            lane.fence();
            let version = writer.record.version + 1;
            self.commit(writer, Record { dismantled: 0, version, ..writer.record })?;
            lane.retire(suspect);
            return Ok(());
        };
        let medium = self.medium();
        let suspects: Vec<_> =
            slots.iter().map(|&slot| lane.suspect(self.child_at(parent, slot))).collect();
        // Fence: the suspects, before their parent forgets them.
        // Redundant: but when the parent's line is written back before theirs, and they lie in a chunk that nobody
        // allocates from, which short runs do not bring about.
        lane.fence();
        for (slot, suspect) in slots.into_iter().zip(suspects) {
            // No version is to see it any more, and versions begin at 1.
            medium.store(slot + END, 1);
            lane.flush_later(slot + END);
            lane.retire(suspect);
        }
        self.heap.verify()?;
        Ok(())
    }

    /// A node of the tree under `root`, and entries of it that lead to nodes without children; none when the root has
    /// no child.
    fn removable(&self, view: View<'_>, root: Node) -> Result<Option<(Node, Vec<u64>)>> {
        let mut node = root;
        loop {
            // Two entries that lead to one node are not to be met one after the other.
            self.clean(view, node);
            let first = if node.level == 0 { None } else { self.live(view, node).next() };
            let Some(first) = first else { return Ok(None) };
            let child = self.child(node, self.child_at(node, first))?;
            self.clean(view, child);
            if child.level == 0 {
                return Ok(Some((node, self.live(view, node).take(BATCH).collect())));
            }
            if self.live(view, child).next().is_none() {
                return Ok(Some((node, vec![first])));
            }
            node = child;
        }
    }

    /// Wipes what lost versions have left off the nodes on the way to `place`. Returns where to go on.
    pub(super) fn clean_path(
        &self,
        view: View<'_>,
        root: u64,
        place: &Place,
    ) -> Result<Option<Place>> {
        let mut next = None;
        let mut node = self.node(root)?;
        loop {
            self.clean(view, node);
            if node.level == 0 {
                break;
            }
            let behind = self.first_behind(view, node, place).map(|slot| self.place(node, slot));
            if behind.is_some_and(|behind| behind <= *place) {
                return Err(self.unordered(node));
            }
            next = behind.or(next);
            node = self.child_for(view, node, place)?.1;
        }
        self.heap.verify()?;
        Ok(next)
    }

    /// Forgets the lost versions on the medium, now that nothing bears them. This process goes on to know them.
    pub(super) fn forget_lost(&self) {
        let medium = self.medium();
        for at in (0..LOST_COUNT).map(|index| self.heap.header() + LOST + 8 * index) {
            if medium.load(at) != 0 {
                medium.store(at, 0);
                // Flush: fenced by the next change, or never.
                // Redundant: if this is lost, the next process sweeps again.
                medium.flush(at, 8);
            }
        }
    }
}
