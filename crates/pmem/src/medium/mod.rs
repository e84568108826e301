//! The one way to touch pool memory.
//!
//! Every load, store, flush and fence of Remanent goes through [`Medium`], by pool offset. The same
//! structure code therefore runs on real memory ([`Mapped`], where each call is the
//! bare instruction), on memory with the latency of another technology
//! ([`Emulated`]), and on the crash simulator's medium.
//!
//! The rules a medium obeys are the numbered assumptions of `docs/model.md`.

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
/// Orderings are fixed, not chosen: every load is an acquire load, every store a release store, and
/// every read-modify-write is both and totally ordered (a locked instruction on x86-64). Words are
/// little-endian and aligned to 8 bytes.
///
/// # What a crash leaves
///
/// A store survives for certain once its line was flushed *after* the store and a fence by the same
/// thread followed the flush. Before that it may survive or not; within one line, what survives is a
/// prefix of the ordinary stores in program order; different lines are independent.
///
/// `flush` and `fence` carry `#[track_caller]`, so that a simulator can name, and leave out, a single
/// site in the source. Wrappers around them carry it too.
pub trait Medium: Sized + Send + Sync + 'static {
    /// Bytes that may be accessed at present; grows only through [`grow`](Medium::grow).
    fn len(&self) -> u64;

    /// Whether there is no byte to access.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a line needs a flush and a fence before it is durable in this medium's class.
    ///
    /// False for memory that outlives the process when only process death is to be survived:
    /// structures then skip link-and-persist marks.
    fn needs_flush(&self) -> bool;

    /// Loads the word at `offset`.
    fn load(&self, offset: u64) -> u64;

    /// Stores a word at `offset`.
    fn store(&self, offset: u64, value: u64);

    /// [`load`](Medium::load) for the words of a range, by their places in it: a medium that checks bounds does so once.
    ///
    /// Words behind the range are zeros. A range outside of the pool is a fault: `None`, or zeros as well.
    #[inline(always)]
    fn window(&self, offset: u64, len: u64) -> Option<impl Fn(u64) -> u64> {
        Some(move |at| if at < len { self.load(offset.wrapping_add(at)) } else { 0 })
    }

    /// Replaces `current` by `new` at `offset`.
    ///
    /// # Errors
    ///
    /// The word found there, when it is not `current`.
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64>;

    /// Replaces two neighbouring words at once; `offset` is aligned to 16 bytes.
    ///
    /// Indivisible to other threads. A crash sees two stores to one line, in no promised order.
    ///
    /// # Errors
    ///
    /// The words found there, when they are not `current`.
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

    /// Replaces the word at `offset` by a function of it, retrying until no other thread intervened,
    /// and returns the word before.
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
    /// Words that other threads store meanwhile are read whole but in no particular order.
    fn read(&self, offset: u64, bytes: &mut [u8]);

    /// Copies bytes into the pool with ordinary stores, ascending.
    ///
    /// Bytes around a misaligned end keep their values; nobody else may write those words meanwhile.
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Copies bytes into the pool with non-temporal stores where that is faster.
    ///
    /// Needs no flush, only a fence; assumption 2 (prefix within a line) does not cover it.
    fn write_streaming(&self, offset: u64, bytes: &[u8]);

    /// As [`write_streaming`](Medium::write_streaming), and returns the checksum of the bytes, which is computed while they
    /// are on their way where the CPU can do both.
    fn write_streaming_summed(&self, offset: u64, bytes: &[u8]) -> u32 {
        write_summed(self, offset, bytes)
    }

    /// Stores zeros; like [`write`](Medium::write).
    fn write_zeros(&self, offset: u64, len: u64);

    /// A slice of a published, immutable range: borrowed where memory is mapped, copied elsewhere.
    fn view(&self, range: Frozen) -> Cow<'_, [u8]>;

    /// Whether the bytes at `offset` are `bytes`, without copying them.
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.read(offset, &mut found);
        found == bytes
    }

    /// Starts writing back every line that overlaps `offset .. offset + len`.
    ///
    /// Complete only after the next [`fence`](Medium::fence) of the same thread.
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

    /// Writes whole words by an ordering method: durable when it returns, but for [`Method::Async`].
    ///
    /// A medium on which nobody can tell one method from another does what has the same effect in its own stores,
    /// flushes and fences. `offset` and the length are multiples of 8 bytes, and nobody else writes the lines meanwhile
    /// if the method is [`Method::Direct`].
    ///
    /// # Panics
    ///
    /// When the range is not aligned to words.
    #[track_caller]
    fn write_ordered(&self, method: Method, offset: u64, bytes: &[u8]) {
        order::write_modelled(self, method, offset, bytes);
    }

    /// Makes at least `len` bytes accessible; offsets stay valid. New bytes are zero.
    ///
    /// The new length is durable after the next [`sync_file`](Medium::sync_file), whatever is flushed and fenced before.
    ///
    /// # Errors
    ///
    /// When the file cannot grow: the disk or the reserved range is full.
    fn grow(&self, len: u64) -> Result<()>;

    /// Makes sure that storing to a range below [`len`](Medium::len) cannot fail for want of space:
    /// the file's holes in it are filled. Durable as for [`grow`](Medium::grow).
    ///
    /// # Errors
    ///
    /// When the file system is full.
    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Hints that a range will soon be used much: a medium may bring its pages into shape.
    fn expect_use(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Gives whole pages back to the file system; they read as zero afterwards. Returns false where that is impossible,
    /// and then nothing was changed.
    ///
    /// A crash may leave the old bytes of any of these pages until the next [`sync_file`](Medium::sync_file), or until
    /// something is durable that was stored to the page since.
    fn release(&self, offset: u64, len: u64) -> bool;

    /// Makes durable what [`grow`](Medium::grow), [`commit`](Medium::commit) and [`release`](Medium::release) have done
    /// so far, by any thread: what the file system keeps of the file, which no flush and fence of lines reaches. Costs as
    /// much as an `fdatasync`; nothing where only the death of the process is to be survived.
    ///
    /// # Errors
    ///
    /// When the system reports that it failed; then the medium has a [`fault`](Medium::fault).
    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        Ok(())
    }

    /// Hints that the line at `offset` is about to be read.
    fn prefetch(&self, offset: u64) {
        let _ = offset;
    }

    /// Called in every loop that waits for another thread: a spin hint, or a schedule point.
    fn pause(&self);

    /// A small number that is this thread's own while it lives, used to spread threads over lanes.
    fn thread(&self) -> u64;

    /// Seconds since 1970, for what people are told of later. A simulated world has a clock of its
    /// own.
    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// The first fault since the medium was opened, if any.
    fn fault(&self) -> Option<Fault>;
}

/// [`Medium::write_streaming_summed`], one after the other.
pub(crate) fn write_summed<M: Medium>(medium: &M, offset: u64, bytes: &[u8]) -> u32 {
    let sum = crc32c(bytes);
    medium.write_streaming(offset, bytes);
    sum
}

/// A medium shared by reference counting is a medium: tests keep a handle to what a pool runs on.
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
