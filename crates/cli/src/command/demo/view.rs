//! What the demonstration shows while it runs: bars on a terminal, and lines of text.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remanent_tatp::recovery::{Seen, Window};

use super::stop;
use crate::command::output::say;

/// Time that one bar stands for.
const BAR: Duration = Duration::from_millis(100);
/// Bars that are shown.
const BARS_MAX: usize = 36;
/// Long transactions whose statement is told.
const STATEMENTS_SHOWN: usize = 8;
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// How often the line is drawn at the most, in a second.
const DRAWS_PER_S: u8 = 20;

/// Shows one policy after the other.
pub(super) struct View {
    line: ProgressBar,
    is_quiet: bool,
    name: &'static str,
    /// What is going on.
    phase: String,
    bars: VecDeque<f64>,
    /// Throughput of the windows in the bar that is not complete.
    recent: Vec<f64>,
    bar_end: Instant,
    peak_ktps: f64,
    /// Statements at which long transactions were resumed.
    resumed: Vec<u32>,
    committed: usize,
    long_transactions: usize,
}

impl View {
    /// Shows nothing if it `is_quiet`.
    pub(super) fn new(is_quiet: bool, long_transactions: usize) -> Self {
        let target = match is_quiet {
            true => ProgressDrawTarget::hidden(),
            // Hidden, too, if it is not a terminal.
            false => ProgressDrawTarget::stdout_with_hz(DRAWS_PER_S),
        };
        let style = ProgressStyle::with_template("{wide_msg}").expect("a template");
        View {
            line: ProgressBar::with_draw_target(None, target).with_style(style),
            is_quiet,
            name: "",
            phase: String::new(),
            bars: VecDeque::new(),
            recent: Vec::new(),
            bar_end: Instant::now() + BAR,
            peak_ktps: 0.0,
            resumed: Vec::new(),
            committed: 0,
            long_transactions,
        }
    }

    /// Prints a line that stays.
    pub(super) fn tell(&self, text: &str) {
        if !self.is_quiet {
            self.line.suspend(|| say!("{text}"));
        }
    }

    /// Shows that something takes long, without bars.
    pub(super) fn wait_for(&self, what: String) {
        self.line.set_message(what);
        self.line.tick();
    }

    /// Begins with a policy.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.name = name;
        "opening".clone_into(&mut self.phase);
        self.bars.clear();
        self.recent.clear();
        self.resumed.clear();
        self.committed = 0;
        self.bar_end = Instant::now() + BAR;
    }

    pub(super) fn end(&self) {
        self.line.finish_and_clear();
    }

    /// Shows what a trial has seen.
    pub(super) fn show(&mut self, seen: Seen<'_>) -> Result<()> {
        match seen {
            Seen::Silence => {}
            Seen::Before(window) => self.add(window, "before the kill"),
            Seen::Killed { full_ktps } => {
                "killed, opening".clone_into(&mut self.phase);
                self.tell(&format!("{}: killed at {full_ktps:.0} k transactions/s", self.name));
            }
            Seen::FirstAnswer { first_ms } => {
                "answering".clone_into(&mut self.phase);
                let after = "after the next process has started";
                self.tell(&format!("{}: first answer {first_ms:.0} ms {after}", self.name));
            }
            Seen::After(window) => self.add(window, "all rebuilt"),
            Seen::Resumed(transaction) => {
                self.resumed.push(transaction.resumed);
                if self.resumed.len() == self.long_transactions {
                    self.tell(&self.told_of_resumed());
                }
            }
            Seen::Committed(_) => {
                self.committed += 1;
                if self.committed == self.long_transactions {
                    let count = self.committed;
                    self.tell(&format!("{}: {count} long transactions committed", self.name));
                }
            }
        }
        self.draw();
        stop::check()
    }

    fn told_of_resumed(&self) -> String {
        let shown = self.resumed.iter().take(STATEMENTS_SHOWN);
        let statements: Vec<String> = shown.map(u32::to_string).collect();
        let (name, count, statements) = (self.name, self.resumed.len(), statements.join(", "));
        let more = if count > STATEMENTS_SHOWN { ", …" } else { "" };
        format!("{name}: {count} long transactions resumed, behind statements {statements}{more}")
    }

    fn add(&mut self, window: &Window, phase: &str) {
        self.recent.push(window.ktps);
        self.phase = match window.tiles_left {
            0 => phase.to_owned(),
            left => format!("{left} tiles to rebuild"),
        };
    }

    /// Completes the bars whose time is over, and draws all.
    fn draw(&mut self) {
        let now = Instant::now();
        while self.bar_end <= now {
            let count = self.recent.len().max(1) as f64;
            let ktps = self.recent.drain(..).fold(0.0, |sum, of| sum + of) / count;
            self.peak_ktps = self.peak_ktps.max(ktps);
            self.bars.push_back(ktps);
            if self.bars.len() > BARS_MAX {
                self.bars.pop_front();
            }
            self.bar_end += BAR;
            let last = self.bars.back().copied().unwrap_or_default();
            let bars = sparkline(self.bars.iter().copied(), self.peak_ktps);
            let (name, phase) = (self.name, &self.phase);
            self.line.set_message(format!("{name:<10} {bars:<BARS_MAX$} {last:>6.0} k/s  {phase}"));
        }
        self.line.tick();
    }
}

/// A bar for each value, of eight heights; a space for nothing.
fn sparkline(values: impl Iterator<Item = f64>, max: f64) -> String {
    let bar = |value: f64| match value > 0.0 && max > 0.0 {
        true => HEIGHTS[((value / max * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => ' ',
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_values() {
        let values = [0.0, 1.0, 50.0, 100.0];
        assert_eq!(sparkline(values.into_iter(), 100.0), " ▁▄█");
        assert_eq!(sparkline([0.0].into_iter(), 0.0), " ");
    }
}
