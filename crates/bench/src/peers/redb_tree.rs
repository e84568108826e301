//! redb as an ordered map, not synced.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::Answer;
use super::ordered::{BATCH_LEN, Operation, Ordered, SCAN_LEN};

const ENTRIES: TableDefinition<'_, u64, u64> = TableDefinition::new("entries");

/// A database in a file of its own.
pub(super) struct RedbTree(Database);

impl RedbTree {
    /// An empty map in an existing directory.
    ///
    /// # Errors
    ///
    /// What redb says when it cannot be opened.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let database = Database::create(directory.join("entries.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(ENTRIES)?;
        transaction.commit()?;
        Ok(RedbTree(database))
    }

    fn write(&self, operation: Operation, keys: &[u64], answer: &mut Answer) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        for key in keys {
            let found = match operation {
                Operation::Insert => entries.insert(key, key)?,
                _ => entries.remove(key)?,
            };
            answer.done += u64::from(found.is_some() == (operation == Operation::Remove));
        }
        drop(entries);
        Ok(transaction.commit()?)
    }

    fn read(&self, operation: Operation, keys: &[u64], answer: &mut Answer) -> Result<()> {
        let entries = self.0.begin_read()?.open_table(ENTRIES)?;
        let add = |answer: Answer, sum| answer.plus(Answer { done: 1, sum });
        for &key in keys {
            if operation == Operation::Lookup {
                if let Some(value) = entries.get(key)? {
                    *answer = add(*answer, value.value());
                }
                continue;
            }
            for entry in entries.range(key..)?.take(SCAN_LEN) {
                *answer = add(*answer, entry?.1.value());
            }
        }
        Ok(())
    }
}

impl Ordered for RedbTree {
    fn run(&mut self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        let mut answer = Answer::default();
        match operation {
            Operation::Insert | Operation::Remove => {
                for batch in keys.chunks(BATCH_LEN) {
                    self.write(operation, batch, &mut answer)?;
                }
            }
            Operation::Lookup | Operation::Scan => self.read(operation, keys, &mut answer)?,
        }
        Ok(answer)
    }
}
