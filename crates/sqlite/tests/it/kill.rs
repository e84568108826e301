//! A process that writes is killed, again and again, and after each time everything that it
//! acknowledged is there.
//!
//! `REMANENT_KILL_ROUNDS` sets how often, for each mode.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::support::{Random, assert_whole, built, directory, number_from_env, uri};

/// Transactions that are kept: each removes the one that many before it.
const KEPT: u64 = 30;

/// Which SQLite writes.
#[derive(Clone, Copy, Debug)]
enum Host {
    /// The one that rusqlite brings, in a process of its own.
    Bundled,
    /// Debian's shell with the extension.
    #[cfg(feature = "client-tests")]
    Debian,
}

/// Where the database lies, and how it writes.
struct Subject {
    host: Host,
    uri: String,
    /// More that SQLite is told at the beginning.
    pragmas: &'static str,
    /// Another database that changes together with it.
    second: Option<String>,
    mode: &'static str,
}

impl Subject {
    /// A process that runs the SQL on its standard input.
    fn start(&self, round: u64) -> Child {
        let mut command = match self.host {
            Host::Bundled => {
                let mut command = Command::new(built("examples/shell"));
                command.arg(&self.uri);
                command
            }
            #[cfg(feature = "client-tests")]
            Host::Debian => super::clients::shell(&self.uri),
        };
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the writer starts");
        // Few pages are kept in memory in every other round, so that pages are written before the
        // commit.
        let cache = if round.is_multiple_of(2) { 10 } else { 2000 };
        let mut head = format!(
            "pragma journal_mode={}; pragma cache_size={cache}; pragma wal_autocheckpoint=50; {}\n",
            self.mode, self.pragmas
        );
        if let Some(second) = &self.second {
            head += &format!("attach '{second}' as second;\n");
        }
        head += "select 'begin';\n";
        let input = child.stdin.as_mut().expect("it is piped");
        input.write_all(head.as_bytes()).expect("it reads");
        child
    }

    /// Runs SQL to its end, and returns the lines that it prints.
    fn run(&self, sql: &str) -> Vec<String> {
        let mut child = self.start(1);
        child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{sql}: {printed}");
        // The pragmas at the head print what they set.
        printed.lines().skip_while(|line| *line != "begin").skip(1).map(str::to_owned).collect()
    }

    /// A transaction: rows of its own in number and length, of which the number is known, and the
    /// removal of older ones.
    fn transaction(&self, number: u64) -> String {
        let rows = rows_of(number);
        let mut sql = "begin; ".to_owned();
        let tables: &[&str] =
            if self.second.is_some() { &["main.t", "second.t"] } else { &["main.t"] };
        for table in tables {
            sql += &format!(
                "with recursive i(i) as (select 1 union all select i + 1 from i where i < {rows}) \
                 insert into {table} select {number}, i, randomblob(i * 700 % 5000) from i; \
                 delete from {table} where number = {}; ",
                number.saturating_sub(KEPT)
            );
        }
        sql + &format!("update main.last set number = {number}; commit; select 'done {number}';\n")
    }

    fn make_tables(&self) {
        let mut sql =
            "create table main.t(number, i, data); create index main.t_number on t(number); \
                       create table main.last(number); insert into last values (0);\n"
                .to_owned();
        if self.second.is_some() {
            sql += "create table second.t(number, i, data);\n";
        }
        self.run(&sql);
    }

