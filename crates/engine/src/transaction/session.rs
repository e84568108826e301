//! What programs use: transactions of several statements, which outlive the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remanent_pmem::{Mapped, Medium};

use super::batch::Batch;
use super::layout::{Outcome, SLOT_COUNT, Serial, TransactionId};
use super::notes::Notes;
use super::options::TransactionOptions;
use super::slots::HeldSlot;
use super::statement::{Part, Statement};
use super::statuses::Fate;
use super::view::View;
use super::waits::ms;
use super::{Moment, Sealed, Token};
use crate::engine::Engine;
use crate::{Error, Result};

/// Several statements that take effect together.
///
/// Each statement is durable when it returns. If the process is killed, the transaction is still
/// there: [`Database::resume`](crate::Database::resume) goes on behind the last statement. Dropping
/// it gives it up, and so does [`abort`](Transaction::abort).
///
/// It sees the moment at which it began, and what it has changed. Nobody else sees that before it
/// has committed. Of two transactions that change a row, the first one gets it; the other is
/// refused with [`Error::Conflict`], or with [`Error::Overtaken`] if the first one has committed by
/// then. A statement that is refused leaves no trace, and the transaction goes on.
///
/// ```
/// use remanent_engine::{Database, Resumed, TableSpec, Type};
/// use remanent_pmem::Pool;
///
/// # let directory = tempfile::tempdir()?;
/// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
/// let bank = Database::create(&pool, "bank")?;
/// let spec = TableSpec::new("accounts")
///     .column("number", Type::U32)
///     .column("balance", Type::I64)
///     .primary_key(["number"]);
/// let accounts = bank.create_table(&spec)?;
/// let (update, balance) = (accounts.prepare_update("primary")?, accounts.column("balance")?);
///
/// let mut transfer = bank.begin()?;
/// accounts.insert_in(&mut transfer, &[1.into(), 100.into()])?;
/// let token = transfer.suspend(); // as if the process had been killed here
///
/// let Resumed::Open(mut transfer) = bank.resume(token)? else { panic!("it was not ended") };
/// assert_eq!(transfer.statement(), 1);
/// transfer.commit_with(|last| {
///     update.run_in(last, &[1.into()], |_, account| account.set(balance, 70))
/// })?;
/// assert!(matches!(bank.resume(token)?, Resumed::Committed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction<'d, M: Medium = Mapped> {
    pub(super) engine: &'d Engine<M>,
    /// `None` once it is over, or suspended.
    pub(super) slot: Option<HeldSlot<'d, M>>,
    pub(super) token: Token,
    /// Somebody knows its name.
    is_named: AtomicBool,
    /// What the next statement is for it.
    next: Part,
}

/// What became of a transaction, as [`Database::resume`](crate::Database::resume) finds it.
#[derive(Debug)]
pub enum Resumed<'d, M: Medium = Mapped> {
    /// It goes on: [`statement`](Transaction::statement) says how many statements took effect.
    Open(Transaction<'d, M>),
    /// It was committed.
    Committed,
    /// It was given up, or its time was over, or none of its statements took effect.
    Aborted,
}

/// A transaction that nobody goes on with at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its name.
    pub token: Token,
    /// How many of its statements took effect.
    pub statement: u32,
}

impl<'d, M: Medium> Transaction<'d, M> {
    pub(crate) fn begin(engine: &'d Engine<M>, options: &TransactionOptions) -> Result<Self> {
        let mut slot = engine.hold_slot()?;
        let snapshot = engine.snapshots.hold_firmly(engine.medium(), &engine.stamps);
        slot.begin(engine.medium(), engine.opening(), options.how(), snapshot)?;
        Ok(Self::of(engine, slot))
    }

    fn of(engine: &'d Engine<M>, slot: HeldSlot<'d, M>) -> Self {
        let serial = slot.open().map_or(Serial::default(), |open| open.serial);
        let token = Token::new(slot.index, serial);
        let is_named = AtomicBool::new(false);
        Transaction { engine, slot: Some(slot), token, is_named, next: Part::One }
    }

