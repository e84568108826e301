//! Samples, of which a beginning survives.

use std::time::Duration;

use remanent::BlinkTree;

use super::support::{Program, assert_whole, directory};

const END: &str = "1000000000";

/// Samples from a time on, one each 10 ms.
fn samples(first: i64, count: i64) -> String {
    (first..first + count).map(|number| format!("{} {}\n", number * 10, number % 7)).collect()
}

fn check(program: &Program) {
    let pool = program.open_whole_pool();
    let samples = BlinkTree::<i64, f64>::open(&pool, "series load").expect("the series opens");
    assert_whole(samples.check().expect("it is read"));
}

/// Times of the samples that the program prints, from a time on.
fn times(program: &Program, start: &str) -> Vec<i64> {
    let printed = program.run(&["range", "load", start, END], String::new());
    let time = |line: &String| line.split(' ').next().expect("a time").parse().expect("a number");
    let times: Vec<i64> = printed.iter().map(time).collect();
    for (line, time) in printed.iter().zip(&times) {
        assert_eq!(*line, format!("{time} {}", time / 10 % 7));
    }
    times
}

#[test]
fn a_kill_leaves_a_beginning_of_the_samples() {
    let directory = directory();
    let program = Program::new("time_series", directory.path());
    let mut next = 0;
    for round in 1..=4 {
        let input = samples(next, 200_000);
        let printed = program.run_until_killed(&["record", "load"], input, 10 * round);
        check(&program);
        let acknowledged = printed.last().and_then(|line| line.strip_prefix("recorded up to "));
        let acknowledged: i64 = acknowledged.expect("it says so").parse().expect("a number");
        let times = times(&program, "0");
        assert!(times.iter().copied().eq((0..times.len() as i64).map(|number| number * 10)));
        let last = *times.last().expect("there are samples");
        assert!(last >= acknowledged, "{acknowledged} was acknowledged, {last} is there");
        next = last / 10 + 1;
    }
}

#[test]
fn averages_and_retention() {
    let directory = directory();
    let program = Program::new("time_series", directory.path());
    let run = |arguments: &[&str]| program.run(arguments, String::new());
    program.run(&["record", "load"], samples(0, 1000));
    program.run(&["record", "load"], "15 3\n4 1\n15 0.5\n".to_owned()); // late, and one again
    assert_eq!(run(&["average", "load", "0", "50", "20"]), ["0 0.625 4", "20 2.5 2", "40 4 1"]);
    assert_eq!(run(&["forget", "load", "9000"]), ["removed 902 samples"]);
    assert_eq!(run(&["forget", "load", "9000"]), ["removed 0 samples"]);
    assert_eq!(times(&program, "0").len(), 100);
    assert_eq!(run(&["list"]), ["load: 100 samples, the last at Some(9990)"]);
    assert!(!program.output(&["range", "pressure", "0", "1"], String::new()).status.success());
    check(&program);
}

#[test]
fn retention_that_is_killed_leaves_the_later_samples() {
    const COUNT: i64 = 50_000;
    let directory = directory();
    let program = Program::new("time_series", directory.path());
    program.run(&["record", "load"], samples(0, COUNT));
    let mut left = COUNT;
    let mut was_killed_in_between = false;
    for delay_ms in (0..).step_by(3) {
        program.run_until_killed_after(&["forget", "load", END], Duration::from_millis(delay_ms));
        check(&program);
        let times = times(&program, "0");
        let removed = COUNT - times.len() as i64;
        assert!(times.iter().copied().eq((removed..COUNT).map(|number| number * 10)));
        was_killed_in_between |= !times.is_empty() && (times.len() as i64) < left;
        left = times.len() as i64;
        if left == 0 {
            break;
        }
    }
    assert!(was_killed_in_between, "all samples were removed at once");
}
