//! The only way to access pool memory.
//!
//! Every load, store, flush and fence of Remanent goes through [`Medium`], by pool offset. So the
//! same structure code runs on real memory ([`Mapped`], where each call is the bare instruction),
//! on memory with the latency of another technology ([`Emulated`]), and on the crash simulator's
//! medium.
//!
//! The numbered assumptions of `docs/model.md` are the rules for a medium.

pub(crate) mod backing;
mod checksum;
pub(crate) mod detect;
mod emulated;
pub(crate) mod fault;
mod frozen;
pub(crate) mod isa;
mod latency;
pub(crate) mod mapped;
pub mod order;
#[cfg(target_arch = "x86_64")]
mod summed;
mod units;

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub use backing::{Backing, Durability, Emulation};
pub use checksum::crc32c;
pub use emulated::{Emulated, Latency, measure_persist_ns};
pub use fault::Fault;
pub use frozen::Frozen;
pub use isa::{FlushInstruction, Isa, isa};
pub use mapped::{Mapped, ignore_file_size_signal};
pub use units::{LINE_LEN, PAGE_LEN, WORD_LEN, lines};

use self::order::Method;
use crate::error::Result;

/// Pool memory: loads, stores, compare-exchanges, bulk copies, flushes and fences by offset.
///
/// Orderings are fixed: every load is an acquire load, every store a release store, and every
/// read-modify-write is both and totally ordered (a locked instruction on x86-64). Words are
/// little-endian and aligned to 8 bytes.
///
/// # After a crash
///
/// A store is certain to survive if its line was flushed *after* the store, and the same thread
/// fenced after the flush. Any other store may survive or not. Within one line a prefix of the
/// ordinary stores survives, in program order. Different lines are independent.
///
/// `flush` and `fence` carry `#[track_caller]`, so that a simulator can name a single site in the
/// source, and leave it out. Wrappers around them carry it, too.
pub trait Medium: Sized + Send + Sync + 'static {
    /// Accessible bytes at present; only [`grow`](Medium::grow) makes it larger.
    fn len(&self) -> u64;

    /// Whether there are no accessible bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a line needs a flush and a fence before it is durable in this medium's class.
    ///
    /// False for memory that outlives the process, if only the death of the process is to be
    /// survived. Structures then set no link-and-persist marks.
    fn needs_flush(&self) -> bool;

    /// Loads the word at `offset`.
    fn load(&self, offset: u64) -> u64;

    /// Stores a word at `offset`.
    fn store(&self, offset: u64, value: u64);

    /// Returns a function that [loads](Medium::load) the words of a range by their index. A medium
    /// that checks bounds does so once.
    ///
    /// Words behind the range are zeros. A range outside the pool is a fault: the result is `None`,
    /// or the words are zeros.
    #[inline(always)]
    fn window(&self, offset: u64, len: u64) -> Option<impl Fn(u64) -> u64> {
        Some(move |at| if at < len { self.load(offset.wrapping_add(at)) } else { 0 })
    }

    /// Replaces `current` by `new` at `offset`, atomically.
    ///
    /// # Errors
    ///
    /// The word found there, if it is not `current`.
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64>;

    /// Replaces two neighbouring words at once; `offset` is aligned to 16 bytes.
    ///
    /// Atomic for other threads. For a crash these are two stores to one line, in any order.
    ///
    /// # Errors
    ///
    /// The words found there, if they are not `current`.
    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]>;

    /// Sets the bits of `mask` at `offset` and returns the word before.
    fn fetch_or(&self, offset: u64, mask: u64) -> u64 {
        self.fetch_update(offset, |word| word | mask)
    }

    /// Keeps only the bits of `mask` at `offset` and returns the word before.
    fn fetch_and(&self, offset: u64, mask: u64) -> u64 {
        self.fetch_update(offset, |word| word & mask)
    }

    /// Adds `addend` at `offset`, wrapping, and returns the word before.
    fn fetch_add(&self, offset: u64, addend: u64) -> u64 {
        self.fetch_update(offset, |word| word.wrapping_add(addend))
    }

    /// Replaces the word at `offset` by a function of it, retrying while other threads change it.
    /// Returns the word before.
    fn fetch_update(&self, offset: u64, update: impl Fn(u64) -> u64) -> u64 {
        let mut current = self.load(offset);
        loop {
            match self.compare_exchange(offset, current, update(current)) {
                Ok(previous) => return previous,
                Err(found) => current = found,
            }
        }
    }

    /// Copies bytes out of the pool.
    ///
    /// Each word that other threads store meanwhile is read atomically, in no particular order.
    fn read(&self, offset: u64, bytes: &mut [u8]);

    /// Copies bytes into the pool with ordinary stores, ascending.
    ///
    /// Bytes beside a misaligned end keep their values; nobody else may write those words
    /// meanwhile.
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Copies bytes into the pool with non-temporal stores if that is faster.
    ///
    /// These stores need no flush, only a fence. Assumption 2 (a prefix within a line) does not
    /// cover them.
    fn write_streaming(&self, offset: u64, bytes: &[u8]);

    /// Like [`write_streaming`](Medium::write_streaming), and returns the checksum of the bytes. If
    /// the CPU can, it is computed during the copy.
    fn write_streaming_summed(&self, offset: u64, bytes: &[u8]) -> u32 {
        write_summed(self, offset, bytes)
    }

    /// Stores zeros; like [`write`](Medium::write).
    fn write_zeros(&self, offset: u64, len: u64);

    /// A slice of a published, immutable range: borrowed if memory is mapped, otherwise copied.
    fn view(&self, range: Frozen) -> Cow<'_, [u8]>;

    /// Whether the bytes at `offset` equal `bytes`, without copying them.
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.read(offset, &mut found);
        found == bytes
    }

    /// Starts writing back every line that overlaps `offset .. offset + len`.
    ///
    /// The write-back is complete after the next [`fence`](Medium::fence) of the same thread.
    #[track_caller]
    fn flush(&self, offset: u64, len: u64);

    /// Waits until all earlier flushes and streaming writes of this thread are durable.
    #[track_caller]
    fn fence(&self);

    /// Flushes a range and fences: durable when it returns.
    #[track_caller]
    fn persist(&self, offset: u64, len: u64) {
        self.flush(offset, len);
        self.fence();
    }

    /// Writes whole words by an ordering method. They are durable when it returns, except with
    /// [`Method::Async`].
    ///
    /// A medium without instructions of its own does what has the same effect, with its own stores,
    /// flushes and fences. `offset` and the length are multiples of 8 bytes. With
    /// [`Method::Direct`] nobody else may write the lines meanwhile.
    ///
    /// # Panics
    ///
    /// When the range is not aligned to words.
    #[track_caller]
    fn write_ordered(&self, method: Method, offset: u64, bytes: &[u8]) {
        order::write_modelled(self, method, offset, bytes);
    }

    /// Makes at least `len` bytes accessible. Offsets stay valid. New bytes are zero.
    ///
    /// The new length is durable after the next [`sync_file`](Medium::sync_file); flushes and
    /// fences do not make it durable.
    ///
    /// # Errors
    ///
    /// When the file cannot grow: the disk or the reserved range is full.
    fn grow(&self, len: u64) -> Result<()>;

    /// Fills the file's holes in a range below [`len`](Medium::len), so that storing to it cannot
    /// fail for lack of space. Durable as for [`grow`](Medium::grow).
    ///
    /// # Errors
    ///
    /// When the file system is full.
    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Hints that a range will soon be used much. A medium may prepare its pages.
    fn expect_use(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Gives whole pages back to the file system; they read as zero afterwards. Returns false if
    /// that is impossible; nothing was changed then.
    ///
    /// A crash may leave the old bytes of any of these pages until the next
    /// [`sync_file`](Medium::sync_file), or until a later store to the page is durable.
    fn release(&self, offset: u64, len: u64) -> bool;

    /// Makes the effects of [`grow`](Medium::grow), [`commit`](Medium::commit) and
    /// [`release`](Medium::release) durable, of any thread. These are metadata of the file system,
    /// which flushes and fences of lines do not reach. Costs as much as an `fdatasync`; nothing if
    /// only the death of the process is to be survived.
    ///
    /// # Errors
    ///
    /// When the system reports a failure; the medium then has a [`fault`](Medium::fault).
    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        Ok(())
    }

    /// Hints that the line at `offset` is about to be read.
    fn prefetch(&self, offset: u64) {
        let _ = offset;
    }

    /// Must be called in every loop that waits for another thread: a spin hint, or a schedule
    /// point.
    fn pause(&self);

    /// A small number that no other living thread has, used to spread threads over lanes.
    fn thread(&self) -> u64;

    /// Seconds since 1970, for timestamps that people read. A simulated world has its own clock.
    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// The first fault since the medium was opened, if any.
    fn fault(&self) -> Option<Fault>;
}

