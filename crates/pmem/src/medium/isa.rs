//! CPU instructions that order and persist stores, chosen at run time.
//!
//! The `asm!` blocks here have no `nomem` option. So each is also a compiler barrier, and the
//! compiler moves no store across a flush or a fence.

use std::sync::OnceLock;

/// The instruction that writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes back and keeps the line; ordered by a store fence.
    Clwb,
    /// Writes back and evicts; ordered by a store fence.
    ClflushOpt,
    /// Writes back and evicts; ordered by a full fence on every vendor.
    Clflush,
    /// Cleans to the point of persistence (aarch64).
    DcCvap,
}

/// The relevant instructions of this CPU.
#[derive(Clone, Copy, Debug)]
pub struct Isa {
    /// The best instruction that writes a line back; `None` if there is none.
    pub flush: Option<FlushInstruction>,
    /// Whether MOVDIR64B exists, which stores a whole line at once, past the cache.
    pub movdir64b: bool,
    /// Whether 64-byte non-temporal stores exist (AVX-512).
    pub stream64: bool,
    /// Whether 64-byte carry-less multiplication exists (VPCLMULQDQ), for checksums during a copy.
    pub carryless64: bool,
}

/// The instructions of the running CPU, detected once.
pub fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let leaf_max = __cpuid(0).eax;
    let leaf7_ecx = if leaf_max >= 7 { __cpuid_count(7, 0).ecx } else { 0 };
    let best = [FlushInstruction::Clwb, FlushInstruction::ClflushOpt, FlushInstruction::Clflush];
    Isa {
        flush: best.into_iter().find(|&instruction| has(instruction)),
        movdir64b: leaf7_ecx & (1 << 28) != 0,
        stream64: is_x86_feature_detected!("avx512f"),
        carryless64: is_x86_feature_detected!("vpclmulqdq"),
    }
}

/// Whether the running CPU has this instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has(instruction: FlushInstruction) -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let leaf7_ebx = || if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    match instruction {
        FlushInstruction::Clwb => leaf7_ebx() & (1 << 24) != 0,
        FlushInstruction::ClflushOpt => leaf7_ebx() & (1 << 23) != 0,
        FlushInstruction::Clflush => __cpuid(1).edx & (1 << 19) != 0,
        FlushInstruction::DcCvap => false,
    }
}

/// Whether the running CPU has this instruction.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has(instruction: FlushInstruction) -> bool {
    isa().flush == Some(instruction)
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Isa {
    let flush = std::arch::is_aarch64_feature_detected!("dpb").then_some(FlushInstruction::DcCvap);
    Isa { flush, movdir64b: false, stream64: false, carryless64: false }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Isa {
    Isa { flush: None, movdir64b: false, stream64: false, carryless64: false }
}

/// Starts writing back the line that holds `address`.
///
/// # Safety
///
/// `address` lies in mapped memory, and the CPU has `instruction`.
#[inline(always)]
pub(crate) unsafe fn flush_line(instruction: FlushInstruction, address: *const u8) {
    match instruction {
        #[cfg(target_arch = "x86_64")]
        FlushInstruction::Clwb => {
            // SAFETY: the caller promises mapped memory and a CPU with CLWB. The instruction
            // changes no architectural state except the cache.
            unsafe {
                core::arch::asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags));
            }
        }
        #[cfg(target_arch = "x86_64")]
        FlushInstruction::ClflushOpt => {
            // SAFETY: as for CLWB.
            unsafe {
                core::arch::asm!("clflushopt [{}]", in(reg) address,
                    options(nostack, preserves_flags));
            }
        }
        #[cfg(target_arch = "x86_64")]
        FlushInstruction::Clflush => {
            // SAFETY: as for CLWB.
            unsafe {
                core::arch::asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
            }
        }
        #[cfg(target_arch = "aarch64")]
        FlushInstruction::DcCvap => {
            // SAFETY: as for CLWB; `dpb` was detected.
            unsafe {
                core::arch::asm!("dc cvap, {}", in(reg) address, options(nostack, preserves_flags));
            }
        }
        #[allow(unreachable_patterns, reason = "instructions of other architectures")]
        _ => {
            let _ = address;
        }
    }
}

