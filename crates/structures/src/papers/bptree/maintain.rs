//! Maintenance in small portions during other changes: frees the tree that a `clear` left, and
//! cleans nodes of lost versions.

use remanent_pmem::Medium;

use super::Core;
use super::layout::{END, LOST, LOST_COUNT, Place};
use super::node::{Node, View};
use super::version::{Record, Sweep, Writer};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Nodes that are freed at a time. Fewer than the suspects that a lane reserves.
const BATCH: usize = 24;

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// Does a portion of the maintenance. Must not be called inside a lane.
    #[cold]
    pub(super) fn maintain(&self, writer: &mut Writer) -> Result<()> {
        if writer.record.dismantled != 0 {
            // Readers of earlier versions may still walk there.
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
            // A lost version is forgotten only when a later version is current, durably. Otherwise
            // its number would be used again.
            Sweep::Clean if self.lost.versions.iter().all(|&v| v < writer.record.version) => {
                self.forget_lost();
                writer.sweep = Sweep::Done;
            }
            Sweep::Clean => {}
        }
        Ok(())
    }

    /// Frees some nodes of the tree that a `clear` left, which no reader uses any more.
    fn dismantle(&self, writer: &mut Writer) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let view = self.view(writer);
        let root = self.node(writer.record.dismantled)?;
        let Some((parent, slots)) = self.removable(view, root)? else {
            let suspect = lane.suspect(root.at);
            // Fence: the suspect, before the version that no longer leads to the node.
            lane.fence();
            let version = writer.record.version + 1;
            self.commit(writer, Record { dismantled: 0, version, ..writer.record })?;
            lane.retire(suspect);
            return Ok(());
        };
        let medium = self.medium();
        let suspects: Vec<_> =
            slots.iter().map(|&slot| lane.suspect(self.child_at(parent, slot))).collect();
        // Fence: the suspects, before the parent stops leading to them.
        // Redundant: unless the parent's line is written back before theirs, and they lie in a
        // chunk that nobody allocates from, which short runs do not bring about.
        lane.fence();
        for (slot, suspect) in slots.into_iter().zip(suspects) {
            // Versions begin at 1, so no version shows the entry any more.
            medium.store(slot + END, 1);
            lane.flush_later(slot + END);
            lane.retire(suspect);
        }
        self.heap.verify()?;
        Ok(())
    }

    /// A node of the tree under `root`, and some of its entries, which lead to nodes without
    /// children. `None` when the root has no child.
    fn removable(&self, view: View<'_>, root: Node) -> Result<Option<(Node, Vec<u64>)>> {
        let mut node = root;
        loop {
            // A crash may have left an entry twice, and its child must not be freed twice.
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

    /// Cleans the nodes on the path to `place` of lost versions. Returns the place to go on from.
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

    /// Forgets the lost versions on the medium, now that no entry has them. This process still
    /// remembers them.
    pub(super) fn forget_lost(&self) {
        let medium = self.medium();
        for at in (0..LOST_COUNT).map(|index| self.heap.header() + LOST + 8 * index) {
            if medium.load(at) != 0 {
                medium.store(at, 0);
                // Flush: fenced by the next change, if there is one.
                // Redundant: if this is lost, the next process sweeps again.
                medium.flush(at, 8);
            }
        }
    }
}
