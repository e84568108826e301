//! Tables that are made and filled, and looked up by each of their keys.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use remanent_crashsim::{Outcome, Rng, Steps, Subject};
use remanent_engine::{
    Database, DatabaseOptions, Durability, Error, Moment, Order, Placement, Rebuild, Row, Table,
    TableSpec, Transaction, Type, Value,
};
use remanent_pmem::{Error as PoolError, Medium};

use super::model::{Open as OpenModel, State, needed_columns};
use super::online::{Indexes, OnIndex};
use super::rows::{Keyed, M, Rows, Statement, VALUES, code, name, row_of, values};
use super::unique::{Work, Works};
use super::{columns, online, ordered, rows, sums, transactions};
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// Number of tables in operations. The first one is there before they begin.
pub(super) const TABLES: u64 = 3;

/// Reached when a table has more rows than a leaf of an ordered index has entries.
pub(super) const SPLIT: &str = "split";
const LEAF_ENTRIES: usize = 63;

/// Tables with few keys and small tiles.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Rows of a tile.
    pub(super) tile_rows: u32,
    /// Indexes besides those by which rows are looked up.
    pub(super) more_indexes: u32,
    /// Whether the indexes are trees, whose ranges are read.
    pub(super) is_ordered: bool,
    /// If all columns are encoded: where the indexes of their dictionaries lie.
    pub(super) dictionaries: Option<Placement>,
    pub(super) mix: Mix,
    /// Whether statements wait for who is in their way.
    pub(super) waits: bool,
    /// If the indexes lie in DRAM: how they are rebuilt.
    pub(super) dram: Option<Rebuild>,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// Operations that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Mostly inserts into the first table.
    Rows,
    /// The same, by threads: nothing that looks at two moments.
    Together,
    /// Rows get keys that they had before, and are folded.
    Keys,
    /// Tables are made and used.
    Schema,
    /// One table besides the first is made, filled and dropped, again and again.
    Drops,
    /// One transaction of several statements at a time, and statements beside it.
    Transactions,
    /// The same, which goes back to earlier statements again and again.
    Back,
    /// Transactions of threads.
    Transfers,
    /// As `Transactions`; indexes of the table are made, dropped and moved, too.
    Online,
    /// The same by threads, and without transactions of several statements.
    OnlineTogether,
    /// As `Online`; columns are added, too.
    Columns,
    /// As `OnlineTogether`; columns are added, too.
    ColumnsTogether,
    /// By one thread; all indexes are placed by plans, too.
    Planned,
    /// Indexes of dictionaries are moved beside statements, and all indexes by plans. They lie in
    /// the pool at first.
    Moved,
    /// The same by threads, and without plans.
    MovedTogether,
    /// Transactions of threads that give rows keys, most of them in batches.
    Keyed(Works),
    /// One transaction at a time, whose batches are of many rows.
    Many,
    /// The same, which mostly inserts rows, so that indexes are split.
    Splits,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(u64),
    Drop(u64),
    /// On an index of the first table.
    OnIndex(OnIndex),
    /// A column is added to the first table.
    AddColumn,
    /// Table, primary key, second key, value.
    Insert(u64, u64, Option<u64>, u64),
    /// Table, primary key, second key, value.
    Update(u64, u64, Option<u64>, u64),
    /// As `Update`; a snapshot sees what was before.
    UpdateBehind(u64, u64, Option<u64>, u64),
    /// Two updates of a row to these values, which has no second key then, and folding while a
    /// snapshot sees the state between them.
    FoldBetween(u64, u64, u64, u64),
    /// Table, primary key, second key if the row is inserted, value.
    Upsert(u64, u64, Option<u64>, u64),
    Delete(u64, u64),
    DeleteByCode(u64, u64),
    Collect,
    Get(u64, u64),
    GetByCode(u64, u64),
    FindByValue(u64, u64),
    /// The rows of the first table with a value, if there is an index for it.
    FindOnline(u64),
    /// Table, least value, greatest value, and whether in descending order.
    Range(u64, u64, u64, bool),
    Scan(u64),
    /// A statement of the open transaction, which begins if there is none.
    Within(Statement),
    /// The last statement of the open transaction.
    CommitWith(Statement),
    /// The open transaction locks a row of the first table.
    Lock(u64),
    /// The open transaction takes back what came behind the statement with this number.
    TakeBack(u32),
    Commit,
    Abort,
    /// Statements of the open transaction, which begins if there is none, that count as one.
    Batch(Vec<Statement>),
    /// A transaction that is durable at its commit, if it commits.
    AtCommit(Vec<Statement>, bool),
    /// Two rows get the values after those that they have: a transaction. Nothing is changed unless
    /// both are there, so that all that counts of what it has read is what it changes. It may lock
    /// both rows before it changes one.
    Transfer(u64, u64, bool, Durability),
    /// Removes a row as a worker takes a job: in a transaction that passes over the row while
    /// others have it, and comes again.
    Take(u64),
    /// A transaction that gives rows second keys.
    Work(Work),
}

