//! LMDB: a copy-on-write B+-tree in one mapped file.

use super::interface::{Commit, Rival};
use super::shim::{self, Shim};

// The constant of lmdb.c.
unsafe extern "C" {
    safe static lmdb_shim: Shim;
}

/// LMDB as a rival.
pub(crate) const RIVAL: Rival = Rival {
    name: "LMDB",
    open: |directory, commit| shim::open(&lmdb_shim, directory, commit),
    terms,
    is_whole_unsynced: false,
    keeps_bounds: false,
};

fn terms(commit: Commit) -> &'static str {
    match commit {
        Commit::Each => "LMDB's default: two syncs a transaction",
        Commit::Unsynced => {
            "MDB_NOSYNC, then mdb_env_sync: the death of the process takes nothing; power loss may break \
             the whole database, what was synced included, unless the file system keeps the order of writes"
        }
        Commit::Grouped => {
            "one transaction, synced: the death of the process or power loss takes what is not committed; \
             a prefix is kept"
        }
    }
}
