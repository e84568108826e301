//! Schedules: simulated threads run one at a time, and a seed decides which.
//!
//! Simulated threads are threads of the operating system that pass a baton. The holder runs up to
//! its next call of the medium, where the schedule chooses the next holder. Nothing else decides,
//! so the same seed gives the same interleaving.
//!
//! A thread that waits for another one must call [`Medium::pause`](remanent_pmem::Medium::pause)
//! while it waits. A holder that blocks in a lock of another thread would wait for ever. Such a run
//! is set free after a few seconds without a step, and reported as a failure.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::panics;
use crate::rng::Rng;

/// How the simulator chooses the next thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// At each call of the medium, with probability 1 / `one_in`, a random other thread runs on.
    Random {
        /// Mean number of calls between switches.
        one_in: u64,
    },
    /// Threads have random priorities, and the highest that can run does. At `changes` random steps
    /// the running thread becomes the lowest.
    ///
    /// This is probabilistic concurrency testing: a bug that needs `d` ordering constraints is
    /// found with a probability of at least 1 / (n · kᵈ⁻¹) for n threads and k steps, where
    /// `changes` = d - 1.
    Priority {
        /// Priority changes in a run.
        changes: u32,
        /// Steps within which the changes fall: about the length of a run.
        length: u64,
    },
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::Random { one_in: 8 }
    }
}

/// Number of the calling thread among the simulated threads, from 1; 0 without a schedule.
pub(crate) fn seat() -> u64 {
    SEAT.get() as u64
}

/// Runs `body` as if by the simulated thread of this number, without a schedule.
pub(crate) fn seated<T>(seat: u64, body: impl FnOnce() -> T) -> T {
    let outer = SEAT.replace(seat as usize);
    let result = body();
    SEAT.set(outer);
    result
}

/// Lets another thread run, if the schedule says so. Every call of the medium does this.
#[inline]
pub(crate) fn step() {
    if SEAT.get() != 0 {
        turn(false);
    }
}

/// Lets another thread run, if there is one that can.
pub(crate) fn pause() {
    if SEAT.get() == 0 {
        std::hint::spin_loop();
    } else {
        turn(true);
    }
}

/// Runs all `bodies`, one thread each, in an order that depends on `schedule` and `seed` alone.
///
/// The error says which thread panicked first and why, that the run did not end within `steps_max`
/// steps, or that a thread blocked outside of the medium.
pub(crate) fn run<'env>(
    schedule: Schedule,
    seed: u64,
    steps_max: u64,
    bodies: Vec<Box<dyn FnOnce() + Send + 'env>>,
) -> Result<(), String> {
    let baton = Arc::new(Baton::new(schedule, seed, steps_max, bodies.len()));
    thread::scope(|scope| {
        let handles: Vec<_> = (1..)
            .zip(bodies)
            .map(|(seat, body)| {
                let baton = Arc::clone(&baton);
                scope.spawn(move || baton.take_part(seat, body))
            })
            .collect();
        let threads = handles.iter().map(|handle| handle.thread().clone()).collect();
        baton.start(threads);
        baton.watch();
    });
    let failure = baton.lock().failure.take();
    failure.map_or(Ok(()), Err)
}

thread_local! {
    static SEAT: Cell<usize> = const { Cell::new(0) };
    static BATON: RefCell<Option<Arc<Baton>>> = const { RefCell::new(None) };
}

fn turn(must_switch: bool) {
    // A thread that unwinds does not switch, so that its destructors see an unchanging memory.
    if thread::panicking() {
        return;
    }
    BATON.with_borrow(|baton| {
        if let Some(baton) = baton {
            baton.turn(SEAT.get(), must_switch);
        }
    });
}

struct Baton {
    /// The seat that runs; 0 for none.
    holder: AtomicUsize,
    /// Set when the schedule gives up. All threads then run at once, so that the run ends.
    free: AtomicBool,
    threads: OnceLock<Vec<Thread>>,
    starter: Thread,
    table: Mutex<Table>,
}