    /// Everything up to `done` is there, and perhaps the one transaction that was under way.
    /// Returns the last.
    fn check(&self, done: u64) -> u64 {
        let tables: &[&str] =
            if self.second.is_some() { &["main.t", "second.t"] } else { &["main.t"] };
        let mut sql = "pragma integrity_check; select number from last;\n".to_owned();
        for table in tables {
            sql += &format!(
                "select number || ' ' || count(*) from {table} group by number order by number;\n"
            );
            sql += "select 'end';\n";
        }
        let printed = self.run(&sql);
        let mut lines = printed.iter().cloned();
        assert_eq!(lines.next().as_deref(), Some("ok"), "{}: {printed:?}", self.mode);
        let last = lines.next().and_then(|line| line.parse().ok());
        let last: u64 = last.unwrap_or_else(|| panic!("{}: no number: {printed:?}", self.mode));
        assert!(
            (done..=done + 1).contains(&last),
            "{}: {done} was done, {last} is there",
            self.mode
        );
        for table in tables {
            let found: Vec<String> = lines.by_ref().take_while(|line| line != "end").collect();
            let expected = last.saturating_sub(KEPT - 1).max(1)..=last;
            let expected: Vec<String> =
                expected.map(|number| format!("{number} {}", rows_of(number))).collect();
            assert_eq!(found, expected, "{} {table}: after {last}", self.mode);
        }
        last
    }

    fn kill_again_and_again(&self, pools: &[PathBuf]) {
        self.make_tables();
        let mut random = Random::new(43);
        let mut last = 0;
        let rounds = number_from_env("REMANENT_KILL_ROUNDS", 5);
        for round in 0..rounds {
            let delay = Duration::from_micros(random.below(40_000));
            let done = self.write_until_killed(round, last, delay);
            last = self.check(done);
            for pool in pools {
                assert_whole(pool);
            }
        }
        println!("{:?} {}: {rounds} kills, {last} transactions", self.host, self.mode);
        assert!(last > rounds, "hardly anything was written");
    }

    /// Has transactions written from `last` on, and kills the writer that long after the first.
    /// Returns the last that was acknowledged.
    fn write_until_killed(&self, round: u64, last: u64, delay: Duration) -> u64 {
        let mut child = self.start(round);
        let mut input = child.stdin.take().expect("it is piped");
        let transactions = last + 1..;
        let texts: Vec<String> =
            transactions.take(3000).map(|number| self.transaction(number)).collect();
        let feeder = std::thread::spawn(move || {
            // It fails once the reader is dead.
            let _ = texts.iter().try_for_each(|text| input.write_all(text.as_bytes()));
            input
        });
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut done = last;
        let mut killer = None;
        while let Some(Ok(line)) = lines.next() {
            if let Some(number) = line.strip_prefix("done ") {
                done = number.parse().expect("a number");
                if killer.is_none() {
                    let pid = rustix::process::Pid::from_child(&child);
                    killer = Some(std::thread::spawn(move || {
                        std::thread::sleep(delay);
                        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                    }));
                }
            }
        }
        let killed = killer.expect("it wrote").join().expect("no panic");
        killed.expect("it was there to be killed");
        child.wait().expect("it was killed");
        drop(feeder.join().expect("no panic"));
        assert!(done < last + 3000, "it was not killed while it wrote");
        done
    }
}

fn rows_of(number: u64) -> u64 {
    1 + number * 7 % 19
}

fn in_a_pool(host: Host, mode: &'static str) {
    in_a_pool_with(host, mode, "");
}

/// A kill takes no more where SQLite does not sync.
fn unsynced(host: Host, mode: &'static str) {
    in_a_pool_with(host, mode, "pragma synchronous=off;");
}

fn in_a_pool_with(host: Host, mode: &'static str, pragmas: &'static str) {
    let directory = directory();
    let pool = directory.path().join("killed.pool");
    let subject = Subject { host, uri: uri(&pool, ""), pragmas, second: None, mode };
    subject.kill_again_and_again(&[pool]);
}

fn beside(host: Host, mode: &'static str) {
    beside_with(host, mode, "");
}

fn unsynced_beside(host: Host, mode: &'static str) {
    beside_with(host, mode, "pragma synchronous=off;");
}

fn beside_with(host: Host, mode: &'static str, pragmas: &'static str) {
    let directory = directory();
    let (path, pool) = (directory.path().join("killed.db"), directory.path().join("journal.pool"));
    let uri = format!("file:{}?vfs=remanent-journal&journal={}", path.display(), pool.display());
    Subject { host, uri, pragmas, second: None, mode }.kill_again_and_again(&[pool]);
}

