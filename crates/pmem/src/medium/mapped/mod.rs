//! The medium of production: each call is the bare instruction on mapped memory.

pub(super) mod huge;
pub(crate) mod mapping;
mod ordered;
mod sigbus;
mod signals;

pub use signals::ignore_file_size_signal;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use portable_atomic::AtomicU128;

use self::huge::Preparer;
use self::mapping::{Access, Mapping};
use super::Medium;
use super::backing::{Backing, Durability, Emulation};
use super::fault::Fault;
use super::frozen::Frozen;
use super::isa::{self, FlushInstruction, isa};
use super::order::{self, Method};
#[cfg(target_arch = "x86_64")]
use super::summed;
use super::units::{LINE_LEN, PAGE_LEN, WORD_LEN, lines};
use crate::error::{Error, Result};

/// The effect of `flush` and `fence` on this pool, decided when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// None: memory outlives the process, so program order is enough.
    None,
    /// An instruction writes lines back.
    Lines(FlushInstruction),
    /// `msync` writes pages back.
    Pages,
}

/// Minimal length of a copy past the cache; shorter copies are faster with flushes.
const STREAM_LEN_MIN: usize = 256;
/// Maximal length of the zeros that a view outside the pool shows. A damaged offset probably comes
/// with a damaged length.
const ZEROS_MAX: u64 = 65_536;

/// A mapped pool file.
///
/// `flush` and `fence` execute what the backing needs for the chosen durability: nothing for memory
/// that only has to outlive the process; CLWB and SFENCE for persistent memory; `msync` of the
/// flushed pages for a file that has to survive a power loss.
#[derive(Debug)]
pub struct Mapped {
    /// Address of the mapping, here because every access needs it.
    base: *mut u8,
    reserved: u64,
    mapping: Arc<Mapping>,
    policy: Policy,
    /// Whether the file's length and holes have to survive a power loss.
    syncs_file: bool,
    /// The first fault, encoded by [`encode_fault`]; boxed because the SIGBUS handler keeps its
    /// address.
    fault: Box<AtomicU64>,
    /// Page ranges flushed but not yet written back, under [`Policy::Pages`].
    unsynced: Mutex<Vec<(u64, u64)>>,
    /// Makes huge pages ahead of need, in a pool that is large enough to profit from them.
    preparer: OnceLock<Option<Preparer>>,
}

