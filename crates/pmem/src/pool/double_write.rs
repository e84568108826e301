//! The double write of the pool's own lines, on media with write disturbance.
//!
//! On such a medium a power failure may leave garbage in any word of a line that is being written.
//! State words of chunks share lines, and the description of a root lies beside the word that
//! decides about it. So in a pool that is declared to lie on such a medium, the new images of those
//! lines are first written to an area of their own, with a checksum, and made durable. Then the
//! lines themselves are written. Opening writes the last images to their lines once more. If the
//! images are incomplete, the lines are complete: they had not been written to yet.
//!
//! ```text
//! area: the place of the state words of a zone's first chunks, which are metadata and have none
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
/// Maximal number of lines in one step.
const LINES_MAX: u64 = 28;
const LEN: u64 = IMAGES + LINES_MAX * LINE_LEN;
const _: () = assert!(LEN <= DATA_FIRST as u64 * WORD_LEN);
const WORDS: usize = (LINE_LEN / WORD_LEN) as usize;

/// Offset of the images.
pub(super) const AREA: u64 = ChunkId(0).state();

type Image = (u64, [u64; WORDS]);

impl<M: Medium> Pool<M> {
    /// Stores words of the pool's own metadata, in the given order.
    ///
    /// On a medium with write disturbance they are durable when this returns, and no neighbouring
    /// word is lost. On others the caller flushes and fences.
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
    // Flush and fence: the images, before any of their lines is written.
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

/// Whether the line is the pool's own metadata: in its header, in the state words of a zone, or in
/// a directory chunk.
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

/// Voids the images of an older pool in the same place.
pub(super) fn forget<M: Medium>(medium: &M) {
    if medium.load(AREA) != 0 {
        medium.store(AREA, 0);
        // Flush: fenced with the new pool's superblock.
        medium.flush(AREA, WORD_LEN);
    }
}

/// Writes the last images to their lines once more, if they are complete. Called when the pool is
/// opened, before anything else is read. `is_kept`: whether double writes continue. If not, the
/// images are voided, so that a later opening does not apply them.
pub(super) fn recover<M: Medium>(medium: &M, is_kept: bool) {
    if medium.len() < AREA + LEN {
        return;
    }
    // Flush and fence: images that a killed process left in the caches alone, before anything is
    // decided by them.
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
    // Fence: before the images are voided or overwritten.
    medium.fence();
    if !is_kept {
        medium.store(AREA, 0);
        // Flush and fence: from here on lines change without new images.
        medium.persist(AREA, WORD_LEN);
    }
}
