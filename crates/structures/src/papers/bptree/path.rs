//! The path from the root to a leaf, for the writer. The nodes on it are in order.

use remanent_pmem::Medium;

use super::Core;
use super::layout::{HEIGHT_MAX, Place};
use super::node::{Bound, Node, View};
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// The path from the root to a leaf.
pub(super) struct Path {
    nodes: [Node; HEIGHT_MAX],
    /// The entry of each node that leads to the next one.
    slots: [u64; HEIGHT_MAX],
    pub(super) len: usize,
}

impl Path {
    #[inline(always)]
    pub(super) fn node(&self, depth: usize) -> Node {
        self.nodes[depth]
    }

    /// The entry that leads to the node at `depth`. It lies in the node above.
    #[inline(always)]
    pub(super) fn slot_of(&self, depth: usize) -> u64 {
        self.slots[depth - 1]
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    #[cold]
    pub(super) fn no_child(&self, node: Node) -> Error {
        self.damaged(node.at, "no entry of an inner node is low enough")
    }

    /// The entry of `node` that leads to the child where `place` belongs, and that child, as the
    /// writer sees them.
    #[inline(always)]
    pub(super) fn child_for(
        &self,
        view: View<'_>,
        node: Node,
        place: &Place,
    ) -> Result<(u64, Node)> {
        let found = self.last(view, node, place, Bound::UpTo);
        let slot = found.ok_or_else(|| self.no_child(node))?;
        Ok((slot, self.child(node, self.child_at(node, slot))?))
    }

    /// The leaf where `place` belongs, for the writer. Puts this leaf, and the nodes on the path to
    /// it, in order.
    #[inline(always)]
    pub(super) fn leaf_for(&self, view: View<'_>, root: u64, place: &Place) -> Result<Node> {
        let mut node = self.node(root)?;
        loop {
            self.clean(view, node);
            if node.level == 0 {
                return Ok(node);
            }
            node = self.child_for(view, node, place)?.1;
        }
    }

    /// The path to the leaf where `place` belongs.
    pub(super) fn descend(&self, view: View<'_>, root: u64, place: &Place) -> Result<Path> {
        let mut node = self.node(root)?;
        let mut path =
            Path { nodes: [Node::default(); HEIGHT_MAX], slots: [0; HEIGHT_MAX], len: 0 };
        loop {
            self.clean(view, node);
            path.nodes[path.len] = node;
            path.len += 1;
            if node.level == 0 {
                return Ok(path);
            }
            (path.slots[path.len - 1], node) = self.child_for(view, node, place)?;
        }
    }
}
