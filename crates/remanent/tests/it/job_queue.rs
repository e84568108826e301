//! Jobs that are run at least once, whoever dies.

use std::collections::BTreeMap;
use std::path::Path;

use remanent::{BlinkTree, HashMap, Key, OrderedKey, Stored};

use super::support::{Program, assert_whole, directory};

const JOBS: u64 = 200;
const WORKERS: usize = 4;
const KILLS: usize = 3;
/// The lease is far longer than a job takes: nobody gets the job of a worker that lives.
const WORK: [&str; 3] = ["work", "4", "2000"];

/// As the example stores it: the pool refuses to be read with other fields.
#[derive(Clone, Stored, Key, OrderedKey)]
struct JobKey {
    priority: u8,
    number: u64,
}

#[derive(Clone, Stored)]
struct Job {
    command: String,
    leased_until_unix_ms: u64,
    runs: u32,
}

fn check(program: &Program) {
    let pool = program.open_whole_pool();
    let jobs = BlinkTree::<JobKey, Job>::open(&pool, "jobs").expect("the queue opens");
    let failed = HashMap::<u64, Job>::open(&pool, "failed jobs").expect("the map opens");
    assert_whole(jobs.check().expect("it is read"));
    assert_whole(failed.check().expect("it is read"));
}

/// The numbers behind a word in what was printed.
fn numbers(printed: &[String], word: &str) -> Vec<u64> {
    let numbers = printed.iter().filter_map(|line| line.strip_prefix(word));
    numbers.map(|number| number.trim().parse().expect("a number")).collect()
}

/// How often each job wrote its name to the file.
fn runs(file: &Path) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for line in std::fs::read_to_string(file).expect("jobs were run").lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    runs
}

#[test]
fn every_job_is_run_though_all_workers_are_killed() {
    let directory = directory();
    let program = Program::new("job_queue", directory.path());
    let log = directory.path().join("log");
    // What is printed of all jobs does not fit into the pipe. So the program waits to be killed.
    let comment = "-".repeat(1000);
    let job = |name| format!("{} echo {name} >> {} # {comment}\n", name % 3, log.display());
    program.run(&["submit"], (0..JOBS).map(job).collect());
    let (mut finished, mut left_over) = (Vec::new(), 0);
    for kill in 1..=KILLS {
        let printed = program.run_until_killed(&WORK, String::new(), 20 * kill);
        check(&program);
        finished.extend(numbers(&printed, "finished "));
        let listed = program.run(&["list"], String::new());
        left_over += listed.iter().filter(|line| !line.ends_with("(0 runs)")).count();
    }
    assert!(left_over > 0, "no worker was killed while it had a job");
    finished.extend(numbers(&program.run(&WORK, String::new()), "finished "));
    check(&program);
    assert_eq!(program.run(&["list"], String::new()), Vec::<String>::new());

    let runs = runs(&log);
    assert_eq!(runs.len() as u64, JOBS, "a job is lost: {runs:?}");
    let repeated: usize = runs.values().map(|runs| runs - 1).sum();
    assert!(repeated <= KILLS * WORKERS, "more was repeated than workers died: {runs:?}");
    finished.sort_unstable();
    let count = finished.len();
    finished.dedup();
    assert_eq!(finished.len(), count, "a finished job was run again");
}

#[test]
fn acknowledged_jobs_outlive_who_submits_them() {
    let directory = directory();
    let program = Program::new("job_queue", directory.path());
    let input: String = (0..50_000).map(|name| format!("1 true {name}\n")).collect();
    let mut submitted = Vec::new();
    for _ in 0..3 {
        let printed = program.run_until_killed(&["submit"], input.clone(), 500);
        submitted.extend(numbers(&printed, "submitted "));
    }
    check(&program);
    let listed = program.run(&["list"], String::new());
    let listed: Vec<u64> = listed
        .iter()
        .map(|line| line.split(' ').nth(1).expect("a number").parse().expect("a number"))
        .collect();
    assert!(submitted.is_sorted_by(|one, next| one < next), "a number was given twice");
    assert!(listed.is_sorted_by(|one, next| one < next));
    for number in submitted {
        assert!(listed.binary_search(&number).is_ok(), "job {number} is lost");
    }
}

#[test]
fn urgent_jobs_come_first_and_failing_ones_are_put_aside() {
    let directory = directory();
    let program = Program::new("job_queue", directory.path());
    program.run(&["submit"], "9 true late\n1 true early\n5 false\n1 true second\n".to_owned());
    let printed = program.run(&["work", "1", "20"], String::new());
    assert_eq!(numbers(&printed, "finished "), [2, 4, 1]);
    assert_eq!(numbers(&printed, "failed "), [3]);
    assert_eq!(program.run(&["list"], String::new()), ["failed 3 false"]);
}
