//! What users see of a crash: how much is done in each 10 ms before it and after it.

use serde::Serialize;

/// Throughput, of what it was before the crash, that counts as recovered.
const RECOVERED: f64 = 0.95;
/// Windows over which it is taken: one alone is noise.
const SMOOTHED: usize = 10;

/// 10 ms of a users process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Window {
    /// Its end, after the kill; negative if it was before.
    pub at_ms: f64,
    /// Thousands of transactions a second.
    pub ktps: f64,
    /// The 99th percentile of response times.
    pub p99_us: f64,
    /// Tiles that are not in the indexes in DRAM yet.
    pub tiles_left: u64,
}

/// What the time between the start of a process and its first answer goes into, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Phases {
    /// Until the process does something: executing the program.
    pub process: f64,
    /// Opening the pool.
    pub pool: f64,
    /// Opening the database.
    pub database: f64,
    /// Preparing statements, and executing the first transaction.
    pub answer: f64,
}

impl Phases {
    /// Each by its name, in their order.
    pub fn named(self) -> [(&'static str, f64); 4] {
        [
            ("process", self.process),
            ("pool", self.pool),
            ("database", self.database),
            ("answer", self.answer),
        ]
    }

    /// Their sum.
    pub fn sum(self) -> f64 {
        self.named().into_iter().map(|(_, ms)| ms).sum()
    }
}

/// A transaction that was open when its process was killed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LongTransaction {
    /// Its name, with which the next process resumed it.
    pub token: String,
    /// Statements that had returned before the kill.
    pub acknowledged: u32,
    /// Statements that had taken effect, as the next process found.
    pub resumed: u32,
    /// Statements when it was committed.
    pub committed: u32,
    /// Statements by the count in its row, to which each adds one.
    pub counted: u32,
}

impl LongTransaction {
    /// Whether each statement took effect exactly once. One that was in progress when the process
    /// was killed may have taken effect or not.
    pub fn is_exact(&self) -> bool {
        let in_progress_max = 1;
        (self.acknowledged..=self.acknowledged + in_progress_max).contains(&self.resumed)
            && self.committed > self.resumed
            && self.counted == self.committed
    }
}

/// A crash, and what came after it.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Throughput before.
    pub full_ktps: f64,
    /// From the start of the next process to the first answer.
    pub first_ms: f64,
    /// What it goes into.
    pub phases: Phases,
    /// Windows of the first process.
    pub before: Vec<Window>,
    /// Windows of the next process.
    pub after: Vec<Window>,
    /// The plan's long transactions.
    pub long_transactions: Vec<LongTransaction>,
}

impl Timeline {
    /// When throughput was back, after the kill.
    pub fn recovered_ms(&self) -> Option<f64> {
        let full = self.full_ktps * RECOVERED;
        let found = self.after.windows(SMOOTHED).find(|windows| mean(windows) >= full)?;
        Some(found[0].at_ms)
    }

    /// The work that is lost, in milliseconds at full throughput: until it was back.
    pub fn lost_ms(&self) -> f64 {
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
    pub fn p99_us(&self) -> f64 {
        let end_ms = self.recovered_ms().unwrap_or(f64::INFINITY);
        let until = self.after.iter().take_while(|window| window.at_ms <= end_ms + 100.0);
        until.map(|window| window.p99_us).fold(0.0, f64::max)
    }
}

pub(super) fn mean(windows: &[Window]) -> f64 {
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
            tiles_left: 0,
        };
        // Nothing for 100 ms, half for 100 ms, and then all.
        let after = (10..60).map(|number| match number {
            10 => window(number, 0.0),
            11..=20 => window(number, 50.0),
            _ => window(number, 100.0),
        });
        let timeline = Timeline {
            full_ktps: 100.0,
            first_ms: 90.0,
            phases: Phases::default(),
            before: Vec::new(),
            after: after.collect(),
            long_transactions: Vec::new(),
        };
        // From here on, 100 ms have 95 % of the work.
        assert_eq!(timeline.recovered_ms(), Some(200.0));
        assert!((timeline.lost_ms() - 150.0).abs() < 1e-9, "{}", timeline.lost_ms());
    }

    #[test]
    fn a_statement_that_is_lost_or_done_twice_is_seen() {
        let of = |acknowledged, resumed, counted| LongTransaction {
            token: String::new(),
            acknowledged,
            resumed,
            committed: resumed + 3,
            counted,
        };
        assert!(of(5, 5, 8).is_exact() && of(5, 6, 9).is_exact());
        for wrong in [of(5, 4, 7), of(5, 7, 10), of(5, 5, 7), of(5, 5, 9)] {
            assert!(!wrong.is_exact(), "{wrong:?}");
        }
    }
}