    /// Its name: with it, [`Database::resume`](crate::Database::resume) tells after a crash what
    /// became of it. Keep it where the crash does not reach.
    ///
    /// How a transaction ended is remembered for those whose token was asked for. So ask before it
    /// ends. Who asks first when others have begun behind it gets a token that is answered with
    /// [`Error::Forgotten`].
    pub fn token(&self) -> Token {
        // Relaxed: the name is known to `statuses` before, and it does not matter how often.
        if !self.is_named.load(Ordering::Relaxed) {
            if !self.engine.statuses.name(self.token.slot(), self.token.serial()) {
                return Token::forgotten(self.token.slot());
            }
            self.is_named.store(true, Ordering::Relaxed);
        }
        self.token
    }

    /// How many of its statements took effect. Refused ones, and those that found no row or changed
    /// nothing, do not count. 0 once it is over.
    pub fn statement(&self) -> u32 {
        self.slot.as_ref().and_then(HeldSlot::open).map_or(0, |open| open.statement)
    }

    /// Has its statements wait for who is in their way, so long at the most: as
    /// [`TransactionOptions::wait`]. A transaction that was resumed behind a crash does not wait
    /// unless this is called.
    pub fn set_wait(&mut self, limit: Duration) {
        if let Some(open) = self.slot.as_mut().and_then(HeldSlot::open_mut) {
            open.wait_ms = ms(limit);
        }
    }

    /// Sees all that was committed by now, from the next statement on.
    ///
    /// A [serializable](crate::Isolation::Serializable) transaction can still be committed only if
    /// everything that it has read is unchanged, also what it has read before.
    ///
    /// # Errors
    ///
    /// When it is over.
    pub fn refresh(&mut self) -> Result<()> {
        let engine = self.engine;
        let open =
            self.slot.as_mut().and_then(HeldSlot::open_mut).ok_or(Error::TransactionEnded)?;
        let newer = engine.snapshots.hold_firmly(engine.medium(), &engine.stamps);
        let before = std::mem::replace(&mut open.snapshot, newer);
        // Until the next record, a crash brings the one back that the last record names.
        let has_record = open.statement > 0 && !open.deferred.is_at_commit;
        match has_record && open.snapshot_before.is_none() {
            true => open.snapshot_before = Some(before),
            false => engine.leave_snapshot(open, before),
        }
        Ok(())
    }

    /// Checks foreign keys now that are to be checked when it
    /// [commits](TransactionOptions::foreign_keys): whether they would refuse that. It waits for
    /// others who decide it, as statements do. The commit checks them again.
    ///
    /// # Errors
    ///
    /// When it is over, or a [batch](Transaction::batch) is in progress ([`Error::InBatch`]). When
    /// a row has no parent ([`Error::NoParent`]), or others refer to one that is gone
    /// ([`Error::HasChildren`]), or others decide it ([`Error::Conflict`], [`Error::Overtaken`]):
    /// the transaction goes on.
    pub fn check_foreign_keys(&mut self) -> Result<()> {
        self.require_no_batch()?;
        self.engine.require_foreign_keys(self.open_slot()?)
    }

    /// Commits what it has changed: durable when this returns. One fence; none if it has changed
    /// nothing; another one, and those for giving back, if it has changed the schema.
    ///
    /// # Errors
    ///
    /// When it is over. When it is durable at its commit, and the pool is full, or it has changed
    /// too much ([`Error::TooMuchAtOnce`]); when foreign keys are checked only now, and speak
    /// against it ([`Error::NoParent`], [`Error::HasChildren`], [`Error::Conflict`],
    /// [`Error::Overtaken`]); and when it was exchanged for another one in a batch
    /// ([`Error::InBatch`]): it is given up then; as it is when it is serializable, and others have
    /// changed what it has read ([`Error::NotSerializable`]). When the medium met a fault: whether
    /// it was committed is known once the pool was opened again.
    pub fn commit(mut self) -> Result<()> {
        self.commit_now()
    }

