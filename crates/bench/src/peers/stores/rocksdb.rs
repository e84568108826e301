//! RocksDB: a log-structured merge tree behind a write-ahead log.

use super::interface::{Commit, Rival};
use super::shim::{self, Shim};

// The constant of rocksdb.c.
unsafe extern "C" {
    safe static rocksdb_shim: Shim;
}

/// RocksDB as a rival.
pub(crate) const RIVAL: Rival = Rival {
    name: "RocksDB",
    open: |directory, commit| shim::open(&rocksdb_shim, directory, commit),
    terms,
    is_whole_unsynced: true,
    keeps_bounds: false,
};

fn terms(commit: Commit) -> &'static str {
    match commit {
        Commit::Each => "WriteOptions.sync=true",
        Commit::Unsynced => {
            "WriteOptions.sync=false, then FlushWAL(sync=true): the death of the process takes nothing, \
             power loss what was not synced; a prefix is kept"
        }
        Commit::Grouped => {
            "one WriteBatch with sync=true, gathered in memory: the death of the process or power loss \
             takes what is not written; a prefix is kept"
        }
    }
}
