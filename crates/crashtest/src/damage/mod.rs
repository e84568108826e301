//! Damages pools of every kind, and sees whether anybody is told something wrong.
//!
//! A [`Subject`] fills a pool with content that follows from numbers, so that every answer can be judged. For each
//! seed the pool file is damaged in one place ([`Damage`]), checked as `remanent pool check` does, opened, read from one end to
//! the other, written to, and read again ([`judge`]). `remanent damage-test` does that in processes of its own, so that what
//! hangs or dies is counted too.

mod content;
mod disks;
mod fault;
mod image;
mod keyspace;
mod lists;
mod maps;

use std::path::Path;

use remanent::check::check_file;
use remanent_crashsim::Rng;
use remanent_pmem::Pool;

pub use content::Answers;
pub use fault::Damage;
use image::Image;

/// Length beyond which the pools do not grow: enough for everything that is written.
const SIZE_MAX: u64 = 96 << 20;

/// A kind of pool: what is in it, and how it is read.
pub trait Subject: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// What carries no checksum in it, so that a read may answer wrongly without noticing; nothing where all does.
    fn unprotected(&self) -> Option<&'static str>;

    /// Makes the structure and gives it its first content.
    ///
    /// # Errors
    ///
    /// What the structure reports; the pool is sound and has room.
    fn fill(&self, pool: &Pool) -> anyhow::Result<()>;

    /// Changes, removes and adds.
    ///
    /// # Errors
    ///
    /// As for [`fill`](Subject::fill).
    fn change(&self, pool: &Pool) -> anyhow::Result<()>;

    /// Asks for everything that is stored, and for some that is not.
    ///
    /// # Errors
    ///
    /// When the structure cannot be opened.
    fn read(&self, pool: &Pool) -> anyhow::Result<Answers>;

    /// Adds and removes what `read` does not ask for. Errors are no matter.
    fn write(&self, pool: &Pool);
}

/// Every kind of pool.
pub fn subjects() -> Vec<Box<dyn Subject>> {
    let mut subjects = maps::subjects();
    subjects.extend(lists::subjects());
    subjects.push(Box::new(keyspace::Keys));
    subjects.extend(disks::subjects());
    subjects
}

/// A pool before it is damaged.
#[derive(Debug)]
pub struct Originals {
    /// Halfway.
    older: Image,
    /// At its end, as a killed process leaves it.
    killed: Image,
    /// Closed properly.
    closed: Image,
}

/// What a damaged pool did.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was done to it.
    pub damage: Damage,
    /// Whether the process that wrote it had been killed.
    pub was_killed: bool,
    /// Contradictions that the check found; `None` where it refused the file.
    pub contradictions: Option<usize>,
    /// Why it could not be opened.
    pub refused: Option<String>,
    /// What reading answered.
    pub read: Answers,
    /// What reading answered once something else had been written.
    pub reread: Answers,
    /// Bytes of storage that the file has taken meanwhile.
    pub growth: u64,
}

impl Originals {
    /// Makes a pool in `directory`, and keeps what its file held.
    ///
    /// # Errors
    ///
    /// When the file system has no room, or the structure fails.
    pub fn make(subject: &dyn Subject, directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("original.pool");
        let _ = std::fs::remove_file(&path);
        let pool = Pool::options().size_max(SIZE_MAX).create(&path)?;
        subject.fill(&pool)?;
        let older = Image::read(&path)?;
        subject.change(&pool)?;
        let killed = Image::read(&path)?;
        drop(pool);
        let closed = Image::read(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Originals { older, killed, closed })
    }
}

/// Damages a pool as `seed` says, and judges what it then answers.
///
/// # Errors
///
/// When the damaged file cannot be written. What the damaged pool reports is part of the verdict.
pub fn judge(
    subject: &dyn Subject,
    originals: &Originals,
    directory: &Path,
    seed: u64,
) -> anyhow::Result<Verdict> {
    let name = subject.name().bytes().map(u64::from);
    let mut rng = Rng::from_parts(&name.chain([seed]).collect::<Vec<_>>());
    let was_killed = rng.one_in(2);
    let mut image = if was_killed { &originals.killed } else { &originals.closed }.clone();
    let damage = Damage::draw(&mut rng, &image, &originals.older);
    damage.apply(&mut rng, &mut image, &originals.older);
    let path = directory.join("damaged.pool");
    image.write(&path)?;
    let before = physical_len(&path)?;
    let options = Pool::options();
    let contradictions =
        check_file(&options, &path, |_| ()).ok().map(|report| report.contradictions.len());
    let (mut read, mut reread) = (Answers::default(), Answers::default());
    let answered = options.open(&path).map_err(anyhow::Error::from).and_then(|pool| {
        read = subject.read(&pool)?;
        subject.write(&pool);
        reread = subject.read(&pool)?;
        Ok(())
    });
    let growth = physical_len(&path)?.saturating_sub(before);
    std::fs::remove_file(&path)?;
    let refused = answered.err().map(|error| format!("{error:#}"));
    Ok(Verdict { damage, was_killed, contradictions, refused, read, reread, growth })
}

fn physical_len(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.blocks() * 512)
}
