//! The five ordering methods of nvramdisk (section 6.1, Table 3) in user space, and one of today.
//!
//! The paper's driver sets the caching policy of pages in the kernel. A process cannot: three of the
//! five methods are therefore the *nearest* thing a process can do, and their documentation says so.
//!
//! [`Medium::write_ordered`] makes them work everywhere. A medium that has no instructions of its own does what has
//! the same effect on what a crash leaves.

use std::fmt;

use crate::isa::{self, FlushInstruction, isa, lines};
use crate::mapped::Mapped;
use crate::medium::{LINE_LEN, Medium, WORD_LEN};

/// A way to bring stores to the medium in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// No ordering at all: plain stores, left to the cache. The paper's `async`, a baseline.
    Async,
    /// MCF, explicit cache flush: stores, one CLWB (or CLFLUSHOPT, or CLFLUSH) a line, one fence. Exactly
    /// the paper's method, with the newer instruction where the CPU has it.
    CacheFlush,
    /// MNT, non-temporal: stores that bypass the cache (MOVNTI a word, 64-byte streams a line), one
    /// fence. Exactly the paper's method.
    NonTemporal,
    /// MWT, write-through: *nearest equivalent*. Each word is stored and its line written back at once,
    /// with one fence at the end; the line stays readable in the cache, as under a write-through
    /// policy. The paper sets the page's policy instead and needs no flush.
    WriteThrough,
    /// MUC, uncacheable: *nearest equivalent*. Each word is stored, its line evicted (CLFLUSH), and a full
    /// fence waits for it, so that every access goes to memory. The paper maps the pages uncached.
    Uncacheable,
    /// MWC, write-combining: *nearest equivalent*. Words are gathered in a line-sized buffer on the stack
    /// and leave as one non-temporal line, with one fence at the end. The paper maps the pages
    /// write-combining and the CPU's own buffers gather.
    WriteCombining,
    /// MOVDIR64B: whole lines stored directly, 64 bytes indivisible, one fence. Not in the paper.
    Direct,
}

impl Method {
    /// Those after which bytes are durable: all but [`Method::Async`].
    pub const DURABLE: [Method; 6] = [
        Method::CacheFlush,
        Method::NonTemporal,
        Method::WriteThrough,
        Method::Uncacheable,
        Method::WriteCombining,
        Method::Direct,
    ];

    /// Every method that this CPU can execute.
    pub fn available() -> Vec<Method> {
        let mut methods = vec![Method::Async];
        methods.extend(Method::DURABLE.into_iter().filter(|method| match method {
            Method::Direct => isa().movdir64b,
            _ => isa().flush.is_some(),
        }));
        methods
    }

