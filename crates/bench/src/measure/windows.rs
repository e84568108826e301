//! Throughput after a restart, window by window.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Samples;

/// Calls between two readings of the clock.
const CALLS_PER_LOOK: u64 = 64;
/// The end of a measurement, which determines the final throughput.
const FINAL: Duration = Duration::from_millis(500);
/// The share of the final throughput that counts as full speed.
pub(crate) const FULL: f64 = 0.95;

/// Millions of calls a second, in one window after the other.
pub(crate) struct Windows {
    len: Duration,
    mops: Vec<f64>,
}

impl Windows {
    /// Calls `work` with 0, 1, … during `count` windows of this length.
    ///
    /// # Errors
    ///
    /// The first error of `work`.
    pub(crate) fn measure(
        len: Duration,
        count: usize,
        mut work: impl FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let mut turn = 0;
        let mut mops = Vec::with_capacity(count);
        for _ in 0..count {
            let (start, before) = (Instant::now(), turn);
            while start.elapsed() < len {
                for _ in 0..CALLS_PER_LOOK {
                    work(turn)?;
                    turn += 1;
                }
            }
            mops.push((turn - before) as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
        Ok(Windows { len, mops })
    }

    /// Throughput of a window, if there was one of this number.
    pub(crate) fn mops(&self, window: usize) -> Option<f64> {
        self.mops.get(window).copied()
    }

    /// The final throughput: the median of the windows of the last half second.
    pub(crate) fn final_mops(&self) -> f64 {
        let count = FINAL.div_duration_f64(self.len).round() as usize;
        self.mops.iter().rev().take(count).copied().collect::<Samples>().median()
    }

    /// Number of windows until full speed.
    pub(crate) fn count_to_full(&self) -> usize {
        let full = FULL * self.final_mops();
        let first = self.mops.iter().position(|&mops| mops >= full);
        first.map_or(self.mops.len(), |first| first + 1)
    }

    /// Milliseconds until the end of the first window at full speed.
    pub(crate) fn full_ms(&self) -> f64 {
        (self.len * self.count_to_full() as u32).as_micros() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_speed_is_what_the_last_half_second_has() {
        let mops = vec![1.0, 9.4, 9.6, 8.0, 10.0, 10.0, 11.0, 9.0];
        let windows = Windows { len: Duration::from_millis(100), mops };
        assert_eq!(windows.final_mops(), 10.0);
        assert_eq!((windows.count_to_full(), windows.full_ms()), (3, 300.0));
        assert_eq!((windows.mops(1), windows.mops(8)), (Some(9.4), None));
    }

    #[test]
    fn calls_are_counted() {
        let mut calls = 0;
        let windows = Windows::measure(Duration::from_millis(1), 3, |turn| {
            anyhow::ensure!(turn == calls, "turns follow each other");
            calls += 1;
            Ok(())
        });
        let windows = windows.expect("no call fails");
        assert!(calls > 0 && windows.mops.len() == 3 && windows.final_mops() > 0.0);
    }
}
