//! Changes of the schema as statements of a transaction: the catalog promises them
//! ([`promise`](crate::catalog::promise)), and they count once the transaction has committed.
//!
//! A statement has two steps, each durable: the catalog with the promise, and then a record that
//! the statement took effect. A crash between them leaves a promise of a statement that did not,
//! which opening takes back. Who ends the transaction, or takes statements back, writes what became
//! of the promises before the slot is used for anything else.
//!
//! What is left behind then in sets of indexes does no harm, and is removed by who changes the
//! schema next: a thread that gives up a transaction whose time is over may have such a set itself.

use std::sync::Arc;

use remanent_pmem::sync::PauseGuard;
use remanent_pmem::{Error as PoolError, Medium};

use super::Transaction;
use super::distinct::Turns;
use super::held::Held;
use super::layout::{Content, State};
use super::slots::HeldSlot;
use super::view::View;
use super::wait::{Holder, Told, Waiting};
use crate::catalog::foreign::{detach_all, detach_from};
use crate::catalog::index::remove_from;
use crate::catalog::promise::{Author, Promise, PromiseKind, Promised, Settled};
use crate::catalog::retired::{Retired, Unfinished};
use crate::catalog::{CatalogBlock, HEADER_CATALOG, TableEntry};
use crate::engine::{Engine, Schema};
use crate::foreign::ForeignKey;
use crate::index::{Index, NOT_YET};
use crate::table::Table;
use crate::transaction::Token;
use crate::transaction::statuses::Statuses;
use crate::{Error, Result};

impl<M: Medium> Transaction<'_, M> {
    /// Makes a change of the schema that counts once the transaction has committed.
    pub(crate) fn alter<R>(
        &mut self,
        engine: &Engine<M>,
        change: impl FnMut(Author, View) -> Result<R>,
    ) -> Result<R> {
        let view = self.view_of(engine)?;
        self.require_no_batch()?;
        let slot = self.slot.as_mut().ok_or(Error::TransactionEnded)?;
        engine.alter_in(slot, view, change)
    }
}

impl<M: Medium> Engine<M> {
    /// Makes a change of the schema that counts at once. Waits for the author of another one, as
    /// statements wait that are a transaction.
    pub(crate) fn alter<R>(&self, mut change: impl FnMut() -> Result<R>) -> Result<R> {
        let mut turns = Turns::new(self);
        loop {
            match change() {
                Err(Error::SchemaBusy { holder: Some(token) }) => {
                    let holder = Holder { slot: Some(token.slot()) };
                    self.wait_for_holder(holder, || Told::Schema, &mut turns)?;
                }
                done => return done,
            }
        }
    }

    fn alter_in<R>(
        &self,
        slot: &mut HeldSlot<'_, M>,
        view: View,
        mut change: impl FnMut(Author, View) -> Result<R>,
    ) -> Result<R> {
        slot.require_statement()?;
        let (index, Some(open)) = (slot.index, slot.open()) else {
            return Err(Error::TransactionEnded);
        };
        let (serial, statement) = (open.serial, open.statement + 1);
        let author = Author::Transaction { slot: index, serial, statement };
        let mut waiting = Waiting::new(self, index, open.wait_ms);
        // Its own rows count, and those of others as they are now.
        let view = View { own: view.own, ..View::NEWEST };
        let result = loop {
            match change(author, view) {
                Err(Error::SchemaBusy { holder: Some(token) }) => {
                    waiting.wait_for(Holder { slot: Some(token.slot()) }, || Told::Schema)?;
                }
                done => break done?,
            }
        };
        drop(waiting);
        let Some(open) = slot.open_mut() else { return Err(Error::TransactionEnded) };
        if open.deferred.is_at_commit {
            open.statement += 1;
            return Ok(result);
        }
        slot.write(self.medium(), State::Open, None, Content::Schema);
        // Fence: the record, before it is acknowledged. Also what the record before has published.
        self.medium().fence();
        self.heap.verify()?;
        // The record that is durable by now names the newer one.
        if let Some(open) = slot.open_mut() {
            self.leave_snapshot_before(open);
        }
        Ok(result)
    }

