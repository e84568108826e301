//! SQLite with a write-ahead log.

use super::interface::{Commit, Rival};
use super::shim::{self, Shim};

// The constant of sqlite.c.
unsafe extern "C" {
    safe static sqlite_shim: Shim;
}

/// SQLite as a rival.
pub(crate) const RIVAL: Rival = Rival {
    name: "SQLite",
    open: |directory, commit| shim::open(&sqlite_shim, directory, commit),
    terms,
    is_whole_unsynced: true,
    keeps_bounds: false,
};

fn terms(commit: Commit) -> &'static str {
    match commit {
        Commit::Each => "WAL, synchronous=FULL, one transaction a put",
        Commit::Unsynced => {
            "WAL, synchronous=NORMAL, one transaction a put, then a sync of the log: the death of the \
             process takes nothing, power loss what was not synced; a prefix is kept"
        }
        Commit::Grouped => {
            "WAL, synchronous=FULL, one transaction: the death of the process or power loss takes what is \
             not committed; a prefix is kept"
        }
    }
}
