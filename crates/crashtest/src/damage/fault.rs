//! Kinds of damage to a pool file: those of bad memory, bad disks and bad programs.

use std::fmt;

use remanent_crashsim::Rng;
use remanent_pmem::PAGE_LEN;
use remanent_pmem::pool::layout::CHUNK_LEN;

use super::image::Image;

/// Units of damage in bytes: a word, a line, a sector, a page.
const UNITS: [usize; 4] = [8, 64, 512, PAGE_LEN as usize];

/// One piece of damage.
#[expect(missing_docs, reason = "fields are offsets and lengths in the file, in bytes")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A flipped bit.
    Bit { offset: u64, bit: u8 },
    /// Zeros in place of the content.
    Zeroed { offset: u64, len: usize },
    /// Random bytes in place of the content.
    Garbage { offset: u64, len: usize },
    /// All bits set, as in erased flash.
    Ones { offset: u64, len: usize },
    /// The content of two places is exchanged.
    Exchanged { offset: u64, other: u64, len: usize },
    /// The content of one place is copied to another.
    Copied { from: u64, to: u64, len: usize },
    /// A page has its content of an earlier time.
    Stale { offset: u64 },
    /// The file is truncated.
    Truncated { len: u64 },
}

impl Damage {
    /// Draws a piece of damage that changes something in `image`. `older` is the same file at an
    /// earlier time.
    pub(super) fn draw(rng: &mut Rng, image: &Image, older: &Image) -> Self {
        let len = *rng.pick(&UNITS);
        match rng.below(13) {
            0..=2 => Damage::Bit { offset: draw_place(rng, image, 8), bit: rng.below(64) as u8 },
            // A word that may be zero, such as a null link.
            3 => {
                let page = draw_place(rng, image, PAGE_LEN as usize);
                let offset = page + rng.below(PAGE_LEN / 8) * 8;
                Damage::Bit { offset, bit: rng.below(64) as u8 }
            }
            4 | 5 => Damage::Zeroed { offset: draw_place(rng, image, len), len },
            6 => Damage::Garbage { offset: draw_place(rng, image, len), len },
            7 | 8 => {
                let (offset, other) = draw_pair(rng, image, len);
                Damage::Exchanged { offset, other, len }
            }
            9 => {
                let (from, to) = draw_pair(rng, image, len);
                Damage::Copied { from, to, len }
            }
            10 => draw_stale(rng, image, older),
            11 => Damage::Ones { offset: draw_place(rng, image, len), len },
            _ => Damage::Truncated { len: rng.below(image.len) },
        }
    }

    /// Applies the damage.
    pub(super) fn apply(&self, rng: &mut Rng, image: &mut Image, older: &Image) {
        match *self {
            Damage::Bit { offset, bit } => {
                let mut word = image.get(offset, 8);
                word[usize::from(bit / 8)] ^= 1 << (bit % 8);
                image.set(offset, &word);
            }
            Damage::Zeroed { offset, len } => image.set(offset, &vec![0; len]),
            Damage::Garbage { offset, len } => {
                let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
                image.set(offset, &bytes);
            }
            Damage::Ones { offset, len } => image.set(offset, &vec![u8::MAX; len]),
            Damage::Exchanged { offset, other, len } => {
                let (one, two) = (image.get(offset, len), image.get(other, len));
                image.set(offset, &two);
                image.set(other, &one);
            }
            Damage::Copied { from, to, len } => {
                let bytes = image.get(from, len);
                image.set(to, &bytes);
            }
            Damage::Stale { offset } => {
                let bytes = older.get(offset, PAGE_LEN as usize);
                image.set(offset, &bytes);
            }
            Damage::Truncated { len } => {
                image.len = len;
                image.pages.retain(|number, _| number * PAGE_LEN < len);
            }
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Damage::Bit { offset, bit } => {
                write!(f, "bit {bit} of the word at {offset:#x} flipped")
            }
            Damage::Zeroed { offset, len } => write!(f, "{len} bytes at {offset:#x} zeroed"),
            Damage::Garbage { offset, len } => write!(f, "garbage in {len} bytes at {offset:#x}"),
            Damage::Ones { offset, len } => write!(f, "ones in {len} bytes at {offset:#x}"),
            Damage::Exchanged { offset, other, len } => {
                write!(f, "{len} bytes at {offset:#x} and at {other:#x} exchanged")
            }
            Damage::Copied { from, to, len } => {
                write!(f, "{len} bytes at {from:#x} copied to {to:#x}")
            }
            Damage::Stale { offset } => write!(f, "the page at {offset:#x} is an older one"),
            Damage::Truncated { len } => write!(f, "truncated to {len} bytes"),
        }
    }
}

/// Draws a unit that does not only hold zeros. Every other time the chunk is drawn first. So chunks
/// with few used pages, such as those with metadata, are hit as often as full ones.
fn draw_place(rng: &mut Rng, image: &Image, len: usize) -> u64 {
    let pages: Vec<u64> = image.pages.keys().copied().collect();
    let mut page = *rng.pick(&pages);
    if rng.one_in(2) {
        const CHUNK_PAGES: u64 = CHUNK_LEN / PAGE_LEN;
        let mut chunks: Vec<u64> = pages.iter().map(|page| page / CHUNK_PAGES).collect();
        chunks.dedup();
        let chunk = *rng.pick(&chunks);
        let inside: Vec<u64> =
            pages.iter().copied().filter(|page| page / CHUNK_PAGES == chunk).collect();
        page = *rng.pick(&inside);
    }
    let used: Vec<u64> = (0..PAGE_LEN / len as u64)
        .map(|unit| page * PAGE_LEN + unit * len as u64)
        .filter(|&at| image.get(at, len).iter().any(|&byte| byte != 0))
        .collect();
    *rng.pick(&used)
}

/// Draws two units of different content, if a few attempts find them.
fn draw_pair(rng: &mut Rng, image: &Image, len: usize) -> (u64, u64) {
    let one = draw_place(rng, image, len);
    let mut other = draw_place(rng, image, len);
    for _ in 0..20 {
        if image.get(one, len) != image.get(other, len) {
            break;
        }
        other = draw_place(rng, image, len);
    }
    (one, other)
}

fn draw_stale(rng: &mut Rng, image: &Image, older: &Image) -> Damage {
    let len = PAGE_LEN as usize;
    let differs =
        |page: &&u64| image.get(**page * PAGE_LEN, len) != older.get(**page * PAGE_LEN, len);
    let changed: Vec<&u64> = image.pages.keys().filter(differs).collect();
    if changed.is_empty() {
        return Damage::Bit { offset: draw_place(rng, image, 8), bit: rng.below(64) as u8 };
    }
    Damage::Stale { offset: *rng.pick(&changed) * PAGE_LEN }
}
