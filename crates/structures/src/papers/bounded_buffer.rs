//! The example of *Cache-Line Transactions* (PLOS 2019), its Figure 2.

use crate::transactional;

/// Places of the buffer. One stays empty, so that a full buffer differs from an empty one.
const PLACES: usize = 29;

/// A queue of up to 28 bytes in one cache line: each call is one durable transaction.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::Transactional;
/// use remanent_structures::papers::BoundedBuffer;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut queue = BoundedBuffer::new().create(&pool, "queue")?;
/// queue.add(1)?;
/// queue.add(2)?;
/// // Both bytes, or after a crash neither:
/// let pair = queue.transact(|queue| (queue.take(), queue.take()))?;
/// assert_eq!(pair, (Some(1), Some(2)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[transactional(line)]
#[derive(Debug, PartialEq, Eq)]
pub struct BoundedBuffer {
    bytes: [u8; PLACES],
    next_in: u8,
    next_out: u8,
}

#[transactional]
impl BoundedBuffer {
    /// Bytes that the buffer holds at most.
    pub const CAPACITY: usize = PLACES - 1;

    /// An empty buffer.
    pub const fn new() -> Self {
        BoundedBuffer { bytes: [0; PLACES], next_in: 0, next_out: 0 }
    }

    /// Appends a byte. Returns false when the buffer is full.
    pub fn add(&mut self, byte: u8) -> bool {
        if self.is_full() {
            return false;
        }
        self.bytes[place(self.next_in)] = byte;
        self.next_in = following(self.next_in);
        true
    }

    /// Removes and returns the oldest byte.
    pub fn take(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let byte = self.bytes[place(self.next_out)];
        self.next_out = following(self.next_out);
        Some(byte)
    }

    /// Number of bytes in the buffer.
    pub fn len(&self) -> usize {
        let (next_in, next_out) = (place(self.next_in), place(self.next_out));
        if next_in >= next_out { next_in - next_out } else { next_in + PLACES - next_out }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.next_in == self.next_out
    }

    /// Whether there is no room for another byte.
    pub fn is_full(&self) -> bool {
        following(self.next_in) == self.next_out
    }
}

impl Default for BoundedBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// The place with this number, limited to the last place, because decayed memory may have any
/// number.
fn place(number: u8) -> usize {
    (number as usize).min(PLACES - 1)
}

/// The number of the place after this one.
fn following(number: u8) -> u8 {
    if number as usize + 1 < PLACES { number + 1 } else { 0 }
}
