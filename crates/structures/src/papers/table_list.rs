//! A list that is changed in batches, by a table of changes: BOPL's second solution (its section
//! 4.3).
//!
//! A link of an element that is older than the current epoch is not changed in place. Its new value
//! is put into a table in volatile memory, which every step of every walk looks at, and into a
//! *record* among the elements. When a batch is safe, the changes are stored in place and removed
//! from the table. The paper has no records: it stores the changes in place before or after their
//! page is safe. A crash between two of these stores leaves a state that never existed.
//!
//! The list's last link is changed in place at once, unless the table has an entry for it: recovery
//! cuts it if it leads to an element that is not safe.
//!
//! Changes that were stored in place are flushed by the next batch, which then marks them as
//! *applied*. Recovery repeats, in order, the records from there to the end of what is safe.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Result as PoolResult, WORD_LEN};

use crate::Result;
use crate::batch_list::layout::{
    ELEMENT, ITEM_KIND, KIND_MASK, LEN_MASK, NEXT, PADDING, Position, RECORD, RECORD_LEN,
    RECORD_NEXT, RECORD_OF, SKIPPED, Safe, Shape,
};
use crate::batch_list::stream::{End, Link, Stream};
use crate::batch_list::{Changeable, List, Variant};
use crate::segments::SEGMENT_LEN;

/// The list of BOPL's second solution: links are changed in a volatile table, and in place once the
/// change is safe.
///
/// Searches by several threads wait for each other, since each step looks at the table.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::{BatchList, ChangeList};
/// use remanent_structures::papers::TableList;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = TableList::create(&pool, "list", BatchOptions::default())?;
/// list.insert(1, b"a value")?;
/// assert!(list.update(1, b"another")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type TableList<M = Mapped> = List<Table, M>;

/// Elements are changed in batches, with a table of changes; see [`TableList`].
#[derive(Debug)]
pub struct Table {
    present: PauseMutex<Present>,
    /// Offsets of links that were changed in place, to be flushed by the next batch. Locked only
    /// while a batch is made safe.
    applied: PauseMutex<Vec<u64>>,
    /// A copy of the number in `present`, read without the lock.
    written: AtomicU64,
}

/// The present epoch, and the table.
#[derive(Debug)]
pub struct Present {
    /// New values of links that are not changed in place yet, with the epoch of the change.
    table: HashMap<Position, (Position, u64), BuildHasherDefault<PositionHasher>>,
    epoch: u64,
    /// Elements from here on were made in this epoch.
    began: Position,
    /// Changes of this epoch, in order, to be stored in place.
    changes: Vec<(Link, Position)>,
    /// Older links that this epoch changed in place, because each was the list's last link.
    appended: Vec<u64>,
    /// State of the writer after the last operation.
    end: Safe,
    written: u64,
}

impl Changeable for Table {}

impl Variant for Table {
    const TYPE_NAME: &'static str = "TableList";
    const MAY_REFUSE: bool = true;
    const HAS_RECORDS: bool = true;

    type Reading<'a> = PauseGuard<'a, Present>;

    fn recover<M: Medium>(stream: &Stream<M>, safe: Safe) -> PoolResult<(Self, End)> {
        let medium = stream.medium();
        let mut applied = Vec::new();
        let from = Position(safe.mark).max(Position::FIRST);
        // Not flushed: the first batch does that, and until it marks them as applied another
        // recovery repeats them.
        visit_records(stream, from, safe.end, |of, next| {
            let link = stream.link_or_head(of)?;
            medium.store(link.offset + NEXT, next.0);
            applied.push(link.offset);
            Ok(())
        })?;
        let end = stream.end(safe.end, stream.link_or_head(safe.tail)?, safe.count);
        // The link may lead to an element that is not safe. Not flushed: the next batch flushes
        // this link, and until then another recovery cuts it again.
        medium.store(end.tail.offset + NEXT, Position::NONE.0);
        let present = Present {
            table: HashMap::default(),
            epoch: 0,
            began: safe.end,
            changes: Vec::new(),
            appended: Vec::new(),
            end: safe,
            written: 0,
        };
        let table = Table {
            present: PauseMutex::new(present),
            applied: PauseMutex::new(applied),
            written: AtomicU64::new(0),
        };
        Ok((table, end))
    }