    /// The right to exchange sets of indexes: nothing is left in them of what is not there.
    pub(crate) fn lock_altering(&self) -> Result<PauseGuard<'_, ()>> {
        let altering = self.altering.lock(self.medium());
        let unfinished = std::mem::take(&mut self.schema.lock(self.medium()).unfinished);
        if !unfinished.is_empty() {
            unfinished.into_iter().for_each(finish);
            self.garbage.lock(self.medium()).retain(|row| !row.table.is_dropped());
            self.free_dropped()?;
        }
        Ok(altering)
    }

    /// Removes from sets of indexes what is not there any more.
    pub(crate) fn finish_altering(&self) -> Result<()> {
        let is_finished = self.schema.lock(self.medium()).unfinished.is_empty();
        if is_finished { Ok(()) } else { self.lock_altering().map(drop) }
    }

    /// Has who has a later stamp than the next one wait until the promises of a slot's transaction
    /// are settled.
    pub(super) fn hold_promises(&self, slot: &HeldSlot<'_, M>) -> Held<M> {
        let mut held = Vec::new();
        if self.statuses.is_author(slot.id()) {
            let schema = self.schema.lock(self.medium());
            let promised = schema.catalog.promised.iter();
            let own = promised.filter(|of| Some(of.id()) == slot.id());
            for promise in own.flat_map(|of| &of.changes) {
                let Some(table) = schema.table_of(promise.table) else { continue };
                match promise.kind {
                    PromiseKind::DropTable => table.hold_dropped(),
                    PromiseKind::AddColumn => table.hold_columns(true),
                    _ => continue,
                }
                held.push(Arc::clone(table));
            }
        }
        Held::of(held)
    }

    /// Has the promises of a slot's transaction count that has committed. One fence, if there are
    /// any.
    pub(super) fn keep_promises(&self, slot: &HeldSlot<'_, M>, stamp: u64) -> Result<()> {
        let settled = Settled { is_kept: true, ..Settled::OPEN };
        self.settle_promises(slot, settled, stamp)
    }

    /// Takes back those of the promises of a slot's transaction that it has made behind a
    /// statement. One fence, if there are any.
    pub(super) fn take_promises_back(&self, slot: &HeldSlot<'_, M>, to: u32) -> Result<()> {
        self.settle_promises(slot, Settled { taken_back_to: to, ..Settled::OPEN }, 0)
    }

    fn settle_promises(&self, slot: &HeldSlot<'_, M>, settled: Settled, stamp: u64) -> Result<()> {
        if !self.statuses.is_author(slot.id()) {
            return Ok(());
        }
        let medium = self.medium();
        let mut schema = self.schema.lock(medium);
        if schema.catalog.promised.as_ref().map(Promised::id) != slot.id() {
            return Ok(());
        }
        let mut catalog = schema.catalog.clone();
        let done = catalog.settle(settled);
        if !done.is_empty() {
            let at = medium.load(self.heap.header() + HEADER_CATALOG);
            let noted = CatalogBlock::settle(medium, at, settled);
            noted.map_err(|what| PoolError::corrupt(at, what))?;
            self.heap.verify()?;
        }
        schema.catalog = catalog;
        for (promise, is_kept) in &done {
            schema.carry_out(promise, *is_kept, stamp);
        }
        schema.kept_stamp = schema.kept_stamp.max(stamp);
        self.show_schema(&schema.catalog);
        Ok(())
    }
}

impl<M: Medium> Schema<M> {
    /// The entry of the table of this name that is there for who may change the schema.
    pub(crate) fn entry_of_name(&self, name: &str) -> Option<&TableEntry> {
        let mut entries = self.catalog.tables.iter();
        entries.find(|entry| entry.name == name && !self.catalog.is_leaving(entry.number))
    }

    /// Refuses a change of the schema while another transaction has changed it, and is open.
    pub(crate) fn require_free(&self, author: Author) -> Result<()> {
        let Some(promised) = &self.catalog.promised else { return Ok(()) };
        let is_own = matches!(author, Author::Transaction { slot, serial, .. }
            if (slot, serial) == (promised.slot, promised.serial));
        match is_own {
            true => Ok(()),
            false => {
                let holder = Some(Token::new(promised.slot, promised.serial));
                Err(Error::SchemaBusy { holder })
            }
        }
    }

    pub(crate) fn table_of(&self, number: u32) -> Option<&Arc<Table<M>>> {
        self.tables.iter().find(|table| table.number == number)
    }

