//! A queue of payments, for several workers. Each payment is made exactly once, however often the
//! process is killed.
//!
//! ```text
//! work_queue POOL submit JOBS ACCOUNTS    job n pays n to account n mod ACCOUNTS
//! work_queue POOL work WORKERS            works until there are no jobs
//! work_queue POOL list
//! ```
//!
//! A worker locks the first job that nobody has (`LockMode::Skip`), so that workers do not wait for
//! each other's jobs. It makes the payment and removes the job in one transaction: both are there
//! after a crash, or neither is. Locks are kept in memory alone: a job whose worker was killed is
//! free when the database is opened again.
//!
//! `job_queue` runs commands outside of the pool, so that it can run a job twice. Here the work is
//! a change of the same database.

use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use remanent::Pool;
use remanent::engine::{
    Database, Delete, Error, Get, LockMode, Result, Row, Snapshot, Table, TableSpec, Transaction,
    TransactionOptions, Type, Update,
};

// Columns of the tables, by their numbers.
const NUMBER: usize = 0;
const ACCOUNT: usize = 1;
const SUM: usize = 2;
const BALANCE: usize = 1;

/// Jobs that a worker looks for at once.
const JOBS_AT_ONCE: usize = 64;

struct Queue {
    database: Database,
    jobs: Table,
    accounts: Table,
    job: Get,
    remove_job: Delete,
    pay: Update,
}

#[derive(Clone, Copy)]
struct Job {
    account: u32,
    sum: i64,
}

impl Queue {
    fn open(path: &str) -> Result<Self> {
        let pool = Pool::options().size_max(1 << 30).open_or_create(path)?;
        let database = Database::open_or_create(&pool, "queue")?;
        let jobs = TableSpec::new("jobs")
            .column("number", Type::U32)
            .column("account", Type::U32)
            .column("sum", Type::I64)
            .primary_key(["number"]);
        let accounts = TableSpec::new("accounts")
            .column("number", Type::U32)
            .column("balance", Type::I64)
            .primary_key(["number"]);
        for spec in [jobs, accounts] {
            if database.table(spec.name()).is_err() {
                database.create_table(&spec)?;
            }
        }
        let (jobs, accounts) = (database.table("jobs")?, database.table("accounts")?);
        let (job, remove_job) = (jobs.prepare_get("primary")?, jobs.prepare_delete("primary")?);
        let pay = accounts.prepare_update("primary")?;
        Ok(Queue { database, jobs, accounts, job, remove_job, pay })
    }

    /// Nobody goes on with a transaction whose worker was killed: whoever meets a row that it has
    /// changed gives it up.
    fn begin(&self) -> Result<Transaction<'_>> {
        let wait = Duration::from_secs(60);
        self.database.begin_with(&TransactionOptions::new().time_limit(Duration::ZERO).wait(wait))
    }

    /// Opens accounts and adds jobs: all of them, or none.
    fn submit(&self, jobs: u32, accounts: u32) -> Result<()> {
        let mut transaction = self.begin()?;
        for number in 0..accounts {
            self.accounts.insert_in(&mut transaction, &[number.into(), 0.into()])?;
        }
        for number in 1..=jobs {
            let values = [number.into(), (number % accounts).into(), number.into()];
            self.jobs.insert_in(&mut transaction, &values)?;
        }
        transaction.commit()?;
        println!("submitted {jobs}");
        Ok(())
    }

    /// Does jobs until there are none.
    fn work(&self, worker: u32) -> Result<()> {
        loop {
            let numbers = self.next_jobs(&self.database.snapshot())?;
            if numbers.is_empty() {
                return Ok(());
            }
            let mut is_idle = true;
            for number in numbers {
                if self.try_do(number)? {
                    println!("worker {worker} did {number}");
                    is_idle = false;
                }
            }
            if is_idle {
                // Others are doing the last ones.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Numbers of some jobs, which others may have.
    fn next_jobs(&self, now: &Snapshot<'_>) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        let failed = self.jobs.scan(now, |row| match row.get(NUMBER) {
            Ok(number) => {
                numbers.push(number);
                let is_enough = numbers.len() == JOBS_AT_ONCE;
                if is_enough { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
            }
            Err(error) => ControlFlow::Break(Some(error)),
        })?;
        failed.flatten().map_or(Ok(numbers), Err)
    }

    /// Does a job, unless somebody else has it, or has done it.
    fn try_do(&self, number: u32) -> Result<bool> {
        let mut transaction = self.begin()?;
        let read = |row: &Row<'_>| Ok(Job { account: row.get(ACCOUNT)?, sum: row.get(SUM)? });
        let locked = self.job.lock_in(&mut transaction, &[number.into()], LockMode::Skip, read);
        let job = match locked {
            Ok(Some(job)) => job,
            // Somebody has it; or had it, and has removed it since this transaction began.
            Ok(None) | Err(Error::Overtaken { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.pay(&mut transaction, job)?;
        transaction.commit_with(|last| self.remove_job.run_in(last, &[number.into()]))
    }

    /// Adds to the balance that was committed last. Other workers pay to the same accounts.
    fn pay(&self, by: &mut Transaction<'_>, Job { account, sum }: Job) -> Result<()> {
        loop {
            let paid = self.pay.run_in(by, &[account.into()], |row, account| {
                account.set(BALANCE, row.get::<i64>(BALANCE)? + sum)
            });
            match paid {
                // The job stays locked while the transaction sees what the others have paid.
                Err(Error::Overtaken { .. }) => by.refresh()?,
                paid => return paid.map(drop),
            }
        }
    }

    fn list(&self) -> Result<()> {
        let now = self.database.snapshot();
        let print = |table: &Table, print: fn(&Row<'_>) -> Result<()>| -> Result<()> {
            let failed = table.scan(&now, |row| match print(row) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            })?;
            failed.map_or(Ok(()), Err)
        };
        print(&self.accounts, |row| {
            println!("account {} {}", row.get::<u32>(NUMBER)?, row.get::<i64>(BALANCE)?);
            Ok(())
        })?;
        print(&self.jobs, |row| {
            println!("job {}", row.get::<u32>(NUMBER)?);
            Ok(())
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: work_queue POOL submit|work|list ...".into());
    };
    let queue = Queue::open(path)?;
    match command {
        ["submit", jobs, accounts] => queue.submit(jobs.parse()?, accounts.parse()?)?,
        ["work", workers] => {
            let (queue, workers) = (&queue, 0..workers.parse()?);
            thread::scope(|scope| -> Result<()> {
                let threads: Vec<_> =
                    workers.map(|worker| scope.spawn(move || queue.work(worker))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no worker panics"))
            })?;
        }
        ["list"] => queue.list()?,
        _ => return Err("usage: work_queue POOL submit|work|list ...".into()),
    }
    Ok(())
}
