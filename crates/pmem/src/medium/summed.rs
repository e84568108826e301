//! A copy past the cache that computes the checksum of the copied bytes. The memory takes lines
//! more slowly than the core can sum them, so the checksum costs hardly any time.
//!
//! The checksum is CRC-32C, computed by folding: the polynomial to be divided is replaced by a
//! shorter one with the same remainder, many bytes at a time (Gopal and others, "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).

use core::arch::x86_64::*;

/// Bytes that are copied in one step.
pub(crate) const STEP_LEN: usize = 256;

/// Whether the CPU has the instructions of [`stream_steps`]. A CPU with AVX-512 has SSE 4.2.
#[inline]
pub(crate) fn is_possible() -> bool {
    let isa = super::isa::isa();
    isa.stream64 && isa.carryless64
}

/// x^n modulo the polynomial, with bits reflected as in the registers, and shifted left once,
/// because the product of reflected factors lies one bit to the right.
const fn power(n: u32) -> u64 {
    /// The polynomial without its first term, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let (mut value, mut step) = (1 << 31, 0);
    while step < n {
        value = value >> 1 ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
        step += 1;
    }
    (value as u64) << 1
}

/// Factors that move the halves of 16 bytes forward by so many bytes.
const fn further(bytes: u32) -> [u64; 2] {
    [power(bytes * 8 + 32), power(bytes * 8 - 32)]
}

/// Factors for the four times 16 bytes of a register. 0 means that these 16 bytes stay in place.
const fn factors(bytes: [u32; 4]) -> [u64; 8] {
    let mut factors = [0; 8];
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] > 0 {
            [factors[2 * index], factors[2 * index + 1]] = further(bytes[index]);
        }
        index += 1;
    }
    factors
}

/// Copies `steps` of 256 bytes past the cache, and returns their CRC-32C.
///
/// # Safety
///
/// [`is_possible`] returned true. `to` is valid for writes of this many bytes and aligned to 64,
/// `from` is valid for reads of as many, and they do not overlap.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
pub(crate) unsafe fn stream_steps(to: *mut u8, from: *const u8, steps: usize) -> u32 {
    // The initial value of a checksum is added to the first bytes.
    let mut begin = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, i64::from(u32::MAX));
    let mut sums = [_mm512_setzero_si512(); 4];
    for step in 0..steps {
        for (line, sum) in sums.iter_mut().enumerate() {
            let at = step * STEP_LEN + line * 64;
            // SAFETY: the line lies inside the range the caller promised.
            let source = unsafe { from.add(at) }.cast::<__m512i>();
            // SAFETY: the source is readable; the load needs no alignment.
            let value = unsafe { _mm512_loadu_si512(source) };
            *sum = fold(*sum, const { factors([256; 4]) }, _mm512_xor_si512(value, begin));
            begin = _mm512_setzero_si512();
            // SAFETY: as for the source.
            let target = unsafe { to.add(at) }.cast::<__m512i>();
            // SAFETY: the target is aligned to 64 and writable.
            unsafe { _mm512_stream_si512(target, value) };
        }
    }
    let [one, two, three, four] = sums;
    let four = fold(three, const { factors([64; 4]) }, four);
    let four = fold(two, const { factors([128; 4]) }, four);
    let four = fold(one, const { factors([192; 4]) }, four);
    remainder(four)
}

/// The sum for the bytes so far, moved forward by `factors`, plus the next 64 bytes.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn fold(sum: __m512i, factors: [u64; 8], next: __m512i) -> __m512i {
    let [a, b, c, d, e, f, g, h] = factors.map(|factor| factor as i64);
    let factors = _mm512_set_epi64(h, g, f, e, d, c, b, a);
    let low = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
    _mm512_xor_si512(_mm512_xor_si512(low, high), next)
}

/// The checksum of 64 bytes, which contain the initial value of a checksum.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
#[inline]
fn remainder(bytes: __m512i) -> u32 {
    let last = _mm512_maskz_mov_epi64(0b1100_0000, bytes);
    let bytes = fold(bytes, const { factors([48, 32, 16, 0]) }, last);
    let halves =
        _mm256_xor_si256(_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64::<1>(bytes));
    let quarters =
        _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    let sum = _mm_crc32_u64(0, _mm_cvtsi128_si64(quarters) as u64);
    let sum = _mm_crc32_u64(sum, _mm_extract_epi64::<1>(quarters) as u64);
    !(sum as u32)
}
