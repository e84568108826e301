//! The process that is killed: users who execute TATP, and a thread that tells every 10 ms what
//! they have done.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use remanent_engine::{Database, DatabaseOptions};
use remanent_pmem::{Emulation, Latency, Medium, Pool};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::event::{Event, now_ns};
use super::long::Statements;
use super::plan::{Order, Plan};
use super::store::{FILE, ROOT, pool_options};
use crate::{Client, Mix};

/// How often the process tells.
pub(super) const WINDOW: Duration = Duration::from_millis(10);
/// Response times that are told apart: four for each power of two.
const BUCKETS: usize = 4 * 40;

/// What one user has done. In lines of its own.
#[repr(align(128))]
struct Counts {
    done: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What all users have done by now.
struct Sum {
    done: u64,
    buckets: [u64; BUCKETS],
}

impl Counts {
    fn new() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Counts { done: AtomicU64::new(0), buckets }
    }

    /// Only the user calls it.
    fn add(&self, spent_ns: u64) {
        let add = |to: &AtomicU64, value| {
            // Relaxed: numbers, of which one may be seen later than another.
            to.store(to.load(Ordering::Relaxed) + value, Ordering::Relaxed);
        };
        add(&self.done, 1);
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

/// Executes the plan in `directory` until this process is killed, and prints what it does.
///
/// # Errors
///
/// When the database cannot be opened, a transaction fails, or the observer has gone.
pub fn serve(directory: &Path) -> Result<Infallible> {
    let began_ns = now_ns();
    // The observer may be killed first.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let order = Order::read(directory)?;
    let path = directory.join(FILE);
    match order.plan.latency_ns {
        0 => run(&order, &pool_options(Emulation::Nvram).open(path)?, began_ns),
        latency_ns => {
            let latency = Latency {
                write_latency_ns: latency_ns,
                read_latency_ns: latency_ns,
                write_bandwidth_mib: 0,
            };
            let options = pool_options(Emulation::Latency(latency));
            run(&order, &options.open_emulated(path)?, began_ns)
        }
    }
}

fn run<M: Medium>(order: &Order, pool: &Pool<M>, began_ns: u64) -> Result<Infallible> {
    let (plan, pool_ns) = (&order.plan, now_ns());
    let options = DatabaseOptions::new().rebuild(plan.policy.rebuild()).threads(plan.threads);
    let database = options.open(pool, ROOT)?;
    let opened = Opened { began_ns, pool_ns, database_ns: now_ns() };
    let statements = Statements::new(&database)?;
    // Before the users: the observer knows all of them when it is told of the first answer.
    let mut begun = Vec::new();
    if order.resume.is_none() {
        for s_id in (plan.first_s_id..).take(plan.long_transactions as usize) {
            begun.push((s_id, statements.begin(s_id)?));
        }
    }
    let users: Vec<Counts> = (0..plan.users).map(|_| Counts::new()).collect();
    let end = End::default();
    thread::scope(|scope| {
        for (seed, counts) in (now_ns()..).zip(&users) {
            let (database, end) = (&database, &end);
            scope.spawn(move || end.note(be_a_user(database, plan, seed, counts, end)));
        }
        scope.spawn(|| {
            end.note(match &order.resume {
                Some(resume) => statements.finish(resume),
                None => statements.go_on(&mut begun, &end.is_near),
            });
            // They stay open: dropping them would give them up.
            for (_, transaction) in begun {
                transaction.suspend();
            }
        });
        end.note(tell(&database, opened, &users, &end));
    });
    Err(end.error())
}

/// When parts of the opening were done.
struct Opened {
    began_ns: u64,
    pool_ns: u64,
    database_ns: u64,
}

/// Why the process ends by itself: by an error of one of its threads.
#[derive(Default)]
struct End {
    is_near: AtomicBool,
    error: Mutex<Option<anyhow::Error>>,
}

impl End {
    /// Has all threads end if one has failed.
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
            // Relaxed: a flag; the error has a lock.
            self.is_near.store(true, Ordering::Relaxed);
        }
    }

    fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    fn error(self) -> anyhow::Error {
        let error = self.error.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.unwrap_or_else(|| anyhow!("the users have ended without an error"))
    }
}

/// Executes requests until the end.
fn be_a_user<M: Medium>(
    database: &Database<M>,
    plan: &Plan,
    seed: u64,
    counts: &Counts,
    end: &End,
) -> Result<()> {
    let client = Client::new(database)?;
    let mut mix = Mix::new(plan.subscribers, seed);
    while !end.is_near() {
        let request = mix.draw();
        let begin = Instant::now();
        client.run(&request)?;
        counts.add(begin.elapsed().as_nanos() as u64);
    }
    Ok(())
}

/// Tells of the first answer, and of each window.
fn tell<M: Medium>(
    database: &Database<M>,
    opened: Opened,
    users: &[Counts],
    end: &End,
) -> Result<()> {
    let mut before = sum(users);
    // The first answer is told as soon as it is there.
    while sum(users).done == 0 && !end.is_near() {
        thread::sleep(Duration::from_micros(100));
    }
    let Opened { began_ns, pool_ns, database_ns } = opened;
    Event::FirstAnswer { began_ns, pool_ns, database_ns, at_ns: now_ns() }.tell()?;
    let mut next = Instant::now();
    while !end.is_near() {
        // If this thread comes late, the window is longer. Making up for it with windows of no
        // length would look as if nothing had been done.
        next = (next + WINDOW).max(Instant::now() + WINDOW / 2);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = sum(users);
        let (done, p99_ns) = (now.done - before.done, p99_ns(&before, &now));
        let tiles_left = database.rebuild_progress().tiles_left;
        Event::Window { at_ns: now_ns(), done, p99_ns, tiles_left }.tell()?;
        before = now;
    }
    Ok(())
}

fn sum(users: &[Counts]) -> Sum {
    // Relaxed: as in `add`.
    let total = |of: &dyn Fn(&Counts) -> &AtomicU64| -> u64 {
        users.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
    };
    Sum {
        done: total(&|counts| &counts.done),
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
