//! Lines and blocks that are exchanged, copied, lost, or come back as they were. What is read then
//! is right, or an error, or, where an older state came back, of the same block and of a time since
//! then. It is never another block's data.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use remanent_blockdev::{Disk, Error, Lines, Shape};
use remanent_crashsim::Rng;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};

use super::{TestPool, bytes};

const BLOCK: u64 = 4096;
const PAGE: usize = 4096;
const LINE: usize = 64;
/// Three leaves of the map, and a node above them.
const BLOCKS: u64 = 1024;
/// So small that nodes and blocks are soon used for something else.
const SHAPE: Shape = Shape { slab_blocks: 16, lines_max: 24, spares_max: 1 };
/// Blocks that are written, some of each leaf.
const LBAS: [u64; 15] = [0, 1, 2, 6, 7, 40, 441, 447, 448, 449, 455, 600, 895, 896, 1023];
/// Blocks that are not.
const HOLES: [u64; 6] = [3, 8, 446, 450, 897, 1000];
/// Snapshots there may be.
const NAMES: [&str; 2] = ["kept", "other"];

/// Content of the blocks that are looked at: of the disk, under the empty name, and of its
/// snapshots. `None` where it cannot be read.
type Content = BTreeMap<(&'static str, u64), Option<Vec<u8>>>;

fn content(disk: &Disk) -> Content {
    fn add(
        content: &mut Content,
        name: &'static str,
        read: impl Fn(u64, &mut [u8]) -> Result<(), Error>,
    ) {
        for lba in LBAS.into_iter().chain(HOLES) {
            let mut found = vec![0; PAGE];
            let found = read(lba * BLOCK, &mut found).ok().map(|()| found);
            content.insert((name, lba), found);
        }
    }
    let mut content = Content::new();
    add(&mut content, "", |offset, found| disk.read(offset, found));
    for name in NAMES {
        if let Ok(snapshot) = disk.open_snapshot(name) {
            add(&mut content, name, |offset, found| snapshot.read(offset, found));
        }
    }
    content
}

/// The pages of a file that are not zeros.
struct Image {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("it is ours");
        let pages = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0));
        let pages = pages.map(|(number, page)| ((number * PAGE) as u64, page.to_vec()));
        Image { len: bytes.len() as u64, pages: pages.collect() }
    }

    fn page(&self, at: u64) -> Vec<u8> {
        self.pages.get(&at).cloned().unwrap_or_else(|| vec![0; PAGE])
    }

    /// Pages behind what belongs to the pool itself.
    fn places(&self) -> impl Iterator<Item = u64> {
        self.pages.range(ChunkId(DATA_FIRST).offset()..).map(|(at, _)| *at)
    }

    /// Has a file hold this, but for some pages.
    fn restore(&self, file: &File, changed: &[Patch]) {
        file.set_len(0).expect("it is ours");
        file.set_len(self.len).expect("it is ours");
        let changed = changed.iter().map(|(at, page)| (at, page));
        for (at, page) in self.pages.iter().chain(changed) {
            file.write_all_at(page, *at).expect("room");
        }
    }
}

/// A page that is changed, and what to.
type Patch = (u64, Vec<u8>);

/// A pool that is damaged again and again.
struct Victim {
    path: PathBuf,
    file: File,
    image: Image,
    expected: Content,
    _directory: tempfile::TempDir,
}

/// What became of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All could be read.
    NoEffect,
    /// Some block could not be read.
    Noticed,
    /// The disk did not open.
    Refused,
}

