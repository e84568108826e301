//! Drawing operations.

use remanent_crashsim::Rng;
use remanent_engine::Durability;

use super::columns;
use super::online::OnIndex;
use super::rows::{Statement, VALUES};
use super::subject::{Mix, Op, TABLES, Tables};
use super::unique::{Work, Works};

/// Number of second keys that [`Mix::Keyed`] wants.
const CODES: u64 = 2;

/// What an operation is drawn of.
#[derive(Clone, Copy)]
struct Drawn {
    table: u64,
    id: u64,
    /// Of the second key.
    number: u64,
    code: Option<u64>,
    value: u64,
}

impl Drawn {
    fn statement(self, rng: &mut Rng) -> Statement {
        let Drawn { id, code, value, .. } = self;
        match rng.below(7) {
            0..=1 => Statement::Insert(id, code, value),
            6 => Statement::Upsert(id, code, value),
            2..=3 => Statement::Update(id, code, value),
            4 => Statement::Update(id, None, value),
            _ => Statement::Delete(id),
        }
    }
}

impl Tables {
    /// An operation.
    pub(super) fn draw(&self, rng: &mut Rng) -> Op {
        match self.mix {
            Mix::Online | Mix::OnlineTogether => return self.online_op(rng),
            Mix::Columns | Mix::ColumnsTogether => return self.columns_op(rng),
            Mix::Planned if rng.below(3) == 0 => return self.place_all(rng),
            Mix::Planned => return self.online_op(rng),
            Mix::Moved | Mix::MovedTogether => return self.moved_op(rng),
            Mix::Keyed(works) => return self.keyed_op(rng, works),
            Mix::Many => return self.many_op(rng),
            Mix::Splits => return self.splits_op(rng),
            _ => {}
        }
        let (id, number) = (rng.below(self.keys), rng.below(self.keys));
        let table = match self.mix {
            Mix::Drops => 1,
            Mix::Schema => rng.below(TABLES),
            _ => 0,
        };
        let code = (rng.below(4) != 0).then_some(number);
        let value = rng.below(VALUES);
        let drawn = Drawn { table, id, number, code, value };
        match self.mix {
            Mix::Transactions => self.transaction_op(rng, drawn),
            Mix::Back => self.back_op(rng, drawn),
            _ => self.op_alone(rng, drawn),
        }
    }

    /// An operation of [`Mix::Transactions`].
    fn transaction_op(&self, rng: &mut Rng, drawn: Drawn) -> Op {
        let Drawn { table, id, code, value, .. } = drawn;
        match rng.below(20) {
            0..=1 => Op::Insert(table, id, code, value),
            6..=9 => Op::Within(drawn.statement(rng)),
            10 | 12 => Op::Batch(self.statements(rng)),
            2 | 11 => Op::AtCommit(self.statements(rng), rng.below(4) != 0),
            13 => Op::CommitWith(drawn.statement(rng)),
            14 | 15 => Op::Commit,
            16 => Op::Abort,
            17 => Op::Delete(table, id),
            18 => Op::Lock(id),
            19 => Op::TakeBack(rng.below(6) as u32),
            3..=4 => Op::Update(table, id, code, value),
            _ => Op::Collect,
        }
    }

    /// An operation of [`Mix::Back`].
    fn back_op(&self, rng: &mut Rng, drawn: Drawn) -> Op {
        let Drawn { table, id, code, value, .. } = drawn;
        match rng.below(20) {
            0..=4 => Op::TakeBack(rng.below(6) as u32),
            5..=12 => Op::Within(drawn.statement(rng)),
            13 | 14 => Op::Batch(self.statements(rng)),
            15 => Op::Commit,
            16 => Op::Lock(id),
            17 | 18 => Op::Update(table, id, code, value),
            _ => Op::Collect,
        }
    }

