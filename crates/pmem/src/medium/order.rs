//! The five ordering methods of nvramdisk (section 6.1, Table 3) in user space, and a newer one.
//!
//! The paper's driver sets the caching policy of pages in the kernel. A process cannot do this, so
//! three of the five methods are the *nearest equivalent* in user space; their documentation says
//! so.
//!
//! [`Medium::write_ordered`] provides them on every medium. A medium without instructions of its
//! own does what has the same effect on the images after a crash.

use std::fmt;

use super::Medium;
use super::isa::isa;
use super::units::WORD_LEN;

/// A way to order stores to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// No ordering at all: plain stores, left to the cache. The paper's `async`, a baseline.
    Async,
    /// MCF, explicit cache flush: stores, one CLWB (or CLFLUSHOPT, or CLFLUSH) a line, one fence.
    /// Exactly the paper's method, with the newer instruction where the CPU has it.
    CacheFlush,
    /// MNT, non-temporal: stores that bypass the cache (MOVNTI a word, 64-byte streams a line), one
    /// fence. Exactly the paper's method.
    NonTemporal,
    /// MWT, write-through: *nearest equivalent*. Each word is stored and its line written back at
    /// once, with one fence at the end; the line stays readable in the cache, as under a
    /// write-through policy. The paper sets the page's policy instead and needs no flush.
    WriteThrough,
    /// MUC, uncacheable: *nearest equivalent*. Each word is stored, its line evicted (CLFLUSH), and
    /// a full fence waits for it, so that every access goes to memory. The paper maps the pages
    /// uncached.
    Uncacheable,
    /// MWC, write-combining: *nearest equivalent*. Words are gathered in a line-sized buffer on the
    /// stack and leave as one non-temporal line, with one fence at the end. The paper maps the
    /// pages write-combining and the CPU's own buffers gather.
    WriteCombining,
    /// MOVDIR64B: whole lines stored directly, 64 bytes at once, one fence. Not in the paper.
    Direct,
}

impl Method {
    /// Methods after which bytes are durable: all but [`Method::Async`].
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

    /// Writes `bytes` at `offset` by this method. They are durable when it returns, except with
    /// [`Method::Async`].
    ///
    /// `offset` and the length are multiples of 8 bytes. [`Method::Direct`] reads a partial line
    /// before it stores it, so nobody else may write that line meanwhile.
    ///
    /// # Panics
    ///
    /// When the range is not aligned to words.
    #[inline]
    #[track_caller]
    pub fn write<M: Medium>(self, medium: &M, offset: u64, bytes: &[u8]) {
        medium.write_ordered(self, offset, bytes);
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(super) fn check_words(offset: u64, bytes: &[u8]) {
    assert_eq!(offset % WORD_LEN, 0, "ordering methods write whole words");
    assert_eq!(bytes.len() as u64 % WORD_LEN, 0, "ordering methods write whole words");
}

/// Executes `method` on any medium, with the medium's own stores, flushes and fences: with the same
/// durability and order as the instructions. A line that an instruction stores at once is not
/// atomic here.
#[track_caller]
pub(crate) fn write_modelled<M: Medium>(medium: &M, method: Method, offset: u64, bytes: &[u8]) {
    check_words(offset, bytes);
    match method {
        Method::Async => medium.write(offset, bytes),
        // Words that are written back one by one under one fence have no order among themselves,
        // like those of one flush.
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

pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}