    /// Makes a last statement, which commits the transaction, too, for the same fence. `last` makes
    /// it: the first statement of it that takes effect commits. If none does, because it finds no
    /// row, or changes nothing, and `last` returns no error, the transaction is committed by
    /// itself. So it is behind a [batch](Transaction::batch), for one fence more, and if the
    /// transaction is durable at its commit, checks [foreign keys](crate::ForeignKeys) there, or
    /// has changed the schema.
    ///
    /// # Errors
    ///
    /// That of `last`. If its statement was refused, the transaction goes on; if it took effect, it
    /// has committed, whatever `last` has returned afterwards. Where the commit comes by itself,
    /// the transaction goes on in both cases; if `last` returns no error, and foreign keys speak
    /// against the commit, it is given up. It is given up in any case if it is serializable, and
    /// others have changed what it has read ([`Error::NotSerializable`]). When the transaction is
    /// over ([`Error::TransactionEnded`]), as it is for a second statement.
    pub fn commit_with<R>(&mut self, last: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.require_no_batch()?;
        let token = self.token;
        let result = {
            let last_one = LastOne::of(self);
            last(last_one.0)
        };
        if self.token != token {
            return Err(Error::Exchanged { token });
        }
        let notes = self.slot.as_ref().and_then(|slot| slot.open()?.notes.as_ref());
        let is_refused = notes.is_some_and(|notes| notes.is_refused);
        if is_refused && result.is_err() {
            if let Some(mut slot) = self.slot.take() {
                self.engine.abort(&mut slot)?;
            }
            return result;
        }
        if self.slot.as_ref().is_some_and(|slot| slot.open().is_none()) {
            self.slot = None;
            self.engine.collect_if_due();
            return result;
        }
        let result = result?;
        self.commit_now()?;
        Ok(result)
    }

    /// Makes several statements that count as one: all of them take effect, durable when this
    /// returns, or none of them. One fence, however many rows they change; two more, seldom, when
    /// there are more rows than in any batch before. `make` makes them, and sees what they have
    /// changed. If it returns an error, or panics, they are taken back, and the transaction goes
    /// on. A batch in a batch is a part of it, which can be taken back by itself. What `make` is
    /// given has to stay the same transaction: who exchanges it for another one
    /// ([`std::mem::swap`]) can only give it up, whatever its statements return from then on.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    ///
    /// let mut order = shop.begin()?;
    /// order.batch(|batch| {
    ///     for number in 0..100 {
    ///         items.insert_in(batch, &[number.into()])?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(order.statement(), 1);
    /// // One of these is there, so none is inserted.
    /// let refused = order.batch(|batch| {
    ///     for number in [200, 99] {
    ///         items.insert_in(batch, &[number.into()])?;
    ///     }
    ///     Ok(())
    /// });
    /// assert!(refused.is_err());
    /// order.commit()?;
    /// let get = items.prepare_get("primary")?;
    /// assert!(get.run(&shop.snapshot(), &[200.into()], |_| Ok(()))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of `make`. When the transaction is over, the pool is full, the batch has changed too
    /// much ([`Error::TooMuchAtOnce`]), or foreign keys speak against all of it together
    /// ([`Error::NoParent`], [`Error::HasChildren`], [`Error::Conflict`], [`Error::Overtaken`]):
    /// nothing was changed then. [`Error::Exchanged`] when another
    /// transaction is in its place. When the medium met a fault: the
    /// batch may have taken effect.
    pub fn batch<R>(&mut self, make: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let mut batch = Batch::begin(self)?;
        let result = make(batch.transaction())?;
        batch.end()?;
        Ok(result)
    }