    /// An operation of the other mixes: most of them are transactions by themselves.
    fn op_alone(&self, rng: &mut Rng, drawn: Drawn) -> Op {
        let Drawn { table, id, number, code, value } = drawn;
        match (self.mix, rng.below(20)) {
            (Mix::Transfers, 3..=5) => Op::Scan(table),
            (Mix::Transfers, 7..=11) => {
                let other = (id + 1 + rng.below(self.keys - 1)) % self.keys;
                let is_at_commit = rng.below(2) == 0;
                let at_commit = Durability::AtCommit;
                let how = if is_at_commit { at_commit } else { Durability::EachStatement };
                Op::Transfer(id, other, rng.below(2) == 0, how)
            }
            (Mix::Transfers, 12) => Op::Take(id),
            (Mix::Transfers, 14 | 15) => Op::Update(table, id, code, value),
            (Mix::Schema, 0..=4) => Op::Create(1 + rng.below(TABLES - 1)),
            (Mix::Drops, 0..=6) => Op::Create(table),
            (Mix::Drops, 7..=11) => Op::Insert(table, id, code, value),
            (Mix::Drops, 12..=18) => Op::Drop(table),
            (Mix::Schema, 12 | 13) => Op::Drop(1 + rng.below(TABLES - 1)),
            (Mix::Keys, 10..=12) => Op::FoldBetween(table, id, value, rng.below(VALUES)),
            (Mix::Keys, 3..=9) => Op::Update(table, id, Some(number), value),
            (Mix::Together, 7) => Op::Update(table, id, code, value),
            (_, 0..=4) => Op::Insert(table, id, code, value),
            (_, 5) => Op::Upsert(table, id, code, value),
            (_, 6) => Op::Update(table, id, code, value),
            (_, 7) => Op::UpdateBehind(table, id, code, value),
            (_, 8..=9) => Op::Update(table, id, None, value),
            (_, 10..=11) => Op::Delete(table, id),
            (_, 12) => Op::DeleteByCode(table, number),
            (_, 13..=14) => Op::Collect,
            (_, 15) if self.is_ordered && rng.below(3) != 0 => {
                Op::Range(table, value, rng.below(VALUES), rng.below(2) != 0)
            }
            (_, 15) => Op::FindByValue(table, rng.below(VALUES)),
            (_, 16) => Op::Get(table, id),
            (_, 17) => Op::GetByCode(table, number),
            _ => Op::Scan(table),
        }
    }
}

impl Tables {
    /// An operation on the first table, or on one of its indexes.
    fn online_op(&self, rng: &mut Rng) -> Op {
        let (id, number) = (rng.below(self.keys), rng.below(self.keys));
        let code = (rng.below(4) != 0).then_some(number);
        let value = rng.below(VALUES);
        let is_alone = self.mix == Mix::Online;
        match rng.below(20) {
            0..=7 => Op::OnIndex(OnIndex::draw(rng, false)),
            8 | 9 if is_alone => Op::Within(Statement::Update(id, code, value)),
            10 if is_alone && rng.below(3) != 0 => Op::Within(Statement::Insert(id, code, value)),
            10 if is_alone => Op::Within(Statement::Delete(id)),
            11 if is_alone => Op::Batch(self.statements(rng)),
            12 if is_alone => Op::AtCommit(self.statements(rng), rng.below(4) != 0),
            13 if is_alone && rng.below(2) == 0 => Op::Commit,
            13 if is_alone => Op::Abort,
            8 | 9 | 15 => Op::Delete(0, id),
            10..=13 | 17 => Op::Update(0, id, code, value),
            14 => Op::Collect,
            16 => Op::FindOnline(value),
            _ => Op::Insert(0, id, code, value),
        }
    }

    /// All indexes are placed by a plan.
    fn place_all(&self, rng: &mut Rng) -> Op {
        Op::OnIndex(OnIndex::PlaceAll(rng.below(2) == 0, self.dictionaries.is_some()))
    }

    /// An operation of [`Mix::Moved`] or [`Mix::MovedTogether`]: most of them move the index of a
    /// dictionary, or give it a value.
    fn moved_op(&self, rng: &mut Rng) -> Op {
        let (id, number) = (rng.below(self.keys), rng.below(self.keys));
        let (code, value) = ((rng.below(4) != 0).then_some(number), rng.below(VALUES));
        let is_alone = self.mix == Mix::Moved;
        match rng.below(20) {
            0..=6 => Op::OnIndex(OnIndex::draw_dictionary(rng)),
            7 if is_alone => self.place_all(rng),
            8 if is_alone => Op::OnIndex(OnIndex::draw(rng, false)),
            9 if is_alone => Op::Batch(self.statements(rng)),
            10 if is_alone => Op::Commit,
            11 => Op::Delete(0, id),
            12 => Op::Collect,
            13 | 14 => Op::Update(0, id, code, value),
            _ => Op::Insert(0, id, code, value),
        }
    }

