//! Clocks: wall-clock and CPU time of work, for a single call or for several threads.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

/// The order in which `count` contenders run in a round; a different one begins in each round.
pub(crate) fn turns(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Time of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// From the moment when all threads were ready until the last one was done.
    pub(crate) wall: Duration,
    /// CPU time of all threads together.
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
            // From the first thread's start to the last one's end, by their own clocks, because
            // this thread may have to wait while they work.
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
    /// Calls between two readings of the clock; a reading costs about as much as a cached access.
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

/// CPU time of the process, including background threads.
#[cfg(has_berkeley_db)]
pub(crate) fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).expect("CPU time is never negative")
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("CPU time is never negative")
}

#[cfg(test)]
mod tests {
    use super::*;

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