    /// Takes back all that it has changed behind its statement with this number, which
    /// [`statement`](Transaction::statement) has given: 0 for all of them. The transaction goes on.
    /// That counts as a statement, which is not taken back by a later call; if there is nothing to
    /// be taken back, because the number is that of the last statement or greater, it does not.
    /// Rows that were locked stay so.
    ///
    /// Two fences, and for each 32 rows two, and those for giving back what was written. None if
    /// the transaction is durable at its commit. If an earlier process has begun the transaction,
    /// all rows of the database are looked at.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    ///
    /// let mut order = shop.begin()?;
    /// items.insert_in(&mut order, &[1.into()])?;
    /// let before = order.statement();
    /// items.insert_in(&mut order, &[2.into()])?;
    /// order.take_back_to(before)?;
    /// assert_eq!(order.statement(), 3); // two inserts, and this
    /// order.commit()?;
    /// let get = items.prepare_get("primary")?;
    /// assert!(get.run(&shop.snapshot(), &[1.into()], |_| Ok(()))?.is_some());
    /// assert!(get.run(&shop.snapshot(), &[2.into()], |_| Ok(()))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the transaction is over, or a [batch](Transaction::batch) is in progress
    /// ([`Error::InBatch`]). When a row is damaged, or the medium met a fault: then the transaction
    /// can only be given up ([`Error::HalfTakenBack`]).
    pub fn take_back_to(&mut self, statement: u32) -> Result<()> {
        self.require_no_batch()?;
        let slot = self.slot.as_mut().ok_or(Error::TransactionEnded)?;
        require_whole(slot, self.token)?;
        self.engine.take_statements_back(slot, statement)
    }

    /// Refuses what cannot be done in a batch, nor after one in which the transaction was
    /// exchanged.
    pub(super) fn require_no_batch(&self) -> Result<()> {
        let open = self.slot.as_ref().and_then(HeldSlot::open);
        match open.is_some_and(|open| open.deferred.is_in_batch()) {
            true => Err(Error::InBatch),
            false => Ok(()),
        }
    }

    fn commit_now(&mut self) -> Result<()> {
        // If it fails, nobody can say whether it was committed, and it is left as it is.
        let mut slot = self.slot.take().ok_or(Error::TransactionEnded)?;
        if slot.open().is_some_and(|open| open.deferred.is_in_batch()) {
            self.engine.abort(&mut slot)?;
            return Err(Error::InBatch);
        }
        if let Err(error) = require_whole(&slot, self.token) {
            self.slot = Some(slot);
            return Err(error);
        }
        let is_author = self.engine.statuses.is_author(slot.id());
        self.engine.commit(&mut slot)?;
        drop(slot);
        self.engine.collect_if_due();
        if is_author {
            // What is left is removed later. An error tells of the medium, and who meets it next
            // is told.
            let _ = self.engine.finish_altering();
        }
        Ok(())
    }

    /// Gives it up: nothing that it has changed was ever there. Two fences, and those for giving
    /// back what it has written.
    ///
    /// # Errors
    ///
    /// When it is over, a row is damaged, or the medium met a fault.
    pub fn abort(mut self) -> Result<()> {
        let mut slot = self.slot.take().ok_or(Error::TransactionEnded)?;
        let is_author = self.engine.statuses.is_author(slot.id());
        self.engine.abort(&mut slot)?;
        drop(slot);
        if is_author { self.engine.finish_altering() } else { Ok(()) }
    }

    /// Leaves it as it is, for who resumes it with the token within its time limit.
    pub fn suspend(mut self) -> Token {
        let token = self.token();
        let now_ms = self.engine.clock.now_ms(self.engine.medium());
        self.leave_batch();
        if let Some(open) = self.slot.as_mut().and_then(HeldSlot::open_mut) {
            open.expires_ms = Some(now_ms + u64::from(open.limit_ms));
            let serial = self.token.serial();
            self.engine.statuses.set_owner(self.token.slot(), serial, false);
        }
        self.slot = None;
        token
    }

