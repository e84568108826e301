//! Salaries that are paid once, by processes that are killed.

use remanent::engine::Database;

use super::support::{Program, assert_whole, directory};

const EMPLOYEES: usize = 24_000;
/// More lines than a pipe holds that nobody reads: the process does not come further.
const UNREAD_MAX: usize = 9_000;

/// Balances by account, with the company's first.
fn balances(program: &Program) -> Vec<i64> {
    let pool = program.open_whole_pool();
    let database = Database::open(&pool, "bank").expect("the database opens");
    assert_whole(database.check().expect("it is read"));
    drop((database, pool));
    let listed = program.run(&["list"], String::new());
    let balance = |line: &String| line.split(' ').nth(1)?.parse().ok();
    listed.iter().map(|line| balance(line).expect("a number and a balance")).collect()
}

#[test]
fn salaries_are_paid_once_however_often_the_process_is_killed() {
    let directory = directory();
    let program = Program::new("bank", directory.path());
    program.run(&["open", &EMPLOYEES.to_string(), "1000000"], String::new());
    let (mut kills, mut resumed, mut seen) = (0, 0, 0);
    // Killed in the middle, again and again: nobody sees a part of a month.
    while seen + UNREAD_MAX < EMPLOYEES {
        let printed = program.run_until_killed(&["pay", "2026-11", "7"], String::new(), 30);
        kills += 1;
        resumed += usize::from(printed.iter().any(|line| line.ends_with("were paid before")));
        let last = printed.iter().rev().find_map(|line| line.strip_prefix("paid "));
        let last: usize = last.expect("somebody was paid").parse().expect("a number");
        assert!(last > seen, "{last} after {seen}");
        seen = last;
        let balances = balances(&program);
        assert_eq!((balances[0], balances[1..].iter().sum::<i64>()), (1_000_000, 0));
    }
    assert!(kills > 1 && resumed >= kills - 1, "{resumed} of {kills}");
    let printed = program.run(&["pay", "2026-11", "7"], String::new());
    assert_eq!(printed.last().expect("it says so"), "2026-11 is paid");
    let paid = balances(&program);
    assert_eq!((paid.len(), paid[0]), (EMPLOYEES + 1, 1_000_000 - 7 * EMPLOYEES as i64));
    assert!(paid[1..].iter().all(|balance| *balance == 7));
    assert_eq!(program.run(&["pay", "2026-11", "7"], String::new()), ["2026-11 is paid"]);
    assert_eq!(balances(&program), paid);
}
