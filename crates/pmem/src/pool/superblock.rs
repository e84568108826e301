//! The superblock: the identity of the pool, in two copies.
//!
//! The copies are written in turn, each with a higher sequence number and a CRC32C over its fields.
//! A crash can tear the copy that is being written; the other is complete.
//!
//! ```text
//! byte  0  magic "REMANENT"        40  sequence number       80  state (1 clean, 2 open)
//!       8  format version (u32)    48  size_max in bytes     88  hint: chunk to search first
//!      12  reserved (u32)          56  size in bytes         96  number of opens
//!      16  uuid (16 bytes)         64  created, unix s      104  CRC32C of bytes 0 … 103
//!      32  durability (u64)        72  medium: bit 0, write disturbance
//! ```

use crate::medium::{Medium, WORD_LEN};
use crate::pool::layout::{
    CHUNK_LEN, ChunkId, ChunkState, DATA_FIRST, FORMAT_VERSION, FORMAT_VERSION_UNSEALED,
    SIZE_LIMIT, SUPERBLOCK_B,
};
use crate::violation::Violation;
use crate::{Durability, Error, Result};

const MAGIC: [u8; 8] = *b"REMANENT";
const LEN: usize = 112;
const CRC_AT: usize = 104;
const CLEAN: u64 = 1;
const OPEN: u64 = 2;
const DISTURBED: u64 = 1;

/// Fields of a superblock that passed its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) version: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) durability: Durability,
    pub(crate) sequence: u64,
    pub(crate) size_max: u64,
    pub(crate) size: u64,
    pub(crate) created_unix_s: u64,
    /// Whether the medium may leave garbage in a line that was being written when the power failed.
    pub(crate) write_disturbance: bool,
    pub(crate) clean: bool,
    /// Hint: when the pool last grew, every data chunk before this one was in use.
    pub(crate) first_chunk: u32,
    pub(crate) opens: u64,
}

/// Reason why a copy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Magic,
    Version(u32),
    Checksum,
    Field(&'static str),
}

impl Superblock {
    /// Reads the newer valid copy.
    ///
    /// # Errors
    ///
    /// [`Error::NotAPool`] or [`Error::Version`] when neither copy can be used.
    pub(crate) fn read<M: Medium>(medium: &M) -> Result<Self> {
        Self::read_and_look(medium).map(|(superblock, _)| superblock)
    }

    /// Like [`read`](Superblock::read). Also returns what is wrong with the other copy, if no crash
    /// can have caused it.
    pub(super) fn read_and_look<M: Medium>(medium: &M) -> Result<(Self, Option<Violation>)> {
        let not_a_pool = |reason: String| Error::NotAPool { path: "the file".into(), reason };
        if medium.len() < CHUNK_LEN {
            return Err(not_a_pool(format!(
                "it has {} bytes, fewer than the {CHUNK_LEN} of a pool's header",
                medium.len()
            )));
        }
        match Self::copies(medium) {
            [Ok(a), Ok(b)] => Ok((if a.sequence >= b.sequence { a } else { b }, None)),
            // Checked first: a valid copy of our version may be a leftover beside one of a later
            // version.
            [Err(Fault::Version(found)), _] | [_, Err(Fault::Version(found))] => {
                Err(Error::Version { found, expected: FORMAT_VERSION })
            }
            [Ok(only), Err(fault)] => {
                let lost = only.lost(medium, 1, &fault);
                Ok((only, lost))
            }
            [Err(fault), Ok(only)] => {
                let lost = only.lost(medium, 0, &fault);
                Ok((only, lost))
            }
            [Err(Fault::Magic), Err(Fault::Magic)] => {
                Err(not_a_pool("neither superblock (offset 0 and 4096) has the magic".to_owned()))
            }
            [Err(a), Err(b)] => Err(Error::corrupt(
                0,
                format!("both superblocks are damaged (at 0: {a:?}, at {SUPERBLOCK_B}: {b:?})"),
            )),
        }
    }

    fn copies<M: Medium>(medium: &M) -> [Result<Self, Fault>; 2] {
        [Self::read_copy(medium, 0), Self::read_copy(medium, SUPERBLOCK_B)]
    }

    /// Like [`read_and_look`](Superblock::read_and_look), for the superblock that fits the length
    /// of the file.
    ///
    /// If the newer copy needs a longer file, there are two cases. The file was truncated. Or it
    /// was about to grow, on a system that lost its new length and kept the superblock; then the
    /// older copy counts. No chunk behind the end of the older copy was ever in use in this case:
    /// such chunks are taken only once the newer copy is durable; their state words lie in the part
    /// of the file that exists, and are durable before anything refers to the chunks. So the case
    /// is recognised by state words that all say "never in use".
    ///
    /// # Errors
    ///
    /// Those of [`read`](Superblock::read), and [`Error::Corrupt`] when the file was truncated.
    pub(super) fn read_fitting<M: Medium>(medium: &M) -> Result<(Self, Option<Violation>)> {
        let (newer, lost) = Self::read_and_look(medium)?;
        if newer.size <= medium.len() {
            return Ok((newer, lost));
        }
        let older = Self::copies(medium).into_iter().flatten().find(|copy| *copy != newer);
        match older {
            Some(older) if older.size <= medium.len() && never_used(medium, &older, &newer) => {
                Ok((older, None))
            }
            _ => Err(Error::corrupt(
                medium.len(),
                format!(
                    "the file ends here but has {} bytes by its superblock: it was truncated",
                    newer.size
                ),
            )),
        }
    }

