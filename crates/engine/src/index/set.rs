//! The indexes of a table, as the statements of one time know them.
//!
//! An index is made, dropped or moved while statements run. So a table leads to a set of indexes
//! that never changes, and a change exchanges it for another set. A statement takes the set that is
//! there when it begins to change the table. [`Table::exchange_indexes`] returns once no statement
//! uses an older set any more, so the next change can rely on what the set before has asked of
//! statements.
//!
//! [`Table::exchange_indexes`]: crate::table::Table::exchange_indexes

use std::ops::Deref;
use std::sync::Arc;

use remanent_pmem::Medium;

use super::{Index, Key};
use crate::foreign::Foreign;

/// What statements do with an index besides adding their words to it and removing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing: it is being built, or another one has taken its place.
    Kept,
    /// They refuse keys that another row has, if it is unique.
    Enforced,
    /// The same, and it is found by its name.
    Live,
}

/// An index of a set.
pub(crate) struct Member<M: Medium> {
    pub(crate) index: Arc<Index<M>>,
    pub(crate) role: Role,
}

/// The indexes of a table, and its foreign keys.
pub(crate) struct IndexSet<M: Medium> {
    members: Vec<Member<M>>,
    pub(crate) foreign: Foreign<M>,
    /// Whether keys have columns of the second group.
    pub(crate) needs_others: bool,
}

impl<M: Medium> Member<M> {
    /// Whether a statement has to find that no other row has a key before it gives it to one.
    #[inline]
    pub(crate) fn enforces(&self, key: &Key) -> bool {
        self.role != Role::Kept && self.index.is_unique_in(key) && self.index.is_in_use()
    }
}

impl<M: Medium> Deref for Member<M> {
    type Target = Index<M>;

    #[inline(always)]
    fn deref(&self) -> &Index<M> {
        &self.index
    }
}

impl<M: Medium> Clone for Member<M> {
    fn clone(&self) -> Self {
        Member { index: Arc::clone(&self.index), role: self.role }
    }
}

impl<M: Medium> IndexSet<M> {
    pub(crate) fn of(members: Vec<Member<M>>, foreign: Foreign<M>) -> Self {
        let needs_others = members.iter().any(|member| member.needs_others);
        IndexSet { members, foreign, needs_others }
    }

    /// Indexes that all statements know.
    pub(crate) fn of_indexes(indexes: Vec<Index<M>>) -> Self {
        let member = |index| Member { index: Arc::new(index), role: Role::Live };
        Self::of(indexes.into_iter().map(member).collect(), Foreign::default())
    }

    /// All of them, in an order that a set keeps.
    #[inline]
    pub(crate) fn all(&self) -> &[Member<M>] {
        &self.members
    }

    /// Those that have a name, for somebody.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Index<M>>> {
        let live = self.members.iter().filter(|member| member.role == Role::Live);
        live.map(|member| &member.index)
    }

    /// Those that have a name for the author of the schema, or for all others.
    pub(crate) fn named(&self, is_author: bool) -> impl Iterator<Item = &Arc<Index<M>>> {
        self.live().filter(move |index| index.presence.is_there(|| is_author))
    }

    /// The index that has a number.
    pub(crate) fn with_number(&self, number: u32) -> Option<&Member<M>> {
        self.members.iter().find(|member| member.number == number)
    }
}