    pub(crate) fn engine(&self) -> &'d Engine<M> {
        self.engine
    }

    /// What it sees.
    pub(super) fn view_of(&self, engine: &Engine<M>) -> Result<View> {
        self.view_in(engine)
    }

    /// The slot that it has.
    ///
    /// # Errors
    ///
    /// When it is over, or could not be taken back as a whole.
    pub(crate) fn open_slot(&self) -> Result<&HeldSlot<'d, M>> {
        let slot = self.slot.as_ref().filter(|slot| slot.open().is_some());
        let slot = slot.ok_or(Error::TransactionEnded)?;
        require_whole(slot, self.token).map(|()| slot)
    }

    /// The next statement.
    pub(crate) fn next_statement(&mut self, engine: &Engine<M>) -> Result<Statement<'_, 'd, M>> {
        let view = self.view_in(engine)?;
        let slot = self.slot.as_mut().ok_or(Error::TransactionEnded)?;
        let is_deferred = slot.open().is_some_and(|open| open.deferred.is_on());
        // Promises are kept by a commit of its own, before which foreign keys are checked.
        let is_by_itself = is_deferred
            || engine.statuses.is_author(slot.id())
            || slot.open().is_some_and(|open| open.checks_at_commit);
        let part = if is_by_itself { Part::One } else { self.next };
        Ok(Statement { slot, part, view })
    }

    /// The next statement, for which it is no matter what others have committed since the
    /// transaction's snapshot: it sees that.
    pub(crate) fn next_statement_of_newest(
        &mut self,
        engine: &Engine<M>,
    ) -> Result<Statement<'_, 'd, M>> {
        let statement = self.next_statement(engine)?;
        let view = View { own: statement.view.own, ..View::NEWEST };
        Ok(Statement { view, ..statement })
    }
}

/// Refuses a transaction of which statements were to be taken back, and could not all be.
fn require_whole<M: Medium>(slot: &HeldSlot<'_, M>, token: Token) -> Result<()> {
    match slot.open().is_some_and(|open| open.back_to.is_some()) {
        true => Err(Error::HalfTakenBack { token }),
        false => Ok(()),
    }
}

/// While it is there, the next statement of a transaction is its last one.
struct LastOne<'t, 'd, M: Medium>(&'t mut Transaction<'d, M>);

impl<'t, 'd, M: Medium> LastOne<'t, 'd, M> {
    fn of(transaction: &'t mut Transaction<'d, M>) -> Self {
        transaction.next = Part::Last;
        LastOne(transaction)
    }
}

impl<M: Medium> Drop for LastOne<'_, '_, M> {
    fn drop(&mut self) {
        self.0.next = Part::One;
    }
}

impl<M: Medium> Drop for Transaction<'_, M> {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            // An error tells of the medium, or of damage, and who meets it next is told.
            let _ = self.engine.abort(&mut slot);
        }
    }
}

impl<M: Medium> Sealed<M> for Transaction<'_, M> {
    #[inline]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn view_in(&self, engine: &Engine<M>) -> Result<View> {
        if !std::ptr::eq(self.engine, engine) {
            return Err(Error::OtherDatabase);
        }
        let slot = self.slot.as_ref().ok_or(Error::TransactionEnded)?;
        let open = slot.open().ok_or(Error::TransactionEnded)?;
        require_whole(slot, self.token)?;
        Ok(View::of(&open.snapshot, slot.id()))
    }

    #[inline]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn notes(&self) -> Option<&Notes<M>> {
        self.slot.as_ref().and_then(|slot| slot.open()?.notes.as_ref())
    }
}

impl<M: Medium> Moment<M> for Transaction<'_, M> {}

impl<M: Medium> std::fmt::Debug for Transaction<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        shown.field("token", &self.token()).field("statement", &self.statement());
        shown.finish_non_exhaustive()
    }
}