    /// What is wrong with one of the superblock copies of an open pool.
    pub(super) fn lost_copy<M: Medium>(medium: &M) -> Option<Violation> {
        Self::read_and_look(medium).ok().and_then(|(_, lost)| lost)
    }

    /// Reports the other copy, number `copy`, as lost, unless a crash may have left it while it was
    /// being written. Such a copy consists of words of the superblock before this one and of the
    /// one after it.
    fn lost<M: Medium>(&self, medium: &M, copy: u64, fault: &Fault) -> Option<Violation> {
        let offset = copy * SUPERBLOCK_B;
        let mut found = [0; LEN];
        medium.read(offset, &mut found);
        // The very first superblock goes to the second copy; there is none before it.
        let is_first = self.sequence == 1;
        let own = self.encode();
        let word = |bytes: &[u8; LEN], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let may_be_torn = (0..LEN).step_by(8).all(|at| {
            let value = word(&found, at);
            let is_possible = match at {
                40 => {
                    value == self.sequence.wrapping_sub(1) || value == self.sequence.wrapping_add(1)
                }
                56 => value.is_multiple_of(CHUNK_LEN) && value <= self.size_max,
                80 => value == CLEAN || value == OPEN,
                88 => value <= self.size_max / CHUNK_LEN,
                96 => value.abs_diff(self.opens) <= 1,
                CRC_AT => value <= u64::from(u32::MAX),
                _ => value == word(&own, at),
            };
            is_possible || is_first && value == 0
        });
        (!may_be_torn).then(|| {
            let what = format!("superblock copy {} is lost ({fault:?})", copy + 1);
            Violation::new(offset, what)
        })
    }

    fn read_copy<M: Medium>(medium: &M, offset: u64) -> Result<Self, Fault> {
        let mut bytes = [0; LEN];
        medium.read(offset, &mut bytes);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..8] != MAGIC {
            return Err(Fault::Magic);
        }
        if word(CRC_AT) != checksum(&bytes) {
            return Err(Fault::Checksum);
        }
        let version = word(8) as u32;
        if !(FORMAT_VERSION_UNSEALED..=FORMAT_VERSION).contains(&version) {
            return Err(Fault::Version(version));
        }
        let superblock = Superblock {
            version,
            uuid: bytes[16..32].try_into().expect("16 bytes"),
            durability: match word(32) {
                0 => Durability::Process,
                1 => Durability::Power,
                _ => return Err(Fault::Field("durability")),
            },
            sequence: word(40),
            size_max: word(48),
            size: word(56),
            created_unix_s: word(64),
            write_disturbance: match word(72) {
                0 => false,
                DISTURBED => true,
                _ => return Err(Fault::Field("medium")),
            },
            clean: match word(80) {
                CLEAN => true,
                OPEN => false,
                _ => return Err(Fault::Field("state")),
            },
            first_chunk: u32::try_from(word(88)).map_err(|_| Fault::Field("first chunk"))?,
            opens: word(96),
        };
        superblock.check_sizes()?;
        Ok(superblock)
    }

    /// Refuses sizes that no version of this code writes, before they are used for a mapping.
    fn check_sizes(&self) -> Result<(), Fault> {
        if self.size_max > SIZE_LIMIT {
            return Err(Fault::Field("size_max"));
        }
        let whole_chunks = self.size.is_multiple_of(CHUNK_LEN);
        if !whole_chunks || self.size < ChunkId(DATA_FIRST).offset() || self.size > self.size_max {
            return Err(Fault::Field("size"));
        }
        Ok(())
    }

    /// Writes this superblock over the older copy, with the next sequence number.
    #[track_caller]
    pub(crate) fn write<M: Medium>(&mut self, medium: &M) {
        self.sequence += 1;
        let offset = if self.sequence.is_multiple_of(2) { 0 } else { SUPERBLOCK_B };
        medium.write(offset, &self.encode());
        // Flush and fence: this copy is complete before the next write may touch the other one.
        medium.persist(offset, LEN as u64);
    }

    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.uuid);
        let words = [
            (32, u64::from(self.durability == Durability::Power)),
            (40, self.sequence),
            (48, self.size_max),
            (56, self.size),
            (64, self.created_unix_s),
            (72, if self.write_disturbance { DISTURBED } else { 0 }),
            (80, if self.clean { CLEAN } else { OPEN }),
            (88, u64::from(self.first_chunk)),
            (96, self.opens),
        ];
        for (at, word) in words {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The first data chunk that may be free.
    pub(crate) fn first_data(&self) -> ChunkId {
        ChunkId(self.first_chunk.max(DATA_FIRST)).next_data()
    }
}

/// Whether every chunk that only the newer superblock includes was never in use.
fn never_used<M: Medium>(medium: &M, older: &Superblock, newer: &Superblock) -> bool {
    let chunks = (older.size / CHUNK_LEN) as u32..(newer.size / CHUNK_LEN) as u32;
    chunks.map(ChunkId).filter(|chunk| chunk.is_data()).all(|chunk| {
        let is_there = chunk.state() + WORD_LEN <= medium.len();
        is_there && medium.load(chunk.state()) == ChunkState::FREE.encode()
    })
}

pub(super) fn checksum(bytes: &[u8; LEN]) -> u64 {
    u64::from(crate::crc32c(&bytes[..CRC_AT]))
}
