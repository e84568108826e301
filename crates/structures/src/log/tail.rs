//! Following a log as it grows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use remanent_pmem::{Mapped, Medium};

use super::position::Position;
use super::root::Root;
use crate::Result;
use crate::stored::Stored;

/// A reader that goes from record to record and waits at the end for new ones; see
/// [`Log::tail`](super::Log::tail).
///
/// If the records that it would read next are truncated, it continues at the first record.
///
/// ```
/// use std::time::Duration;
///
/// # use remanent_pmem::Pool;
/// use remanent_structures::Log;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let log: Log<str> = Log::create(&pool, "log")?;
/// let mut tail = log.tail(log.first());
/// let reader = std::thread::spawn(move || tail.wait(Duration::from_secs(10)));
/// log.append("news")?;
/// let (_, record) = reader.join().expect("no panic")?.expect("ten seconds are enough");
/// assert_eq!(record, "news");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tail<V: Stored + ?Sized, M: Medium = Mapped> {
    root: Arc<Root<V, M>>,
    next: u64,
}

impl<V: Stored + ?Sized, M: Medium> Tail<V, M> {
    pub(super) fn new(root: Arc<Root<V, M>>, next: u64) -> Self {
        Tail { root, next }
    }

    /// The next record, if it is there. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or no intact record lies at the position of the next one. The
    /// next call tries that position again.
    pub fn poll(&mut self) -> Result<Option<(Position, V::Owned)>> {
        let Root { core, heap, .. } = &*self.root;
        loop {
            let at = self.next.max(core.first());
            let read =
                core.read(heap, at, |content, next| (V::with_stored(content, V::to_owned), next))?;
            match read {
                Some((content, next)) => {
                    self.next = next;
                    return Ok(Some((Position(at), content)));
                }
                None if at < core.first() => {}
                None => return Ok(None),
            }
        }
    }

    /// The next record. Sleeps until it is there, or until the time `most` has passed.
    ///
    /// # Errors
    ///
    /// As for [`poll`](Tail::poll).
    pub fn wait(&mut self, most: Duration) -> Result<Option<(Position, V::Owned)>> {
        if let Some(found) = self.poll()? {
            return Ok(Some(found));
        }
        let core = &self.root.core;
        core.arrivals.wait(most, || core.end() > self.next);
        self.poll()
    }

    /// Position of the next record, or of the end.
    pub fn position(&self) -> Position {
        Position(self.next.max(self.root.core.first()))
    }
}

impl<V: Stored + ?Sized, M: Medium> fmt::Debug for Tail<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").field("next", &self.next).finish_non_exhaustive()
    }
}
