//! What became of transactions, for who meets what they have written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::layout::{SLOT_COUNT, STAMP_MAX, Serial, ShortId, TransactionId};
use super::unwritten::Unwritten;

/// The last two transactions of each slot, and what they have not written yet.
#[derive(Debug)]
pub(crate) struct Statuses {
    slots: Box<[Status]>,
    pub(crate) unwritten: Unwritten,
    /// The open transaction that has changed the schema, as a version would name it; or 0.
    author: AtomicU64,
}

/// Those of one slot, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Status {
    current: AtomicU64,
    /// The one before: after a crash, rows may not say yet what became of it.
    previous: AtomicU64,
    /// Whether an earlier process has left rows that do not say what became of the transaction. But
    /// for that transaction itself, if it is open, nobody uses the slot until they do.
    is_orphan: AtomicBool,
    /// The last transaction that has begun, in full; above it, whether somebody has a handle to it.
    owner: AtomicU64,
    /// The last transaction whose name somebody knows.
    named: AtomicU64,
    /// Number of the last one in this opening whose outcome was not kept.
    forgotten: AtomicU64,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// Committed, with this stamp.
    Committed(u64),
    Aborted,
}

impl Fate {
    const SHIFT: u32 = 48;
    const OPEN: u64 = 1;
    const COMMITTED: u64 = 2;
    const ABORTED: u64 = 3;

    fn bits(self) -> u64 {
        match self {
            Fate::Open => Self::OPEN << Self::SHIFT,
            Fate::Committed(stamp) => Self::COMMITTED << Self::SHIFT | stamp,
            Fate::Aborted => Self::ABORTED << Self::SHIFT,
        }
    }

    fn of_bits(bits: u64) -> Option<Self> {
        match bits >> Self::SHIFT & 3 {
            Self::OPEN => Some(Fate::Open),
            Self::COMMITTED => Some(Fate::Committed(bits & STAMP_MAX)),
            Self::ABORTED => Some(Fate::Aborted),
            _ => None,
        }
    }
}

/// A transaction's last bits, above its fate.
const ID_SHIFT: u32 = 50;

impl Statuses {
    pub(crate) fn new() -> Self {
        let slots = (0..SLOT_COUNT).map(|_| Status::default()).collect();
        Statuses { slots, unwritten: Unwritten::new(), author: AtomicU64::new(0) }
    }

    /// Says which open transaction has changed the schema.
    pub(crate) fn set_author(&self, author: Option<TransactionId>) {
        let word = author.map_or(0, TransactionId::as_stamp);
        // Release: partner of the load in `author`.
        self.author.store(word, Ordering::Release);
    }

    /// The open transaction that has changed the schema.
    pub(crate) fn author(&self) -> Option<TransactionId> {
        // Acquire: partner of the store in `set_author`.
        TransactionId::of_stamp(self.author.load(Ordering::Acquire))
    }

    /// Whether a transaction is that one.
    #[inline]
    pub(crate) fn is_author(&self, own: Option<TransactionId>) -> bool {
        own.is_some() && self.author() == own
    }

    fn word(id: TransactionId, fate: Fate) -> u64 {
        // Of the slot, all have the same bits.
        u64::from(id.short().get() % 512) << ID_SHIFT | fate.bits()
    }

    /// Says that a transaction begins, or is the one before the next.
    pub(crate) fn begin(&self, id: TransactionId, fate: Fate) {
        let status = &self.slots[id.slot as usize];
        // Relaxed: the holder of the slot alone changes it.
        let before = status.current.load(Ordering::Relaxed);
        // Release: partner of the loads in `fate`; what rows said before is seen.
        status.previous.store(before, Ordering::Release);
        status.current.store(Self::word(id, fate), Ordering::Release);
    }

    /// Says what became of the last transaction of its slot.
    pub(crate) fn set(&self, id: TransactionId, fate: Fate) {
        // Release: partner of the load in `fate`.
        self.slots[id.slot as usize].current.store(Self::word(id, fate), Ordering::Release);
    }

