//! The model of changes of the schema in transactions: the tables as others see them, and as the
//! open transaction does.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Numbers of tables. Rows of the second one may refer to the first one.
pub(super) const TABLES: u64 = 2;
/// Keys below are those of rows that transactions change, and the others those of statements by
/// themselves.
pub(super) const SHARED: u64 = 2;
pub(super) const KEYS: u64 = 4;
/// Columns that are added at the most.
pub(super) const ADDED_MAX: usize = 2;

/// A change of the schema, or of a row. The first number is that of the table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Create(u64),
    Drop(u64),
    /// Adds a column with this default.
    Column(u64, u64),
    /// Makes an index, which is unique, or drops it.
    Index(u64),
    /// Adds the foreign key, or drops it.
    Key,
    Put(u64, u64, u64),
    Remove(u64, u64),
}

impl Change {
    pub(super) fn is_of_schema(self) -> bool {
        !matches!(self, Change::Put(..) | Change::Remove(..))
    }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A statement of the open transaction, which begins if there is none.
    Within(Change),
    /// A statement, or a change of the schema, by itself.
    Alone(Change),
    /// The open transaction commits, or is given up.
    End(bool),
    /// It takes back what came behind a statement.
    Back(u32),
    /// A transaction from its beginning to its end: whether it is durable at its commit, and
    /// whether it commits.
    Once(Vec<Change>, bool, bool),
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Defaults of the columns that were added.
    added: Vec<u64>,
    has_index: bool,
    has_key: bool,
    /// By key: the value, and those of the columns that were added.
    rows: BTreeMap<u64, Vec<u64>>,
    /// The open transaction has made it. Nobody sees that.
    is_new: bool,
    /// It has dropped the foreign key, whose name is free once it has ended. Nor that.
    has_left_key: bool,
}

impl Table {
    /// One that somebody has found.
    pub(super) fn found(
        added: Vec<u64>,
        [has_index, has_key]: [bool; 2],
        rows: BTreeMap<u64, Vec<u64>>,
    ) -> Self {
        Table { added, has_index, has_key, rows, ..Table::default() }
    }

    fn seen(&self) -> (&[u64], bool, bool, &BTreeMap<u64, Vec<u64>>) {
        (&self.added, self.has_index, self.has_key, &self.rows)
    }

    fn pad(&mut self) {
        for row in self.rows.values_mut() {
            row.extend(&self.added[row.len() - 1..]);
        }
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.seen() == other.seen()
    }
}

impl Eq for Table {}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen().hash(state);
    }
}

/// The tables that somebody sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct World(pub(super) BTreeMap<u64, Table>);

impl World {
    /// Whether a change does something.
    pub(super) fn apply(&mut self, change: Change, is_by_transaction: bool) -> bool {
        let World(tables) = self;
        match change {
            Change::Create(number) => {
                let is_new = !tables.contains_key(&number);
                if is_new {
                    let made = Table { is_new: is_by_transaction, ..Table::default() };
                    tables.insert(number, made);
                }
                is_new
            }
            Change::Drop(number) => {
                let is_referred = number == 0 && tables.get(&1).is_some_and(|table| table.has_key);
                !is_referred && tables.remove(&number).is_some()
            }
            Change::Key => {
                let has_parents = tables.contains_key(&0);
                let Some(table) = tables.get_mut(&1).filter(|_| has_parents) else { return false };
                let is_free = table.has_key || !table.has_left_key;
                table.has_left_key |= table.has_key && is_by_transaction;
                table.has_key ^= is_free;
                is_free
            }
            Change::Column(number, default) => {
                let table = tables.get_mut(&number);
                let Some(table) = table.filter(|table| table.added.len() < ADDED_MAX) else {
                    return false;
                };
                table.added.push(default);
                table.pad();
                true
            }
            Change::Index(number) => {
                tables.get_mut(&number).map(|table| table.has_index ^= true).is_some()
            }
            Change::Put(number, key, value) => {
                let Some(table) = tables.get_mut(&number) else { return false };
                let mut row = vec![value];
                row.resize(1 + table.added.len(), value + 1);
                table.rows.insert(key, row);
                true
            }
            Change::Remove(number, key) => {
                tables.get_mut(&number).is_some_and(|table| table.rows.remove(&key).is_some())
            }
        }
    }

