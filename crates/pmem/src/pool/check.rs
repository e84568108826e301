//! Does the pool's own part contradict itself?

use super::Pool;
use super::layout::{ChunkId, ChunkKind};
use crate::Result;
use crate::heap::Violation;
use crate::medium::Medium;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Chunks looked at.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Everything that contradicts the format.
    pub violations: Vec<Violation>,
}

impl<M: Medium> Pool<M> {
    /// Checks the root directory and every state word. What belongs to a structure is checked by the
    /// structure.
    ///
    /// # Errors
    ///
    /// When a root's entry is damaged beyond reading.
    pub fn check(&self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let owners: Vec<u16> = self.roots()?.iter().map(|root| root.id.0).collect();
        let end = self.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            report.chunks += 1;
            let state = match self.chunk_state(at) {
                Ok(state) => state,
                Err(error) => {
                    report.violations.push(Violation::new(at.state(), error.to_string()));
                    at = ChunkId(at.0 + 1).next_data();
                    continue;
                }
            };
            let mut run = 1;
            if !state.is_free() {
                report.chunks_used += 1;
                if !owners.contains(&state.owner) {
                    let what = format!(
                        "chunk {} is {:?} of root {}, which does not exist",
                        at.0, state.kind, state.owner
                    );
                    report.violations.push(Violation::new(at.state(), what));
                }
                if state.kind == ChunkKind::LargeHead {
                    run = state.span();
                    self.check_run(at, run, state.owner, &mut report);
                } else if state.kind == ChunkKind::LargeBody {
                    let what = format!("chunk {} is a body without a head", at.0);
                    report.violations.push(Violation::new(at.state(), what));
                }
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        Ok(report)
    }

    fn check_run(&self, head: ChunkId, run: u32, owner: u16, report: &mut CheckReport) {
        let end = self.chunk_end();
        for index in 1..run {
            let chunk = ChunkId(head.0.saturating_add(index));
            let whole = chunk < end
                && self
                    .chunk_state(chunk)
                    .is_ok_and(|state| state.kind == ChunkKind::LargeBody && state.owner == owner);
            if !whole {
                let what = format!("chunk {} should be a body of the run at {}", chunk.0, head.0);
                report.violations.push(Violation::new(head.state(), what));
                return;
            }
            report.chunks += 1;
            report.chunks_used += 1;
        }
    }
}