fn two_pools(host: Host, mode: &'static str) {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    let (one, two) = (path("one.pool"), path("two.pool"));
    let second = Some(uri(&two, ""));
    Subject { host, uri: uri(&one, ""), pragmas: "", second, mode }
        .kill_again_and_again(&[one, two]);
}

fn two_beside(host: Host, mode: &'static str) {
    let directory = directory();
    let pool = directory.path().join("journal.pool");
    let uri = |name: &str| {
        let path = directory.path().join(name);
        format!("file:{}?vfs=remanent-journal&journal={}", path.display(), pool.display())
    };
    let subject =
        Subject { host, uri: uri("one.db"), pragmas: "", second: Some(uri("two.db")), mode };
    subject.kill_again_and_again(std::slice::from_ref(&Path::new(&pool).to_owned()));
}

macro_rules! kill_tests {
    ($($(#[$attribute:meta])* $name:ident: $place:ident($host:ident, $mode:literal);)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            $place(Host::$host, $mode);
        }
    )*};
}

kill_tests! {
    a_batch_is_whole: in_a_pool(Bundled, "delete");
    a_batch_is_whole_where_journals_would_be_emptied: in_a_pool(Bundled, "truncate");
    a_batch_is_whole_where_journals_would_stay: in_a_pool(Bundled, "persist");
    a_log_is_whole: in_a_pool(Bundled, "wal");
    a_log_that_nobody_syncs_is_whole: unsynced(Bundled, "wal");
    a_journal_that_nobody_syncs_is_whole: unsynced(Bundled, "delete");
    a_database_without_a_journal_is_whole: in_a_pool(Bundled, "off");
    a_database_whose_journal_is_memory_is_whole: in_a_pool(Bundled, "memory");
    a_database_without_anything_is_whole: unsynced(Bundled, "off");
    a_log_beside_a_file_that_nobody_syncs_is_whole: unsynced_beside(Bundled, "wal");
    a_journal_beside_a_file_that_nobody_syncs_is_whole: unsynced_beside(Bundled, "truncate");
    two_pools_are_whole_together: two_pools(Bundled, "delete");
    a_journal_beside_a_file_is_whole: beside(Bundled, "delete");
    a_journal_that_is_emptied_beside_a_file_is_whole: beside(Bundled, "truncate");
    a_journal_that_stays_beside_a_file_is_whole: beside(Bundled, "persist");
    a_log_beside_a_file_is_whole: beside(Bundled, "wal");
    two_files_are_whole_together: two_beside(Bundled, "truncate");
    #[cfg(feature = "client-tests")]
    debians_journal_that_is_deleted: in_a_pool(Debian, "delete");
    #[cfg(feature = "client-tests")]
    debians_journal_that_is_emptied: in_a_pool(Debian, "truncate");
    #[cfg(feature = "client-tests")]
    debians_journal_that_stays: in_a_pool(Debian, "persist");
    #[cfg(feature = "client-tests")]
    debians_log: in_a_pool(Debian, "wal");
    #[cfg(feature = "client-tests")]
    debians_journal_beside_a_file: beside(Debian, "delete");
    #[cfg(feature = "client-tests")]
    debians_journal_that_is_emptied_beside_a_file: beside(Debian, "truncate");
    #[cfg(feature = "client-tests")]
    debians_journal_that_stays_beside_a_file: beside(Debian, "persist");
    #[cfg(feature = "client-tests")]
    debians_log_beside_a_file: beside(Debian, "wal");
    #[cfg(feature = "client-tests")]
    debians_journal_that_nobody_syncs: unsynced(Debian, "persist");
    #[cfg(feature = "client-tests")]
    debians_database_without_a_journal: in_a_pool(Debian, "off");
    #[cfg(feature = "client-tests")]
    debians_database_whose_journal_is_memory: in_a_pool(Debian, "memory");
    #[cfg(feature = "client-tests")]
    debians_database_without_anything: unsynced(Debian, "off");
    #[cfg(feature = "client-tests")]
    debians_two_pools: two_pools(Debian, "delete");
}