// SAFETY: `base` points into the mapping, which is shared memory and itself Send and Sync.
unsafe impl Send for Mapped {}
// SAFETY: as for Send.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Flushes with `instruction`, which the CPU has, or else with the best instruction.
    pub(crate) fn new(
        mapping: Mapping,
        durability: Durability,
        emulation: Emulation,
        instruction: Option<FlushInstruction>,
    ) -> Self {
        let instruction = instruction.or(isa().flush).unwrap_or(FlushInstruction::Clflush);
        let policy = match (mapping.backing(), durability, emulation) {
            // Private memory does not outlive the process.
            _ if mapping.access() == Access::Private => Policy::None,
            (_, _, Emulation::Nvram) => Policy::Lines(instruction),
            (_, _, Emulation::Latency(_)) => Policy::None,
            (Backing::Memory, _, _) | (Backing::File, Durability::Process, _) => Policy::None,
            // CPU caches survive a process crash but not a power failure, so only `Power` needs
            // flush instructions.
            (Backing::Dax, Durability::Process, _) => Policy::None,
            (Backing::Dax, Durability::Power, _) => Policy::Lines(instruction),
            (Backing::File, Durability::Power, _) => Policy::Pages,
        };
        let fault = Box::new(AtomicU64::new(0));
        sigbus::register(mapping.base(), mapping.reserved(), &fault);
        Mapped {
            base: mapping.base(),
            reserved: mapping.reserved(),
            mapping: Arc::new(mapping),
            policy,
            syncs_file: durability == Durability::Power,
            fault,
            unsynced: Mutex::new(Vec::new()),
            preparer: OnceLock::new(),
        }
    }

    /// The pool file.
    pub fn path(&self) -> &Path {
        self.mapping.path()
    }

    /// Bytes of storage that the file occupies, holes not counted.
    ///
    /// # Errors
    ///
    /// When the system cannot inspect the file.
    pub fn physical_len(&self) -> Result<u64> {
        self.mapping.physical_len()
    }

    /// Address of `len` bytes at `offset`. If they lie outside the pool: `None`, and the fault is
    /// noted.
    #[inline(always)]
    pub(crate) fn address(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let in_range = offset.checked_add(len).is_some_and(|end| end <= self.reserved);
        if !in_range {
            self.note_fault(Fault::OutOfRange(offset));
            return None;
        }
        // SAFETY: the range was just checked to lie inside the mapping.
        Some(unsafe { self.base.add(offset as usize) })
    }

    #[inline(always)]
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let aligned = offset & !(WORD_LEN - 1);
        let address = self.address(aligned, WORD_LEN)?.cast::<AtomicU64>();
        // SAFETY: the address is valid for 8 bytes, aligned, and only accessed atomically or by
        // copies of unpublished memory.
        Some(unsafe { &*address })
    }

    #[inline(always)]
    fn pair(&self, offset: u64) -> Option<&AtomicU128> {
        let aligned = offset & !(2 * WORD_LEN - 1);
        let address = self.address(aligned, 2 * WORD_LEN)?.cast::<AtomicU128>();
        // SAFETY: as in `word`, for 16 bytes aligned to 16.
        Some(unsafe { &*address })
    }

    #[cold]
    fn decode_fault(&self, word: u64) -> Fault {
        let offset = word & OFFSET_MASK;
        if word & sigbus::POISONED == 0 && word & OUT_OF_RANGE == 0 {
            return Fault::WriteBack(offset, (word >> ERRNO_SHIFT & 0xfff) as i32);
        }
        // A wrong offset behind the file's end, but inside the reserved range, also raises SIGBUS.
        if word & OUT_OF_RANGE != 0 || offset >= self.len() {
            return Fault::OutOfRange(offset);
        }
        Fault::Poisoned(offset)
    }

    #[cold]
    fn note_fault(&self, fault: Fault) {
        // Relaxed: the first fault counts; it publishes nothing else.
        let _ = self.fault.compare_exchange(
            0,
            encode_fault(fault),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    #[cold]
    fn flush_pages(&self, offset: u64, len: u64) {
        if self.address(offset, len).is_none() {
            return;
        }
        let start = offset & !(PAGE_LEN - 1);
        let end = (offset + len).next_multiple_of(PAGE_LEN);
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).push((start, end));
    }

    /// Writes back every range flushed so far, by any thread. The lock is held meanwhile, so that a
    /// thread whose range another one took does not return before the range is on the disk.
    ///
    /// It is one `msync` from the first page to the last. This writes the dirty pages among them;
    /// several calls would each wait for the disk.
    #[cold]
    fn sync_pages(&self) {
        let mut ranges = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let start = ranges.iter().map(|range| range.0).min();
        let end = ranges.iter().map(|range| range.1).max();
        ranges.clear();
        if let (Some(start), Some(end)) = (start, end)
            && let Err(errno) = self.mapping.sync(start, end - start)
        {
            self.note_fault(Fault::WriteBack(start, errno.raw_os_error()));
        }
    }
}

const OUT_OF_RANGE: u64 = 1 << 62;
const WRITE_BACK: u64 = 1 << 61;
const ERRNO_SHIFT: u32 = 48;
const OFFSET_MASK: u64 = (1 << ERRNO_SHIFT) - 1;

fn encode_fault(fault: Fault) -> u64 {
    match fault {
        Fault::Poisoned(offset) => sigbus::POISONED | (offset & OFFSET_MASK),
        Fault::OutOfRange(offset) => OUT_OF_RANGE | (offset & OFFSET_MASK),
        Fault::WriteBack(offset, errno) => {
            WRITE_BACK | ((errno as u64 & 0xfff) << ERRNO_SHIFT) | (offset & OFFSET_MASK)
        }
    }
}

impl Medium for Mapped {
    #[inline(always)]
    fn len(&self) -> u64 {
        self.mapping.len()
    }

    #[inline(always)]
    fn needs_flush(&self) -> bool {
        self.policy != Policy::None
    }

    #[inline(always)]
    fn load(&self, offset: u64) -> u64 {
        // Acquire: partner of the Release of `store` and of the compare-exchanges.
        self.word(offset).map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.word(offset) {
            // Release: partner of the Acquire of `load`.
            word.store(value.to_le(), Ordering::Release);
        }
    }

    #[inline(always)]
    fn window(&self, offset: u64, len: u64) -> Option<impl Fn(u64) -> u64> {
        let aligned = offset & !(WORD_LEN - 1);
        let base = self.address(aligned, len)?;
        Some(move |at: u64| {
            let at = at & !(WORD_LEN - 1);
            if at >= len || len - at < WORD_LEN {
                return 0;
            }
            // SAFETY: the word lies in the checked range.
            let word = unsafe { base.add(at as usize) }.cast::<AtomicU64>();
            // SAFETY: as in `word`; the mapping outlives the borrow of the medium.
            let word = unsafe { &*word };
            // Acquire: partner of the Release of `store`.
            u64::from_le(word.load(Ordering::Acquire))
        })
    }