struct Table {
    schedule: Schedule,
    rng: Rng,
    steps: u64,
    steps_max: u64,
    /// Seats of threads that still run, ascending.
    seated: Vec<usize>,
    /// Priority of each seat; a lower number runs later.
    priorities: Vec<i64>,
    changes: Vec<u64>,
    failure: Option<String>,
}

impl Baton {
    fn new(schedule: Schedule, seed: u64, steps_max: u64, seats: usize) -> Self {
        let mut rng = Rng::from_parts(&[seed, 0x5c4e_d01e]);
        let mut priorities: Vec<i64> = (0..=seats as i64).collect();
        for seat in (2..=seats).rev() {
            priorities.swap(seat, 1 + rng.below(seat as u64) as usize);
        }
        let changes = match schedule {
            Schedule::Random { .. } => Vec::new(),
            Schedule::Priority { changes, length } => {
                (0..changes).map(|_| 1 + rng.below(length.max(1))).collect()
            }
        };
        let seated = (1..=seats).collect();
        let table = Table {
            schedule,
            rng,
            steps: 0,
            steps_max,
            seated,
            priorities,
            changes,
            failure: None,
        };
        Baton {
            holder: AtomicUsize::new(0),
            free: AtomicBool::new(false),
            threads: OnceLock::new(),
            starter: thread::current(),
            table: Mutex::new(table),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no thread panics while it holds the table")
    }

    /// Life of a simulated thread.
    fn take_part(self: Arc<Self>, seat: usize, body: Box<dyn FnOnce() + Send + '_>) {
        SEAT.set(seat);
        BATON.set(Some(Arc::clone(&self)));
        self.wait(seat);
        let outcome = panics::catch(|| {
            self.stop_if_failed();
            body();
        });
        SEAT.set(0);
        let next = {
            let mut table = self.lock();
            if let Err(what) = outcome {
                table.failure.get_or_insert(format!("thread {seat}: {what}"));
            }
            table.seated.retain(|&other| other != seat);
            table.choose(seat, true)
        };
        match next {
            Some(next) => self.hand_to(next),
            None => self.starter.unpark(),
        }
    }

    fn start(&self, threads: Vec<Thread>) {
        self.threads.set(threads).expect("a run starts once");
        let first = self.lock().choose(0, true);
        if let Some(first) = first {
            self.hand_to(first);
        }
    }

    /// Waits for the end of the run. Sets all threads free when the holder blocks.
    fn watch(&self) {
        let mut steps = 0;
        let mut moved_at = Instant::now();
        loop {
            thread::park_timeout(STALL / 8);
            let mut table = self.lock();
            if table.seated.is_empty() {
                return;
            }
            if table.steps != steps {
                steps = table.steps;
                moved_at = Instant::now();
            } else if moved_at.elapsed() > STALL && !self.free.load(Ordering::Acquire) {
                let holder = self.holder.load(Ordering::Acquire);
                table.failure.get_or_insert(format!(
                    "thread {holder} blocked outside of the medium after {steps} steps: a loop that \
                     waits for another thread must call `Medium::pause`"
                ));
                self.free.store(true, Ordering::Release);
                self.threads.get().into_iter().flatten().for_each(Thread::unpark);
            }
        }
    }

    fn turn(&self, seat: usize, must_switch: bool) {
        let next = {
            let mut table = self.lock();
            table.steps += 1;
            if table.steps > table.steps_max {
                let steps_max = table.steps_max;
                table.failure.get_or_insert_with(|| {
                    format!("thread {seat}: no end after {steps_max} steps: a livelock or deadlock")
                });
            }
            if table.failure.is_some() { None } else { table.choose(seat, must_switch) }
        };
        if let Some(next) = next.filter(|&next| next != seat) {
            self.hand_to(next);
            self.wait(seat);
        }
        self.stop_if_failed();
    }

    fn stop_if_failed(&self) {
        // Cloned first, since no thread may unwind with the table locked.
        let failure = self.lock().failure.clone();
        if let Some(failure) = failure {
            panics::stop(failure);
        }
    }

    fn hand_to(&self, seat: usize) {
        self.holder.store(seat, Ordering::Release);
        if let Some(threads) = self.threads.get() {
            threads[seat - 1].unpark();
        }
    }

    fn wait(&self, seat: usize) {
        while self.holder.load(Ordering::Acquire) != seat && !self.free.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Table {
    /// The seat that runs after `seat`. `seat` itself may run on only if it need not switch, or is
    /// the only one.
    fn choose(&mut self, seat: usize, must_switch: bool) -> Option<usize> {
        match self.schedule {
            Schedule::Random { one_in } => {
                let here = self.seated.binary_search(&seat);
                if here.is_ok() && !must_switch && !self.rng.one_in(one_in) {
                    return Some(seat);
                }
                let others = self.seated.len() - usize::from(here.is_ok());
                if others == 0 {
                    return here.ok().map(|_| seat);
                }
                let drawn = self.rng.below(others as u64) as usize;
                let skip = here.is_ok_and(|here| drawn >= here);
                Some(self.seated[drawn + usize::from(skip)])
            }
            Schedule::Priority { .. } => {
                if must_switch || self.changes.contains(&self.steps) {
                    let lowest = self.priorities.iter().min().copied().unwrap_or(0);
                    self.priorities[seat] = lowest - 1;
                }
                self.seated.iter().copied().max_by_key(|&other| self.priorities[other])
            }
        }
    }
}

/// Time without a step after which a run counts as blocked.
const STALL: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn interleaving(schedule: Schedule, seed: u64) -> Vec<u64> {
        let order = Mutex::new(Vec::new());
        let body = || {
            for _ in 0..20 {
                step();
                order.lock().unwrap().push(seat());
            }
        };
        let bodies = (0..3).map(|_| Box::new(body) as Box<dyn FnOnce() + Send>).collect();
        run(schedule, seed, 1000, bodies).unwrap();
        order.into_inner().unwrap()
    }

    #[test]
    fn a_seed_decides_the_interleaving() {
        for schedule in
            [Schedule::Random { one_in: 3 }, Schedule::Priority { changes: 4, length: 60 }]
        {
            let first = interleaving(schedule, 5);
            assert_eq!(first.len(), 60);
            assert_eq!(first, interleaving(schedule, 5));
            assert!((6..20).any(|seed| interleaving(schedule, seed) != first));
        }
    }

    #[test]
    fn pause_lets_another_thread_run() {
        for schedule in
            [Schedule::Random { one_in: 0 }, Schedule::Priority { changes: 0, length: 1 }]
        {
            let ready = AtomicU64::new(0);
            let wait = || {
                while ready.load(Ordering::Relaxed) == 0 {
                    pause();
                }
            };
            let set = || ready.store(1, Ordering::Relaxed);
            run(schedule, 1, 100, vec![Box::new(wait), Box::new(wait), Box::new(set)]).unwrap();
        }
    }

    #[test]
    fn an_endless_loop_is_a_failure() {
        let spin = || {
            loop {
                pause();
            }
        };
        let failure =
            run(Schedule::default(), 1, 100, vec![Box::new(spin), Box::new(spin)]).unwrap_err();
        assert!(failure.contains("no end after 100 steps"), "{failure}");
    }

    #[test]
    fn a_thread_that_blocks_in_a_lock_is_a_failure_and_not_a_hang() {
        let lock = Mutex::new(());
        let body = || {
            let _held = lock.lock().unwrap();
            (0..50).for_each(|_| step());
        };
        let failure =
            run(Schedule::Random { one_in: 2 }, 1, 1000, vec![Box::new(body), Box::new(body)])
                .unwrap_err();
        assert!(failure.contains("blocked outside of the medium"), "{failure}");
    }
}
