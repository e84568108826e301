//! redb: a copy-on-write B-tree in Rust.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError};

use super::interface::{Commit, Rival, Store};

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

/// redb as a rival.
pub(crate) const RIVAL: Rival =
    Rival { name: "redb", open, terms, is_whole_unsynced: true, keeps_bounds: false };

fn terms(commit: Commit) -> &'static str {
    match commit {
        Commit::Each => "Durability::Immediate, one phase: one sync a transaction",
        Commit::Unsynced => {
            "Durability::None, then an empty commit with Durability::Immediate: the death of the process or \
             power loss takes what was not synced; a prefix is kept"
        }
        Commit::Grouped => {
            "one transaction with Durability::Immediate, gathered in memory: the death of the process or \
             power loss takes what is not committed; a prefix is kept"
        }
    }
}

fn open(directory: &Path, commit: Commit) -> Result<Box<dyn Store>> {
    let database = Database::create(directory.join("entries.redb"))?;
    Ok(Box::new(Redb { database, commit, group: Vec::new() }))
}

struct Redb {
    database: Database,
    commit: Commit,
    /// Puts that the next sync commits together, because a table cannot stay open between two
    /// calls.
    group: Vec<(u64, Box<[u8]>)>,
}

impl Redb {
    fn commit(&self, puts: &[(u64, impl AsRef<[u8]>)], durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        if !puts.is_empty() {
            let mut entries = transaction.open_table(ENTRIES)?;
            for (key, value) in puts {
                entries.insert(key, value.as_ref())?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Store for Redb {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        match self.commit {
            Commit::Each => self.commit(&[(key, value)], Durability::Immediate),
            Commit::Unsynced => self.commit(&[(key, value)], Durability::None),
            Commit::Grouped => {
                self.group.push((key, value.into()));
                Ok(())
            }
        }
    }

    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        let entries = match self.database.begin_read()?.open_table(ENTRIES) {
            // The first put makes the table.
            Err(TableError::TableDoesNotExist(_)) => return Ok(false),
            entries => entries?,
        };
        let Some(found) = entries.get(key)? else { return Ok(false) };
        value.clear();
        value.extend_from_slice(found.value());
        Ok(true)
    }

    fn sync(&mut self) -> Result<()> {
        if self.commit != Commit::Each {
            self.commit(&self.group, Durability::Immediate)?;
            self.group.clear();
        }
        Ok(())
    }
}
