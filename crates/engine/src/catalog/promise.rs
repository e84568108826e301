//! Changes of the schema that a transaction has made: what a catalog says of them.
//!
//! They are in the catalog as soon as they are made, with the name of the transaction and the
//! number of its statement. What the transaction has made is among what is there, and so is what
//! it has dropped. They count once the slot of the transaction says that it has committed. One word
//! of the catalog's block tells that, and which of them were taken back, so that the slot may be
//! used for others: who ends the transaction writes it, or else the next opening. It takes no room,
//! so a full pool is no reason for a transaction not to end.
//!
//! One transaction at a time has such changes.

use super::{Catalog, DroppedEntry, TableEntry};
use crate::transaction::layout::{STATEMENTS_MAX, Serial, TransactionId};

/// The changes of a transaction that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promised {
    pub(crate) slot: u32,
    pub(crate) serial: Serial,
    /// In the order in which they were made.
    pub(crate) changes: Vec<Promise>,
}

/// A change, and by which statement it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) statement: u32,
    /// Number of the table that it is of.
    pub(crate) table: u32,
    pub(crate) kind: PromiseKind,
}

/// What was made or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromiseKind {
    CreateTable,
    DropTable,
    /// The column that was added last, by then.
    AddColumn,
    /// An index of this number.
    CreateIndex(u32),
    DropIndex(u32),
    /// A foreign key of this name.
    AddForeignKey(String),
    DropForeignKey(String),
}

/// Who makes a change of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// A change by itself.
    Alone,
    /// A statement of a transaction, by its number.
    Transaction { slot: u32, serial: Serial, statement: u32 },
}

/// What is known of promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The transaction has committed.
    pub(crate) is_kept: bool,
    /// Those of later statements were taken back.
    pub(crate) taken_back_to: u32,
}

impl Author {
    pub(crate) fn id(self) -> Option<TransactionId> {
        match self {
            Author::Alone => None,
            Author::Transaction { slot, serial, .. } => {
                Some(TransactionId { slot, number: serial.number })
            }
        }
    }
}

impl Promised {
    pub(crate) fn id(&self) -> TransactionId {
        TransactionId { slot: self.slot, number: self.serial.number }
    }
}

impl Settled {
    /// That nothing is known yet.
    pub(crate) const OPEN: Settled = Settled { is_kept: false, taken_back_to: STATEMENTS_MAX };
    const KEPT: u32 = 1 << 31;

    /// Its word: the upper half is the complement of the lower one.
    pub(crate) fn word(self) -> u64 {
        let low = self.taken_back_to | if self.is_kept { Self::KEPT } else { 0 };
        u64::from(low) | u64::from(!low) << 32
    }

    pub(crate) fn of_word(word: u64) -> Option<Self> {
        let low = word as u32;
        let settled = Settled { is_kept: low & Self::KEPT != 0, taken_back_to: low & !Self::KEPT };
        (settled.word() == word && settled.taken_back_to <= STATEMENTS_MAX).then_some(settled)
    }

    /// What is known once this is, too.
    pub(crate) fn and(self, other: Settled) -> Settled {
        Settled {
            is_kept: self.is_kept || other.is_kept,
            taken_back_to: self.taken_back_to.min(other.taken_back_to),
        }
    }
}

impl Catalog {
    /// Notes a change, if it is one of a transaction. Nobody else has changes, then.
    pub(crate) fn note(&mut self, author: Author, table: u32, kind: PromiseKind) {
        let Author::Transaction { slot, serial, statement } = author else { return };
        let promised = Promised { slot, serial, changes: Vec::new() };
        let promised = self.promised.get_or_insert(promised);
        promised.changes.push(Promise { statement, table, kind });
    }

    /// Whether a table is promised to be dropped.
    pub(crate) fn is_leaving(&self, table: u32) -> bool {
        self.promises().any(|of| of.table == table && of.kind == PromiseKind::DropTable)
    }

    /// Whether a foreign key of a table is promised to be dropped.
    pub(crate) fn is_key_leaving(&self, table: u32, name: &str) -> bool {
        let is_it =
            |kind: &PromiseKind| matches!(kind, PromiseKind::DropForeignKey(of) if of == name);
        self.promises().any(|of| of.table == table && is_it(&of.kind))
    }

    /// Whether a foreign key of a table is promised, by itself or with its table.
    pub(crate) fn is_key_promised(&self, table: u32, name: &str) -> bool {
        let is_it = |kind: &PromiseKind| match kind {
            PromiseKind::CreateTable => true,
            PromiseKind::AddForeignKey(of) => of == name,
            _ => false,
        };
        self.promises().any(|of| of.table == table && is_it(&of.kind))
    }

    /// Whether an index of a table is promised to be dropped.
    pub(crate) fn is_index_leaving(&self, table: u32, number: u32) -> bool {
        let is_it = PromiseKind::DropIndex(number);
        self.promises().any(|of| of.table == table && of.kind == is_it)
    }