    /// What is there once a transaction has committed that has seen this.
    fn over(&self, before: &World) -> World {
        let mut after = self.clone();
        for (number, table) in &mut after.0 {
            table.has_left_key = false;
            if !std::mem::take(&mut table.is_new) {
                table.rows.retain(|key, _| *key < SHARED);
                let others = before.0.get(number).map_or(BTreeMap::new(), |of| of.rows.clone());
                table.rows.extend(others.into_iter().filter(|(key, _)| *key >= SHARED));
                table.pad();
            }
        }
        after
    }
}

/// The open transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) statement: u32,
    pub(super) world: World,
    /// Whether it has changed the schema.
    is_author: bool,
    /// The same after each statement that was not taken back.
    history: Vec<(u32, World, bool)>,
}

impl Open {
    fn on(world: &World) -> Self {
        let history = vec![(0, world.clone(), false)];
        Open { statement: 0, world: world.clone(), is_author: false, history }
    }

    /// One that somebody has found.
    pub(super) fn found(statement: u32, world: World) -> Self {
        Open { statement, world, is_author: false, history: Vec::new() }
    }

    /// Whether a statement does something.
    fn apply(&mut self, change: Change) -> bool {
        let before = self.world.clone();
        let done = self.world.apply(change, true);
        // One that leaves everything as it was does not count.
        let counts = match change {
            Change::Put(..) => done && self.world != before,
            _ => done,
        };
        if counts {
            self.is_author |= change.is_of_schema();
            self.count();
        }
        done
    }

    fn count(&mut self) {
        self.statement += 1;
        self.history.push((self.statement, self.world.clone(), self.is_author));
    }

    fn take_back(&mut self, to: u32) {
        if to < self.statement {
            // What was taken back before does not come again.
            self.history.retain(|(statement, ..)| *statement <= to);
            if let Some((_, world, is_author)) = self.history.last().cloned() {
                (self.world, self.is_author) = (world, is_author);
            }
            self.count();
        }
    }

    /// Others have changed the schema.
    fn see(&mut self, change: Change) {
        self.world.apply(change, false);
        for (_, world, _) in &mut self.history {
            world.apply(change, false);
        }
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        (self.statement, &self.world) == (other.statement, &other.world)
    }
}

impl Eq for Open {}

impl Hash for Open {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.statement, &self.world).hash(state);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) committed: World,
    pub(super) open: Option<Open>,
}

impl State {
    /// Whether an operation does something; `None` if it is none now.
    pub(super) fn apply(&mut self, op: &Op) -> Option<bool> {
        let State { committed, open } = self;
        match op {
            Op::Within(change) => {
                let mut of = open.take().unwrap_or_else(|| Open::on(committed));
                let done = of.apply(*change);
                *open = (of.statement > 0).then_some(of);
                Some(done)
            }
            Op::Alone(change) if change.is_of_schema() => {
                if open.as_ref().is_some_and(|open| open.is_author) {
                    return Some(false);
                }
                let done = committed.apply(*change, false);
                if let Some(open) = open.as_mut().filter(|_| done) {
                    open.see(*change);
                }
                Some(done)
            }
            Op::Alone(change) => Some(committed.apply(*change, false)),
            Op::End(is_commit) => {
                let of = open.take()?;
                if *is_commit {
                    *committed = of.world.over(committed);
                }
                Some(true)
            }
            Op::Back(to) => open.as_mut().map(|open| {
                open.take_back(*to);
                true
            }),
            Op::Once(..) if open.is_some() => None,
            Op::Once(changes, _, is_commit) => {
                let mut of = Open::on(committed);
                let done = changes.iter().all(|change| of.apply(*change));
                if done && *is_commit {
                    *committed = of.world.over(committed);
                }
                Some(done)
            }
        }
    }
}
