//! Sequences: numbers of which no two callers get the same one.

mod block;
pub(crate) mod ops;
mod spec;

use std::collections::VecDeque;
use std::sync::Arc;

use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Mapped, Medium};

use self::block::Block;
pub use self::spec::SequenceSpec;
use crate::query::Update;
use crate::root::Root;
use crate::{Database, Result};

/// A handle to a sequence: [`next`](Sequence::next) gives a number that nobody else gets.
///
/// It reserves a block of numbers for one fence, and gives them out without any. So numbers of
/// several handles are in no order, and those of a block are lost that are left when a handle is
/// dropped, or the process killed. A number that was given out is never given out again, whatever
/// becomes of the transaction that it is used in: giving that up does not give numbers back.
///
/// Made by [`Database::create_sequence`], which has an example, and [`Database::sequence`].
/// Threads can share a handle, or have one each.
pub struct Sequence<M: Medium = Mapped> {
    engine: Arc<Root<M>>,
    name: String,
    update: Update<M>,
    /// The numbers of the first block are given out first.
    reserved: PauseMutex<VecDeque<Block>>,
    /// Held by who reserves a block, or restarts the sequence: so no block from before is added
    /// behind that.
    reserving: PauseMutex<()>,
}

impl<M: Medium> Sequence<M> {
    fn of(engine: &Arc<Root<M>>, name: &str, update: Update<M>) -> Self {
        let (engine, reserved) = (Arc::clone(engine), PauseMutex::default());
        Sequence {
            engine,
            name: name.to_owned(),
            update,
            reserved,
            reserving: PauseMutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next number. One fence for each block of numbers, and those for folding; otherwise none.
    ///
    /// # Errors
    ///
    /// [`Error::SequenceExhausted`](crate::Error::SequenceExhausted) when there are no more, and
    /// [`Error::NoSuchSequence`](crate::Error::NoSuchSequence) when it was dropped and the handle
    /// has none left. When the pool is full, the row is damaged, or the medium met a fault: the
    /// numbers that were to be reserved may be lost.
    pub fn next(&self) -> Result<i64> {
        let reserve = || {
            self.update.run(&[self.name.as_str().into()], |row, changes| {
                ops::reserve(row, changes, &self.name)
            })
        };
        loop {
            if let Some(number) = self.take_reserved() {
                return Ok(number);
            }
            let _reserving = self.reserving.lock(self.engine.medium());
            // Another thread may have reserved a block meanwhile.
            if let Some(number) = self.take_reserved() {
                return Ok(number);
            }
            let block = ops::until_free(&self.engine, reserve)?;
            let block = block.ok_or_else(|| ops::no_sequence(&self.name))?;
            self.reserved.lock(self.engine.medium()).push_back(block);
        }
    }

    fn take_reserved(&self) -> Option<i64> {
        let mut blocks = self.reserved.lock(self.engine.medium());
        while let Some(block) = blocks.front_mut() {
            if let Some(number) = block.take() {
                return Some(number);
            }
            blocks.pop_front();
        }
        None
    }

    /// The first number that nobody has reserved: another handle begins with it. `None` if there is
    /// none. No fence.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSequence`](crate::Error::NoSuchSequence) when it was dropped. When the row is
    /// damaged, or the medium met a fault.
    pub fn unreserved(&self) -> Result<Option<i64>> {
        let name = self.name.as_str();
        let read = || self.update.run(&[name.into()], |row, _| ops::next_of(row));
        ops::until_free(&self.engine, read)?.ok_or_else(|| ops::no_sequence(name))
    }

    /// Has it go on with this number. Other handles give out first what they have reserved. One
    /// fence.
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`](crate::Error::Sequence) when the number is not in the range, and
    /// [`Error::NoSuchSequence`](crate::Error::NoSuchSequence) when the sequence was dropped. When
    /// the pool is full, the row is damaged, or the medium met a fault.
    pub fn restart(&self, number: i64) -> Result<()> {
        let name = self.name.as_str();
        let _reserving = self.reserving.lock(self.engine.medium());
        let restarted = ops::until_free(&self.engine, || {
            self.update
                .run(&[name.into()], |row, changes| ops::restart(row, changes, (name, number)))
        })?;
        restarted.ok_or_else(|| ops::no_sequence(name))?;
        self.reserved.lock(self.engine.medium()).clear();
        Ok(())
    }
}

impl<M: Medium> Database<M> {
    /// Makes a sequence of numbers: one durable step, behind another one with the first sequence of
    /// a database. One fence, and those of [`create_table`](Database::create_table).
    ///
    /// ```
    /// use remanent_engine::{Database, SequenceSpec};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("example.pool");
    /// # let pool = Pool::options().create(&path)?;
    /// let database = Database::create(&pool, "shop")?;
    /// let orders = database.create_sequence(&SequenceSpec::new("orders"))?;
    /// assert_eq!((orders.next()?, orders.next()?), (1, 2));
    /// drop((orders, database, pool)); // or be killed
    ///
    /// # let pool = Pool::options().open(&path)?;
    /// let database = Database::open(&pool, "shop")?;
    /// assert_eq!(database.sequence("orders")?.next()?, 33);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Sequence`](crate::Error::Sequence) when the description is wrong, or a sequence of
    /// this name is there. When the pool is full, or the medium met a fault.
    pub fn create_sequence(&self, spec: &SequenceSpec) -> Result<Sequence<M>> {
        // Another thread may drop it at once, and the handle is one all the same.
        let update = ops::create(self.engine(), spec)?;
        Ok(Sequence::of(self.engine(), &spec.name, update))
    }

    /// A handle to the sequence of this name.
    ///
    /// # Errors
    ///
    /// When there is none, its row is damaged, or the medium met a fault.
    pub fn sequence(&self, name: &str) -> Result<Sequence<M>> {
        Ok(Sequence::of(self.engine(), name, ops::find(self.engine(), name)?))
    }

    /// Drops a sequence: one durable step. Handles to it give out what they have reserved. One
    /// fence.
    ///
    /// # Errors
    ///
    /// When there is none, not even what removing needs is left in a full pool, or the medium met a
    /// fault.
    pub fn drop_sequence(&self, name: &str) -> Result<()> {
        ops::drop(self.engine(), name)
    }

    /// The names of all sequences, in order.
    ///
    /// # Errors
    ///
    /// When a row is damaged, or the medium met a fault.
    pub fn sequences(&self) -> Result<Vec<String>> {
        ops::names(self.engine())
    }
}

impl<M: Medium> std::fmt::Debug for Sequence<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("name", &self.name).finish_non_exhaustive()
    }
}
