//! A queue of shell commands with priorities, for several workers. No job is lost.
//!
//! ```text
//! job_queue POOL submit          a job from each line of the standard input: PRIORITY COMMAND
//! job_queue POOL work WORKERS LEASE_MS
//!                                runs jobs until there are none, least priority number first
//! job_queue POOL list
//! ```
//!
//! `pop_first` would be the shortest way to get a job, but it removes the job before the work is
//! done: a crash in between loses the job, so that each is run at most once. Here a worker *leases*
//! a job, runs it, and removes it after that. If the worker dies, the lease ends and another one
//! takes the job. So each is run at least once. A job is run again after a crash, or if it takes
//! longer than its lease, so commands should do no harm when they are repeated.

use std::error::Error;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, SystemTime};

use remanent::{
    Batch, BlinkTree, Change, HashMap, Key, OrderedKey, Pool, Result, SharedTx, Stored,
};

/// Runs of a job that ends with an error, or with the death of its worker, before it is put aside.
const RUNS_MAX: u32 = 5;

/// Jobs of one priority are run in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Stored, Key, OrderedKey)]
struct JobKey {
    priority: u8,
    number: u64,
}

#[derive(Clone, Debug, PartialEq, Stored)]
struct Job {
    command: String,
    /// Until then it belongs to a worker; 0 when nobody has had it.
    leased_until_unix_ms: u64,
    /// How often it was leased.
    runs: u32,
}

/// What a worker finds when it looks for a job.
enum Found {
    Job(JobKey, Job),
    /// Every job is leased; the first of the leases ends after this time.
    Wait(Duration),
    Empty,
}

struct JobQueue {
    pool: Pool,
    jobs: BlinkTree<JobKey, Job>,
    /// Jobs that were put aside, by their numbers.
    failed: HashMap<u64, Job>,
    last_number: SharedTx<u64>,
}

impl JobQueue {
    fn open(path: &str) -> Result<Self> {
        let pool = Pool::options().size_max(1 << 30).open_or_create(path)?;
        Ok(JobQueue {
            jobs: BlinkTree::open_or_create(&pool, "jobs")?,
            failed: HashMap::open_or_create(&pool, "failed jobs")?,
            last_number: SharedTx::open_or_create(&pool, "last job number", 0)?,
            pool,
        })
    }

    /// Adds a job and returns its number. A crash between the two steps leaves a number unused.
    fn submit(&self, priority: u8, command: &str) -> Result<u64> {
        let number = self.last_number.transact(|last| {
            *last += 1;
            *last
        })?;
        let job = Job { command: command.to_owned(), leased_until_unix_ms: 0, runs: 0 };
        self.jobs.put(&JobKey { priority, number }, &job)?;
        Ok(number)
    }

    /// Leases the first job that nobody has.
    fn lease(&self, duration: Duration) -> Result<Found> {
        loop {
            let now_unix_ms = unix_ms();
            let (mut free, mut first_end_unix_ms) = (None, None);
            // Passes over the leased jobs: as many as there are workers, dead ones included.
            self.jobs.ascend(.., |key, job| {
                let end = job.leased_until_unix_ms;
                if end <= now_unix_ms {
                    free = Some(*key);
                    return ControlFlow::Break(());
                }
                first_end_unix_ms =
                    Some(first_end_unix_ms.map_or(end, |first: u64| first.min(end)));
                ControlFlow::Continue(())
            })?;
            let Some(key) = free else {
                return Ok(first_end_unix_ms.map_or(Found::Empty, |end| {
                    Found::Wait(Duration::from_millis(end - now_unix_ms))
                }));
            };
            // One step: of several workers that found this job, one gets it.
            let leased = self.jobs.modify(&key, |found| match found {
                Some(job) if job.leased_until_unix_ms <= now_unix_ms => {
                    let leased_until_unix_ms = now_unix_ms + duration.as_millis() as u64;
                    let job = Job { leased_until_unix_ms, runs: job.runs + 1, ..job.clone() };
                    (Change::Put(job.clone()), Some(job))
                }
                _ => (Change::Keep, None),
            })?;
            if let Some(job) = leased {
                return Ok(Found::Job(key, job));
            }
        }
    }

    /// Moves a job to the failed ones, in one step: a crash leaves it in one of the two maps.
    fn put_aside(&self, key: &JobKey, job: &Job) -> Result<()> {
        let mut batch = Batch::new(&self.pool)?;
        batch.remove(&self.jobs, key)?;
        batch.put(&self.failed, &key.number, job)?;
        batch.commit()?;
        Ok(())
    }

    /// Runs jobs until there are none, not even leased ones.
    fn work(&self, worker: u64, lease: Duration) -> Result<()> {
        loop {
            let (key, job) = match self.lease(lease)? {
                Found::Job(key, job) => (key, job),
                Found::Wait(duration) => {
                    std::thread::sleep(duration.min(Duration::from_millis(20)));
                    continue;
                }
                Found::Empty => return Ok(()),
            };
            if job.runs > RUNS_MAX {
                println!("failed {}", key.number);
                self.put_aside(&key, &job)?;
                continue;
            }
            println!("worker {worker} runs {}: {}", key.number, job.command);
            match Command::new("sh").args(["-c", &job.command]).status() {
                Ok(status) if status.success() => {
                    self.jobs.discard(&key)?;
                    println!("finished {}", key.number);
                }
                // It is run again when its lease has ended.
                Ok(status) => println!("job {}: {status}", key.number),
                Err(error) => println!("job {}: {error}", key.number),
            }
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: job_queue POOL submit | work WORKERS LEASE_MS | list".into());
    };
    let queue = JobQueue::open(path)?;
    match command {
        ["submit"] => {
            for line in std::io::stdin().lines() {
                let line = line?;
                let (priority, command) = line.split_once(' ').ok_or("a line has no command")?;
                println!("submitted {}", queue.submit(priority.parse()?, command)?);
            }
        }
        ["work", workers, lease_ms] => {
            let workers: u64 = workers.parse()?;
            let lease = Duration::from_millis(lease_ms.parse()?);
            let queue = &queue;
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..workers)
                    .map(|worker| scope.spawn(move || queue.work(worker, lease)))
                    .collect();
                workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
            })?;
        }
        ["list"] => {
            for entry in &queue.jobs {
                let (JobKey { priority, number }, job) = entry?;
                println!("{priority} {number} {} ({} runs)", job.command, job.runs);
            }
            for entry in &queue.failed {
                let (number, job) = entry?;
                println!("failed {number} {}", job.command);
            }
        }
        _ => return Err(format!("{command:?} is no command of a job queue").into()),
    }
    Ok(())
}
