//! The database, as its handles and its threads share it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::sync::{PauseMutex, Queue};
use remanent_pmem::{Error as PoolError, Medium, WORD_LEN};
use remanent_structures::shared::Inspection;

use crate::catalog::retired::{Retired, Unfinished};
use crate::catalog::{self, Catalog, CatalogBlock, HEADER_CATALOG, HEADER_SLOTS};
use crate::index::rebuild_cost::RebuildCost;
use crate::index::{Dram, KeyLocks};
use crate::schema::IndexKind;
use crate::table::Table;
use crate::transaction::clock::Clock;
use crate::transaction::collect::Garbage;
use crate::transaction::layout::{Record, SLOT_COUNT, SLOTS_LEN, Serial, TransactionId};
use crate::transaction::pass::Pass;
use crate::transaction::slots::{NextOutcome, Slot, Slots};
use crate::transaction::snapshots::Snapshots;
use crate::transaction::stamps::Stamps;
use crate::transaction::statuses::Statuses;
use crate::transaction::waits::Waits;
use crate::transaction::{list, recover};
use crate::{Error, Result};

/// A database.
pub(crate) struct Engine<M: Medium> {
    pub(crate) heap: Arc<Heap<M>>,
    /// Held while the schema changes.
    pub(crate) schema: PauseMutex<Schema<M>>,
    /// Where indexes lie that are not in the pool.
    pub(crate) dram: Dram,
    pub(crate) slots: Slots<M>,
    /// What became of transactions.
    pub(crate) statuses: Arc<Statuses>,
    pub(crate) stamps: Stamps,
    pub(crate) snapshots: Snapshots,
    /// Rows with versions that wait until every snapshot sees them.
    pub(crate) garbage: PauseMutex<VecDeque<Garbage<M>>>,
    pub(crate) keys: KeyLocks,
    /// Statements that wait for others.
    pub(crate) waits: Waits,
    /// How often the pool was opened: claims of earlier times count for nothing.
    pub(crate) opens: u64,
    pub(crate) clock: Clock,
    /// When somebody who folds has looked for transactions whose time is over, by that clock.
    pub(crate) expired_ms: AtomicU64,
    /// What rebuilding has cost in this opening.
    pub(crate) rebuild_cost: RebuildCost,
    /// The version of the schema, for who asks without a lock.
    pub(crate) schema_version: AtomicU64,
    /// Held by who applies what another database has told.
    pub(crate) applying: PauseMutex<()>,
    /// Held by who makes, drops or moves an index, also that of a dictionary.
    pub(crate) altering: PauseMutex<()>,
    /// Held by who frees the blocks of dropped tables and indexes.
    pub(crate) freeing: PauseMutex<()>,
    /// Held by who has rows say what became of transactions of an earlier process.
    pub(crate) sweeping: PauseMutex<()>,
    /// Where steps look at rows next.
    pub(crate) passing: PauseMutex<Option<Pass>>,
    /// Who waits for a slot.
    pub(crate) waiting_for_slots: Queue,
}

/// The tables, and the catalog that says so.
pub(crate) struct Schema<M: Medium> {
    pub(crate) catalog: Catalog,
    pub(crate) tables: Vec<Arc<Table<M>>>,
    /// Tables that were dropped in this opening, and that somebody may still have.
    pub(crate) dropped: Vec<Arc<Table<M>>>,
    /// Indexes that somebody may have and the catalog does not count among a table's, or its
    /// dictionaries': those that
    /// were dropped in this opening, or exchanged for others, and those that are being built.
    pub(crate) retired: Vec<Retired<M>>,
    /// Indexes of which a faulty medium does not tell whether the catalog has them. They are kept.
    pub(crate) undecided: Vec<Retired<M>>,
    /// What is left to be done for changes of transactions that have ended: sets of indexes have
    /// it still.
    pub(crate) unfinished: Vec<Unfinished<M>>,
    /// The stamp of the last transaction that has committed and changed the schema.
    pub(crate) kept_stamp: u64,
    /// The greatest number that a table or an index has had in this opening. The catalog does not
    /// know that of an index in DRAM before it is built.
    pub(crate) last_number: u32,
}

impl<M: Medium> Schema<M> {
    pub(crate) fn of(catalog: Catalog, tables: Vec<Arc<Table<M>>>) -> Self {
        let last_number = catalog.last_number;
        let (dropped, retired, undecided) = (Vec::new(), Vec::new(), Vec::new());
        let (unfinished, kept_stamp) = (Vec::new(), 0);
        Schema { catalog, tables, dropped, retired, undecided, unfinished, kept_stamp, last_number }
    }

    /// The catalog that comes after the present one, to be changed before it is written.
    pub(crate) fn next_catalog(&self) -> Catalog {
        let mut catalog = self.catalog.clone();
        catalog.version += 1;
        catalog.last_number = self.last_number;
        catalog
    }
}

impl<M: Medium> Engine<M> {
    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// The table of this name that is there for a transaction, or for all others.
    pub(crate) fn table(&self, name: &str, own: Option<TransactionId>) -> Option<Arc<Table<M>>> {
        let schema = self.schema.lock(self.medium());
        let mut tables = schema.tables.iter();
        tables.find(|table| table.name == name && table.is_there(own)).cloned()
    }

