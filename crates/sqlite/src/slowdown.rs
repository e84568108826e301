//! Simulation of slower memory, for research: the busy loop of the nvramdisk paper's section 7.6.

use std::time::Instant;

/// Time of each access to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowdown {
    /// Percent of the real time.
    percent: u32,
}

/// No slowdown.
impl Default for Slowdown {
    fn default() -> Self {
        Slowdown { percent: 100 }
    }
}

impl Slowdown {
    /// Parses a percentage, at least 100.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|percent| *percent >= 100).map(|percent| Slowdown { percent })
    }

    /// Makes an access, and waits for the additional time.
    pub(crate) fn run<T>(self, access: impl FnOnce() -> T) -> T {
        if self.percent == 100 {
            return access();
        }
        let start = Instant::now();
        let answer = access();
        let end = start + start.elapsed() * self.percent / 100;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_access_takes_at_least_as_long_as_asked() {
        let sleep = || {
            std::thread::sleep(Duration::from_millis(5));
            7
        };
        let slowdown = Slowdown::parse("300").expect("a percentage");
        let start = Instant::now();
        assert_eq!(slowdown.run(sleep), 7);
        assert!(start.elapsed() >= Duration::from_millis(15));
        assert_eq!(Slowdown::default().run(|| 8), 8);
    }
}