pub(super) fn answer<T>(
    result: Result<T, Error>,
    map: impl FnOnce(T) -> Answer<Rows>,
) -> Answer<Rows> {
    match result {
        Ok(value) => map(value),
        Err(Error::Unique { .. } | Error::Conflict { .. } | Error::Overtaken { .. }) => {
            Answer::Bool(false)
        }
        Err(Error::NoParent { .. } | Error::HasChildren { .. }) => Answer::Bool(false),
        Err(Error::NoSuchTable { .. } | Error::NoSuchIndex { .. } | Error::IndexDropped { .. }) => {
            Answer::None
        }
        Err(error) if error.is_full() => Answer::Refused(error.to_string()),
        Err(error @ Error::Pool(PoolError::Medium(_))) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

pub(super) fn bool_or_none(found: Option<()>) -> Answer<Rows> {
    found.map_or(Answer::None, |()| Answer::Bool(true))
}

impl Tables {
    pub(super) fn create(&self, database: &Database<M>, table: u64) -> Result<(), Error> {
        if self.is_online() {
            let spec = self.with_dictionaries(online::spec(name(table), self.tile_rows));
            return database.create_table(&spec).map(drop);
        }
        let spec = TableSpec::new(name(table))
            .column("id", Type::U32)
            // Versions take two lines.
            .nullable("code", Type::Text { max: 40 })
            .column("value", Type::U16)
            .primary_key(["id"])
            .unique("by_code", ["code"])
            .index("by_value", ["value"])
            .tile_rows(self.tile_rows);
        let indexes = ["primary", "by_code", "by_value"];
        let spec = if self.is_ordered { spec.ordered(indexes) } else { spec };
        let spec = match self.dram {
            Some(_) => spec.place(indexes, Placement::Dram),
            None => spec,
        };
        let spec = (0..self.more_indexes)
            .fold(spec, |spec, number| spec.unique(format!("more {number}"), ["id"]));
        database.create_table(&self.with_dictionaries(spec)).map(drop)
    }

    fn with_dictionaries(&self, spec: TableSpec) -> TableSpec {
        let Some(placement) = self.dictionaries else { return spec };
        spec.all_encoded().place_dictionaries(["id", "code", "value"], placement)
    }
}

impl Tables {
    /// Whether indexes are made and moved.
    pub(super) fn is_online(&self) -> bool {
        let is_mix = matches!(self.mix, Mix::Online | Mix::OnlineTogether | Mix::Planned);
        is_mix || self.has_columns() || self.moves_dictionaries()
    }

    /// Whether a transaction is open beside other statements, which do not wait for its end.
    fn has_open_transactions(&self) -> bool {
        matches!(
            self.mix,
            Mix::Transactions
                | Mix::Back
                | Mix::Online
                | Mix::Columns
                | Mix::Moved
                | Mix::Many
                | Mix::Splits
        )
    }

    /// Whether indexes of dictionaries are moved.
    fn moves_dictionaries(&self) -> bool {
        matches!(self.mix, Mix::Moved | Mix::MovedTogether)
    }

    /// Whether columns are added.
    pub(super) fn has_columns(&self) -> bool {
        matches!(self.mix, Mix::Columns | Mix::ColumnsTogether)
    }
}

impl Tables {
    /// How long statements wait.
    fn wait(&self) -> Duration {
        if self.waits { Duration::from_secs(3_600) } else { Duration::ZERO }
    }

    /// Gives space back; in some mixes in steps, beside those of other threads.
    fn collect(&self, database: &Database<M>) -> Result<(), Error> {
        match self.mix {
            Mix::Together | Mix::Back | Mix::Keys | Mix::OnlineTogether | Mix::Drops => {
                while database.collect_step()? {}
                Ok(())
            }
            _ => database.collect().map(drop),
        }
    }

    /// Repeats a call that others are in the way of, unless they are there to stay.
    fn patiently<T>(
        &self,
        open: &Open<Database<M>>,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match call() {
                Err(Error::Conflict { .. } | Error::Overtaken { .. } | Error::Deadlock { .. })
                    if !self.has_open_transactions() =>
                {
                    open.pool.medium().pause();
                }
                result => return result,
            }
        }
    }

    /// An operation on the open transaction, or one that is a transaction of several statements.
    fn apply_to_transaction(&self, open: &Open<Database<M>>, op: &Op) -> Answer<Rows> {
        let database = &open.object;
        match *op {
            Op::Within(statement) => {
                answer(transactions::within(database, statement), bool_or_none)
            }
            Op::CommitWith(statement) => {
                answer(transactions::commit_with(database, statement), bool_or_none)
            }
            Op::Lock(id) => answer(transactions::lock(database, id), bool_or_none),
            Op::TakeBack(to) => answer(transactions::take_back(database, to), bool_or_none),
            Op::Commit => answer(transactions::end(database, true), Answer::Bool),
            Op::Abort => answer(transactions::end(database, false), Answer::Bool),
            Op::Batch(ref statements) => {
                let done = transactions::batch(database, statements);
                answer(done, |()| Answer::Bool(true))
            }
            Op::AtCommit(ref statements, is_commit) => {
                let done = transactions::at_commit(database, statements, is_commit);
                answer(done, Answer::Value)
            }
            Op::Transfer(from, to, locks, durability) => {
                let how = transactions::waiting(self.wait()).durability(durability);
                let transfer = || transactions::transfer(database, [from, to], locks, &how);
                let done = self.patiently(open, transfer);
                answer(done, Answer::Bool)
            }
            Op::Take(id) => {
                let medium = open.pool.medium();
                let taken = self.patiently(open, || transactions::take(database, id, medium));
                answer(taken, Answer::Bool)
            }
            Op::Work(ref work) => {
                answer(self.patiently(open, || work.apply(database)), bool_or_none)
            }
            _ => unreachable!("it is no operation on transactions"),
        }
    }
}

fn insert(
    database: &Database<M>,
    table: u64,
    id: u64,
    code_number: Option<u64>,
    value: u64,
) -> Result<(), Error> {
    let table = database.table(&name(table))?;
    let code = code_number.map(code);
    table.insert(&values(&table, id, code.as_deref(), value)).map(drop)
}

fn update(
    database: &Database<M>,
    table: u64,
    id: u64,
    code_number: Option<u64>,
    value: u64,
) -> Result<Option<()>, Error> {
    let update = database.table(&name(table))?.prepare_update("primary")?;
    let code = code_number.map(code);
    update.run(&[id.into()], |_, row| {
        row.set(1, code.as_ref())?;
        columns::set(row, value)
    })
}

/// Inserts a row, or gives the one with its primary key another value.
fn upsert(
    database: &Database<M>,
    table: u64,
    id: u64,
    code_number: Option<u64>,
    value: u64,
) -> Result<(), Error> {
    let table = database.table(&name(table))?;
    let upsert = table.prepare_upsert("primary")?;
    let code = code_number.map(code);
    let values = values(&table, id, code.as_deref(), value);
    upsert.run(&values, |_, row| columns::set(row, value)).map(drop)
}

/// Updates a row, and returns what a snapshot saw before.
fn update_behind(
    database: &Database<M>,
    table: u64,
    id: u64,
    code: Option<u64>,
    value: u64,
) -> Result<Option<Keyed>, Error> {
    let before = database.snapshot();
    update(database, table, id, code, value)?;
    let get = database.table(&name(table))?.prepare_get("primary")?;
    get.run(&before, &[id.into()], row_of)
}

/// Updates a row twice, and folds while a snapshot sees the state between.
fn fold_between(
    database: &Database<M>,
    table: u64,
    id: u64,
    [first, second]: [u64; 2],
) -> Result<u64, Error> {
    update(database, table, id, None, first)?;
    let _between = database.snapshot();
    update(database, table, id, None, second)?;
    database.collect()
}

/// The rows with a key, as an index finds them.
fn get(database: &Database<M>, table: u64, index: &str, key: Value<'_>) -> Result<Rows, Error> {
    let get = database.table(&name(table))?.prepare_get(index)?;
    let found = get.run(&database.snapshot(), &[key], row_of)?;
    Ok(found.into_iter().collect())
}

/// Collects rows, none of which may come twice.
fn collect(rows: &mut Rows, row: &Row<'_, M>) -> ControlFlow<Error> {
    match row_of(row) {
        Ok((id, others)) => match rows.insert(id, others) {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(Error::NoSuchColumn {
                table: "a row comes twice".to_owned(),
                column: id.to_string(),
            }),
        },
        Err(error) => ControlFlow::Break(error),
    }
}

fn scan(table: &Table<M>, database: &Database<M>) -> Result<Rows, Error> {
    let (now, mut rows) = (database.snapshot(), Rows::new());
    if let Some(failed) = table.scan(&now, |row| collect(&mut rows, row))? {
        return Err(failed);
    }
    sums::require(table, &now, &rows)?;
    Ok(rows)
}

/// Reads all rows by each index, in both orders: they have to be the same.
fn require_ordered(
    table: &Table<M>,
    moment: &impl Moment<M>,
    expected: &Rows,
) -> Result<(), Error> {
    for (index, column) in [("primary", 0), ("by_code", 1), ("by_value", 2)] {
        for order in [Order::Ascending, Order::Descending] {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut found = Rows::new();
            let visit = |row: &Row<'_, M>| collect(&mut found, row);
            ordered::range(table, moment, (index, &[column]), all, order, visit)?;
            if found != *expected {
                return Err(ordered::wrong(index, found));
            }
        }
    }
    Ok(())
}

/// Reads all rows by each index: they have to be the same.
fn require_online(table: &Table<M>, moment: &impl Moment<M>, expected: &Rows) -> Result<(), Error> {
    let keys = expected.iter().map(|(id, (number, _))| (*id, number.map(code)));
    let keys: Vec<(u64, Option<String>)> = keys.collect();
    for index in table.indexes() {
        let mut found = Rows::new();
        let visit = |row: &Row<'_, M>| collect(&mut found, row);
        online::visit_all(table, moment, &index.name, (&keys, VALUES), visit)?;
        let is_in = |(_, row): &(&u64, &(Option<u64>, u64))| {
            row.0.is_some() || !online::needs_code(&index.name)
        };
        if !found.iter().eq(expected.iter().filter(is_in)) {
            return Err(ordered::wrong(&index.name, found));
        }
    }
    Ok(())
}

fn range_of_values(
    database: &Database<M>,
    table: u64,
    [least, greatest]: [u64; 2],
    order: Order,
) -> Result<Rows, Error> {
    let table = database.table(&name(table))?;
    let (least, greatest) = ([least.into()], [greatest.into()]);
    let bounds = (Bound::Included(&least[..]), Bound::Included(&greatest[..]));
    let mut found = Rows::new();
    let visit = |row: &Row<'_, M>| collect(&mut found, row);
    ordered::range(&table, &database.snapshot(), ("by_value", &[2]), bounds, order, visit)?;
    Ok(found)
}

/// The rows of a table, each of which is found by its keys.
pub(super) fn rows_by_keys(database: &Database<M>, found: &Table<M>, table: u64) -> Outcome<Rows> {
    let rows = scan(found, database)?;
    // By their codes first: a row that was found is in all indexes.
    for (&id, &(number, _)) in &rows {
        let Some(code) = number.map(code) else { continue };
        let by_code = get(database, table, "by_code", (&code).into())?;
        if by_code.keys().ne([&id]) {
            return Err(format!("row {id} is found by {code} as {by_code:?}").into());
        }
    }
    for &id in rows.keys() {
        let by_id = get(database, table, "primary", id.into())?;
        if by_id.keys().ne([&id]) {
            return Err(format!("row {id} is found by its key as {by_id:?}").into());
        }
    }
    Ok(rows)
}

/// The rows that a transaction sees, each of which is found by its keys.
pub(super) fn rows_of(
    database: &Database<M>,
    transaction: &Transaction<'_, M>,
    is_ordered: bool,
) -> Outcome<Rows> {
    let table = database.table(&name(0))?;
    let mut rows = Rows::new();
    if let Some(error) = table.scan(transaction, |row| collect(&mut rows, row))? {
        return Err(error.into());
    }
    sums::require(&table, transaction, &rows)?;
    if is_ordered {
        require_ordered(&table, transaction, &rows)?;
    }
    let (by_id, by_code) = (table.prepare_get("primary")?, table.prepare_get("by_code")?);
    for (&id, &row) in &rows {
        let found = by_id.run(transaction, &[id.into()], row_of)?;
        if found != Some((id, row)) {
            return Err(format!("within its transaction, row {id} is found as {found:?}").into());
        }
        let Some(code) = row.0.map(code) else { continue };
        let found = by_code.run(transaction, &[(&code).into()], row_of)?;
        if found != Some((id, row)) {
            return Err(format!("within its transaction, {code} is found as {found:?}").into());
        }
    }
    Ok(rows)
}

fn find_by_value(database: &Database<M>, table: u64, value: u64) -> Result<Rows, Error> {
    let find = database.table(&name(table))?.prepare_find("by_value")?;
    let mut rows = Rows::new();
    let visit = |row: &Row<'_, M>| collect(&mut rows, row);
    let failed = find.run(&database.snapshot(), &[value.into()], visit)?;
    failed.map_or(Ok(rows), Err)
}

/// Removes the row with a primary key, and returns it.
fn take(database: &Database<M>, table: u64, id: u64) -> Result<Option<Keyed>, Error> {
    database.table(&name(table))?.prepare_delete("primary")?.take(&[id.into()], row_of)
}

/// Removes the row with a second key.
fn delete_by_code(database: &Database<M>, table: u64, number: u64) -> Result<bool, Error> {
    database.table(&name(table))?.prepare_delete("by_code")?.run(&[(&code(number)).into()])
}

/// A read.
fn read(database: &Database<M>, op: &Op) -> Answer<Rows> {
    match *op {
        Op::Get(table, id) => answer(get(database, table, "primary", id.into()), Answer::Value),
        Op::GetByCode(table, number) => {
            let code = code(number);
            answer(get(database, table, "by_code", (&code).into()), Answer::Value)
        }
        Op::FindByValue(table, value) => {
            answer(find_by_value(database, table, value), Answer::Value)
        }
        Op::FindOnline(value) => answer(find_by_value(database, 0, value), Answer::Value),
        Op::Range(table, least, greatest, is_descending) => {
            let order = if is_descending { Order::Descending } else { Order::Ascending };
            let found = range_of_values(database, table, [least, greatest], order);
            answer(found, Answer::Value)
        }
        Op::Scan(table) => {
            let scanned = database.table(&name(table)).and_then(|table| scan(&table, database));
            answer(scanned, Answer::Value)
        }
        _ => unreachable!("answered above"),
    }
}

impl Subject for Tables {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, Database::create)
    }

    fn prepare(&self, _: &M, open: Self::Handle) -> Outcome<Self::Handle> {
        open.object.set_wait(self.wait());
        // It is repeated if a crash has come between it and the operations.
        if open.object.tables().is_empty() {
            self.create(&open.object, 0)?;
        }
        Ok(open)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        let usual = if self.is_online() { Rebuild::Steps } else { Rebuild::default() };
        let options = DatabaseOptions::new().rebuild(self.dram.unwrap_or(usual));
        let open = Open::recover(medium, |pool, name| options.open(pool, name))?;
        if matches!(self.mix, Mix::Transfers | Mix::Keyed(_)) {
            // Those of threads, which nobody goes on with.
            while let Some(transaction) = transactions::resumed(&open.object)? {
                transaction.abort()?;
            }
        }
        Ok(open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Rows> {
        let database = &open.object;
        if self.has_columns() && columns::are_missing(database, needed_columns(op)) {
            return Answer::None;
        }
        match *op {
            Op::AddColumn => answer(self.patiently(open, || columns::add(database)), Answer::Bool),
            Op::Create(table) => match self.create(database, table) {
                Err(Error::Schema { .. }) => Answer::Bool(false),
                made => answer(made, |()| Answer::Bool(true)),
            },
            Op::Drop(table) => match database.drop_table(&name(table)) {
                Err(Error::NoSuchTable { .. }) => Answer::Bool(false),
                dropped => answer(dropped, |()| Answer::Bool(true)),
            },
            Op::OnIndex(of_index) => {
                let change = || of_index.apply(database, &database.table(&name(0))?);
                answer(self.patiently(open, change), |done| done.map_or(Answer::None, Answer::Bool))
            }
            Op::Insert(table, id, code, value) => {
                let inserted = self.patiently(open, || insert(database, table, id, code, value));
                answer(inserted, |()| Answer::Bool(true))
            }
            Op::Update(table, id, code, value) => {
                let updated = self.patiently(open, || update(database, table, id, code, value));
                answer(updated, bool_or_none)
            }
            Op::Upsert(table, id, code, value) => {
                let done = self.patiently(open, || upsert(database, table, id, code, value));
                answer(done, |()| Answer::Bool(true))
            }
            Op::Within(_)
            | Op::CommitWith(_)
            | Op::Lock(_)
            | Op::TakeBack(_)
            | Op::Commit
            | Op::Abort
            | Op::Batch(_)
            | Op::AtCommit(..)
            | Op::Transfer(..)
            | Op::Take(_)
            | Op::Work(_) => self.apply_to_transaction(open, op),
            Op::UpdateBehind(table, id, code, value) => {
                let updated = update_behind(database, table, id, code, value);
                answer(updated, |row| Answer::Value(row.into_iter().collect()))
            }
            Op::FoldBetween(table, id, first, second) => {
                answer(fold_between(database, table, id, [first, second]), |_| Answer::None)
            }
            Op::Delete(table, id) => {
                answer(self.patiently(open, || take(database, table, id)), rows::answer_taken)
            }
            Op::DeleteByCode(table, number) => {
                let deleted = self.patiently(open, || delete_by_code(database, table, number));
                answer(deleted, Answer::Bool)
            }
            Op::Collect => {
                let rebuilt = database.rebuild_step();
                answer(rebuilt.and_then(|_| self.collect(database)), |()| Answer::None)
            }
            _ => read(database, op),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Rows> {
        state.apply(op)
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        if let Op::OnIndex(OnIndex::PlaceAll(is_dram, is_encoded)) = *op {
            let steps = OnIndex::each_placed(is_dram, is_encoded);
            return Steps::InOrder(steps.map(Op::OnIndex).collect());
        }
        let Op::FoldBetween(table, id, first, second) = *op else { return Steps::One };
        let update = |value| Op::Update(table, id, None, value);
        Steps::InOrder(vec![update(first), update(second)])
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let mut state = State::default();
        for table in 0..TABLES {
            let Ok(found) = open.object.table(&name(table)) else { continue };
            let rows = rows_by_keys(&open.object, &found, table)?;
            if rows.len() > LEAF_ENTRIES {
                open.pool.medium().reach(SPLIT);
            }
            if self.is_ordered {
                require_ordered(&found, &open.object.snapshot(), &rows)?;
            }
            if self.is_online() {
                require_online(&found, &open.object.snapshot(), &rows)?;
                state.indexes = Indexes::observe(&found, self.moves_dictionaries())?;
                state.columns = columns::count(&found);
            }
            for value in (0..VALUES).filter(|_| !self.is_online()) {
                let of_value = find_by_value(&open.object, table, value)?;
                let expected = rows.iter().filter(|(_, (_, of))| *of % VALUES == value);
                if !of_value.iter().eq(expected) {
                    return Err(format!("the rows with {value} are found as {of_value:?}").into());
                }
            }
            match table {
                0 => state.first = rows,
                _ => drop(state.others.insert(table, rows)),
            }
        }
        if let Some(transaction) = transactions::resumed(&open.object)? {
            let rows = rows_of(&open.object, &transaction, self.is_ordered)?;
            if self.is_online() {
                require_online(&open.object.table(&name(0))?, &transaction, &rows)?;
            }
            state.open = Some(OpenModel::observed(transaction.statement(), rows));
            transaction.suspend();
        }
        Ok(state)
    }

    fn go_on_from(&self, of_model: &State, _observed: State) -> State {
        of_model.clone().without_locks()
    }

    fn op(&self, rng: &mut Rng) -> Op {
        self.draw(rng)
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Rows>) -> bool {
        is_refused(answer)
    }
}
