//! The check of the pool's own metadata.

use super::Pool;
use super::layout::{ChunkId, ChunkKind, ChunkState, DirectoryId, ROOT_COUNT};
use super::seal::misfit_of_seal;
use super::superblock::Superblock;
use crate::Result;
use crate::medium::Medium;
use crate::violation::Violation;

/// Maximal number of violations in a report; further ones are only counted.
const TOLD_MAX: usize = 1000;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Chunks that were checked.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Contradictions to the format, each once: the first thousand.
    pub violations: Vec<Violation>,
    /// Number of violations beyond those in `violations`.
    pub untold: u64,
}

impl CheckReport {
    fn tell(&mut self, offset: u64, what: impl Into<String>) {
        let violation = Violation::new(offset, what);
        if self.violations.contains(&violation) {
            return;
        }
        if self.violations.len() < TOLD_MAX {
            self.violations.push(violation);
        } else {
            self.untold += 1;
        }
    }
}

/// Bodies without a head: where they begin, how many there are, and their owner.
type Headless = Option<(ChunkId, u32, u16)>;

impl<M: Medium> Pool<M> {
    /// Checks both superblocks, the root directory and every state word, and reports the chunks
    /// that were [set aside](Pool::set_aside). Each structure checks its own content.
    ///
    /// Takes memory for a bounded number of violations, whatever is damaged. The pool may be in
    /// use; threads that create or remove a root, or need or free a chunk, wait meanwhile. Do not
    /// call it while a root is created or opened ([`RootObject`](super::RootObject)): it would wait
    /// for itself.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: what was read before it is unreliable.
    pub fn check(&self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        if let Some(lost) = &self.0.lost_superblock {
            report.tell(lost.offset, lost.what.as_str());
        }
        let lost = Superblock::lost_copy(self.medium());
        if let Some(lost) = lost.filter(|_| !self.guarantee().write_disturbance) {
            report.tell(lost.offset, lost.what);
        }
        {
            let medium = self.medium();
            // Held by a thread that creates or removes a root, until it has finished.
            let _registry = self.registry().lock(medium);
            let owners = self.check_roots(&mut report);
            // Held by a thread that takes or gives back a run of chunks, until it has finished.
            let search = self.search().lock(medium);
            self.check_chunks(&owners, search.end, &mut report);
        }
        for aside in self.set_aside() {
            report.tell(aside.offset, aside.what);
        }
        match self.medium().fault() {
            Some(fault) => Err(crate::Error::Medium(fault)),
            None => Ok(report),
        }
    }

    /// Which numbers have a root, including those with a damaged entry.
    fn check_roots(&self, report: &mut CheckReport) -> Vec<bool> {
        let mut is_root = vec![false; usize::from(ROOT_COUNT) + 1];
        for id in self.root_ids() {
            match self.check_root(id) {
                Ok(is_there) => is_root[usize::from(id.0)] = is_there,
                Err(error) => {
                    is_root[usize::from(id.0)] = true;
                    report.tell(self.root_entry(id), error.to_string());
                }
            }
        }
        is_root
    }

    fn check_chunks(&self, is_root: &[bool], end: ChunkId, report: &mut CheckReport) {
        let mut headless: Headless = None;
        let mut at = ChunkId(0).next_data();
        while at < end {
            report.chunks += 1;
            let mut run = 1;
            match self.chunk_state(at) {
                Ok(state) if state.kind == ChunkKind::LargeBody => {
                    report.chunks_used += 1;
                    headless = match headless {
                        Some((first, count, owner))
                            if owner == state.owner && first.0 + count == at.0 =>
                        {
                            Some((first, count + 1, owner))
                        }
                        before => {
                            tell_headless(before, report);
                            Some((at, 1, state.owner))
                        }
                    };
                }
                Ok(state) if state.is_free() => {}
                Ok(state) if state.kind == ChunkKind::Directory => {
                    report.chunks_used += 1;
                    self.check_directory(at, DirectoryId(state.owner - 1), report);
                }
                Ok(state) => {
                    report.chunks_used += 1;
                    if !is_root.get(usize::from(state.owner)).is_some_and(|&is_root| is_root) {
                        let (kind, owner) = (state.kind, state.owner);
                        let what = format!(
                            "chunk {} is {kind:?} of root {owner}, which does not exist",
                            at.0
                        );
                        report.tell(at.state(), what);
                    }
                    self.check_seal(at, state, report);
                    if state.kind == ChunkKind::LargeHead {
                        run = self.check_run(at, state, end, report);
                    }
                }
                Err(error) => report.tell(at.state(), error.to_string()),
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        tell_headless(headless, report);
    }

    fn check_directory(&self, chunk: ChunkId, directory: DirectoryId, report: &mut CheckReport) {
        if self.medium().load(directory.link()) != directory.encode(chunk) {
            let what = format!(
                "chunk {} is directory chunk {}, and the header does not lead there",
                chunk.0, directory.0
            );
            report.tell(directory.link(), what);
        }
    }

    fn check_seal(&self, chunk: ChunkId, state: ChunkState, report: &mut CheckReport) {
        let is_at_rest = || self.medium().load(chunk.state()) == state.encode();
        // Checked again: a structure that is in use may have broken the seal meanwhile.
        if !self.fits_seal(chunk, state) && is_at_rest() {
            report.tell(chunk.bitmap(), misfit_of_seal(chunk));
        }
    }

    /// Returns how many chunks of the run belong to it. The chunks behind them are checked
    /// separately.
    fn check_run(
        &self,
        head: ChunkId,
        ChunkState { run, owner, .. }: ChunkState,
        end: ChunkId,
        report: &mut CheckReport,
    ) -> u32 {
        for index in 1..run {
            let chunk = ChunkId(head.0.saturating_add(index));
            let is_body = chunk < end
                && self
                    .chunk_state(chunk)
                    .is_ok_and(|state| state.kind == ChunkKind::LargeBody && state.owner == owner);
            if !is_body {
                let what = format!("chunk {} should be a body of the run at {}", chunk.0, head.0);
                report.tell(head.state(), what);
                return index;
            }
            report.chunks += 1;
            report.chunks_used += 1;
        }
        run
    }
}

fn tell_headless(headless: Headless, report: &mut CheckReport) {
    let Some((first, count, _)) = headless else { return };
    let last = first.0 + count - 1;
    report.tell(first.state(), format!("chunks {} to {last} are bodies without a head", first.0));
}
