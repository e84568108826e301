//! Having a database follow another one: changes of rows by primary keys, each write set at once.

use std::collections::HashMap;

use remanent_pmem::Medium;

use super::write_set::{Change, OwnedValue, SchemaChange, WriteSet};
use crate::database::{Database, Table};
use crate::query::{Changes, Delete, Row, Upsert};
use crate::schema::{Column, PRIMARY, RESERVED, TableSpec};
use crate::sequence::ops as sequence;
use crate::transaction::{
    Durability, Moment, Resumed, Sealed, Token, Transaction, TransactionOptions, Upserted,
};
use crate::value::{Type, Value};
use crate::{Error, Result};

/// The table that says up to which position write sets were applied, by its first row. The other
/// one has the token of a transaction that applies one by several statements, while it does.
const APPLIED: &str = "remanent.applied";
const POSITION: u8 = 0;
const TOKEN: u8 = 1;

/// Whether a table is about this database alone, and others are not told of it.
pub(crate) fn is_own(table: &str) -> bool {
    table == APPLIED
}

fn applied_spec() -> TableSpec {
    TableSpec::new(APPLIED)
        .column("id", Type::U8)
        .column("value", Type::U64)
        .primary_key(["id"])
        .tile_rows(2)
}

fn values_of(owned: &[OwnedValue]) -> Vec<Value<'_>> {
    owned.iter().map(Value::from).collect()
}

/// What rows of a write set are changed by, for each table.
struct Handles<'d, M: Medium> {
    database: &'d Database<M>,
    by_table: HashMap<&'d str, (Table<M>, Delete<M>)>,
}

impl<'d, M: Medium> Handles<'d, M> {
    fn of(database: &'d Database<M>) -> Self {
        Handles { database, by_table: HashMap::new() }
    }

    fn get(&mut self, name: &'d str) -> Result<&(Table<M>, Delete<M>)> {
        if !self.by_table.contains_key(name) {
            let table = self.database.any_table(name)?;
            let delete = table.prepare_delete(PRIMARY)?;
            self.by_table.insert(name, (table, delete));
        }
        Ok(&self.by_table[name])
    }

    /// Makes a change of a row.
    fn change(&mut self, transaction: &mut Transaction<'_, M>, change: &'d Change) -> Result<()> {
        match change {
            Change::Remove { table, key } => {
                self.get(table)?.1.run_in(transaction, &values_of(key)).map(drop)
            }
            Change::Put { table, row } => self.put(transaction, table, row),
            Change::Schema(_) => Ok(()),
        }
    }

    fn put(
        &mut self,
        transaction: &mut Transaction<'_, M>,
        table: &'d str,
        row: &[OwnedValue],
    ) -> Result<()> {
        let (of, _) = self.get(table)?;
        let (values, columns) = (values_of(row), of.columns().len());
        let made = of.core.format.cells.made_count();
        if !(made..=columns).contains(&values.len()) {
            return Err(of.core.wrong_count(columns, row.len()));
        }
        // A column that was added behind the write set keeps its default.
        let upsert = Upsert::new(of.asked(), PRIMARY, values.len())?;
        let put = upsert.run_in(transaction, &values, |_, new| {
            values.iter().enumerate().try_for_each(|(column, value)| new.set(column, *value))
        })?;
        match put {
            Upserted::Inserted(_) | Upserted::Changed(()) => Ok(()),
        }
    }

    /// Removes the row that has the primary key of another one.
    fn make_way(&mut self, transaction: &mut Transaction<'_, M>, change: &'d Change) -> Result<()> {
        let Change::Put { table, row } = change else { return Ok(()) };
        let (of, delete) = self.get(table)?;
        let primary = of.core.index(PRIMARY, None)?;
        let key = primary.spec.columns.iter().map(|column| row.get(*column).map(Value::from));
        let key = key.collect::<Option<Vec<_>>>();
        let key = key.ok_or_else(|| of.core.wrong_count(of.columns().len(), row.len()))?;
        delete.run_in(transaction, &key).map(drop)
    }
}

/// What a write set has behind its first row, and rows have to fit.
fn behind_rows(write_set: &WriteSet) -> Vec<&SchemaChange> {
    let is_before = |change: &&Change| matches!(change, Change::Schema(_));
    let behind = write_set.changes.iter().skip_while(is_before);
    behind
        .filter_map(|change| match change {
            Change::Schema(
                of @ (SchemaChange::CreateIndex { .. } | SchemaChange::AddForeignKey { .. }),
            ) => Some(of),
            _ => None,
        })
        .collect()
}