    #[inline]
    fn read<M: Medium>(&self, medium: &M) -> Self::Reading<'_> {
        self.present.lock(medium)
    }

    #[inline]
    fn next<M: Medium>(present: &Self::Reading<'_>, medium: &M, link: Link) -> Position {
        match present.table.get(&link.of) {
            Some(&(next, _)) => next,
            None => Position(medium.load(link.offset + NEXT)),
        }
    }

    fn change<M: Medium>(
        &self,
        stream: &Stream<M>,
        end: &mut End,
        link: Link,
        next: Position,
    ) -> Result<()> {
        let medium = stream.medium();
        let mut present = self.present.lock(medium);
        let present = &mut *present;
        let is_new = link.of >= present.began;
        let is_last = || {
            let is_in_place = !present.table.contains_key(&link.of);
            is_in_place && medium.load(link.offset + NEXT) == Position::NONE.0
        };
        if is_new || is_last() {
            medium.store(link.offset + NEXT, next.0);
            if !is_new {
                present.appended.push(link.offset);
            }
        } else {
            let record = stream.place(end, RECORD_LEN, true)?;
            medium.store(record.offset + RECORD_OF, link.of.0);
            medium.store(record.offset + RECORD_NEXT, next.0);
            medium.store(record.offset + ITEM_KIND, RECORD);
            present.table.insert(link.of, (next, present.epoch));
            present.changes.push((link, next));
        }
        present.end = end.reached();
        present.written = end.written;
        // Relaxed: the number is only a bound, and a hint for the persister.
        self.written.store(end.written, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn written(&self) -> u64 {
        // Relaxed: as in `change`.
        self.written.load(Ordering::Relaxed)
    }

    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        make_batch_safe(self, stream, false)
    }

    fn close<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        make_batch_safe(self, stream, false)?;
        // A second batch, which marks the changes as applied, so that opening need not repeat them.
        make_batch_safe(self, stream, true)
    }
}

/// Makes a batch safe. With `applies`, does so even if the batch has only applied changes.
fn make_batch_safe<M: Medium>(table: &Table, stream: &Stream<M>, applies: bool) -> Result<()> {
    let medium = stream.medium();
    let mut committed = stream.begin_batch();
    let mut applied = table.applied.lock(medium);
    let mut present = table.present.lock(medium);
    let has_applied = applies && !applied.is_empty();
    if present.written == committed.written && !has_applied {
        return Ok(stream.heap.verify()?);
    }
    // This batch makes durable what was applied so far. Its own changes are applied afterwards.
    let (end, written) = (Safe { mark: committed.safe.end.0, ..present.end }, present.written);
    let (epoch, changes) = (present.epoch, std::mem::take(&mut present.changes));
    let appended = std::mem::take(&mut present.appended);
    present.epoch += 1;
    present.began = end.end;
    drop(present);
    stream.flush(committed.safe.end, end.end);
    for offset in appended.into_iter().chain(applied.drain(..)) {
        // Flush: a link that was changed in place.
        medium.flush(offset + NEXT, WORD_LEN);
    }
    // Fence: elements, records and links, before they are committed as safe and as applied.
    medium.fence();
    stream.commit(&mut committed, end, written)?;
    for &(link, next) in &changes {
        medium.store(link.offset + NEXT, next.0);
        applied.push(link.offset);
    }
    let mut present = table.present.lock(medium);
    for (link, _) in changes {
        if present.table.get(&link.of).is_some_and(|&(_, changed)| changed == epoch) {
            present.table.remove(&link.of);
        }
    }
    drop(present);
    Ok(stream.take_ahead(end.end)?)
}

/// Passes every record between two positions to `visit`, oldest first: the position of the link's
/// element, and the link's new target.
///
/// # Errors
///
/// When the items are damaged.
fn visit_records<M: Medium>(
    stream: &Stream<M>,
    from: Position,
    to: Position,
    mut visit: impl FnMut(Position, Position) -> PoolResult<()>,
) -> PoolResult<()> {
    let mut at = from;
    while at < to {
        if (1..RECORD_LEN).contains(&at.left_in_page()) {
            at = at.page_end();
            continue;
        }
        let link = stream.link(at)?;
        let word = stream.medium().load(link.offset + ITEM_KIND);
        let next_slot = Position::in_slot(at.next_slot());
        at = match word & KIND_MASK {
            // The rest of the page is unused.
            PADDING if at.left_in_page() > 0 => at.page_end(),
            SKIPPED => next_slot,
            RECORD => {
                let word = |at| stream.medium().load(link.offset + at);
                let [of, next] = [RECORD_OF, RECORD_NEXT].map(word);
                visit(Position(of), Position(next))?;
                at.plus(RECORD_LEN)
            }
            ELEMENT => match Shape::PLAIN.size(word & LEN_MASK) {
                size if size > SEGMENT_LEN => next_slot,
                size => at.plus(size),
            },
            _ => {
                let what = format!("no item of a list begins with {word:#x} at {at}");
                return Err(PoolError::corrupt(link.offset + ITEM_KIND, what));
            }
        };
    }
    Ok(())
}

/// A hash of one multiplication, which spreads positions well enough.
#[derive(Debug, Default)]
struct PositionHasher(u64);

impl Hasher for PositionHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29);
    }
}
