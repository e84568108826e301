//! Damage to disks with a snapshot, and to plain files.

use remanent_blockdev::file::File;
use remanent_blockdev::{BLOCK_LEN, Disk};
use remanent_pmem::Pool;

use super::content::{Answer, Content, Step, Values};
use super::{Answers, Subject};

const ROOT: &str = "tested";
const SNAPSHOT: &str = "before";
/// Bytes of the disk: room for every number.
const SIZE: u64 = 2048 * BLOCK_LEN;
const CONTENT: Content = Content { changes: true, values: Values::Blocks { len: BLOCK_LEN } };

pub(super) fn subjects() -> Vec<Box<dyn Subject>> {
    vec![Box::new(DiskSubject), Box::new(FileSubject)]
}

struct DiskSubject;

/// Place of a number: consecutive numbers lie in different leaves of the map.
fn place_of(number: u64) -> u64 {
    number * 5 % 2048 * BLOCK_LEN
}

fn apply(disk: &Disk, step: Step) -> remanent_blockdev::Result<()> {
    match step {
        Step::Put(number, version) => disk.write(place_of(number), &CONTENT.value(number, version)),
        Step::Remove(number) => disk.trim(place_of(number), BLOCK_LEN),
    }
}

/// Judges a block. A block that was never written, or was trimmed, holds zeros.
fn judge(
    number: u64,
    read: remanent_blockdev::Result<()>,
    block: &[u8],
    judge: impl FnOnce(u64, Option<&[u8]>, &mut Answers),
    answers: &mut Answers,
) {
    match read {
        Err(error) => answers.note(Answer::Error, || error.to_string()),
        Ok(()) => {
            let is_empty = block.iter().all(|&byte| byte == 0);
            judge(number, (!is_empty).then_some(block), answers);
        }
    }
}

impl Subject for DiskSubject {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn unprotected(&self) -> Option<&'static str> {
        None
    }

    fn fill(&self, pool: &Pool) -> anyhow::Result<()> {
        let disk = Disk::create(pool, ROOT, SIZE)?;
        CONTENT.fill().try_for_each(|step| apply(&disk, step))?;
        Ok(disk.snapshot(SNAPSHOT)?)
    }

    fn change(&self, pool: &Pool) -> anyhow::Result<()> {
        let disk = Disk::open(pool, ROOT)?;
        Ok(CONTENT.change().try_for_each(|step| apply(&disk, step))?)
    }

    fn read(&self, pool: &Pool) -> anyhow::Result<Answers> {
        let disk = Disk::open(pool, ROOT)?;
        let mut answers = Answers::default();
        let mut block = vec![0; BLOCK_LEN as usize];
        for number in CONTENT.asked() {
            let read = disk.read(place_of(number), &mut block);
            judge(number, read, &block, |n, found, a| CONTENT.judge(n, found, a), &mut answers);
        }
        match disk.open_snapshot(SNAPSHOT) {
            Err(error) => answers.note(Answer::Error, || error.to_string()),
            Ok(snapshot) => {
                for number in CONTENT.asked() {
                    let read = snapshot.read(place_of(number), &mut block);
                    let judge_filled = |n, found: Option<&[u8]>, a: &mut Answers| {
                        CONTENT.judge_filled(n, found, a)
                    };
                    judge(number, read, &block, judge_filled, &mut answers);
                }
            }
        }
        Ok(answers)
    }

    fn write(&self, pool: &Pool) {
        if let Ok(disk) = Disk::open(pool, ROOT) {
            for step in CONTENT.write() {
                let _ = apply(&disk, step);
            }
        }
    }
}

struct FileSubject;

fn write(file: &File, number: u64, version: u64) -> remanent_blockdev::Result<()> {
    file.write(number * BLOCK_LEN, &CONTENT.value(number, version))
}

impl FileSubject {
    fn apply(file: &File, steps: impl Iterator<Item = Step>) -> remanent_blockdev::Result<()> {
        for step in steps {
            if let Step::Put(number, version) = step {
                write(file, number, version)?;
            }
        }
        file.sync()
    }
}

/// Content of a file: nothing can be removed from the middle of a file.
const FILE_CONTENT: Content = Content { changes: false, ..CONTENT };

impl Subject for FileSubject {
    fn name(&self) -> &'static str {
        "file"
    }

    fn unprotected(&self) -> Option<&'static str> {
        Some("content of plain files")
    }

    fn fill(&self, pool: &Pool) -> anyhow::Result<()> {
        Ok(Self::apply(&File::create(pool, ROOT)?, FILE_CONTENT.fill())?)
    }

    fn change(&self, pool: &Pool) -> anyhow::Result<()> {
        Ok(Self::apply(&File::open(pool, ROOT)?, FILE_CONTENT.change())?)
    }

    fn read(&self, pool: &Pool) -> anyhow::Result<Answers> {
        let file = File::open(pool, ROOT)?;
        let mut answers = Answers::default();
        let mut block = vec![0; BLOCK_LEN as usize];
        for number in FILE_CONTENT.asked() {
            block.fill(0);
            let read = file.read(number * BLOCK_LEN, &mut block).map(|_| ());
            let judge_content =
                |n, found: Option<&[u8]>, a: &mut Answers| FILE_CONTENT.judge(n, found, a);
            judge(number, read, &block, judge_content, &mut answers);
        }
        Ok(answers)
    }

    fn write(&self, pool: &Pool) {
        if let Ok(file) = File::open(pool, ROOT) {
            let _ = Self::apply(&file, FILE_CONTENT.write());
        }
    }
}