    #[inline(always)]
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        let Some(word) = self.word(offset) else { return exchange_zero(current) };
        // SeqCst: this is a locked instruction in any case, and pins rely on its total order.
        word.compare_exchange(current.to_le(), new.to_le(), Ordering::SeqCst, Ordering::SeqCst)
            .map(u64::from_le)
            .map_err(u64::from_le)
    }

    #[inline(always)]
    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        let Some(pair) = self.pair(offset) else { return exchange_zero(current) };
        // SeqCst: as for single words.
        pair.compare_exchange(join(current), join(new), Ordering::SeqCst, Ordering::SeqCst)
            .map(split)
            .map_err(split)
    }

    #[inline(always)]
    fn fetch_or(&self, offset: u64, mask: u64) -> u64 {
        let Some(word) = self.word(offset) else { return 0 };
        // SeqCst: as for compare_exchange.
        u64::from_le(word.fetch_or(mask.to_le(), Ordering::SeqCst))
    }

    #[inline(always)]
    fn fetch_and(&self, offset: u64, mask: u64) -> u64 {
        let Some(word) = self.word(offset) else { return 0 };
        // SeqCst: as for compare_exchange.
        u64::from_le(word.fetch_and(mask.to_le(), Ordering::SeqCst))
    }

    #[inline]
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let Some(from) = self.address(offset, bytes.len() as u64) else { return bytes.fill(0) };
        // SAFETY: the source is valid for the length. Concurrent stores to it are atomic words of
        // our own protocol; callers validate torn copies, or never see them.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) {
        let Some(to) = self.address(offset, bytes.len() as u64) else { return };
        // SAFETY: the target is valid for the length and unpublished, so nobody else accesses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        compiler_fence(Ordering::SeqCst);
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        let Policy::Lines(_) = self.policy else {
            self.write(offset, bytes);
            self.flush(offset, bytes.len() as u64);
            return;
        };
        if bytes.len() < STREAM_LEN_MIN {
            self.write(offset, bytes);
            self.flush(offset, bytes.len() as u64);
            return;
        }
        if self.address(offset, bytes.len() as u64).is_none() {
            return;
        }
        // The misaligned ends go through the cache, the whole lines between them past it.
        let head_len = (offset.next_multiple_of(LINE_LEN) - offset) as usize;
        let (head, rest) = bytes.split_at(head_len);
        let (body, tail) = rest.split_at(rest.len() / LINE_LEN as usize * LINE_LEN as usize);
        let body_at = offset + head.len() as u64;
        let tail_at = body_at + body.len() as u64;
        self.write(offset, head);
        self.flush(offset, head.len() as u64);
        if let Some(to) = self.address(body_at, body.len() as u64) {
            // SAFETY: the target is aligned to a line, valid for the length and unpublished.
            unsafe { isa::stream_lines(to, body.as_ptr(), body.len() / LINE_LEN as usize) };
        }
        self.write(tail_at, tail);
        self.flush(tail_at, tail.len() as u64);
    }

    fn write_streaming_summed(&self, offset: u64, bytes: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if matches!(self.policy, Policy::Lines(_))
            && offset.is_multiple_of(LINE_LEN)
            && bytes.len().is_multiple_of(summed::STEP_LEN)
            && !bytes.is_empty()
            && summed::is_possible()
            && let Some(to) = self.address(offset, bytes.len() as u64)
        {
            // SAFETY: the CPU has the instructions. The target is aligned to a line, unpublished,
            // and valid for the length, which is a multiple of a step.
            return unsafe {
                summed::stream_steps(to, bytes.as_ptr(), bytes.len() / summed::STEP_LEN)
            };
        }
        super::write_summed(self, offset, bytes)
    }

    fn write_zeros(&self, offset: u64, len: u64) {
        let Some(to) = self.address(offset, len) else { return };
        // SAFETY: the target is valid for the length and unpublished.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) };
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        let Some(from) = self.address(range.offset(), range.len()) else {
            return Cow::Owned(vec![0; range.len().min(ZEROS_MAX) as usize]);
        };
        // SAFETY: the range lies inside the mapping, and the creator of the `Frozen` promised that
        // nobody writes it while the view lives.
        Cow::Borrowed(unsafe { slice::from_raw_parts(from, range.len() as usize) })
    }

    #[inline]
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        // SAFETY: callers compare published, immutable bytes, and the view ends with this call.
        let range = unsafe { Frozen::new(offset, bytes.len() as u64) };
        *self.view(range) == *bytes
    }

    #[inline(always)]
    #[track_caller]
    fn flush(&self, offset: u64, len: u64) {
        match self.policy {
            // Order for the compiler is enough, because the caches survive the death of the
            // process.
            Policy::None => compiler_fence(Ordering::SeqCst),
            Policy::Lines(instruction) => {
                let (first, count) = lines(offset, len);
                let Some(start) = self.address(first, count * LINE_LEN) else { return };
                for line in 0..count {
                    // SAFETY: the line lies in the checked range.
                    let address = unsafe { start.add((line * LINE_LEN) as usize) };
                    // SAFETY: the address is mapped, and the CPU has the instruction.
                    unsafe { isa::flush_line(instruction, address) };
                }
            }
            Policy::Pages => self.flush_pages(offset, len),
        }
    }

    #[inline(always)]
    #[track_caller]
    fn fence(&self) {
        match self.policy {
            Policy::None => compiler_fence(Ordering::SeqCst),
            Policy::Lines(instruction) => isa::store_fence(instruction),
            Policy::Pages => self.sync_pages(),
        }
    }

    /// Uses the method's own instructions if lines have to be written back. Elsewhere they would
    /// gain nothing: a process may die after any store, and a page reaches the file only by
    /// `msync`.
    #[inline]
    #[track_caller]
    fn write_ordered(&self, method: Method, offset: u64, bytes: &[u8]) {
        match self.policy {
            Policy::Lines(instruction) => {
                ordered::write_lines(self, method, instruction, offset, bytes);
            }
            Policy::None | Policy::Pages => order::write_modelled(self, method, offset, bytes),
        }
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.mapping.grow(len)
    }

    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.mapping.commit(offset, len)
    }

    fn expect_use(&self, offset: u64, len: u64) {
        if self.mapping.backing() == Backing::Memory && self.mapping.access() == Access::Shared {
            let preparer = self.preparer.get_or_init(|| Preparer::start(&self.mapping).ok());
            if let Some(preparer) = preparer {
                preparer.ask(offset, len);
            }
        }
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        if let Some(Some(preparer)) = self.preparer.get() {
            preparer.forget(offset, len);
        }
        self.mapping.release(offset, len)
    }

    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        if !self.syncs_file {
            return Ok(());
        }
        self.mapping.sync_file().map_err(|errno| {
            // The page is in an unknown state: a later sync may succeed although it lost the data
            // of this one.
            let fault = Fault::WriteBack(0, errno.raw_os_error());
            self.note_fault(fault);
            Error::Medium(fault)
        })
    }

    #[inline(always)]
    fn prefetch(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.base.wrapping_add(offset as usize);
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    #[inline]
    fn pause(&self) {
        std::hint::spin_loop();
        std::thread::yield_now();
    }

    #[inline(always)]
    fn thread(&self) -> u64 {
        thread_number()
    }

    #[inline(always)]
    fn fault(&self) -> Option<Fault> {
        // Relaxed: program order makes faults of this thread's own accesses visible to it.
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            word => Some(self.decode_fault(word)),
        }
    }
}

