//! SQLite with its databases, or their journals, in pools: acknowledged transactions survive every
//! cut, each atomically.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::server::{check_backing, check_pool};
use super::{Load, Opened, Scenario, in_threads};
use crate::guest::Guest;
use crate::guest::process::said;
use crate::message::{Lost, Past};
use crate::program::Program;
use crate::random::Random;

/// The scenario.
pub(crate) struct Sqlite;

/// A database, and what it tests. Each has a writer.
struct Database {
    name: &'static str,
    mode: &'static str,
    /// SQLite's `synchronous`. In a pool, transactions survive with any value.
    synchronous: &'static str,
    /// Further parameters of the URI.
    parameters: &'static str,
    /// Whether only its journals are in the pool.
    is_file: bool,
}

const DATABASES: [Database; 7] = [
    Database { name: "batch", ..IN_POOL },
    Database { name: "log", mode: "wal", ..IN_POOL },
    Database { name: "journal", parameters: "&batch=0", ..IN_POOL },
    Database { name: "no-journal", mode: "off", ..IN_POOL },
    Database { name: "no-syncs", synchronous: "off", ..IN_POOL },
    Database { name: "log-beside", mode: "wal", is_file: true, ..IN_POOL },
    Database { name: "journal-beside", mode: "persist", is_file: true, ..IN_POOL },
];

/// The common settings of most databases.
const IN_POOL: Database =
    Database { name: "", mode: "delete", synchronous: "full", parameters: "", is_file: false };

/// Programs: one that runs SQL, and one that checks pools.
const SHELL: &str = "shell";
const PROGRAMS: &[Program] = &[
    Program::REMANENT,
    Program::Ours { name: "examples/shell", build: "-p remanent-sqlite --example shell" },
];
/// More transactions than can be in flight: the content of the port to the host.
const LEAD_MAX: u64 = 5_000;

impl Scenario for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn about(&self) -> &'static str {
        "SQLite on DAX pools, by batches, WAL, journals and none: no transaction is lost or in part"
    }

    fn writers(&self) -> usize {
        DATABASES.len()
    }

    fn acks(&self) -> Range<u64> {
        20..400
    }

    fn programs(&self) -> &'static [Program] {
        PROGRAMS
    }

    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened> {
        let begin = Instant::now();
        let (mut kept, mut losses) = (Vec::new(), Vec::new());
        for (writer, database) in DATABASES.iter().enumerate() {
            if guest.is_first() {
                let sql = "create table rows(round, number, text); create table last(round, number); \
                           insert into last values (0, 0);";
                database.run(&guest.directory(), sql)?;
            }
            match database.check(guest, past, writer)? {
                Ok(count) => kept.push(count),
                Err(loss) => losses.push(format!("{}: {loss}", database.name)),
            }
        }
        if !losses.is_empty() {
            return Err(Lost(losses).into());
        }
        if past.acknowledged.is_empty() {
            kept.clear();
        }
        let facts = BTreeMap::from([("check_ms".to_owned(), begin.elapsed().as_secs_f64() * 1e3)]);
        Ok(Opened { kept, facts, load: Box::new(Writers) })
    }
}

impl Database {
    fn pool(&self, directory: &Path) -> String {
        directory.join(format!("{}.pool", self.name)).display().to_string()
    }

    /// The URI of the database. The VFS chooses `power` by itself if it can.
    fn uri(&self, directory: &Path) -> String {
        let (pool, parameters) = (self.pool(directory), self.parameters);
        if self.is_file {
            let file = directory.join(format!("{}.db", self.name));
            let file = file.display();
            return format!("file:{file}?vfs=remanent-journal&journal={pool}&size=64M{parameters}");
        }
        format!("file:{pool}?vfs=remanent&size=64M{parameters}")
    }

    /// A process that runs the SQL on its standard input, beginning with the pragmas.
    fn start(&self, directory: &Path) -> Result<(Child, ChildStdin)> {
        let mut child = Command::new(SHELL)
            .arg(self.uri(directory))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the program that runs SQL")?;
        let mut input = child.stdin.take().context("standard input is not piped")?;
        let Database { mode, synchronous, .. } = self;
        // A small cache, so that some pages are written before the commit; and frequent
        // checkpoints.
        writeln!(
            input,
            "pragma journal_mode={mode}; pragma synchronous={synchronous}; pragma cache_size=10; \
             pragma wal_autocheckpoint=50; select 'begin';"
        )?;
        Ok((child, input))
    }

    /// Runs SQL to its end, and returns its output. A database that cannot be opened or read after
    /// a cut is a loss.
    fn run(&self, directory: &Path, sql: &str) -> Result<Vec<String>> {
        let (child, mut input) = self.start(directory)?;
        let written = writeln!(input, "{sql}");
        drop(input);
        let output = child.wait_with_output()?;
        if !output.status.success() || written.is_err() {
            let loss = format!("{} on {}: {}", SHELL, self.uri(directory), said(&output));
            return Err(Lost(vec![loss]).into());
        }
        let text = String::from_utf8(output.stdout).context("SQLite prints what is not UTF-8")?;
        let lines = text.lines().skip_while(|line| *line != "begin").skip(1);
        Ok(lines.map(str::to_owned).collect())
    }

