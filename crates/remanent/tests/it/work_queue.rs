//! Payments that are made exactly once, by workers that are killed.

use std::collections::BTreeSet;
use std::time::Duration;

use remanent::engine::Database;

use super::support::{Program, assert_whole, directory};

const JOBS: u32 = 20_000;
const ACCOUNTS: u32 = 3;
const KILLS: usize = 3;
const WORK: [&str; 2] = ["work", "4"];

/// What there is to pay to an account by some jobs.
fn sum_of(jobs: impl IntoIterator<Item = u32>, account: u32) -> u64 {
    jobs.into_iter().filter(|job| job % ACCOUNTS == account).map(u64::from).sum()
}

/// The numbers at the end of lines that begin so.
fn numbers(printed: &[String], word: &str) -> Vec<u32> {
    let lines = printed.iter().filter(|line| line.starts_with(word));
    lines.map(|line| line.rsplit(' ').next().expect("a word").parse().expect("a number")).collect()
}

/// Looks whether every job is there, or was paid once. Returns those that are there.
fn check(program: &Program) -> BTreeSet<u32> {
    let pool = program.open_whole_pool();
    let database = Database::open(&pool, "queue").expect("the database opens");
    assert_whole(database.check().expect("it is read"));
    drop((database, pool));
    let listed = program.run(&["list"], String::new());
    let left: BTreeSet<u32> = numbers(&listed, "job ").into_iter().collect();
    for account in 0..ACCOUNTS {
        let [balance] = numbers(&listed, &format!("account {account} "))[..] else {
            panic!("account {account} is listed once: {listed:?}");
        };
        let paid = sum_of(1..=JOBS, account) - sum_of(left.iter().copied(), account);
        assert_eq!(u64::from(balance), paid, "account {account}, {} jobs are left", left.len());
    }
    left
}

#[test]
fn each_job_is_done_once_however_often_the_workers_are_killed() {
    let directory = directory();
    let program = Program::new("work_queue", directory.path());
    let (jobs, accounts) = (JOBS.to_string(), ACCOUNTS.to_string());
    let submit = ["submit", &jobs, &accounts];
    // Killed meanwhile, it has submitted nothing.
    program.run_until_killed_after(&submit, Duration::from_millis(5));
    let submitted = program.output(&submit, String::new());
    assert!(submitted.status.success() || check(&program).len() == JOBS as usize, "{submitted:?}");
    let (mut done, mut workers) = (BTreeSet::new(), BTreeSet::new());
    let mut say = |printed: &[String], left: &BTreeSet<u32>| {
        for job in numbers(printed, "worker ") {
            assert!(done.insert(job), "job {job} was done twice");
            assert!(!left.contains(&job), "job {job} was done, and is there");
        }
        workers.extend(printed.iter().filter_map(|line| line.split(' ').nth(1).map(str::to_owned)));
        done.len()
    };
    for kill in 1..=KILLS {
        let printed = program.run_until_killed(&WORK, String::new(), 200 * kill);
        let left = check(&program);
        assert!(!left.is_empty());
        say(&printed, &left);
    }
    let printed = program.run(&WORK, String::new());
    assert!(check(&program).is_empty());
    // What a killed worker has done and not told is done.
    let told = say(&printed, &BTreeSet::new());
    assert!(told <= JOBS as usize && told + KILLS * 4 >= JOBS as usize, "{told} were told");
    assert_eq!(workers.len(), 4, "{workers:?}");
}
