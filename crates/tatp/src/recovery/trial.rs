//! The observer: starts users, kills them, starts them again, and watches.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::event::{Event, now_ns};
use super::plan::{Order, Plan, PlannedTransaction, RebuildPolicy};
use super::process::Process;
use super::timeline::{LongTransaction, Phases, Timeline, Window, mean};
use super::users::WINDOW;

/// The longest time between two calls of a trial's `watch`.
const PATIENCE: Duration = Duration::from_millis(50);
/// How many times `observed` a trial lasts at the most, unless it waits for long transactions.
const OBSERVED_FACTOR: f64 = 20.0;
/// How many times `before` users work at the most until the kill.
const PATIENCE_FACTOR: usize = 20;
/// How long a trial waits for long transactions at least.
const COMMITS_MS: f64 = 60_000.0;
/// How long a trial goes on when throughput is back.
const RECOVERED_MS: f64 = 200.0;

/// One crash to be observed.
#[derive(Clone, Debug)]
pub struct Trial<'t> {
    /// What the users do.
    pub plan: &'t Plan,
    /// Where [`load`](super::load) has made the database.
    pub directory: &'t Path,
    /// Arguments with which this program calls [`serve`](super::serve).
    pub arguments: &'t [OsString],
    /// How long users work before the kill, from when all indexes are there.
    pub before: Duration,
    /// How long the next process is watched at least.
    pub observed: Duration,
}

