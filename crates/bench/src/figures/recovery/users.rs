//! The process that is killed: users who execute TATP, and a thread that tells every 10 ms what
//! they have done.

use std::convert::Infallible;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use remanent_engine::{Database, DatabaseOptions};
use remanent_pmem::{Emulation, Latency, Medium, Pool};
use remanent_tatp::{Client, Mix};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};

use super::plan::Plan;
use super::{FILE, ROOT, pool_options};
use crate::setup::Setup;

/// How often the process tells.
pub(super) const WINDOW: Duration = Duration::from_millis(10);
/// Response times that are told apart: four for each power of two.
const BUCKETS: usize = 4 * 40;

/// What one user has done. In lines of its own.
#[repr(align(128))]
struct Counts {
    done: AtomicU64,
    /// All response times together.
    spent_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What all users have done by now.
struct Sum {
    done: u64,
    spent_ns: u64,
    buckets: [u64; BUCKETS],
}

impl Counts {
    fn new() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Counts { done: AtomicU64::new(0), spent_ns: AtomicU64::new(0), buckets }
    }

    /// Only the user calls it.
    fn add(&self, spent_ns: u64) {
        let add = |to: &AtomicU64, value| {
            // Relaxed: numbers, of which one may be seen later than another.
            to.store(to.load(Ordering::Relaxed) + value, Ordering::Relaxed);
        };
        add(&self.done, 1);
        add(&self.spent_ns, spent_ns);
        add(&self.buckets[bucket_of(spent_ns)], 1);
    }
}

fn bucket_of(ns: u64) -> usize {
    let power = ns.max(4).ilog2();
    let quarter = ns.max(4) >> (power - 2) & 3;
    ((power as usize - 2) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The end of a bucket.
fn end_of(bucket: usize) -> u64 {
    (5 + bucket as u64 % 4) << (bucket / 4)
}

/// Nanoseconds of the clock that all processes share.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Executes TATP without end, and tells what was done.
///
/// # Errors
///
/// When the database cannot be opened, or a transaction fails.
pub(super) fn serve(setup: &Setup) -> Result<Infallible> {
    // The process that kills this one may be killed first.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let plan = Plan::read(&setup.dir)?;
    let path = setup.dir.join(FILE);
    match plan.latency_ns {
        0 => run(&plan, &pool_options(Emulation::Nvram).open(path)?),
        latency_ns => {
            let latency = Latency {
                write_latency_ns: latency_ns,
                read_latency_ns: latency_ns,
                write_bandwidth_mib: 0,
            };
            run(&plan, &pool_options(Emulation::Latency(latency)).open_emulated(path)?)
        }
    }
}

fn run<M: Medium>(plan: &Plan, pool: &Pool<M>) -> Result<Infallible> {
    let options = DatabaseOptions::new().rebuild(plan.policy.rebuild()).threads(plan.threads);
    let database = options.open(pool, ROOT)?;
    let users: Vec<Counts> = (0..plan.users).map(|_| Counts::new()).collect();
    thread::scope(|scope| {
        for (seed, counts) in (now_ns()..).zip(&users) {
            let (database, plan) = (&database, *plan);
            scope.spawn(move || be_a_user(database, &plan, seed, counts));
        }
        tell(&database, &users)
    })
}

/// Executes requests without end.
fn be_a_user<M: Medium>(database: &Database<M>, plan: &Plan, seed: u64, counts: &Counts) {
    let client = Client::new(database).expect("a database with the four tables");
    let mut mix = Mix::new(plan.subscribers, seed);
    loop {
        let request = mix.draw();
        let begin = Instant::now();
        client.run(&request).expect("a request that can be executed");
        counts.add(begin.elapsed().as_nanos() as u64);
    }
}

/// Prints a line for each window: the time, what was done in it, the mean and the 99th percentile
/// of response times in ns, and how many tiles are to be rebuilt.
fn tell<M: Medium>(database: &Database<M>, users: &[Counts]) -> Result<Infallible> {
    let mut before = sum(users);
    // The first answer is told as soon as it is there.
    while sum(users).done == 0 {
        thread::sleep(Duration::from_micros(100));
    }
    println!("first {}", now_ns());
    let mut next = Instant::now();
    loop {
        next += WINDOW;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = sum(users);
        let done = now.done - before.done;
        let mean_ns = (now.spent_ns - before.spent_ns) / done.max(1);
        let left = database.rebuild_progress().tiles_left;
        println!("{} {done} {mean_ns} {} {left}", now_ns(), p99_ns(&before, &now));
        std::io::stdout().flush()?;
        before = now;
    }
}

fn sum(users: &[Counts]) -> Sum {
    // Relaxed: as in `add`.
    let total = |of: &dyn Fn(&Counts) -> &AtomicU64| -> u64 {
        users.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
    };
    Sum {
        done: total(&|counts| &counts.done),
        spent_ns: total(&|counts| &counts.spent_ns),
        buckets: std::array::from_fn(|bucket| total(&|counts| &counts.buckets[bucket])),
    }
}

/// The time that all but one of a hundred have stayed below, in a window.
fn p99_ns(before: &Sum, now: &Sum) -> u64 {
    let counts: Vec<u64> =
        now.buckets.iter().zip(&before.buckets).map(|(now, before)| now - before).collect();
    let mut rest = counts.iter().sum::<u64>() / 100;
    for (bucket, count) in counts.iter().enumerate().rev() {
        if *count > rest {
            return end_of(bucket);
        }
        rest -= count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_belongs_in_them() {
        for ns in [4, 5, 7, 8, 9, 100, 1_000, 123_456, 10_000_000_000] {
            let bucket = bucket_of(ns);
            assert!(ns < end_of(bucket), "{ns}");
            assert!(bucket == 0 || ns >= end_of(bucket - 1), "{ns}");
        }
    }

    #[test]
    fn the_99th_percentile_leaves_out_one_of_a_hundred() {
        let counts = Counts::new();
        let before = sum(std::slice::from_ref(&counts));
        (0..990).for_each(|_| counts.add(100));
        (0..10).for_each(|_| counts.add(1_000_000));
        let now = sum(std::slice::from_ref(&counts));
        assert_eq!(p99_ns(&before, &now), end_of(bucket_of(100)));
        counts.add(1_000_000);
        let now = sum(std::slice::from_ref(&counts));
        assert_eq!(p99_ns(&before, &now), end_of(bucket_of(1_000_000)));
    }
}