/// [`Medium::write_streaming_summed`] as a checksum and a copy, one after the other.
pub(crate) fn write_summed<M: Medium>(medium: &M, offset: u64, bytes: &[u8]) -> u32 {
    let sum = crc32c(bytes);
    medium.write_streaming(offset, bytes);
    sum
}

/// A shared medium is a medium: tests keep a handle to the medium of a pool.
impl<M: Medium> Medium for Arc<M> {
    fn len(&self) -> u64 {
        self.deref().len()
    }
    fn needs_flush(&self) -> bool {
        self.deref().needs_flush()
    }
    fn load(&self, offset: u64) -> u64 {
        self.deref().load(offset)
    }
    fn store(&self, offset: u64, value: u64) {
        self.deref().store(offset, value);
    }
    #[inline(always)]
    fn window(&self, offset: u64, len: u64) -> Option<impl Fn(u64) -> u64> {
        self.deref().window(offset, len)
    }
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.deref().compare_exchange(offset, current, new)
    }
    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        self.deref().compare_exchange_pair(offset, current, new)
    }
    fn fetch_or(&self, offset: u64, mask: u64) -> u64 {
        self.deref().fetch_or(offset, mask)
    }
    fn fetch_and(&self, offset: u64, mask: u64) -> u64 {
        self.deref().fetch_and(offset, mask)
    }
    fn fetch_add(&self, offset: u64, addend: u64) -> u64 {
        self.deref().fetch_add(offset, addend)
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.deref().read(offset, bytes);
    }
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.deref().write(offset, bytes);
    }
    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.deref().write_streaming(offset, bytes);
    }
    fn write_streaming_summed(&self, offset: u64, bytes: &[u8]) -> u32 {
        self.deref().write_streaming_summed(offset, bytes)
    }
    fn write_zeros(&self, offset: u64, len: u64) {
        self.deref().write_zeros(offset, len);
    }
    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        self.deref().view(range)
    }
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.deref().equals(offset, bytes)
    }
    #[track_caller]
    fn flush(&self, offset: u64, len: u64) {
        self.deref().flush(offset, len);
    }
    #[track_caller]
    fn fence(&self) {
        self.deref().fence();
    }
    #[track_caller]
    fn write_ordered(&self, method: Method, offset: u64, bytes: &[u8]) {
        self.deref().write_ordered(method, offset, bytes);
    }
    fn grow(&self, len: u64) -> Result<()> {
        self.deref().grow(len)
    }
    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.deref().commit(offset, len)
    }
    fn expect_use(&self, offset: u64, len: u64) {
        self.deref().expect_use(offset, len);
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        self.deref().release(offset, len)
    }
    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        self.deref().sync_file()
    }
    fn prefetch(&self, offset: u64) {
        self.deref().prefetch(offset);
    }
    fn pause(&self) {
        self.deref().pause();
    }
    fn thread(&self) -> u64 {
        self.deref().thread()
    }
    fn unix_s(&self) -> u64 {
        self.deref().unix_s()
    }
    fn fault(&self) -> Option<Fault> {
        self.deref().fault()
    }
}