/// What a trial is told, and tells at once.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'t> {
    /// Nothing new for 50 ms.
    Silence,
    /// A window before the kill. Its time is from the start of the process.
    Before(&'t Window),
    /// The process was killed, at this throughput, and the next one is starting.
    Killed {
        /// Thousands of transactions a second.
        full_ktps: f64,
    },
    /// The first answer of the next process.
    FirstAnswer {
        /// Time from its start.
        first_ms: f64,
    },
    /// A window after the kill.
    After(&'t Window),
    /// The next process goes on with a long transaction.
    Resumed(&'t LongTransaction),
    /// It has committed a long transaction.
    Committed(&'t LongTransaction),
}

type Watch<'w> = &'w mut dyn FnMut(Seen<'_>) -> Result<()>;

impl Trial<'_> {
    /// Lets users work for a while, kills their process, starts it again, and watches it until it
    /// is as fast as before. Calls `watch` with all that it sees, every 50 ms at least.
    ///
    /// # Errors
    ///
    /// When a process fails or `watch` does. Neither process is left then.
    pub fn run(&self, watch: Watch<'_>) -> Result<Timeline> {
        // What is measured before the kill needs all indexes.
        let plan = Plan { policy: RebuildPolicy::Wait, ..self.plan.clone() };
        let order = Order { plan, resume: None };
        order.write(self.directory)?;
        let mut process = Process::start(self.arguments)?;
        let mut windows = Windows::of(&process);
        let mut timeline = self.until_the_kill(&mut process, &mut windows, watch)?;
        let killed_ns = now_ns();
        for event in process.kill()? {
            timeline.acknowledge(&event);
            timeline.before.extend(windows.next(&event));
        }
        let uptime_ms = (killed_ns - windows.since_ns) as f64 / 1e6;
        timeline.before.iter_mut().for_each(|window| window.at_ms -= uptime_ms);
        watch(Seen::Killed { full_ktps: timeline.full_ktps })?;
        let tokens = timeline.long_transactions.iter().map(|transaction| &transaction.token);
        let resume = (self.plan.first_s_id..)
            .zip(tokens)
            .map(|(s_id, token)| PlannedTransaction { s_id, token: token.clone() });
        let resume = Some(resume.collect());
        Order { plan: self.plan.clone(), resume }.write(self.directory)?;
        self.after_the_kill(killed_ns, &mut timeline, watch)?;
        Ok(timeline)
    }

    fn until_the_kill(
        &self,
        process: &mut Process,
        windows: &mut Windows,
        watch: Watch<'_>,
    ) -> Result<Timeline> {
        let mut timeline = Timeline {
            full_ktps: 0.0,
            first_ms: 0.0,
            phases: Phases::default(),
            before: Vec::new(),
            after: Vec::new(),
            long_transactions: Vec::new(),
        };
        // While indexes are rebuilt for the first time, it is not as fast as it will be.
        let count = (self.before.as_millis() / WINDOW.as_millis()) as usize;
        let mut steady = Vec::with_capacity(count);
        // A trial needs a speed to compare with: on a busy machine, users may rest for long.
        while steady.len() < count || mean(&steady[count / 3..]) == 0.0 {
            ensure!(
                steady.len() < PATIENCE_FACTOR * count,
                "no user has got an answer for {} windows of 10 ms before the kill; end what else \
                 this machine does, or let users work longer",
                steady.len()
            );
            let Some(event) = process.event(PATIENCE)? else {
                watch(Seen::Silence)?;
                continue;
            };
            timeline.acknowledge(&event);
            if let Some(window) = windows.next(&event) {
                watch(Seen::Before(&window))?;
                timeline.before.push(window);
                steady.extend((window.tiles_left == 0).then_some(window));
            }
        }
        timeline.full_ktps = mean(&steady[count / 3..]);
        Ok(timeline)
    }

    fn after_the_kill(
        &self,
        killed_ns: u64,
        timeline: &mut Timeline,
        watch: Watch<'_>,
    ) -> Result<()> {
        let mut process = Process::start(self.arguments)?;
        let mut windows = Windows { since_ns: killed_ns, ..Windows::of(&process) };
        let mut committed = 0;
        let begin = Instant::now();
        while !self.is_over(timeline, committed, begin.elapsed().as_secs_f64() * 1e3) {
            let Some(event) = process.event(PATIENCE)? else {
                watch(Seen::Silence)?;
                continue;
            };
            if let Event::FirstAnswer { began_ns, pool_ns, database_ns, at_ns } = event {
                let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
                timeline.phases = Phases {
                    process: ms(process.started_ns, began_ns),
                    pool: ms(began_ns, pool_ns),
                    database: ms(pool_ns, database_ns),
                    answer: ms(database_ns, at_ns),
                };
                timeline.first_ms = timeline.phases.sum();
                watch(Seen::FirstAnswer { first_ms: timeline.first_ms })?;
            }
            if let Some(window) = windows.next(&event) {
                watch(Seen::After(&window))?;
                timeline.after.push(window);
            }
            match event {
                Event::Resumed { token, statement } => {
                    let transaction = timeline.transaction(&token)?;
                    transaction.resumed = statement;
                    watch(Seen::Resumed(transaction))?;
                }
                Event::Committed { token, statement, counted } => {
                    committed += 1;
                    let transaction = timeline.transaction(&token)?;
                    (transaction.committed, transaction.counted) = (statement, counted);
                    watch(Seen::Committed(transaction))?;
                }
                _ => {}
            }
        }
        let open = timeline.long_transactions.len() - committed;
        ensure!(open == 0, "{open} long transactions were not committed in time");
        Ok(())
    }

    fn is_over(&self, timeline: &Timeline, committed: usize, elapsed_ms: f64) -> bool {
        let Some(last) = timeline.after.last() else { return false };
        let observed_ms = self.observed.as_secs_f64() * 1e3;
        let late_ms = OBSERVED_FACTOR * observed_ms;
        let is_recovered =
            timeline.recovered_ms().is_some_and(|at_ms| last.at_ms > at_ms + RECOVERED_MS);
        let is_committed = committed == timeline.long_transactions.len();
        last.at_ms > observed_ms
            && (is_recovered || last.at_ms > late_ms)
            && (is_committed || elapsed_ms > late_ms.max(COMMITS_MS))
    }
}

impl Timeline {
    /// Notes a statement of a long transaction.
    fn acknowledge(&mut self, event: &Event) {
        let Event::Statement { token, statement } = event else { return };
        match self.transaction(token) {
            Ok(transaction) => transaction.acknowledged = *statement,
            Err(_) => self.long_transactions.push(LongTransaction {
                token: token.clone(),
                acknowledged: *statement,
                ..LongTransaction::default()
            }),
        }
    }

    fn transaction(&mut self, token: &str) -> Result<&mut LongTransaction> {
        let found = self.long_transactions.iter_mut().find(|known| known.token == token);
        found.with_context(|| format!("the users speak of an unknown transaction {token}"))
    }
}

/// Windows of one process.
struct Windows {
    /// From when their times count.
    since_ns: u64,
    /// End of the one before.
    before_ns: u64,
}

impl Windows {
    fn of(process: &Process) -> Self {
        Windows { since_ns: process.started_ns, before_ns: process.started_ns }
    }

    /// The window that ends with this event.
    fn next(&mut self, event: &Event) -> Option<Window> {
        if let Event::FirstAnswer { at_ns, .. } = *event {
            self.before_ns = at_ns;
        }
        let Event::Window { at_ns, done, p99_ns, tiles_left } = *event else { return None };
        let ms = |from_ns: u64| at_ns.saturating_sub(from_ns) as f64 / 1e6;
        // The clock of the process may be late.
        let ktps = done as f64 / ms(self.before_ns).max(0.1);
        self.before_ns = at_ns;
        Some(Window { at_ms: ms(self.since_ns), ktps, p99_us: p99_ns as f64 / 1e3, tiles_left })
    }
}
