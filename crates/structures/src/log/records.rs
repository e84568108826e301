//! Records one after the other, in either direction.

use std::fmt;
use std::iter::FusedIterator;

use remanent_pmem::{Mapped, Medium};

use super::Log;
use super::position::Position;
use super::root::Root;
use crate::Result;
use crate::stored::Stored;

/// Records of a log; see [`Log::iter`](super::Log::iter). From the back, the latest come first.
///
/// Records that are truncated meanwhile are left out. After an error the iterator ends.
pub struct Records<'l, V: Stored + ?Sized, M: Medium = Mapped> {
    root: &'l Root<V, M>,
    /// Begin of the next record from the front.
    front: u64,
    /// End of the next record from the back.
    back: u64,
}

impl<'l, V: Stored + ?Sized, M: Medium> Records<'l, V, M> {
    pub(super) fn new(root: &'l Root<V, M>, from: u64, to: u64) -> Self {
        Records { root, front: from, back: to }
    }

    fn end_with<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.front = self.back;
        }
        result
    }
}

impl<V: Stored + ?Sized, M: Medium> Iterator for Records<'_, V, M> {
    type Item = Result<(Position, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        let Root { core, heap, .. } = self.root;
        loop {
            self.front = self.front.max(core.first());
            if self.front >= self.back {
                return None;
            }
            let at = self.front;
            let read =
                core.read(heap, at, |content, next| (V::with_stored(content, V::to_owned), next));
            match self.end_with(read) {
                Ok(Some((content, next))) => {
                    self.front = next;
                    return Some(Ok((Position(at), content)));
                }
                // Truncated meanwhile, or the log ends before the position that the caller gave.
                Ok(None) if at < core.first() => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<V: Stored + ?Sized, M: Medium> DoubleEndedIterator for Records<'_, V, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Root { core, heap, .. } = self.root;
        if self.front >= self.back {
            return None;
        }
        let found = core.before(heap, self.back).and_then(|begin| match begin {
            Some(at) if at >= self.front => {
                let read = |content: &[u8], _| V::with_stored(content, V::to_owned);
                Ok(core.read(heap, at, read)?.map(|content| (at, content)))
            }
            _ => Ok(None),
        });
        match self.end_with(found) {
            Ok(Some((at, content))) => {
                self.back = at;
                Some(Ok((Position(at), content)))
            }
            Ok(None) => {
                self.front = self.back;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<V: Stored + ?Sized, M: Medium> FusedIterator for Records<'_, V, M> {}

impl<'l, V: Stored + ?Sized, M: Medium> IntoIterator for &'l Log<V, M> {
    type Item = Result<(Position, V::Owned)>;
    type IntoIter = Records<'l, V, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<V: Stored + ?Sized, M: Medium> fmt::Debug for Records<'_, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut records = f.debug_struct("Records");
        records.field("front", &self.front).field("back", &self.back).finish_non_exhaustive()
    }
}