impl<M: Medium> Database<M> {
    /// A table of this name, also the one of sequences.
    fn any_table(&self, name: &str) -> Result<Table<M>> {
        let core = self.engine.table(name, None).filter(|_| !is_own(name));
        let core = core.ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })?;
        Ok(Table::of(&self.engine, core))
    }

    /// The table of [`APPLIED`], which is made with the first position.
    fn made_applied(&self) -> Result<Table<M>> {
        let core = match self.engine.table(APPLIED, None) {
            Some(core) => Ok(core),
            None => match self.engine.create_table(&applied_spec()) {
                // Another thread may have made it.
                Err(error @ Error::Schema { .. }) => self.engine.table(APPLIED, None).ok_or(error),
                made => made,
            },
        };
        Ok(Table::of(&self.engine, core?))
    }

    /// Applies what another database has told of a commit ([`Gate`](crate::Gate)), or of a
    /// transaction ([`Transaction::write_set`](crate::Transaction::write_set)): all of it at once,
    /// durable when this returns, together with the position. False if the position is not behind
    /// [that of the last one](Database::applied): it was applied before, and nothing is done.
    ///
    /// Positions are what the caller says: places in a log; or stamps of the other database, for as
    /// long as no third one takes its place, which has stamps of its own.
    ///
    /// One thread at a time applies. Rows have numbers of their own here, and indexes lie where
    /// this database has them. Foreign keys and unique indexes are checked for all of it together.
    /// A change of the schema is one durable step, behind which the position is set by another one;
    /// it does nothing if it is done already. So a transaction that has changed the schema is there
    /// at once as far as its rows go; tables and columns come before them. Unique indexes and
    /// foreign keys that the write set has behind its rows come with these.
    ///
    /// One fence, and those of statements for blocks; those of the method that changes the schema.
    /// If the rows are too many for that, one for each row: then a row whose foreign key leads to
    /// one that leads back to it is refused.
    ///
    /// # Errors
    ///
    /// When the database does not have what the write set names, because others were left out:
    /// [`Error::NoSuchTable`], [`Error::Values`], [`Error::Value`]. When its rows contradict the
    /// write set, because somebody else changed them: [`Error::Unique`], [`Error::NoParent`],
    /// [`Error::HasChildren`], [`Error::Conflict`], [`Error::Overtaken`]. When the pool is full. No
    /// row was changed then. [`Error::Unconfirmed`] when this database has a gate, which gave up on
    /// one of the steps: [`applied`](Database::applied) tells whether it was the last one. When the
    /// medium met a fault.
    pub fn apply(&self, position: u64, write_set: &WriteSet) -> Result<bool> {
        let _applying = self.engine.applying.lock(self.engine.medium());
        if position <= self.applied()? {
            return Ok(false);
        }
        self.apply_changes(write_set, Some(position))?;
        Ok(true)
    }

    /// Applies a part of what [`export`](Database::export) has handed out, as
    /// [`apply`](Database::apply) does, and sets no position.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn restore(&self, write_set: &WriteSet) -> Result<()> {
        let _applying = self.engine.applying.lock(self.engine.medium());
        self.apply_changes(write_set, None)
    }

    /// The position of the last write set that was [applied](Database::apply); 0 if there was none.
    ///
    /// # Errors
    ///
    /// When the row that says it is damaged, or the medium met a fault.
    pub fn applied(&self) -> Result<u64> {
        Ok(self.noted(&self.snapshot(), POSITION)?.unwrap_or(0))
    }

    /// Has a transaction set [the position](Database::applied) with its commit: this database then
    /// has by itself what others apply there. So it can follow them later on. False if the position
    /// is not behind the last one, which then stays.
    ///
    /// It is the last statement before the commit. What others have committed since the
    /// transaction's snapshot is no matter. While another transaction has set a position and is not
    /// committed, this one [waits](Transaction::set_wait).
    ///
    /// # Errors
    ///
    /// Those of a statement; [`Error::Conflict`] when it has waited for as long as it may. Then it
    /// may be called again.
    pub fn set_applied_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        position: u64,
    ) -> Result<bool> {
        self.note_in(transaction, POSITION, position)
    }

    fn noted(&self, moment: &impl Moment<M>, id: u8) -> Result<Option<u64>> {
        let Some(core) = self.engine.table(APPLIED, None) else { return Ok(None) };
        let get = Table::of(&self.engine, core).prepare_get(PRIMARY)?;
        get.run(moment, &[id.into()], |row| row.get(1))
    }

    /// Sets a position, unless one is noted that is not before it: whether it has.
    fn note_in(&self, transaction: &mut Transaction<'_, M>, id: u8, value: u64) -> Result<bool> {
        let own = transaction.view_in(&self.engine)?.own;
        let table = match self.engine.table(APPLIED, own) {
            // Nobody else may change the schema while it has.
            None if self.engine.statuses.is_author(own) => {
                let made = |author, _| self.engine.create_table_by(author, &applied_spec());
                let core = transaction.alter(&self.engine, made)?;
                Table::of(&self.engine, core)
            }
            Some(core) => Table::of(&self.engine, core),
            None => self.made_applied()?,
        };
        let set = table.prepare_upsert(PRIMARY)?;
        let row = [id.into(), value.into()];
        let set_behind = |old: &Row<'_, M>, new: &mut Changes<'_, M>| {
            let is_behind = value > old.get::<u64>(1)?;
            if is_behind {
                new.set(1, value)?;
            }
            Ok(is_behind)
        };
        match set.run_of_newest_in(transaction, &row, set_behind)? {
            Upserted::Inserted(_) => Ok(true),
            Upserted::Changed(is_behind) => Ok(is_behind),
        }
    }

    fn apply_changes(&self, write_set: &WriteSet, position: Option<u64>) -> Result<()> {
        self.give_up_left()?;
        let behind = behind_rows(write_set);
        for change in &write_set.changes {
            if let Change::Schema(change) = change
                && !behind.iter().any(|other| std::ptr::eq(*other, change))
            {
                self.apply_schema(change)?;
            }
        }
        // Not within the transaction.
        self.made_applied()?;
        let options = TransactionOptions::new().durability(Durability::AtCommit);
        let transaction = self.begin_with(&options)?;
        match self.apply_rows(transaction, write_set, position) {
            Err(Error::TooMuchAtOnce) => self.apply_singly(write_set, position),
            applied => applied,
        }
    }

    /// By a transaction whose statements are durable. The next call gives it up if a crash, or an
    /// error, leaves it.
    fn apply_singly(&self, write_set: &WriteSet, position: Option<u64>) -> Result<()> {
        let transaction = self.begin()?;
        let token = transaction.token().word();
        let set = self.made_applied()?.prepare_upsert(PRIMARY)?;
        set.run(&[TOKEN.into(), token.into()], |_, new| new.set(1, token))?;
        self.apply_rows(transaction, write_set, position)?;
        self.give_up_left()
    }

    /// Gives up a transaction that has applied a part of a write set.
    fn give_up_left(&self) -> Result<()> {
        let Some(token) = self.noted(&self.snapshot(), TOKEN)? else { return Ok(()) };
        match self.resume(Token::of_word(token)) {
            Ok(Resumed::Open(transaction)) => transaction.abort()?,
            // It was over long ago.
            Ok(_) | Err(Error::Forgotten { .. }) => {}
            Err(error) => return Err(error),
        }
        self.made_applied()?.prepare_delete(PRIMARY)?.run(&[TOKEN.into()]).map(drop)
    }

    /// Changes rows as a write set says, and commits. Those that others are in the way of come once
    /// these are done: parents before their children, and removals the other way round.
    fn apply_rows(
        &self,
        mut transaction: Transaction<'_, M>,
        write_set: &WriteSet,
        position: Option<u64>,
    ) -> Result<()> {
        let mut handles = Handles::of(self);
        let is_row = |change: &&Change| !matches!(change, Change::Schema(_));
        let mut left: Vec<&Change> = write_set.changes.iter().filter(is_row).collect();
        let mut has_made_way = false;
        while !left.is_empty() {
            let (mut refused, mut error) = (Vec::new(), None);
            for change in &left {
                match handles.change(&mut transaction, change) {
                    Err(
                        of @ (Error::Unique { .. }
                        | Error::NoParent { .. }
                        | Error::HasChildren { .. }),
                    ) => {
                        refused.push(*change);
                        error = Some(of);
                    }
                    done => done?,
                }
            }
            if refused.len() == left.len() {
                if has_made_way {
                    return error.map_or(Ok(()), Err);
                }
                // Rows may exchange keys of unique indexes, by which each is in the way of another
                // one.
                for change in &refused {
                    handles.make_way(&mut transaction, change)?;
                }
                has_made_way = true;
            }
            left = refused;
        }
        for change in behind_rows(write_set) {
            self.apply_behind_rows(&mut transaction, change)?;
        }
        if let Some(position) = position {
            self.note_in(&mut transaction, POSITION, position)?;
        }
        transaction.commit()
    }

    /// Makes what rows have to fit, unless it is there.
    fn apply_behind_rows(
        &self,
        transaction: &mut Transaction<'_, M>,
        change: &SchemaChange,
    ) -> Result<()> {
        match change {
            SchemaChange::CreateIndex { table, index } => {
                let table = self.any_table(table)?;
                let is_there = table.indexes().iter().any(|other| other.name == index.name());
                if is_there { Ok(()) } else { self.create_index_in(transaction, &table, index) }
            }
            SchemaChange::AddForeignKey { table, foreign_key } => {
                let table = self.any_table(table)?;
                let mut keys = table.foreign_keys().into_iter();
                let is_there = keys.any(|other| other.name == foreign_key.name());
                match is_there {
                    true => Ok(()),
                    false => self.add_foreign_key_in(transaction, &table, foreign_key),
                }
            }
            // All others come before the rows.
            _ => Ok(()),
        }
    }

    /// Changes the schema, unless that was done before.
    fn apply_schema(&self, change: &SchemaChange) -> Result<()> {
        let name = change.table();
        let is_of_sequences = match change {
            SchemaChange::CreateTable(spec) => *spec == sequence::spec(),
            _ => false,
        };
        if name.starts_with(RESERVED) && !is_of_sequences {
            let reason = format!("names that begin with {RESERVED:?} are the database's own");
            return Err(Error::Schema { table: name.to_owned(), reason });
        }
        match change {
            SchemaChange::CreateTable(spec) => match self.engine.table(&spec.name, None) {
                Some(table) if has_columns(&table.columns.load(), &spec.columns) => Ok(()),
                _ => self.engine.create_table(spec).map(drop),
            },
            SchemaChange::DropTable { table } => match self.engine.table(table, None) {
                Some(_) => self.engine.drop_table(table),
                None => Ok(()),
            },
            SchemaChange::AddColumn { table, column } => {
                let table = self.any_table(table)?;
                let is_there = table.columns().iter().any(|other| *other == *column.column());
                if is_there { Ok(()) } else { self.add_column(&table, column).map(drop) }
            }
            SchemaChange::CreateIndex { table, index } => {
                let table = self.any_table(table)?;
                let is_there = table.indexes().iter().any(|other| other.name == index.name());
                if is_there { Ok(()) } else { self.create_index(&table, index) }
            }
            // Of a table that is gone, it was done before.
            SchemaChange::DropIndex { table, .. } | SchemaChange::DropForeignKey { table, .. }
                if self.any_table(table).is_err() =>
            {
                Ok(())
            }
            SchemaChange::DropIndex { table, index } => {
                let table = self.any_table(table)?;
                let is_there = table.indexes().iter().any(|other| other.name == *index);
                if is_there { self.drop_index(&table, index) } else { Ok(()) }
            }
            SchemaChange::AddForeignKey { table, foreign_key } => {
                let table = self.any_table(table)?;
                let mut keys = table.foreign_keys().into_iter();
                let is_there = keys.any(|other| other.name == foreign_key.name());
                if is_there { Ok(()) } else { self.add_foreign_key(&table, foreign_key) }
            }
            SchemaChange::DropForeignKey { table, foreign_key } => {
                let table = self.any_table(table)?;
                let mut keys = table.foreign_keys().into_iter();
                let is_there = keys.any(|other| other.name == *foreign_key);
                if is_there { self.drop_foreign_key(&table, foreign_key) } else { Ok(()) }
            }
        }
    }
}

/// Whether a table has these columns, and perhaps others that were added since. Indexes of
/// dictionaries may have been moved.
fn has_columns(there: &[Column], made: &[Column]) -> bool {
    there.len() >= made.len() && there.iter().zip(made).all(|(one, other)| one.is_like(other))
}
