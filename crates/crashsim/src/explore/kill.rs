//! A process that is killed, and a power failure in the life of the next one.
//!
//! A kill loses nothing that was executed: the caches keep it. But what the dead process had not made durable is as
//! little durable as before, while recovery sees it and builds on it. So the life after the kill is recorded on what was
//! visible, and crashed from what was durable.

use super::{Explorer, Frame, Point};
use crate::judge::{Treatment, judge};
use crate::pending::Pending;
use crate::subject::Subject;

impl<S: Subject> Explorer<'_, '_, S> {
    /// Kills the process at this point, if the point is one of those that are explored so, and crashes the next life.
    pub(super) fn kill_at(&mut self, pending: &Pending, point: &Point<'_, S::State>) {
        let is_wanted = self.wanted().is_none_or(|(_, image)| image == 0);
        if !is_wanted || !self.is_followed(point.position as u64, 0) {
            return;
        }
        self.report.crash_points += 1;
        let before = self.sim.mark();
        let mut pending = pending.clone();
        pending.outlive_process(&self.sim);
        let durable = self.sim.mark();
        pending.show_all(&self.sim);
        let treatment = Treatment { seed: self.chance, errors_excused: false, thorough: true };
        let judgement = judge(self.subject, self.config, &self.sim, &point.allowed, treatment);
        self.sim.roll_back(durable);
        self.count(false, &judgement);
        self.frames.push(Frame {
            point: point.position as u64,
            image: 0,
            event: point.event.copied(),
            survived: "everything until the power failed: the process was killed".to_owned(),
        });
        if let Some((broken, what)) = judgement.failure {
            self.violation(broken, what, point.position);
        } else if point.depth > 0 && self.deeper.is_none() {
            self.crash_life(&judgement.life, pending, point);
        }
        self.frames.pop();
        self.sim.roll_back(before);
    }
}
