//! Timing: samples, their medians, and work shared out over threads.
//!
//! The machine is noisy, so a number means little and a ratio much: contenders take turns in one
//! run, the one that begins changes every round, and a ratio is the median of the rounds' ratios.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

/// The samples of one quantity, one a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// No samples yet.
    pub(crate) const fn new() -> Self {
        Samples(Vec::new())
    }

    /// Appends the sample of the next round.
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Number of rounds sampled.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }

    /// The middle sample; the mean of the middle two when their number is even. NaN when none.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        }
    }

    /// The samples, in the order of the rounds.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    /// The arithmetic mean. NaN when there are no samples.
    pub(crate) fn mean(&self) -> f64 {
        self.values().sum::<f64>() / self.runs() as f64
    }

    /// The standard deviation σ of the quantity, as far as the samples tell. NaN when fewer than two.
    pub(crate) fn sigma(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.values().map(|value| (value - mean) * (value - mean)).sum();
        (squares / (self.runs() as f64 - 1.0)).sqrt()
    }

    /// The smallest sample.
    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest sample.
    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Round by round, this quantity over another.
    pub(crate) fn over(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// Round by round, this quantity less another.
    pub(crate) fn minus(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours - theirs).collect())
    }

    /// The quantity's reciprocal times `scale`: nanoseconds become millions a second with 1000.
    pub(crate) fn reciprocal(&self, scale: f64) -> Samples {
        Samples(self.0.iter().map(|sample| scale / sample).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Samples(samples.into_iter().collect())
    }
}

/// The order in which `count` contenders run in a round: each begins in turn.
pub(crate) fn turns(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// What a piece of work cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the moment all threads were ready until the last was done.
    pub(crate) wall: Duration,
    /// CPU time, all threads together.
    pub(crate) cpu: Duration,
}

/// Runs `work` once on each of `threads` threads, on its share of `items`.
///
/// Shares are even numbers of items, so that pairs stay together.
///
/// # Errors
///
/// The first error of any thread.
pub(crate) fn timed<T, R>(
    items: &[T],
    threads: usize,
    work: impl Fn(&[T]) -> Result<R> + Sync,
) -> Result<(Cost, Vec<R>)>
where
    T: Sync,
    R: Send,
{
    let share = items.len().div_ceil(threads).next_multiple_of(2).max(2);
    let shares: Vec<&[T]> = items.chunks(share).collect();
    let barrier = Barrier::new(shares.len());
    std::thread::scope(|scope| {
        let workers: Vec<_> = shares
            .iter()
            .map(|share| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let (start, cpu) = (Instant::now(), thread_cpu());
                    let answer = work(share);
                    (thread_cpu() - cpu, start, Instant::now(), answer)
                })
            })
            .collect();
        let mut cpu_total = Duration::ZERO;
        let mut answers = Vec::with_capacity(workers.len());
        let mut from_to: Option<(Instant, Instant)> = None;
        for worker in workers {
            let (cpu, start, end, answer) =
                worker.join().expect("a measured thread does not panic");
            // From the first thread's start to the last one's end, by their own clocks: this thread may
            // be kept waiting while they work.
            from_to =
                Some(from_to.map_or((start, end), |(from, to)| (from.min(start), to.max(end))));
            cpu_total += cpu;
            answers.push(answer?);
        }
        let wall = from_to.map_or(Duration::ZERO, |(from, to)| to - from);
        Ok((Cost { wall, cpu: cpu_total }, answers))
    })
}

/// Nanoseconds per call of `work`, which is called `count` times in a row.
pub(crate) fn mean_ns(count: u64, mut work: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    for turn in 0..count {
        work(turn);
    }
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// Nanoseconds per call of `work`, called in batches until the time of a `sample` is over.
pub(crate) fn sample_ns(sample: Duration, first_turn: &mut u64, mut work: impl FnMut(u64)) -> f64 {
    /// Calls between two looks at the clock, which costs about as much as a cached access.
    const BATCH: u64 = 32;
    let start_turn = *first_turn;
    let start = Instant::now();
    loop {
        for turn in *first_turn..*first_turn + BATCH {
            work(turn);
        }
        *first_turn += BATCH;
        let elapsed = start.elapsed();
        if elapsed >= sample {
            return elapsed.as_secs_f64() * 1e9 / (*first_turn - start_turn) as f64;
        }
    }
}

/// CPU time of the process: of all its threads, those that work behind others' backs included.
pub(crate) fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).expect("CPU time is never negative")
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("CPU time is never negative")
}

/// Says on stderr what is being measured, when stderr is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `steps` measurements of the bench `name`.
    pub(crate) fn new(name: &str, steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{prefix} [{elapsed}] {wide_bar} {pos}/{len} {msg}")
                .expect("the template is well formed");
        bar.set_style(style);
        bar.set_prefix(name.to_owned());
        Progress(bar)
    }

    /// Announces the next measurement.
    pub(crate) fn step(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.inc(1);
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_samples() {
        assert_eq!(Samples::from_iter([3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Samples::from_iter([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn means_and_standard_deviations() {
        let samples = Samples::from_iter([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(samples.mean(), 5.0);
        assert!((samples.sigma() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Samples::from_iter([1.0]).mean(), 1.0);
        assert!(Samples::from_iter([1.0]).sigma().is_nan() && Samples::new().mean().is_nan());
    }

    #[test]
    fn ratios_and_differences_are_taken_round_by_round() {
        let (ours, theirs) = (Samples::from_iter([2.0, 8.0]), Samples::from_iter([1.0, 2.0]));
        let ratio = ours.over(&theirs);
        assert_eq!((ratio.min(), ratio.max(), ratio.runs()), (2.0, 4.0, 2));
        let difference = ours.minus(&theirs);
        assert_eq!((difference.min(), difference.max(), difference.runs()), (1.0, 6.0, 2));
    }

    #[test]
    fn every_contender_begins_once_in_as_many_rounds() {
        let first: Vec<_> = (0..3).filter_map(|round| turns(3, round).next()).collect();
        assert_eq!(first, [0, 1, 2]);
    }

    #[test]
    fn every_item_is_worked_on_once_and_pairs_stay_together() {
        let items: Vec<u64> = (0..1002).collect();
        let (cost, shares) = timed(&items, 4, |share| Ok(share.to_vec())).expect("it cannot fail");
        assert_eq!(shares.concat(), items);
        assert!(shares.iter().all(|share| share.len() % 2 == 0));
        assert!(cost.wall > Duration::ZERO);
    }
}
