//! Transactions of several programs. Each has written down the token of its own, and asks with it,
//! after a crash too, what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remanent_crashsim::{Config, Nested, Outcome, Rng, Steps, Subject};
use remanent_engine::{
    Database, DatabaseOptions, Error, Resumed, Row, TableSpec, Token, Transaction,
    TransactionOptions, Type,
};

use super::rows::{M, Rows, Statement, VALUES, name};
use super::sessions_model::{Session, State};
use super::subject::{Tables, answer, bool_or_none, rows_by_keys, rows_of};
use super::transactions;
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::{
    SIZE_MAX, alone, at_stores, few_images, killed, killed_twice, prepared, without_room,
};
use crate::scenario::Scenario;

/// Programs, each of which has one transaction at the most: so no outcome is forgotten.
pub(super) const SESSIONS: u64 = 4;
/// Keys of rows.
const KEYS: u64 = 4;
/// Where programs write down their tokens.
const TOKENS: &str = "tokens";
/// Time limit of a transaction that has one.
const LIMIT: Duration = Duration::from_secs(3_600);

/// Programs whose transactions are open beside each other.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    /// What the first table is like.
    pub(super) tables: Tables,
}

/// A database, and the clock by which transactions expire.
pub(super) struct Handle {
    open: Open<Database<M>>,
    now_s: Arc<AtomicU64>,
}

/// One operation. The number is that of the program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// A program begins its transaction, unless it has had one: writes down the token, and makes
    /// the first statement.
    Begin(u64, Statement),
    /// The first step of `Begin`.
    Name(u64),
    /// The second step of `Begin`.
    First(u64, Statement),
    /// A program goes on with its transaction, if that is open.
    Within(u64, Statement),
    CommitWith(u64, Statement),
    Commit(u64),
    Abort(u64),
    /// A transaction of one statement, of nobody.
    Alone(Statement),
    Collect,
    /// Time passes, until all transactions that have a limit are over.
    Wait,
    /// The same; a statement comes before anybody has looked for them.
    Late(Statement),
    /// A step of `Wait` and of `Late`: the transaction of a program is given up, if it has a limit.
    Expire(u64),
}

/// Whether the transaction of a program has a time limit.
pub(super) fn has_limit(session: u64) -> bool {
    session.is_multiple_of(2)
}

fn options(session: u64) -> TransactionOptions {
    let limit = if has_limit(session) { LIMIT } else { Duration::MAX };
    TransactionOptions::new().time_limit(limit)
}

/// The token that a program has written down.
fn token_of(database: &Database<M>, session: u64) -> Result<Option<Token>, Error> {
    let get = database.table(TOKENS)?.prepare_get("primary")?;
    let text = get.run(&database.snapshot(), &[session.into()], |row| {
        row.get::<&str>(1).map(str::to_owned)
    })?;
    text.map(|text| text.parse()).transpose()
}

fn begin(database: &Database<M>, session: u64, statement: Statement) -> Result<Option<()>, Error> {
    if token_of(database, session)?.is_some() {
        return Ok(None);
    }
    let mut transaction = database.begin_with(&options(session))?;
    let token = transaction.token().to_string();
    database.table(TOKENS)?.insert(&[session.into(), token.as_str().into()])?;
    let result = transactions::make(database, &mut transaction, statement);
    if transaction.statement() > 0 {
        transaction.suspend();
    }
    result
}

