//! The crashes that lead to the image under test, and the violation found after them.

use crate::config::Config;
use crate::oracle::history::Call;
use crate::report::violation::{self, Broken, Violation};
use crate::sim::trace::Event;
use crate::subject::Subject;

/// The crashes of one seed on the way to the present life: none in the run itself, then one more
/// for each life.
pub(super) struct CrashPath<'a> {
    config: &'a Config,
    seed: u64,
    frames: Vec<Frame>,
}

/// One crash, for messages.
pub(super) struct Frame {
    pub(super) point: u64,
    pub(super) image: u64,
    pub(super) event: Option<Event>,
    /// Description of what survived; empty if no message can need it.
    pub(super) survived: String,
}

impl<'a> CrashPath<'a> {
    pub(super) fn new(config: &'a Config, seed: u64) -> Self {
        CrashPath { config, seed, frames: Vec::new() }
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
    }

    pub(super) fn pop(&mut self) {
        self.frames.pop();
    }

    /// Number of crashes so far.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether a life after a crash is explored, not the run.
    pub(super) fn is_nested(&self) -> bool {
        !self.frames.is_empty()
    }

    /// The crash point and image to explore next, if only one is asked for.
    pub(super) fn wanted(&self) -> Option<(u64, u64)> {
        self.config.only.as_ref()?.path.get(self.frames.len()).copied()
    }

    /// The violation after these crashes, or at this position of the run if there is none.
    pub(super) fn violation<S: Subject>(
        &self,
        calls: &[Call<S>],
        broken: Broken,
        what: String,
        position: usize,
    ) -> Violation {
        let crashes: Vec<_> = self
            .frames
            .iter()
            .map(|frame| violation::Crash {
                point: frame.point,
                image: frame.image,
                event: frame.event.map_or_else(|| "the end".to_owned(), |event| event.to_string()),
                survived: frame.survived.clone(),
            })
            .collect();
        let mut command = format!("{} --seed {}", self.config.command, self.seed);
        for crash in &crashes {
            command += &format!(" --point {} --image {}", crash.point, crash.image);
        }
        // A position in a second life does not lie in the run.
        let position = crashes.first().map_or(position, |crash| crash.point as usize);
        let ops = last_ops(calls, position);
        let config = self.config.summary();
        Violation { seed: self.seed, broken, what, crashes, ops, config, command }
    }
}

/// The last operations before a position, and those in flight.
fn last_ops<S: Subject>(calls: &[Call<S>], position: usize) -> Vec<String> {
    let met = |call: &&Call<S>| call.has_begun(position) || call.acknowledged(position).is_some();
    let mut ops: Vec<String> = calls
        .iter()
        .rev()
        .filter(met)
        .take(OPS_SHOWN)
        .map(|call| {
            let answer = match (&call.ended, call.acknowledged(position)) {
                (Some((_, ret)), Some(_)) => format!("answered {ret:?}"),
                _ => "in flight".to_owned(),
            };
            format!("thread {}: {:?} {answer}", call.thread, call.op)
        })
        .collect();
    ops.reverse();
    ops
}

/// Operations that a violation lists.
const OPS_SHOWN: usize = 8;
