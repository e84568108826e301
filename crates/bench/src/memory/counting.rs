//! A medium that counts failed compare-exchanges, and fences.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use remanent_pmem::{Emulation, Fault, Format, Frozen, Mapped, Medium, Pool, Word};

use super::pool;

/// The memory of a pool file, the number of failed compare-exchanges that should have changed a
/// link's target, and that of fences.
///
/// Exchanges that only clear the mark of a word are not counted: if another thread has cleared it
/// first, nothing is lost.
pub(crate) struct Counting {
    /// Provides its mapping; its superblock is overwritten by that of the pool on this medium.
    lender: Pool,
    failed: AtomicU64,
    fences: AtomicU64,
}

impl Counting {
    /// A new pool on such a medium in an empty directory.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn pool(directory: &Path, emulation: Emulation) -> Result<Pool<Arc<Counting>>> {
        let lender = pool::options(emulation).create(directory.join("counting.pool"))?;
        let guarantee = lender.guarantee().clone();
        let format = Format { guarantee, ..Format::new(lender.size_max()) };
        let medium =
            Arc::new(Counting { lender, failed: AtomicU64::new(0), fences: AtomicU64::new(0) });
        Ok(Pool::format(medium, &format)?)
    }

    /// Number of failed compare-exchanges so far.
    pub(crate) fn failed(&self) -> u64 {
        // Relaxed: the threads that counted have ended.
        self.failed.load(Ordering::Relaxed)
    }

    /// Number of fences so far.
    pub(crate) fn fences(&self) -> u64 {
        // Relaxed: one thread alone asks.
        self.fences.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn mapped(&self) -> &Mapped {
        self.lender.medium()
    }
}

impl Medium for Counting {
    fn len(&self) -> u64 {
        self.mapped().len()
    }
    fn needs_flush(&self) -> bool {
        self.mapped().needs_flush()
    }
    fn load(&self, offset: u64) -> u64 {
        self.mapped().load(offset)
    }
    fn store(&self, offset: u64, value: u64) {
        self.mapped().store(offset, value);
    }
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        let exchanged = self.mapped().compare_exchange(offset, current, new);
        let leads_elsewhere = Word::from_raw(current).offset() != Word::from_raw(new).offset();
        if exchanged.is_err() && leads_elsewhere {
            // Relaxed: a count, read when the threads have ended.
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        exchanged
    }
    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        self.mapped().compare_exchange_pair(offset, current, new)
    }
    fn fetch_or(&self, offset: u64, mask: u64) -> u64 {
        self.mapped().fetch_or(offset, mask)
    }
    fn fetch_and(&self, offset: u64, mask: u64) -> u64 {
        self.mapped().fetch_and(offset, mask)
    }
    fn fetch_add(&self, offset: u64, addend: u64) -> u64 {
        self.mapped().fetch_add(offset, addend)
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.mapped().read(offset, bytes);
    }
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.mapped().write(offset, bytes);
    }
    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.mapped().write_streaming(offset, bytes);
    }
    fn write_streaming_summed(&self, offset: u64, bytes: &[u8]) -> u32 {
        self.mapped().write_streaming_summed(offset, bytes)
    }
    fn write_zeros(&self, offset: u64, len: u64) {
        self.mapped().write_zeros(offset, len);
    }
    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        self.mapped().view(range)
    }
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.mapped().equals(offset, bytes)
    }
    fn flush(&self, offset: u64, len: u64) {
        self.mapped().flush(offset, len);
    }
    fn fence(&self) {
        // Relaxed: a count.
        self.fences.fetch_add(1, Ordering::Relaxed);
        self.mapped().fence();
    }
    fn grow(&self, len: u64) -> remanent_pmem::Result<()> {
        self.mapped().grow(len)
    }
    fn commit(&self, offset: u64, len: u64) -> remanent_pmem::Result<()> {
        self.mapped().commit(offset, len)
    }
    fn expect_use(&self, offset: u64, len: u64) {
        self.mapped().expect_use(offset, len);
    }
    fn release(&self, offset: u64, len: u64) -> bool {
        self.mapped().release(offset, len)
    }
    fn prefetch(&self, offset: u64) {
        self.mapped().prefetch(offset);
    }
    fn pause(&self) {
        self.mapped().pause();
    }
    fn thread(&self) -> u64 {
        self.mapped().thread()
    }
    fn fault(&self) -> Option<Fault> {
        self.mapped().fault()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_led_elsewhere_is_counted_and_a_mark_that_is_not_taken_is_not() {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        let pool = Counting::pool(scratch.path(), Emulation::None).expect("there is space");
        let medium = pool.medium();
        let offset = medium.len() - 8;
        assert_eq!(medium.compare_exchange(offset, 0, 16), Ok(0));
        assert_eq!(medium.compare_exchange(offset, 32 | Word::DIRTY, 32), Err(16));
        assert_eq!(medium.failed(), 0);
        assert_eq!(medium.compare_exchange(offset, 32, 48), Err(16));
        assert_eq!(medium.failed(), 1);
        let before = medium.fences();
        medium.persist(offset, 8);
        assert_eq!(medium.fences(), before + 1);
    }
}