    /// Has a table, an index or a foreign key be what became of a promise.
    fn carry_out(&mut self, promise: &Promise, is_kept: bool, stamp: u64) {
        // Otherwise it was dropped by the same transaction.
        let Some(table) = self.table_of(promise.table).cloned() else { return };
        match (&promise.kind, is_kept) {
            (PromiseKind::CreateTable, true) => table.presence.keep_promise(),
            (PromiseKind::CreateTable, false) | (PromiseKind::DropTable, true) => {
                self.tables.retain(|other| !Arc::ptr_eq(other, &table));
                table.presence.end();
                table.set_dropped_at(stamp);
                self.dropped.push(Arc::clone(&table));
                self.unfinished.push(Unfinished::Table(table));
            }
            (PromiseKind::DropTable, false) => {
                table.presence.come_back();
                for key in &table.indexes.load().foreign.to_parents {
                    if !self.catalog.is_key_leaving(table.number, &key.name) {
                        key.presence.come_back();
                    }
                }
            }
            (PromiseKind::AddColumn, true) => table.keep_column(stamp),
            (PromiseKind::AddColumn, false) => {
                table.remove_column();
                self.unfinished.push(Unfinished::Column(table));
            }
            (PromiseKind::CreateIndex(number) | PromiseKind::DropIndex(number), _) => {
                let index = table.index_of(*number);
                let is_made = matches!(promise.kind, PromiseKind::CreateIndex(_));
                match index {
                    None => {}
                    Some(index) if is_made && is_kept => {
                        index.set_unique_since(stamp);
                        index.presence.keep_promise();
                    }
                    Some(index) if !is_made && !is_kept => index.presence.come_back(),
                    Some(index) => {
                        index.retire();
                        self.retired.push(Retired::OfRows(Arc::clone(&index)));
                        self.unfinished.push(Unfinished::Index(table, index));
                    }
                }
            }
            (PromiseKind::AddForeignKey(name) | PromiseKind::DropForeignKey(name), _) => {
                let key = table.foreign_key_of(name);
                let is_added = matches!(promise.kind, PromiseKind::AddForeignKey(_));
                match key {
                    None => {}
                    Some(key) if is_added && is_kept => key.presence.keep_promise(),
                    Some(key) if !is_added && !is_kept => key.presence.come_back(),
                    Some(key) => {
                        key.presence.end();
                        self.unfinished.push(Unfinished::ForeignKey(table, key));
                    }
                }
            }
        }
    }

    /// Shows which indexes the transaction that goes on has promised. Opening does.
    pub(crate) fn show_promised_indexes(&self) {
        for Promise { table, kind, .. } in self.catalog.promises() {
            let Some(table) = self.table_of(*table) else { continue };
            match kind {
                PromiseKind::CreateIndex(number) => {
                    if let Some(index) = table.index_of(*number) {
                        index.set_unique_since(NOT_YET);
                        index.presence.promise();
                    }
                }
                PromiseKind::DropIndex(number) => {
                    table.index_of(*number).into_iter().for_each(|index| index.presence.leave());
                }
                _ => {}
            }
        }
    }

    /// Shows all else that it has promised, once tables have their foreign keys.
    pub(crate) fn show_promises(&self, statuses: &Statuses) {
        let Some(promised) = &self.catalog.promised else { return };
        statuses.set_author(Some(promised.id()));
        for Promise { table, kind, .. } in &promised.changes {
            let Some(table) = self.table_of(*table) else { continue };
            match kind {
                PromiseKind::CreateTable => table.presence.promise(),
                PromiseKind::DropTable => table.leave(),
                PromiseKind::AddColumn => {
                    let is_it = |of: &&Promise| (of.table, &of.kind) == (table.number, kind);
                    table.set_promised_columns(promised.changes.iter().filter(is_it).count());
                }
                PromiseKind::CreateIndex(_) | PromiseKind::DropIndex(_) => {}
                PromiseKind::AddForeignKey(name) => {
                    table.foreign_key_of(name).into_iter().for_each(|key| key.presence.promise());
                }
                PromiseKind::DropForeignKey(name) => {
                    table.foreign_key_of(name).into_iter().for_each(|key| key.presence.leave());
                }
            }
        }
    }
}

impl<M: Medium> Table<M> {
    /// Says that the author of the schema has dropped the table, and with it the foreign keys by
    /// which its rows refer to others.
    pub(crate) fn leave(&self) {
        self.presence.leave();
        for key in &self.indexes.load().foreign.to_parents {
            key.presence.leave();
        }
    }

    fn index_of(&self, number: u32) -> Option<Arc<Index<M>>> {
        let set = self.indexes.load();
        set.live().find(|index| index.number == number).cloned()
    }

    fn foreign_key_of(&self, name: &str) -> Option<Arc<ForeignKey<M>>> {
        let set = self.indexes.load();
        set.foreign.to_parents.iter().find(|key| key.name == name).cloned()
    }
}

/// Removes from sets of indexes, or from a table, what is not there any more.
fn finish<M: Medium>(unfinished: Unfinished<M>) {
    match unfinished {
        Unfinished::Table(table) => detach_all(&table),
        Unfinished::Index(table, index) => remove_from(&table, &index),
        Unfinished::ForeignKey(child, key) => detach_from(&key, &child),
        Unfinished::Column(table) => table.format.cells.remove_last(),
    }
}