impl Victim {
    /// What is left of a disk, after it was closed.
    fn of(old: TestPool, disk: Disk) -> Self {
        let expected = content(&disk);
        drop(disk);
        let TestPool { pool, path: old_path, _directory: old_directory } = old;
        drop(pool);
        let image = Image::of(&old_path);
        drop(old_directory);
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("victim.pool");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).expect("room");
        Victim { path, file, image, expected, _directory: directory }
    }

    fn open(&self) -> Result<(Pool, Disk), Error> {
        let pool = Pool::options().open(&self.path)?;
        let disk = Disk::open(&pool, "disk")?;
        Ok((pool, disk))
    }

    /// Opens the disk with some pages changed. What is read must be right, or an error that the
    /// check knows of, or be in `earlier`.
    fn try_with(&self, changed: &[Patch], earlier: &[Content], what: &str) -> Outcome {
        self.image.restore(&self.file, changed);
        let Ok((_pool, disk)) = self.open() else { return Outcome::Refused };
        let mut outcome = Outcome::NoEffect;
        for ((name, lba), found) in content(&disk) {
            if self.expected.get(&(name, lba)) == Some(&found) {
                continue;
            }
            if found.is_none() {
                outcome = Outcome::Noticed;
                continue;
            }
            // What a removed snapshot had is the disk's own, and may have been changed in place.
            let is_in = |content: &Content| {
                [name, ""].iter().any(|name| content.get(&(*name, lba)) == Some(&found))
            };
            let is_known = earlier.iter().any(is_in);
            assert!(is_known, "{what}: block {lba} of {name:?} is wrong");
        }
        let told = disk.check().expect("no fault");
        assert!(outcome == Outcome::NoEffect || !told.is_empty(), "{what}: unknown to the check");
        outcome
    }

    /// Where the disk's lines are.
    fn lines(&self) -> Lines {
        self.image.restore(&self.file, &[]);
        let (_pool, disk) = self.open().expect("it is whole");
        disk.lines().expect("it is whole")
    }

    /// The page at a line, with another line there.
    fn with_line(&self, at: u64, line: &[u8]) -> Patch {
        let page = at - at % BLOCK;
        let (mut bytes, start) = (self.image.page(page), (at - page) as usize);
        bytes[start..start + LINE].copy_from_slice(line);
        (page, bytes)
    }

    fn line(&self, at: u64) -> Vec<u8> {
        let start = (at % BLOCK) as usize;
        self.image.page(at - at % BLOCK)[start..start + LINE].to_vec()
    }
}

/// A disk whose blocks differ, with a snapshot that has other ones.
fn disk() -> (TestPool, Disk) {
    let pool = TestPool::new(64 << 20);
    let disk = Disk::create_with(&pool.pool, "disk", BLOCKS * BLOCK, SHAPE).expect("room");
    for (lba, stamp) in LBAS.into_iter().zip(1..) {
        disk.write(lba * BLOCK, &bytes(PAGE, stamp)).expect("room");
    }
    disk.snapshot("kept").expect("room");
    for (lba, stamp) in LBAS.into_iter().zip(101..).step_by(2) {
        disk.write(lba * BLOCK, &bytes(PAGE, stamp)).expect("room");
    }
    (pool, disk)
}

/// What is read of an open disk is right, or an error: how many are errors.
fn count_refused(disk: &Disk, expected: &Content, what: &str) -> usize {
    let found = content(disk);
    let right = found.iter().filter(|(place, found)| {
        let is_right = expected[*place] == **found;
        assert!(is_right || found.is_none(), "{what}: {place:?}");
        is_right
    });
    expected.len() - right.count()
}

/// The lines' checksums fit: nothing but those of the entries themselves can tell.
#[test]
fn an_entry_of_another_block_is_told_though_its_line_is_whole() {
    let (pool, disk) = disk();
    let (expected, lines) = (content(&disk), disk.lines().expect("it is whole"));
    let medium = pool.pool.medium();
    let put = |words: [(u64, u64); 2]| {
        for (at, word) in words {
            medium.store(at, word);
            lines.seal(medium, at - at % LINE as u64);
        }
    };
    for one in lines.entries() {
        for other in lines.entries().iter().filter(|other| other.offset != one.offset) {
            let [word, other_word] = [one.at, other.at].map(|at| medium.load(at));
            for exchanged in [other_word, word] {
                put([(one.at, other_word), (other.at, exchanged)]);
                let what = format!("{one:?}, {other:?}");
                let refused = count_refused(&disk, &expected, &what);
                assert!(refused > 0, "{what}: nobody noticed");
            }
            put([(one.at, word), (other.at, other_word)]);
        }
    }
    assert_eq!(count_refused(&disk, &expected, "restored"), 0);
    assert_eq!(disk.check().expect("no fault"), []);
}

/// Under the eyes of readers who know where the leaves are: they look at one entry, and not at its
/// line.
#[test]
fn lines_of_the_map_that_are_exchanged_or_copied_are_told() {
    let (pool, disk) = disk();
    let (expected, lines) = (content(&disk), disk.lines().expect("it is whole"));
    let image = Image::of(&pool.path);
    let file = pool.file();
    let all = lines.nodes().flat_map(|node| (node..node + BLOCK).step_by(LINE));
    // All that have entries, and some that have none.
    let line = |at: &u64| image.page(at - at % BLOCK)[(at % BLOCK) as usize..][..LINE].to_vec();
    let has_entries = |at: &u64| line(at)[..LINE - 8].iter().any(|byte| *byte != 0);
    let all: Vec<u64> = all.filter(|at| has_entries(at) || at % (13 * LINE as u64) == 0).collect();
    for one in &all {
        for other in all.iter().filter(|other| *other > one) {
            let (first, second) = (line(one), line(other));
            for (now, then) in [(&second, &first), (&second, &second), (&first, &first)] {
                file.write_all_at(now, *one).expect("it is ours");
                file.write_all_at(then, *other).expect("it is ours");
                count_refused(&disk, &expected, &format!("lines at {one:#x} and {other:#x}"));
            }
            file.write_all_at(&first, *one).expect("it is ours");
            file.write_all_at(&second, *other).expect("it is ours");
        }
    }
    assert_eq!(count_refused(&disk, &expected, "restored"), 0);
}

