//! Writing the pool's own lines twice, on media with write disturbance.
//!
//! There, a line that is being written when the power fails may lose what lies beside the words that were stored. State
//! words of chunks share lines, and what describes a root lies beside the word that decides about it. So in a pool
//! that is declared to lie on such a medium, the new images of those lines are first written to a place of their own, with
//! a checksum, and made durable; then the lines themselves are. Opening writes the last images once more. If they are
//! not whole, the lines are: they had not been touched yet.
//!
//! ```text
//! where a zone's first chunks would have their state words; they are the zone's metadata, and have none
//! byte 0     CRC-64 of what follows, number of lines
//!      64    offsets of the lines, up to 28
//!      320   images
//! ```

use super::layout::{CHUNK_LEN, ChunkId, DATA_FIRST, DIRECTORY_COUNT, DirectoryId, ZONE_CHUNKS};
use crate::medium::{LINE_LEN, Medium, WORD_LEN};
use crate::pool::Pool;

const COUNT: u64 = 8;
const TARGETS: u64 = LINE_LEN;
const IMAGES: u64 = TARGETS + 4 * LINE_LEN;
/// Lines that are written as one step.
const LINES_MAX: u64 = 28;
const LEN: u64 = IMAGES + LINES_MAX * LINE_LEN;
const _: () = assert!(LEN <= DATA_FIRST as u64 * WORD_LEN);
const WORDS: usize = (LINE_LEN / WORD_LEN) as usize;

/// Offset of the images.
pub(super) const AREA: u64 = ChunkId(0).state();

type Image = (u64, [u64; WORDS]);

impl<M: Medium> Pool<M> {
    /// Stores words of the pool's own metadata, in the order given.
    ///
    /// On a medium with write disturbance they are durable when this returns, and nothing beside them is lost; else the
    /// caller flushes and fences.
    pub(crate) fn store_own(&self, words: impl IntoIterator<Item = (u64, u64)>) {
        let medium = self.medium();
        if !self.guarantee().write_disturbance {
            words.into_iter().for_each(|(at, word)| medium.store(at, word));
            return;
        }
        let _alone = self.0.double_write.lock(medium);
        let mut images: Vec<Image> = Vec::new();
        for (at, word) in words {
            let line = at & !(LINE_LEN - 1);
            if images.iter().all(|(known, _)| *known != line) {
                if images.len() as u64 == LINES_MAX {
                    write_doubly(medium, &images);
                    images.clear();
                }
                images.push((line, load(medium, line)));
            }
            let image = images.iter_mut().find(|(known, _)| *known == line);
            image.expect("just pushed").1[((at - line) / WORD_LEN) as usize] = word;
        }
        write_doubly(medium, &images);
    }
}

fn load<M: Medium>(medium: &M, line: u64) -> [u64; WORDS] {
    std::array::from_fn(|word| medium.load(line + word as u64 * WORD_LEN))
}

fn write_doubly<M: Medium>(medium: &M, images: &[Image]) {
    let count = images.len() as u64;
    medium.store(AREA + COUNT, count);
    for (&(line, image), index) in images.iter().zip(0..) {
        medium.store(AREA + TARGETS + index * WORD_LEN, line);
        store(medium, AREA + IMAGES + index * LINE_LEN, &image);
    }
    medium.store(AREA, checksum(medium, count));
    // Flush and fence: the images, before any of their lines is touched.
    medium.persist(AREA, IMAGES + count * LINE_LEN);
    for &(line, image) in images {
        store(medium, line, &image);
        // Flush: the line itself; fenced before the next images overwrite these.
        medium.flush(line, LINE_LEN);
    }
    // Fence: as above, and before the caller goes on.
    medium.fence();
}

fn store<M: Medium>(medium: &M, line: u64, image: &[u64; WORDS]) {
    for (&word, place) in image.iter().zip(0..) {
        medium.store(line + place * WORD_LEN, word);
    }
}

fn checksum<M: Medium>(medium: &M, count: u64) -> u64 {
    let mut bytes = vec![0; (IMAGES + count * LINE_LEN - COUNT) as usize];
    medium.read(AREA + COUNT, &mut bytes);
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes)
}

/// Whether the line belongs to the pool itself: to its header, to the state words of a zone, or to a directory chunk.
fn is_own<M: Medium>(medium: &M, line: u64) -> bool {
    let in_zone = line % (u64::from(ZONE_CHUNKS) * CHUNK_LEN);
    let is_state = (AREA + LEN..ChunkId(0).bitmap()).contains(&in_zone);
    let is_directory = || {
        let chunk = ChunkId::containing(line);
        let mut directories = (0..DIRECTORY_COUNT).map(DirectoryId);
        directories.any(|directory| medium.load(directory.link()) == directory.encode(chunk))
    };
    line.is_multiple_of(LINE_LEN) && (line < CHUNK_LEN || is_state || is_directory())
}

/// Forgets what an older pool in the same place may have left.
pub(super) fn forget<M: Medium>(medium: &M) {
    if medium.load(AREA) != 0 {
        medium.store(AREA, 0);
        // Flush: fenced with the new pool's superblock.
        medium.flush(AREA, WORD_LEN);
    }
}

/// Writes the last images once more, if they are whole; when the pool is opened, before anything else is read. `is_kept` says
/// that lines go on being written twice; else the images are forgotten, or they would come back later.
pub(super) fn recover<M: Medium>(medium: &M, is_kept: bool) {
    if medium.len() < AREA + LEN {
        return;
    }
    // Flush and fence: images as a killed process left them in the caches, before anything is decided by them.
    // Redundant: but where a process was killed before, and the power fails later.
    medium.persist(AREA, LEN);
    let count = medium.load(AREA + COUNT);
    if !(1..=LINES_MAX).contains(&count) || checksum(medium, count) != medium.load(AREA) {
        return;
    }
    for index in 0..count {
        let line = medium.load(AREA + TARGETS + index * WORD_LEN);
        if !is_own(medium, line) || line + LINE_LEN > medium.len() {
            continue;
        }
        store(medium, line, &load(medium, AREA + IMAGES + index * LINE_LEN));
        // Flush: fenced once, below.
        medium.flush(line, LINE_LEN);
    }
    // Fence: before the images are forgotten, or overwritten.
    medium.fence();
    if !is_kept {
        medium.store(AREA, 0);
        // Flush and fence: from here on lines change that these images know nothing of.
        medium.persist(AREA, WORD_LEN);
    }
}