    /// The number of transactions of the last round that are there, or the loss.
    fn check(&self, guest: &Guest, past: &Past, writer: usize) -> Result<Result<u64, String>> {
        let directory = &guest.directory();
        let pool = self.pool(directory);
        // In every other round the checker recovers the pool, in the others SQLite does.
        if past.round().is_multiple_of(2) {
            check_pool(&pool)?;
        }
        let sql = "pragma integrity_check; select round || ' ' || number from last; \
                   select round || ' ' || number || ' ' || text from rows order by rowid;";
        let printed = self.run(directory, sql)?;
        check_pool(&pool)?;
        check_backing(&pool, "dax")?;
        let [verdict, last, rows @ ..] = &printed[..] else {
            return Ok(Err(format!("SQLite printed {printed:?}")));
        };
        if verdict != "ok" {
            return Ok(Err(format!("integrity_check says {verdict}, and then {last}")));
        }
        Ok(count_kept(guest.seed(), past, writer, last, rows))
    }
}

/// Finds how many transactions of the last round are in `rows`. Earlier rounds must be as they were
/// found then; all acknowledged transactions must be there; and the rest must be a prefix.
fn count_kept(
    seed: u64,
    past: &Past,
    writer: usize,
    last: &str,
    rows: &[String],
) -> Result<u64, String> {
    let kept = past.kept.iter().enumerate();
    let counts = kept.map(|(round, kept)| (round as u64, kept.get(writer).copied().unwrap_or(0)));
    let mut expected: Vec<(u64, u64)> =
        counts.flat_map(|(round, count)| (0..count).map(move |number| (round, number))).collect();
    let Some(kept) = rows.len().checked_sub(expected.len()).map(|kept| kept as u64) else {
        let (rows, before) = (rows.len(), expected.len());
        return Err(format!("{rows} rows are there, {before} were there after the round before"));
    };
    expected.extend((0..kept).map(|number| (past.round(), number)));
    for (row, (round, number)) in rows.iter().zip(&expected) {
        let right = format!("{round} {number} {}", text(seed, *round, writer, *number));
        if *row != right {
            return Err(format!("found is {}, expected {}", shown(row), shown(&right)));
        }
    }
    let newest =
        expected.last().map_or("0 0".to_owned(), |(round, number)| format!("{round} {number}"));
    if last != newest {
        return Err(format!(
            "`last` is {last}, and the last row {newest}: a transaction is in part"
        ));
    }
    let acknowledged = past.acknowledged.get(writer).copied().unwrap_or(0);
    if !(acknowledged..=acknowledged + LEAD_MAX).contains(&kept) {
        return Err(format!("{acknowledged} transactions were acknowledged, {kept} are there"));
    }
    Ok(kept)
}

/// The text that a transaction writes; sometimes several pages.
fn text(seed: u64, round: u64, writer: usize, number: u64) -> String {
    let mut random = Random::of(&[seed, round, writer as u64, number]);
    let len = match random.below(20) {
        0 => random.below(20_000),
        1..5 => random.below(1_000),
        _ => random.below(60),
    };
    (0..len).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

fn shown(row: &str) -> String {
    format!("{} ({} bytes)", row.chars().take(60).collect::<String>(), row.len())
}

/// Writers, each with a database of its own.
struct Writers;

impl Load for Writers {
    fn run(self: Box<Self>, guest: &Guest, round: u64) -> Result<Infallible> {
        let writers = DATABASES.iter().map(|database| database.start(&guest.directory()));
        let writers = writers.collect::<Result<Vec<_>>>()?;
        in_threads(guest, writers, |writer, (mut child, input)| {
            let output = child.stdout.take().context("standard output is not piped")?;
            let outcome = write(guest, round, writer, input, output);
            let _ = child.kill();
            outcome
        })
    }
}

/// Runs one transaction after the other, each of two tables.
fn write(
    guest: &Guest,
    round: u64,
    writer: usize,
    mut input: ChildStdin,
    output: ChildStdout,
) -> Result<Infallible> {
    let mut lines = BufReader::new(output).lines();
    let mut next_line = move || lines.next().context("the program that runs SQL has ended");
    while next_line()?? != "begin" {}
    for number in 0.. {
        let text = text(guest.seed(), round, writer, number);
        writeln!(
            input,
            "begin; insert into rows values ({round}, {number}, '{text}'); \
             update last set round = {round}, number = {number}; commit; select 'done {number}';"
        )?;
        let answer = next_line()??;
        if answer != format!("done {number}") {
            bail!("transaction {number} was answered {answer}");
        }
        guest.acknowledge(writer, number + 1);
    }
    unreachable!("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(counts: &[u64]) -> Vec<String> {
        let row = |round, number| format!("{round} {number} {}", text(7, round, 0, number));
        let rounds = (0..).zip(counts);
        rounds.flat_map(|(round, count)| (0..*count).map(move |n| row(round, n))).collect()
    }

    fn kept(acknowledged: u64, last: &str, rows: &[String]) -> Result<u64, String> {
        let past =
            Past { kept: vec![vec![3]], acknowledged: vec![acknowledged], notes: Vec::new() };
        count_kept(7, &past, 0, last, rows)
    }

    #[test]
    fn what_was_acknowledged_or_more_is_accepted() {
        assert_eq!(kept(2, "1 1", &rows(&[3, 2])), Ok(2));
        assert_eq!(kept(2, "1 2", &rows(&[3, 3])), Ok(3));
        assert_eq!(kept(0, "0 2", &rows(&[3])), Ok(0));
    }

    #[test]
    fn what_is_lost_or_in_part_is_found() {
        assert!(kept(3, "1 1", &rows(&[3, 2])).is_err(), "one is lost");
        assert!(kept(2, "1 2", &rows(&[3, 2])).is_err(), "one is in part");
        assert!(kept(0, "0 1", &rows(&[2])).is_err(), "one of an earlier round is lost");
        let mut changed = rows(&[3, 2]);
        changed[4].push('x');
        assert!(kept(2, "1 1", &changed).is_err(), "one is another");
    }
}
