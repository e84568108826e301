//! Damages pools of every kind, and judges their answers.
//!
//! A [`Subject`] fills a pool with content that is a function of numbers, so that every answer can
//! be judged. For each seed ([`judge`]) the pool file is damaged in one place ([`Damage`]), checked
//! as `remanent pool check` does, opened, read completely, written to, and read again. `remanent
//! damage-test` does this in separate processes, so that hangs and dead processes are counted, too.

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

/// Size beyond which the pools do not grow: enough for all writes.
const SIZE_MAX: u64 = 96 << 20;

/// A kind of pool: its content, and how it is read.
pub trait Subject: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// The part of it without a checksum, whose damage a read may not notice; `None` if everything
    /// has checksums.
    fn unprotected(&self) -> Option<&'static str>;

    /// Creates the structure with its first content.
    ///
    /// # Errors
    ///
    /// Those of the structure; the pool is undamaged and has room.
    fn fill(&self, pool: &Pool) -> anyhow::Result<()>;

    /// Changes, removes and adds entries.
    ///
    /// # Errors
    ///
    /// Those of [`fill`](Subject::fill).
    fn change(&self, pool: &Pool) -> anyhow::Result<()>;

    /// Looks up everything that is stored, and some numbers that are not.
    ///
    /// # Errors
    ///
    /// When the structure cannot be opened.
    fn read(&self, pool: &Pool) -> anyhow::Result<Answers>;

    /// Adds and removes entries that `read` does not look up. Errors are ignored.
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

/// The images of a pool before it is damaged.
#[derive(Debug)]
pub struct Originals {
    /// In the middle of its history.
    older: Image,
    /// At the end, as a killed process leaves it.
    killed: Image,
    /// At the end, closed properly.
    closed: Image,
}

/// The behaviour of a damaged pool.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The damage.
    pub damage: Damage,
    /// Whether the process that wrote the pool was killed.
    pub was_killed: bool,
    /// Number of violations that the check found; `None` if it refused the file.
    pub contradictions: Option<usize>,
    /// Why the pool could not be opened.
    pub refused: Option<String>,
    /// Answers of the first reading.
    pub read: Answers,
    /// Answers of the reading after further writes.
    pub reread: Answers,
    /// Bytes of storage by which the file has grown meanwhile.
    pub growth: u64,
}

impl Originals {
    /// Creates a pool in `directory`, and keeps the images of its file.
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

/// Damages a pool, as `seed` determines, and judges its answers.
///
/// # Errors
///
/// When the damaged file cannot be written. Errors of the damaged pool are part of the verdict.
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
