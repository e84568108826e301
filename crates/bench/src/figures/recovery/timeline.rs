//! What users see of a crash: how much is done in each 10 ms before it and after it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::USERS;
use super::plan::Plan;
use super::users::{WINDOW, now_ns};
use crate::cleanup::Guarded;

/// Throughput, of what it was before the crash, that counts as recovered.
const RECOVERED: f64 = 0.95;
/// Windows over which it is taken: one alone is noise.
const SMOOTHED: usize = 10;

/// 10 ms of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Its end, after the kill.
    pub(super) at_ms: f64,
    pub(super) ktps: f64,
    pub(super) p99_us: f64,
    /// Tiles that are to be rebuilt.
    left: u64,
}

/// A crash, and what came after it.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Throughput before.
    pub(super) full_ktps: f64,
    /// From the start of the next process to the first answer.
    pub(super) first_ms: f64,
    pub(super) after: Vec<Window>,
}

/// A process with users, and what it says.
struct Users {
    _child: Guarded,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    started_ns: u64,
}

impl Users {
    fn start(directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg(USERS.name).arg("--dir").arg(directory).stdout(Stdio::piped());
        let started_ns = now_ns();
        let mut child = command.spawn().context("cannot execute this program again")?;
        let stdout = child.stdout.take().context("the users have no stdout")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Users { _child: Guarded::new(child), lines, started_ns })
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.next() {
            Some(line) => Ok(line?),
            None => bail!("the process with the users has ended by itself"),
        }
    }

    /// Milliseconds from the start to the first answer.
    fn first_ms(&mut self) -> Result<f64> {
        let line = self.line()?;
        let at: u64 = line
            .strip_prefix("first ")
            .and_then(|at| at.parse().ok())
            .with_context(|| format!("the users say {line:?}"))?;
        Ok(at.saturating_sub(self.started_ns) as f64 / 1e6)
    }

    /// The next window, with the time from `since_ns` on.
    fn window(&mut self, since_ns: u64, before_ms: f64) -> Result<Window> {
        let line = self.line()?;
        let numbers: Vec<u64> =
            line.split(' ').map(str::parse).collect::<Result<_, _>>().context("not numbers")?;
        let [at_ns, done, _mean_ns, p99_ns, left] = numbers[..] else {
            bail!("the users say {line:?}")
        };
        let at_ms = at_ns.saturating_sub(since_ns) as f64 / 1e6;
        // The clock of the process may be late.
        let ktps = done as f64 / (at_ms - before_ms).max(0.1);
        Ok(Window { at_ms, ktps, p99_us: p99_ns as f64 / 1e3, left })
    }
}

impl Timeline {
    /// Lets users work for a while, kills their process, starts it again, and watches it until it
    /// is as fast as before, and for `observed` at least.
    pub(super) fn of(
        plan: &Plan,
        directory: &Path,
        before: Duration,
        observed: Duration,
    ) -> Result<Self> {
        plan.write(directory)?;
        let mut users = Users::start(directory)?;
        users.first_ms()?;
        let started_ns = users.started_ns;
        let mut last_ms = users.window(started_ns, 0.0)?.at_ms;
        let mut windows = Vec::new();
        // While indexes are rebuilt for the first time, it is not as fast as it will be.
        while windows.len() < (before.as_millis() / WINDOW.as_millis()) as usize {
            let window = users.window(started_ns, last_ms)?;
            last_ms = window.at_ms;
            if window.left == 0 {
                windows.push(window);
            }
        }
        let (_, steady) = windows.split_at(windows.len() / 3);
        let full_ktps = mean(steady);
        ensure!(full_ktps > 0.0, "nothing was done before the crash");
        let killed_ns = now_ns();
        drop(users);
        let mut users = Users::start(directory)?;
        let first_ms = users.first_ms()?;
        let mut timeline = Timeline { full_ktps, first_ms, after: Vec::new() };
        let mut last_ms = (users.started_ns - killed_ns) as f64 / 1e6 + first_ms;
        let is_over = |timeline: &Timeline| {
            let seen_ms = timeline.after.last().map_or(0.0, |last| last.at_ms);
            let observed_ms = observed.as_secs_f64() * 1e3;
            let is_recovered = timeline.recovered_ms().is_some_and(|at| seen_ms > at + 200.0);
            seen_ms > observed_ms && (is_recovered || seen_ms > 20.0 * observed_ms)
        };
        while !is_over(&timeline) {
            let window = users.window(killed_ns, last_ms)?;
            last_ms = window.at_ms;
            timeline.after.push(window);
        }
        Ok(timeline)
    }

    /// When throughput was back, after the kill.
    pub(super) fn recovered_ms(&self) -> Option<f64> {
        let full = self.full_ktps * RECOVERED;
        let found = self.after.windows(SMOOTHED).find(|windows| mean(windows) >= full)?;
        Some(found[0].at_ms)
    }

    /// The work that is lost, in milliseconds at full throughput: until it was back.
    pub(super) fn lost_ms(&self) -> f64 {
        let end_ms = self.recovered_ms().unwrap_or(f64::INFINITY);
        let (mut lost, mut before_ms) = (0.0, 0.0);
        for window in self.after.iter().take_while(|window| window.at_ms <= end_ms) {
            let share = if before_ms == 0.0 { 0.0 } else { window.ktps / self.full_ktps };
            lost += (window.at_ms - before_ms) * (1.0 - share);
            before_ms = window.at_ms;
        }
        lost.max(0.0)
    }

    /// The 99th percentile of response times, of the worst 10 ms until throughput was back.
    pub(super) fn p99_us(&self) -> f64 {
        let end_ms = self.recovered_ms().unwrap_or(f64::INFINITY);
        let until = self.after.iter().take_while(|window| window.at_ms <= end_ms + 100.0);
        until.map(|window| window.p99_us).fold(0.0, f64::max)
    }
}

fn mean(windows: &[Window]) -> f64 {
    windows.iter().map(|window| window.ktps).sum::<f64>() / windows.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_work_is_what_is_missing_until_throughput_is_back() {
        let window = |number: u32, ktps| Window {
            at_ms: f64::from(number) * 10.0,
            ktps,
            p99_us: 1.0,
            left: 0,
        };
        // Nothing for 100 ms, two fifths for 100 ms, and then all.
        let after = (10..60).map(|number| match number {
            10 => window(number, 0.0),
            11..=20 => window(number, 40.0),
            _ => window(number, 100.0),
        });
        let timeline = Timeline { full_ktps: 100.0, first_ms: 90.0, after: after.collect() };
        assert_eq!(timeline.recovered_ms(), Some(210.0));
        assert!((timeline.lost_ms() - 160.0).abs() < 1e-9, "{}", timeline.lost_ms());
    }
}