impl<M: Medium> Engine<M> {
    /// The transaction of a token, or what became of it.
    pub(crate) fn resume(&self, token: Token) -> Result<Resumed<'_, M>> {
        if token.is_forgotten() {
            return Err(Error::Forgotten { token });
        }
        let (index, serial) = (token.slot(), token.serial());
        let id = TransactionId { slot: index, number: serial.number };
        loop {
            self.expire(index)?;
            let (owner, is_in_use) = self.statuses.owner(index);
            if owner != serial {
                return self.outcome_of(token);
            }
            let fate = self.statuses.fate(id.short());
            if self.statuses.owner(index).0 != serial {
                // The slot was used for others meanwhile, and the fate may be theirs.
                continue;
            }
            match fate {
                Some(Fate::Open) if is_in_use => return Err(Error::InUse { token }),
                Some(Fate::Open) => {}
                // Whoever is told of a commit sees it.
                Some(Fate::Committed(stamp)) if stamp <= self.stamps.visible() => {
                    return Ok(Resumed::Committed);
                }
                Some(Fate::Committed(_)) => {}
                Some(Fate::Aborted) | None => return Ok(Resumed::Aborted),
            }
            // Others look at a slot for a moment.
            let Some(mut slot) = self.slots.try_hold_one(index) else {
                self.medium().pause();
                continue;
            };
            if slot.open().is_some_and(|open| open.serial == serial) {
                // If it fails, the transaction says so, and can be given up.
                let _ = self.finish_taking_back(&mut slot);
                if let Some(open) = slot.open_mut() {
                    open.expires_ms = None;
                }
                self.statuses.set_owner(index, serial, true);
                return Ok(Resumed::Open(Transaction::of(self, slot)));
            }
        }
    }

    /// How a transaction ended after which there were others in its slot.
    fn outcome_of(&self, token: Token) -> Result<Resumed<'_, M>> {
        let serial = token.serial();
        let (outcomes, has_had_others) = self.slots.outcomes(self.medium(), token.slot());
        if let Some(found) = outcomes.iter().find(|outcome| outcome.serial == serial) {
            let is_committed = found.committed.is_some();
            return Ok(if is_committed { Resumed::Committed } else { Resumed::Aborted });
        }
        let age = |of: Serial| {
            let ago = self.opening() + Serial::OPENINGS - of.opening;
            (ago % Serial::OPENINGS, Serial::NUMBER_MAX - of.number)
        };
        let oldest = outcomes.iter().map(|outcome: &Outcome| age(outcome.serial)).max();
        let is_older = has_had_others && oldest.is_none_or(|oldest| age(serial) > oldest);
        let was_there = serial.opening == self.opening()
            && self.statuses.has_forgotten(token.slot(), serial.number);
        match is_older || was_there {
            true => Err(Error::Forgotten { token }),
            false => Ok(Resumed::Aborted),
        }
    }

    /// All transactions that nobody goes on with at present.
    pub(crate) fn open_transactions(&self) -> Vec<OpenTransaction> {
        (0..SLOT_COUNT).filter_map(|index| self.left_open(index)).collect()
    }

    /// The transaction of a slot, if nobody goes on with it.
    fn left_open(&self, index: u32) -> Option<OpenTransaction> {
        loop {
            if let Some(slot) = self.slots.try_hold_one(index) {
                let open = slot.open()?;
                let token = Token::new(index, open.serial);
                self.statuses.name(index, open.serial);
                return Some(OpenTransaction { token, statement: open.statement });
            }
            let (serial, is_in_use) = self.statuses.owner(index);
            let id = TransactionId { slot: index, number: serial.number };
            if is_in_use || self.statuses.fate(id.short()) != Some(Fate::Open) {
                return None;
            }
            // Others look at a slot for a moment.
            self.medium().pause();
        }
    }
}