    /// What became of a transaction. `None` if it was none of the last two: then its rows say it,
    /// because a slot is not used for the next one but one before they do, durably.
    ///
    /// Nine bits of its number are enough: two transactions that follow each other in the pool
    /// differ in them, and nothing names older ones. Who was stopped since it has read a name has
    /// to see that the name is still there.
    #[inline]
    pub(crate) fn fate(&self, id: ShortId) -> Option<Fate> {
        let status = &self.slots[id.slot() as usize];
        let number = u64::from(id.get() % 512);
        // Acquire: partner of the stores in `begin` and `set`.
        let words = [&status.current, &status.previous].map(|word| word.load(Ordering::Acquire));
        words.into_iter().find(|word| word >> ID_SHIFT == number).and_then(Fate::of_bits)
    }

    /// Says who has had a slot last, and whether somebody has a handle to it.
    pub(crate) fn set_owner(&self, slot: u32, serial: Serial, is_in_use: bool) {
        let word = serial.get() | u64::from(is_in_use) << 63;
        // Release: after what became of it; partner of the load in `owner`.
        self.slots[slot as usize].owner.store(word, Ordering::Release);
    }

    /// The last transaction that has begun in a slot, and whether somebody has a handle to it.
    pub(crate) fn owner(&self, slot: u32) -> (Serial, bool) {
        // Acquire: partner of the store in `set_owner`.
        let word = self.slots[slot as usize].owner.load(Ordering::Acquire);
        (Serial::new(word), word >> 63 != 0)
    }

    /// Says that somebody knows the name of a transaction, and may ask how it has ended. False if
    /// another one has begun in its slot: then its outcome is kept no longer than if nobody did.
    pub(crate) fn name(&self, slot: u32, serial: Serial) -> bool {
        let named = &self.slots[slot as usize].named;
        let mut before = named.load(Ordering::Relaxed);
        // The owner after the name: the name of a later one is not overwritten.
        fence(Ordering::SeqCst);
        if self.owner(slot).0 != serial {
            return false;
        }
        while before != serial.get()
            && let Err(other) =
                named.compare_exchange(before, serial.get(), Ordering::Relaxed, Ordering::Relaxed)
        {
            if self.owner(slot).0 != serial {
                return false;
            }
            before = other;
        }
        // SeqCst: the name before the owner is seen again; partner of the fence in `is_named`.
        fence(Ordering::SeqCst);
        self.owner(slot).0 == serial
    }

    /// Whether somebody knows the name of a transaction. Of one that is not the last one of its
    /// slot, nobody learns it any more.
    pub(crate) fn is_named(&self, slot: u32, serial: Serial) -> bool {
        // SeqCst: after another owner was set; partner of the fence in `name`.
        fence(Ordering::SeqCst);
        self.slots[slot as usize].named.load(Ordering::Relaxed) == serial.get()
    }

    /// The transaction of several statements that is open and has a slot.
    pub(crate) fn open_in(&self, slot: u32) -> Option<Serial> {
        let (serial, _) = self.owner(slot);
        let id = TransactionId { slot, number: serial.number };
        (self.fate(id.short()) == Some(Fate::Open)).then_some(serial)
    }

    /// Says that the outcome of a transaction is not kept.
    pub(crate) fn forget(&self, slot: u32, number: u64) {
        // Release: before it is overwritten; partner of the load in `has_forgotten`. An older one
        // may have been kept for longer.
        self.slots[slot as usize].forgotten.fetch_max(number, Ordering::Release);
    }

    /// Whether the outcome of a transaction of this opening, which is not there, may have been.
    pub(crate) fn has_forgotten(&self, slot: u32, number: u64) -> bool {
        // Acquire: partner of the store in `forget`.
        number <= self.slots[slot as usize].forgotten.load(Ordering::Acquire)
    }

    /// Whether rows of a slot wait for a sweep.
    #[inline]
    pub(crate) fn is_orphan(&self, slot: u32) -> bool {
        // Acquire: partner of the store in `set_orphan`.
        self.slots[slot as usize].is_orphan.load(Ordering::Acquire)
    }

    pub(crate) fn set_orphan(&self, slot: u32, is_orphan: bool) {
        // Release: what the sweep has done is seen by who uses the slot.
        self.slots[slot as usize].is_orphan.store(is_orphan, Ordering::Release);
    }

    /// Forgets what was said: opening knows better by now.
    pub(crate) fn clear(&self) {
        for status in &self.slots {
            // Relaxed: nobody else is there yet.
            status.current.store(0, Ordering::Relaxed);
            status.previous.store(0, Ordering::Relaxed);
        }
    }
}