/// Waits for earlier flushes and non-temporal stores of this thread.
#[inline(always)]
pub(crate) fn store_fence(instruction: FlushInstruction) {
    #[cfg(target_arch = "x86_64")]
    if instruction == FlushInstruction::Clflush {
        full_fence();
    } else {
        // SAFETY: SFENCE is part of the x86-64 baseline and touches no memory.
        unsafe {
            core::arch::asm!("sfence", options(nostack, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let _ = instruction;
        // SAFETY: a barrier touches no memory.
        unsafe {
            core::arch::asm!("dsb ish", options(nostack, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = instruction;
        full_fence();
    }
}

/// A fence that also orders loads.
#[inline(always)]
pub(crate) fn full_fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: MFENCE is part of the x86-64 baseline and touches no memory. The atomic fence above
    // may compile to a locked instruction, which does not wait for CLFLUSH on every vendor.
    unsafe {
        core::arch::asm!("mfence", options(nostack, preserves_flags));
    }
}

/// Stores a word past the cache.
///
/// # Safety
///
/// `address` is valid for an 8-byte write and aligned to 8.
#[inline(always)]
pub(crate) unsafe fn stream_word(address: *mut u64, value: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller promises a valid aligned address; MOVNTI is in the baseline.
    unsafe {
        core::arch::asm!("movnti [{}], {}", in(reg) address, in(reg) value,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller promises a valid aligned address.
    unsafe {
        address.write_volatile(value);
    }
}

/// Copies whole lines past the cache with the widest non-temporal stores.
///
/// # Safety
///
/// `to` is valid for `lines * 64` bytes of writes and aligned to 64, `from` valid for as many bytes
/// of reads, and they do not overlap.
pub(crate) unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    if isa().stream64 {
        // SAFETY: AVX-512 was detected; the caller's promises are passed on.
        unsafe { stream_lines_avx512(to, from, lines) };
        return;
    }
    for word in 0..lines * 8 {
        // SAFETY: `word` counts words inside the range the caller promised.
        let source = unsafe { from.cast::<u64>().add(word) };
        // SAFETY: `source` is inside the promised range; the read needs no alignment.
        let value = unsafe { source.read_unaligned() };
        // SAFETY: as for the source, and `to` is aligned.
        let target = unsafe { to.cast::<u64>().add(word) };
        // SAFETY: `target` is inside the promised range, aligned to 8.
        unsafe { stream_word(target, value) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines_avx512(to: *mut u8, from: *const u8, lines: usize) {
    use core::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
    for line in 0..lines {
        // SAFETY: `line` counts lines inside the range the caller promised.
        let source = unsafe { from.add(line * 64).cast::<__m512i>() };
        // SAFETY: the source range is readable; the load needs no alignment.
        let value = unsafe { _mm512_loadu_si512(source) };
        // SAFETY: as above for the target.
        let target = unsafe { to.add(line * 64).cast::<__m512i>() };
        // SAFETY: the target is aligned to 64 and writable.
        unsafe { _mm512_stream_si512(target, value) };
    }
}

/// Stores one line at once, past the cache, with MOVDIR64B.
///
/// # Safety
///
/// The CPU has MOVDIR64B; `to` is writable for 64 bytes and aligned to 64, `from` readable for 64.
#[inline(always)]
pub(crate) unsafe fn direct_line(to: *mut u8, from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller promises the feature, the alignment and both ranges.
    unsafe {
        core::arch::asm!("movdir64b {}, [{}]", in(reg) to, in(reg) from,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller promises both ranges.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, 64);
    }
}

/// The time-stamp counter where there is one, else nanoseconds of the monotonic clock.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC is part of the x86-64 baseline.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}