/// Has a program go on with its transaction. `None` if it has none, or that is over.
fn go_on<'d, R>(
    database: &'d Database<M>,
    session: u64,
    with: impl FnOnce(Transaction<'d, M>) -> Result<Option<R>, Error>,
) -> Result<Option<R>, Error> {
    let Some(token) = token_of(database, session)? else { return Ok(None) };
    match database.resume(token) {
        Ok(Resumed::Open(transaction)) => with(transaction),
        Ok(Resumed::Committed | Resumed::Aborted) | Err(Error::Forgotten { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn within(
    database: &Database<M>,
    mut transaction: Transaction<'_, M>,
    statement: Statement,
) -> Result<Option<()>, Error> {
    let result = transactions::make(database, &mut transaction, statement);
    transaction.suspend();
    result
}

fn commit_with(
    database: &Database<M>,
    mut transaction: Transaction<'_, M>,
    statement: Statement,
) -> Result<Option<()>, Error> {
    let done = transaction.commit_with(|last| transactions::make(database, last, statement));
    if done.is_err() {
        transaction.suspend();
    }
    done
}

/// A transaction of one statement.
fn by_itself(database: &Database<M>, statement: Statement) -> Answer<Rows> {
    answer(transactions::at_commit(database, &[statement], true), Answer::Value)
}

/// Scenarios of this subject, on such tables.
pub(super) fn scenarios(tables: &Tables) -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 16, samples: 2 };
    let sessions = || Sessions { tables: tables.clone() };
    vec![
        Scenario::new(
            "engine/sessions",
            "several transactions are open, expire, and are asked for by their tokens",
            sessions(),
            few_images(prepared(alone(6, 12))),
        )
        .with_weight(4),
        Scenario::new(
            "engine/sessions-stores",
            "the same; between any two stores",
            sessions(),
            at_stores(Config { creation: false, ..few_images(alone(8, 4)) }),
        ),
        Scenario::new(
            "engine/sessions-recovery",
            "the same; crashes inside recovery and after it",
            sessions(),
            Config { nested: again, after: 8, creation: false, ..few_images(alone(8, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/sessions-killed",
            "the same; killed, then power lost",
            sessions(),
            few_images(killed(alone(8, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/sessions-no-room",
            "the same; each call for room fails once",
            sessions(),
            without_room(4, few_images(prepared(alone(6, 8)))),
        ),
        Scenario::new(
            "engine/sessions-killed-twice",
            "the same; killed twice, then power lost",
            sessions(),
            Config { nested: again, full_max: 4, samples: 4, ..killed_twice(alone(6, 2)) },
        ),
    ]
}

impl Handle {
    fn new(open: Open<Database<M>>) -> Self {
        let now_s = Arc::new(AtomicU64::new(0));
        let shown_s = Arc::clone(&now_s);
        // Relaxed: it is a clock of one thread.
        open.object.set_clock(move || Duration::from_secs(shown_s.load(Ordering::Relaxed)));
        Handle { open, now_s }
    }

    fn wait(&self) {
        self.now_s.fetch_add(2 * LIMIT.as_secs(), Ordering::Relaxed);
    }
}

/// What a program is told that asks with its token, and again while it has the transaction, and
/// once more behind that.
fn observe_session(database: &Database<M>, token: Token) -> Outcome<Session> {
    let first = match database.resume(token) {
        Ok(Resumed::Committed) => return Ok(Session::Committed),
        // There are not so many that an outcome is forgotten. But of one without an effect, there
        // was none.
        Ok(Resumed::Aborted) | Err(Error::Forgotten { .. }) => return Ok(Session::Aborted),
        Ok(Resumed::Open(transaction)) => transaction,
        Err(error) => return Err(error.into()),
    };
    if !matches!(database.resume(token), Err(Error::InUse { .. })) {
        return Err(format!("{token} is given to two").into());
    }
    let seen = (first.statement(), rows_of(database, &first, false)?);
    first.suspend();
    let Resumed::Open(again) = database.resume(token)? else {
        return Err(format!("{token} is open, and then over").into());
    };
    let seen_again = (again.statement(), rows_of(database, &again, false)?);
    again.suspend();
    if seen != seen_again {
        return Err(format!("{token} was left with {seen:?}, and found with {seen_again:?}").into());
    }
    Ok(Session::observed(seen.0, seen.1))
}

/// The tokens that were written down, by their programs.
fn tokens(database: &Database<M>) -> Outcome<Vec<(u64, Token)>> {
    let mut found = Vec::new();
    let read = |row: &Row<'_, M>| -> Result<(u64, Token), Error> {
        Ok((row.get(0)?, row.get::<&str>(1)?.parse()?))
    };
    let failed = database.table(TOKENS)?.scan(&database.snapshot(), |row| match read(row) {
        Ok(one) => {
            found.push(one);
            std::ops::ControlFlow::Continue(())
        }
        Err(error) => std::ops::ControlFlow::Break(error),
    })?;
    failed.map_or(Ok(found), |error| Err(error.into()))
}

impl Subject for Sessions {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Handle;

    fn create(&self, medium: M) -> Outcome<Handle> {
        Open::create(medium, SIZE_MAX, Database::create).map(Handle::new)
    }

    fn prepare(&self, _: &M, handle: Handle) -> Outcome<Handle> {
        let database = &handle.open.object;
        // It is repeated if a crash has come between it and the operations.
        if database.table(TOKENS).is_err() {
            let spec = TableSpec::new(TOKENS)
                .column("session", Type::U32)
                .column("token", Type::Text { max: 16 })
                .primary_key(["session"]);
            database.create_table(&spec)?;
        }
        if database.tables().len() < 2 {
            self.tables.create(database, 0)?;
        }
        Ok(handle)
    }

    fn open(&self, medium: M) -> Outcome<Handle> {
        let open = |pool: &_, name: &str| DatabaseOptions::new().open(pool, name);
        Open::recover(medium, open).map(Handle::new)
    }

    fn apply(&self, handle: &Handle, op: &Op) -> Answer<Rows> {
        let database = &handle.open.object;
        match *op {
            Op::Begin(of, statement) => answer(begin(database, of, statement), bool_or_none),
            Op::Within(of, statement) => {
                let done = go_on(database, of, |own| within(database, own, statement));
                answer(done, bool_or_none)
            }
            Op::CommitWith(of, statement) => {
                let done = go_on(database, of, |own| commit_with(database, own, statement));
                answer(done, bool_or_none)
            }
            Op::Commit(of) => {
                answer(go_on(database, of, |own| own.commit().map(Some)), bool_or_none)
            }
            Op::Abort(of) => answer(go_on(database, of, |own| own.abort().map(Some)), bool_or_none),
            Op::Alone(statement) => by_itself(database, statement),
            Op::Collect => answer(database.collect(), |_| Answer::None),
            Op::Wait => {
                handle.wait();
                answer(database.collect(), |_| Answer::None)
            }
            Op::Late(statement) => {
                handle.wait();
                let done = by_itself(database, statement);
                answer(database.collect(), |_| done)
            }
            Op::Name(_) | Op::First(..) | Op::Expire(_) => unreachable!("it is a step of another"),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Rows> {
        state.apply(op)
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        let expiries = || (0..SESSIONS).filter(|of| has_limit(*of)).map(Op::Expire);
        match *op {
            Op::Begin(of, statement) => {
                Steps::InOrder(vec![Op::Name(of), Op::First(of, statement)])
            }
            Op::Wait => Steps::OnceEach(expiries().collect()),
            Op::Late(statement) => {
                Steps::OnceEach(expiries().chain([Op::Alone(statement)]).collect())
            }
            _ => Steps::One,
        }
    }

    fn observe(&self, handle: &Handle) -> Outcome<State> {
        let database = &handle.open.object;
        let mut state = State {
            rows: rows_by_keys(database, &database.table(&name(0))?, 0)?,
            ..State::default()
        };
        let tokens = tokens(database)?;
        for open in database.open_transactions() {
            if !tokens.iter().any(|(_, token)| *token == open.token) {
                return Err(format!("{open:?} is open, and nobody has begun it").into());
            }
        }
        for (of, token) in tokens {
            state.sessions.insert(of, observe_session(database, token)?);
        }
        Ok(state)
    }

    fn go_on_from(&self, of_model: &State, _observed: State) -> State {
        of_model.clone().after_crash()
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let of = rng.below(SESSIONS);
        let (id, number, value) = (rng.below(KEYS), rng.below(KEYS), rng.below(VALUES));
        let code = (rng.below(4) != 0).then_some(number);
        let statement = match rng.below(7) {
            0 | 1 => Statement::Insert(id, code, value),
            2 => Statement::Upsert(id, code, value),
            3 | 4 => Statement::Update(id, code, value),
            5 => Statement::Update(id, None, value),
            _ => Statement::Delete(id),
        };
        match rng.below(20) {
            0..=5 => Op::Begin(of, statement),
            6..=9 => Op::Within(of, statement),
            10 | 11 => Op::CommitWith(of, statement),
            12 => Op::Commit(of),
            13 => Op::Abort(of),
            14 => Op::Wait,
            15 | 16 => Op::Late(statement),
            17 => Op::Collect,
            _ => Op::Alone(statement),
        }
    }

    fn check(&self, handle: &Handle) -> Outcome {
        must_be_empty(handle.open.object.check()?)?;
        handle.open.check()
    }

    fn is_refused(&self, answer: &Answer<Rows>) -> bool {
        is_refused(answer)
    }
}