    /// What contradicts itself. No operation may be in progress.
    pub(crate) fn check(&self) -> Result<Vec<Violation>> {
        self.rebuild(1)?;
        self.finish_altering()?;
        self.free_dropped()?;
        self.heap.quiesce()?;
        let medium = self.medium();
        let catalog = medium.load(self.heap.header() + HEADER_CATALOG);
        let mut own = vec![catalog, self.slots.offset()];
        own.extend(list::all(&self.heap, self.slots.offset()));
        let (mut violations, mut blocks) = (Vec::new(), Some(own));
        let schema = self.schema.lock(medium);
        match CatalogBlock::read(medium, catalog) {
            Ok(read) if read == schema.catalog => {}
            Ok(_) => violations.push(Violation::new(catalog, "this is not the newest catalog")),
            Err(what) => violations.push(Violation::new(catalog, what)),
        }
        let in_pool = schema.retired.iter().filter(|index| index.rows().header().is_some());
        if schema.catalog.dropped.len() != schema.dropped.len() + in_pool.count() {
            // Another thread frees them, or there is no room for a catalog without them.
            blocks = None;
        }
        let mut inspected = Vec::new();
        for table in schema.tables.iter().chain(&schema.dropped) {
            inspected.push(table.inspect(self.stamps.visible())?);
        }
        for table in &schema.tables {
            self.orphans_of(table, |place, what| {
                violations.push(Violation::new(table.head_at(place), what));
            })?;
        }
        for index in &schema.retired {
            inspected.push(index.rows().inspect()?);
        }
        for Inspection { violations: of_one, blocks: reached, .. } in inspected {
            violations.extend(of_one);
            match (&mut blocks, reached) {
                (Some(blocks), Some(reached)) => blocks.extend(reached),
                (blocks, _) => *blocks = None,
            }
        }
        if let Some(blocks) = blocks {
            violations.extend(self.heap.check(blocks.into_iter())?);
        }
        self.heap.verify()?;
        Ok(violations)
    }
}

impl<M: Medium> Engine<M> {
    /// An empty database in a new heap.
    pub(crate) fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let (medium, header) = (heap.medium(), heap.header());
        let mut lane = heap.enter().prepare_to_write();
        let slots = lane.allocate_zeroed(SLOTS_LEN)?;
        let content = CatalogBlock::of(&Catalog::default());
        let catalog = lane.allocate(content.len())?;
        content.write(medium, catalog.offset);
        medium.store(header + HEADER_CATALOG, catalog.offset);
        medium.store(header + HEADER_SLOTS, slots.offset);
        // Flush and fence: before the root is live.
        medium.persist(header, 2 * WORD_LEN);
        drop(lane);
        heap.verify()?;
        let statuses = Arc::new(Statuses::new());
        let unused = (0..SLOT_COUNT).map(|_| Slot::of(Record::NONE, NextOutcome::default(), None));
        let opening = Serial::opening_of(heap.pool().opens());
        let slots = Slots::new(slots.offset, &statuses, opening, unused);
        let schema = Schema::of(Catalog::default(), Vec::new());
        let (dram, stamps, snapshots) = (Dram::default(), Stamps::after(0), Snapshots::new());
        Ok(Engine::new(heap, schema, dram, slots, statuses, stamps, snapshots))
    }

    /// The database in a heap, whatever state a crash left it in.
    pub(crate) fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let (statuses, dram) = (Arc::new(Statuses::new()), Dram::default());
        let (schema, completed) = catalog::recover::open(&heap, &statuses, &dram)?;
        let snapshots = Snapshots::new();
        let (tables, stamp) = (&schema.tables, schema.catalog.stamp);
        let (slots, stamps) =
            recover::complete(&heap, tables, &completed, &statuses, &snapshots, stamp)
                .map_err(Error::into_pool)?;
        for table in &schema.tables {
            table.rebuilding.set_opened(stamps.visible());
            // A transaction that goes on may see a moment at which an index was not there yet.
            let set = table.indexes.load();
            for index in set.named(false).filter(|index| index.spec.kind == IndexKind::Unique) {
                index.set_unique_since(stamps.visible());
            }
            if completed.has_open(table.number) {
                table.rebuilding.want_first();
            }
        }
        Ok(Engine::new(heap, schema, dram, slots, statuses, stamps, snapshots))
    }

    fn new(
        heap: Arc<Heap<M>>,
        schema: Schema<M>,
        dram: Dram,
        slots: Slots<M>,
        statuses: Arc<Statuses>,
        stamps: Stamps,
        snapshots: Snapshots,
    ) -> Self {
        let opens = heap.pool().opens();
        let schema_version = AtomicU64::new(schema.catalog.schema_version);
        let (schema, keys) = (PauseMutex::new(schema), KeyLocks::new());
        let (garbage, sweeping) = (PauseMutex::default(), PauseMutex::default());
        let clock = Clock::new();
        Engine {
            heap,
            schema,
            dram,
            slots,
            statuses,
            stamps,
            snapshots,
            garbage,
            keys,
            waits: Waits::new(),
            opens,
            clock,
            expired_ms: AtomicU64::new(0),
            rebuild_cost: RebuildCost::default(),
            schema_version,
            applying: PauseMutex::default(),
            altering: PauseMutex::default(),
            freeing: PauseMutex::default(),
            sweeping,
            passing: PauseMutex::default(),
            waiting_for_slots: Queue::default(),
        }
    }

    /// The opening, as transactions name it.
    pub(crate) fn opening(&self) -> u16 {
        Serial::opening_of(self.opens)
    }
}

impl<M: Medium> Drop for Engine<M> {
    fn drop(&mut self) {
        // These claims count until the pool is opened again, but the database may be opened before.
        for (slot, locked, deferred) in self.slots.take_claimed() {
            self.leave_all(deferred);
            self.unlock(&locked, slot);
        }
        // The next opening would do the same; nothing is lost if this fails.
        let _ = self.finish_altering();
        let _ = self.collect();
        let _ = self.free_dropped();
        self.slots.close(self.heap.medium());
    }
}