    pub(crate) fn promises(&self) -> impl Iterator<Item = &Promise> {
        self.promised.iter().flat_map(|promised| &promised.changes)
    }

    /// Takes back those that are, and if the transaction has committed, keeps all others. Returns
    /// what became of each of these, in the order in which it is to be done: whether it is kept.
    pub(crate) fn settle(&mut self, settled: Settled) -> Vec<(Promise, bool)> {
        let Some(promised) = self.promised.as_mut() else { return Vec::new() };
        let behind = |promise: &Promise| promise.statement > settled.taken_back_to;
        let first = promised.changes.iter().position(behind).unwrap_or(promised.changes.len());
        let mut done = promised.changes.split_off(first);
        // The last one first.
        done.reverse();
        let mut done: Vec<(Promise, bool)> = done.into_iter().map(|of| (of, false)).collect();
        if settled.is_kept {
            done.extend(promised.changes.drain(..).map(|of| (of, true)));
            self.schema_version += 1;
        }
        if promised.changes.is_empty() {
            self.promised = None;
        }
        for (promise, is_kept) in &done {
            self.carry_out(promise, *is_kept);
        }
        done
    }

    fn carry_out(&mut self, promise: &Promise, is_kept: bool) {
        let Some(at) = self.tables.iter().position(|table| table.number == promise.table) else {
            // The table was dropped by the same transaction.
            return;
        };
        match (&promise.kind, is_kept) {
            (PromiseKind::CreateTable, false) | (PromiseKind::DropTable, true) => {
                let entry = self.tables.remove(at);
                self.dropped.push(DroppedEntry::of(&entry));
            }
            (PromiseKind::CreateIndex(number), false) | (PromiseKind::DropIndex(number), true) => {
                let index = self.tables[at].take_index(*number);
                self.dropped.extend(index);
            }
            (PromiseKind::AddColumn, false) => {
                let added = self.tables[at].added.iter_mut();
                if let Some(last) = added.rev().find(|added| !added.is_gone) {
                    last.is_gone = true;
                }
            }
            (PromiseKind::AddForeignKey(name), false)
            | (PromiseKind::DropForeignKey(name), true) => {
                self.tables[at].foreign_keys.retain(|key| key.name != *name);
            }
            // They are there as they are to be.
            (
                PromiseKind::CreateTable
                | PromiseKind::CreateIndex(_)
                | PromiseKind::AddColumn
                | PromiseKind::AddForeignKey(_),
                true,
            )
            | (
                PromiseKind::DropTable | PromiseKind::DropIndex(_) | PromiseKind::DropForeignKey(_),
                false,
            ) => {}
        }
    }
}

impl TableEntry {
    /// Removes an index. Returns what is to be freed of it.
    fn take_index(&mut self, number: u32) -> Option<DroppedEntry> {
        let at = self.indexes.iter().position(|index| index.number == number)?;
        let index = self.indexes.remove(at);
        index.header.map(|header| DroppedEntry::of_index(number, header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_is_known_and_not_if_a_bit_has_changed() {
        for is_kept in [false, true] {
            for taken_back_to in [0, 1, 77, STATEMENTS_MAX] {
                let settled = Settled { is_kept, taken_back_to };
                let word = settled.word();
                assert_eq!(Settled::of_word(word), Some(settled));
                for bit in 0..u64::BITS {
                    assert_eq!(Settled::of_word(word ^ 1 << bit), None, "{settled:?}, {bit}");
                }
            }
        }
        assert_eq!([0, u64::MAX].map(Settled::of_word), [None; 2]);
    }

    #[test]
    fn what_is_taken_back_first_stays_so_when_the_rest_is_kept() {
        let promise = |statement| Promise { statement, table: 9, kind: PromiseKind::CreateTable };
        let promised = Promised {
            slot: 1,
            serial: Serial { number: 2, opening: 3 },
            changes: [1, 3, 5].map(promise).into(),
        };
        let before = Catalog { promised: Some(promised), ..Catalog::default() };
        let back = Settled { taken_back_to: 2, ..Settled::OPEN };
        let kept = Settled { is_kept: true, ..Settled::OPEN };
        let mut steps = before.clone();
        let done = steps.settle(back);
        assert_eq!(done, [(promise(5), false), (promise(3), false)]);
        assert_eq!(steps.promises().cloned().collect::<Vec<_>>(), [promise(1)]);
        assert_eq!(steps.settle(kept), [(promise(1), true)]);
        // As the word of the block tells it at once.
        let mut at_once = before.clone();
        assert_eq!(at_once.settle(back.and(kept)).len(), 3);
        assert_eq!(at_once, steps);
        assert_eq!((steps.promised, steps.schema_version), (None, before.schema_version + 1));
    }
}