#[test]
fn pages_that_are_exchanged_copied_or_lost_are_told() {
    let (pool, disk) = disk();
    let victim = Victim::of(pool, disk);
    let places: Vec<u64> = victim.image.places().collect();
    let page = |at: u64| victim.image.page(at);
    let mut outcomes = BTreeMap::new();
    let mut note = |outcome| *outcomes.entry(outcome).or_insert(0) += 1;
    for &one in &places {
        note(victim.try_with(&[(one, vec![0; PAGE])], &[], &format!("zeros at {one:#x}")));
        let garbage = bytes(PAGE, 77);
        note(victim.try_with(&[(one, garbage)], &[], &format!("garbage at {one:#x}")));
        for &other in &places {
            if page(one) == page(other) {
                continue;
            }
            let copied = [(one, page(other))];
            note(victim.try_with(&copied, &[], &format!("{other:#x} copied to {one:#x}")));
            if one < other {
                let exchanged = [(one, page(other)), (other, page(one))];
                let what = format!("{one:#x} and {other:#x} exchanged");
                note(victim.try_with(&exchanged, &[], &what));
            }
        }
    }
    assert!(outcomes[&Outcome::Noticed] > 100 && outcomes[&Outcome::Refused] > 100, "{outcomes:?}");
}

#[test]
fn lines_that_are_lost_or_changed_are_told() {
    let (pool, disk) = disk();
    let victim = Victim::of(pool, disk);
    let lines = victim.lines();
    let node = lines.nodes().next().expect("there is a map");
    let mut rng = Rng::new(16);
    for page in victim.image.places() {
        let mut known = Vec::new();
        for at in (page..page + BLOCK).step_by(LINE) {
            let line = victim.line(at);
            // Of lines that are alike, such as those that nothing was written to yet, two.
            let content = line[..LINE - 8].to_vec();
            if known.iter().filter(|known| **known == content).count() > 1 {
                continue;
            }
            known.push(content);
            let mut flipped = line.clone();
            let bit = rng.below(LINE as u64 * 8) as usize;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let of_node = victim.line(node + rng.below(BLOCK) / LINE as u64 * LINE as u64);
            for (what, damaged) in
                [("zeros", vec![0; LINE]), ("a flipped bit", flipped), ("another line", of_node)]
            {
                let changed = [victim.with_line(at, &damaged)];
                victim.try_with(&changed, &[], &format!("{what} at {at:#x}"));
            }
        }
    }
}

/// Does something to a disk.
fn go_on(disk: &Disk, rng: &mut Rng, stamp: u8) -> Result<(), Error> {
    let name = NAMES[rng.below(2) as usize];
    match rng.below(8) {
        0 => disk.snapshot(name),
        1 | 2 => disk.remove_snapshot(name),
        3 => disk.trim(LBAS[rng.below(15) as usize] * BLOCK, BLOCK),
        _ => (0..1 + rng.below(4)).try_for_each(|_| {
            disk.write(LBAS[rng.below(15) as usize] * BLOCK, &bytes(PAGE, stamp))
        }),
    }
}

/// A page of an earlier time: what it leads to may have become something else since.
#[test]
fn pages_that_come_back_show_nothing_but_the_same_block_at_another_time() {
    for seed in 0..4 {
        let pool = TestPool::new(64 << 20);
        let mut rng = Rng::new(seed);
        let disk = Disk::create_with(&pool.pool, "disk", BLOCKS * BLOCK, SHAPE).expect("room");
        let (mut images, mut contents) = (Vec::new(), Vec::new());
        for stamp in 1..40 {
            match go_on(&disk, &mut rng, stamp) {
                Ok(()) | Err(Error::Snapshot { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            images.push(Image::of(&pool.path));
            contents.push(content(&disk));
        }
        let victim = Victim::of(pool, disk);
        for (number, image) in images.iter().enumerate() {
            let places = image.places().filter(|at| image.page(*at) != victim.image.page(*at));
            for at in places {
                let what = format!("seed {seed}: the page at {at:#x} after {number} steps");
                victim.try_with(&[(at, image.page(at))], &contents[number..], &what);
            }
        }
    }
}