    /// An operation on the first table, on its columns, or on one of its indexes.
    fn columns_op(&self, rng: &mut Rng) -> Op {
        let (id, number) = (rng.below(self.keys), rng.below(self.keys));
        let code = (rng.below(4) != 0).then_some(number);
        let value = columns::draw(rng);
        let drawn = Drawn { table: 0, id, number, code, value };
        let is_alone = self.mix == Mix::Columns;
        match rng.below(20) {
            0..=2 => Op::AddColumn,
            3 => Op::OnIndex(OnIndex::draw(rng, true)),
            4 | 5 if is_alone => Op::Within(drawn.statement(rng)),
            6 if is_alone => Op::Batch(self.statements(rng)),
            7 if is_alone => Op::AtCommit(self.statements(rng), rng.below(4) != 0),
            8 if is_alone && rng.below(2) == 0 => Op::TakeBack(rng.below(4) as u32),
            8 if is_alone => Op::Commit,
            9 if is_alone && rng.below(2) == 0 => Op::CommitWith(drawn.statement(rng)),
            9 if is_alone => Op::Abort,
            10 | 11 => Op::Collect,
            12 | 13 => Op::Delete(0, id),
            14 => Op::Upsert(0, id, code, value),
            15 if !is_alone => Op::Scan(0),
            4..=7 | 16 | 17 => Op::Insert(0, id, code, value),
            _ => Op::Update(0, id, code, value),
        }
    }

    /// Statements of a batch, or of a transaction that is durable at its commit.
    pub(super) fn statements(&self, rng: &mut Rng) -> Vec<Statement> {
        let statement = |_| {
            let has_columns = self.has_columns();
            let id = rng.below(self.keys);
            let value = if has_columns { columns::draw(rng) } else { rng.below(VALUES) };
            let code = Some(rng.below(self.keys));
            match rng.below(6) {
                0..=1 => Statement::Insert(id, code, value),
                5 => Statement::Upsert(id, code, value),
                2..=3 => Statement::Update(id, code, value),
                _ => Statement::Delete(id),
            }
        };
        (0..3).map(statement).collect()
    }
}

impl Tables {
    /// An operation of [`Mix::Keyed`]. There are few second keys, so that most are wanted by
    /// several.
    fn keyed_op(&self, rng: &mut Rng, works: Works) -> Op {
        let (id, number, value) = (rng.below(self.keys), rng.below(CODES), rng.below(VALUES));
        match rng.below(20) {
            0..=9 => Op::Work(Work::draw(rng, works, self.keys, CODES)),
            10..=14 => Op::Insert(0, id, Some(number), value),
            15..=17 => Op::Update(0, id, Some(number), value),
            18 => Op::Delete(0, id),
            _ => Op::Scan(0),
        }
    }

    /// An operation of [`Mix::Many`].
    fn many_op(&self, rng: &mut Rng) -> Op {
        match rng.below(20) {
            0..=7 => Op::AtCommit(self.many(rng, true), rng.below(4) != 0),
            8..=14 => Op::Batch(self.many(rng, false)),
            15 | 16 => Op::Commit,
            17 => Op::Abort,
            18 => Op::Collect,
            _ => Op::Scan(0),
        }
    }

    /// Statements of a batch, or of a transaction that is durable at its commit, on most rows. Only
    /// such a transaction goes on behind one that is refused.
    fn many(&self, rng: &mut Rng, with_inserts: bool) -> Vec<Statement> {
        let first = rng.below(self.keys);
        let count = 1 + rng.below(self.keys);
        let statement = |next| {
            let (id, value) = ((first + next) % self.keys, rng.below(VALUES));
            match rng.below(8) {
                0 => Statement::Delete(id),
                1..=5 if with_inserts => Statement::Insert(id, None, value),
                _ => Statement::Update(id, None, value),
            }
        };
        (0..count).map(statement).collect()
    }
    /// An operation of [`Mix::Splits`].
    fn splits_op(&self, rng: &mut Rng) -> Op {
        let (id, value) = (rng.below(self.keys), rng.below(VALUES));
        match rng.below(20) {
            0..=8 => Op::AtCommit(self.inserts(rng), rng.below(8) != 0),
            9 | 10 => Op::Batch(self.statements(rng)),
            11..=13 => Op::Insert(0, id, Some(id), value),
            14 => Op::Delete(0, id),
            15 => Op::Update(0, id, Some(id), value),
            16 | 17 => Op::Commit,
            18 => Op::Collect,
            _ => Op::Scan(0),
        }
    }

    /// Inserts of rows with keys that follow each other, about half of all.
    fn inserts(&self, rng: &mut Rng) -> Vec<Statement> {
        let first = rng.below(self.keys);
        let insert = |next| {
            let id = (first + next) % self.keys;
            Statement::Insert(id, Some(id), rng.below(VALUES))
        };
        (0..self.keys / 2).map(insert).collect()
    }
}
