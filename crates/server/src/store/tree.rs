//! The ordered map in a pool, which is made when it is first needed.

use std::sync::OnceLock;

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BlinkTree, Error, Result};

use super::{Edit, TREE_ROOT, change_one_by_one};

/// Changes that share their fences: the two entries of 16 members, and the name of a new set. A
/// step has room for more, also if each has a long key.
const TOGETHER: usize = 33;

/// The [`BlinkTree`] under the root [`TREE_ROOT`], which a pool need not have.
#[derive(Debug)]
pub(super) struct PoolTree<M: Medium> {
    pool: Pool<M>,
    tree: OnceLock<BlinkTree<[u8], [u8], M>>,
}

impl<M: Medium> PoolTree<M> {
    /// Opens the tree if the pool has one.
    pub(super) fn open(pool: &Pool<M>) -> Result<Self> {
        let tree = match BlinkTree::open(pool, TREE_ROOT) {
            Ok(tree) => OnceLock::from(tree),
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => OnceLock::new(),
            Err(error) => return Err(error),
        };
        Ok(PoolTree { pool: pool.clone(), tree })
    }

    pub(super) fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    pub(super) fn get(&self) -> Option<&BlinkTree<[u8], [u8], M>> {
        self.tree.get()
    }

    /// Makes changes, in their order, which share their fences: as many as there is room for.
    pub(super) fn change(&self, edits: &[Edit<'_>]) -> Result<()> {
        let tree = self.get_or_create()?;
        for edits in edits.chunks(TOGETHER) {
            match Self::change_together(tree, edits) {
                // A change that is made alone first frees the memory of what others have removed.
                Err(error) if error.is_full() || matches!(error, Error::TooMany { .. }) => {
                    change_one_by_one(tree, edits)?;
                }
                changed => changed?,
            }
        }
        Ok(())
    }

    fn change_together(tree: &BlinkTree<[u8], [u8], M>, edits: &[Edit<'_>]) -> Result<()> {
        let mut step = tree.step();
        for Edit { key, value } in edits {
            match value {
                Some(value) => tree.put_in(&mut step, key, value)?,
                None => tree.remove_in(&mut step, key)?,
            }
        }
        step.commit()
    }

    pub(super) fn get_or_create(&self) -> Result<&BlinkTree<[u8], [u8], M>> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = BlinkTree::open_or_create(&self.pool, TREE_ROOT)?;
        Ok(self.tree.get_or_init(|| tree))
    }
}
