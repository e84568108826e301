//! The ordered map in a pool, which is made when it is first needed.

use std::sync::OnceLock;

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BlinkTree, Error, Result};

use super::TREE_ROOT;

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

    pub(super) fn get_or_create(&self) -> Result<&BlinkTree<[u8], [u8], M>> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = BlinkTree::open_or_create(&self.pool, TREE_ROOT)?;
        Ok(self.tree.get_or_init(|| tree))
    }
}