    /// The paper's abbreviation.
    pub fn name(self) -> &'static str {
        match self {
            Method::Async => "async",
            Method::CacheFlush => "MCF",
            Method::NonTemporal => "MNT",
            Method::WriteThrough => "MWT",
            Method::Uncacheable => "MUC",
            Method::WriteCombining => "MWC",
            Method::Direct => "MOVDIR64B",
        }
    }

    /// Writes `bytes` at `offset` so that they are durable, by this method, when it returns; [`Method::Async`] alone
    /// leaves open when.
    ///
    /// `offset` and the length are multiples of 8 bytes. [`Method::Direct`] stores a partial line by
    /// reading it first, so nobody else may write that line meanwhile.
    ///
    /// # Panics
    ///
    /// When the range is not aligned to words.
    #[inline]
    #[track_caller]
    pub fn write<M: Medium>(self, medium: &M, offset: u64, bytes: &[u8]) {
        medium.write_ordered(self, offset, bytes);
    }

    /// Reads `bytes.len()` bytes at `offset` under this method's caching policy: [`Method::Uncacheable`]
    /// evicts the lines first, so that the loads go to memory; every other method reads the cache.
    pub fn read(self, medium: &Mapped, offset: u64, bytes: &mut [u8]) {
        if self == Method::Uncacheable {
            flush_lines(medium, FlushInstruction::Clflush, offset, bytes.len() as u64);
            isa::full_fence();
        }
        medium.read(offset, bytes);
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn check_words(offset: u64, bytes: &[u8]) {
    assert_eq!(offset % WORD_LEN, 0, "ordering methods write whole words");
    assert_eq!(bytes.len() as u64 % WORD_LEN, 0, "ordering methods write whole words");
}

/// What `method` comes to on any medium, in its own stores, flushes and fences: as durable as by the instructions, in
/// the same order. A line that would be stored at once is not indivisible here.
#[track_caller]
pub(crate) fn write_modelled<M: Medium>(medium: &M, method: Method, offset: u64, bytes: &[u8]) {
    check_words(offset, bytes);
    match method {
        Method::Async => medium.write(offset, bytes),
        // Words that are written back one by one, and then fenced, are in no order among themselves: as one flush.
        Method::CacheFlush | Method::WriteThrough => {
            medium.write(offset, bytes);
            medium.persist(offset, bytes.len() as u64);
        }
        Method::NonTemporal | Method::WriteCombining | Method::Direct => {
            medium.write_streaming(offset, bytes);
            medium.fence();
        }
        Method::Uncacheable => {
            for (index, word) in words(bytes).enumerate() {
                let at = offset + index as u64 * WORD_LEN;
                medium.store(at, word);
                medium.persist(at, WORD_LEN);
            }
        }
    }
}

/// Executes `method` on mapped memory whose lines are written back by `instruction`.
pub(crate) fn write_lines(
    medium: &Mapped,
    method: Method,
    instruction: FlushInstruction,
    offset: u64,
    bytes: &[u8],
) {
    check_words(offset, bytes);
    if medium.address(offset, bytes.len() as u64).is_none() {
        return;
    }
    match method {
        Method::Async => medium.write(offset, bytes),
        Method::CacheFlush => {
            medium.write(offset, bytes);
            flush_lines(medium, instruction, offset, bytes.len() as u64);
            isa::store_fence(instruction);
        }
        Method::Direct if isa().movdir64b => {
            direct(medium, offset, bytes);
            isa::store_fence(instruction);
        }
        // A CPU without direct stores has the next best.
        Method::NonTemporal | Method::Direct => {
            stream(medium, offset, bytes);
            isa::store_fence(instruction);
        }
        Method::WriteThrough => {
            write_through(medium, instruction, offset, bytes);
            isa::store_fence(instruction);
        }
        Method::Uncacheable => uncached(medium, offset, bytes),
        Method::WriteCombining => {
            combine(medium, offset, bytes);
            isa::store_fence(instruction);
        }
    }
}

#[inline(always)]
fn flush_lines(medium: &Mapped, instruction: FlushInstruction, offset: u64, len: u64) {
    let (first, count) = lines(offset, len);
    let Some(start) = medium.address(first, count * LINE_LEN) else { return };
    for line in 0..count {
        // SAFETY: the line lies in the range that was just checked.
        let address = unsafe { start.add((line * LINE_LEN) as usize) };
        // SAFETY: the address is mapped; the instruction was detected.
        unsafe { isa::flush_line(instruction, address) };
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn stream(medium: &Mapped, offset: u64, bytes: &[u8]) {
    let whole_lines =
        offset.is_multiple_of(LINE_LEN) && (bytes.len() as u64).is_multiple_of(LINE_LEN);
    let Some(to) = medium.address(offset, bytes.len() as u64) else { return };
    if whole_lines {
        // SAFETY: the range is checked, aligned to lines, and its caller owns it.
        unsafe { isa::stream_lines(to, bytes.as_ptr(), bytes.len() / LINE_LEN as usize) };
        return;
    }
    for (index, word) in words(bytes).enumerate() {
        // SAFETY: `index` counts words of the checked range.
        let target = unsafe { to.cast::<u64>().add(index) };
        // SAFETY: the target is inside the range and aligned to 8.
        unsafe { isa::stream_word(target, word.to_le()) };
    }
}

fn write_through(medium: &Mapped, instruction: FlushInstruction, offset: u64, bytes: &[u8]) {
    for (index, word) in words(bytes).enumerate() {
        let at = offset + index as u64 * WORD_LEN;
        medium.store(at, word);
        flush_lines(medium, instruction, at, WORD_LEN);
    }
}

fn uncached(medium: &Mapped, offset: u64, bytes: &[u8]) {
    for (index, word) in words(bytes).enumerate() {
        let at = offset + index as u64 * WORD_LEN;
        medium.store(at, word);
        flush_lines(medium, FlushInstruction::Clflush, at, WORD_LEN);
        isa::full_fence();
    }
}

fn combine(medium: &Mapped, offset: u64, bytes: &[u8]) {
    let mut at = offset;
    for part in split_at_lines(offset, bytes) {
        let mut buffer = [0; LINE_LEN as usize];
        buffer[..part.len()].copy_from_slice(part);
        stream(medium, at, &buffer[..part.len()]);
        at += part.len() as u64;
    }
}

fn direct(medium: &Mapped, offset: u64, bytes: &[u8]) {
    let mut at = offset;
    for part in split_at_lines(offset, bytes) {
        let line = at & !(LINE_LEN - 1);
        let mut buffer = [0; LINE_LEN as usize];
        if part.len() < buffer.len() {
            medium.read(line, &mut buffer);
        }
        let start = (at - line) as usize;
        buffer[start..start + part.len()].copy_from_slice(part);
        let Some(to) = medium.address(line, LINE_LEN) else { return };
        // SAFETY: `write_lines` comes here only where MOVDIR64B was detected; the line is inside the mapping and
        // aligned.
        unsafe { isa::direct_line(to, buffer.as_ptr()) };
        at += part.len() as u64;
    }
}

/// The parts of `bytes` that fall into one line each, when they are placed at `offset`.
fn split_at_lines(offset: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head_len = (offset.next_multiple_of(LINE_LEN) - offset) as usize;
    let (head, rest) = bytes.split_at(head_len.min(bytes.len()));
    std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(LINE_LEN as usize))
}
