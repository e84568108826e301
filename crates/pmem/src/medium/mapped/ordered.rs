//! The ordering methods on mapped memory, with the CPU's instructions.

use super::Mapped;
use crate::medium::Medium;
use crate::medium::isa::{self, FlushInstruction, isa};
use crate::medium::order::{Method, check_words, words};
use crate::medium::units::{LINE_LEN, WORD_LEN, lines};

impl Method {
    /// Reads `bytes.len()` bytes at `offset` under this method's caching policy:
    /// [`Method::Uncacheable`] evicts the lines first, so that the loads go to memory; every other
    /// method reads the cache.
    pub fn read(self, medium: &Mapped, offset: u64, bytes: &mut [u8]) {
        if self == Method::Uncacheable {
            flush_lines(medium, FlushInstruction::Clflush, offset, bytes.len() as u64);
            isa::full_fence();
        }
        medium.read(offset, bytes);
    }
}

/// Executes `method` on mapped memory whose lines `instruction` writes back.
pub(super) fn write_lines(
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
        // A CPU without direct stores uses the next best.
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
        // SAFETY: the line lies in the checked range.
        let address = unsafe { start.add((line * LINE_LEN) as usize) };
        // SAFETY: the address is mapped; the instruction was detected.
        unsafe { isa::flush_line(instruction, address) };
    }
}

fn stream(medium: &Mapped, offset: u64, bytes: &[u8]) {
    let whole_lines =
        offset.is_multiple_of(LINE_LEN) && (bytes.len() as u64).is_multiple_of(LINE_LEN);
    let Some(to) = medium.address(offset, bytes.len() as u64) else { return };
    if whole_lines {
        // SAFETY: the range is checked and aligned to lines, and its caller owns it.
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
        // SAFETY: `write_lines` calls this only if MOVDIR64B was detected; the line is inside the
        // mapping and aligned.
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