/// A compare-exchange outside the pool: the word reads as zero and stays zero.
#[cold]
fn exchange_zero<T: Default + PartialEq>(current: T) -> Result<T, T> {
    let zero = T::default();
    if current == zero { Ok(zero) } else { Err(zero) }
}

fn join(words: [u64; 2]) -> u128 {
    u128::from(words[0].to_le()) | u128::from(words[1].to_le()) << 64
}

fn split(pair: u128) -> [u64; 2] {
    [u64::from_le(pair as u64), u64::from_le((pair >> 64) as u64)]
}

/// The smallest number, from 0, that no other living thread of the process has.
#[inline(always)]
pub(crate) fn thread_number() -> u64 {
    NUMBER.with(|number| match number.get() {
        UNNUMBERED => {
            let fresh = NumberGuard::take();
            number.set(fresh);
            fresh
        }
        known => known,
    })
}

const UNNUMBERED: u64 = u64::MAX;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(UNNUMBERED) };
    /// Gives the number back when the thread ends. Separate from the number, so that reading the
    /// number stays one load.
    static GUARD: Cell<Option<NumberGuard>> = const { Cell::new(None) };
}

/// Numbers given back by ended threads, and the smallest number never used.
static NUMBERS: Mutex<(BTreeSet<u64>, u64)> = Mutex::new((BTreeSet::new(), 0));

struct NumberGuard(u64);

impl NumberGuard {
    #[cold]
    fn take() -> u64 {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = numbers.0.pop_first().unwrap_or_else(|| {
            numbers.1 += 1;
            numbers.1 - 1
        });
        // A thread that is already ending keeps its number for good, because nothing can give it
        // back.
        let _ = GUARD.try_with(|guard| guard.set(Some(NumberGuard(number))));
        number
    }
}

impl Drop for NumberGuard {
    fn drop(&mut self) {
        let _ = NUMBER.try_with(|number| number.set(UNNUMBERED));
        NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).0.insert(self.0);
    }
}
