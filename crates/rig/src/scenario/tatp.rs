//! TATP on the engine: acknowledged statements survive every cut, and open transactions are resumed
//! after it.
//!
//! The users are threads of another program (`crates/tatp/examples/workers.rs`), which prints the
//! place of each worker after each of its steps. The place is the writer's note. It includes the
//! token of an open transaction, so a number of writes would not be enough.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::server::{check_backing, check_pool};
use super::{Load, Opened, Scenario};
use crate::guest::Guest;
use crate::guest::process::{output, run, said};
use crate::message::{Lost, Past};
use crate::program::Program;

/// The scenario, and the control that must fail.
pub(crate) const HONEST: Tatp = Tatp { is_honest: true };
pub(crate) const TOO_EARLY: Tatp = Tatp { is_honest: false };

/// See `HONEST`.
pub(crate) struct Tatp {
    /// Whether a step is acknowledged after it, and not before.
    is_honest: bool,
}

/// Number of workers of the program.
const WORKERS: usize = 3;
/// Programs: the users and their check, and one that checks pools.
const USERS: &str = "workers";
const PROGRAMS: &[Program] = &[
    Program::REMANENT,
    Program::Ours { name: "examples/workers", build: "-p remanent-tatp --example workers" },
];
/// A worker's place at the beginning.
const BEGINNING: &str = "0 - -";
/// Number of units that the control acknowledges too early: more than are done until the cut, and
/// certainly some of them change something.
const EARLY_UNITS: u64 = 1_000;

impl Scenario for Tatp {
    fn name(&self) -> &'static str {
        if self.is_honest { "tatp" } else { "tatp-too-early" }
    }

    fn about(&self) -> &'static str {
        if self.is_honest {
            "TATP on the engine on a DAX pool: no statement is lost, open transactions are resumed"
        } else {
            "control, must fail: as tatp, but units count as acknowledged long before they are done"
        }
    }

    fn writers(&self) -> usize {
        WORKERS
    }

    fn acks(&self) -> Range<u64> {
        if self.is_honest { 100..4_000 } else { 50..300 }
    }

    fn programs(&self) -> &'static [Program] {
        PROGRAMS
    }

    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened> {
        let pool = guest.directory().join("tatp.pool").display().to_string();
        let seed = guest.seed().to_string();
        if guest.is_first() {
            run(USERS, &["load", &pool, &seed])?;
        }
        // In every other round the checker recovers the pool, in the others the engine does.
        if past.round().is_multiple_of(2) {
            check_pool(&pool)?;
        }
        let notes = (0..WORKERS).map(|writer| match past.notes.get(writer).map(String::as_str) {
            None | Some("") => BEGINNING.to_owned(),
            Some(note) => note.to_owned(),
        });
        let (places, facts) = check(&pool, &seed, &notes.collect::<Vec<_>>())?;
        check_pool(&pool)?;
        check_backing(&pool, "dax")?;
        // The next boot may begin here, too.
        places.iter().enumerate().for_each(|(writer, place)| guest.note(writer, place.clone()));
        let kept = match &past.acknowledged[..] {
            [] => Vec::new(),
            _ => places.iter().map(|place| done(place)).collect::<Result<_>>()?,
        };
        let load = Users { pool, places, is_honest: self.is_honest };
        Ok(Opened { kept, facts, load: Box::new(load) })
    }
}

/// Compares the tables with the workers' places. Returns where the workers are.
fn check(pool: &str, seed: &str, notes: &[String]) -> Result<(Vec<String>, BTreeMap<String, f64>)> {
    let notes = notes.iter().map(String::as_str);
    let arguments: Vec<&str> = ["check", pool, seed].into_iter().chain(notes).collect();
    let output = output(USERS, &arguments)?;
    if !output.status.success() {
        // Also if the database cannot be opened.
        return Err(
            Lost(vec![format!("{USERS} {}: {}", arguments.join(" "), said(&output))]).into()
        );
    }
    let text = String::from_utf8(output.stdout).context("the check prints what is not UTF-8")?;
    let (mut places, mut facts) = (vec![String::new(); WORKERS], BTreeMap::new());
    for line in text.lines() {
        match line.strip_prefix("fact ").and_then(|fact| fact.split_once(' ')) {
            Some((name, value)) => {
                facts.insert(name.to_owned(), value.parse()?);
            }
            None => {
                let (writer, place) = parse(line)?;
                places[writer] = place.to_owned();
            }
        }
    }
    Ok((places, facts))
}

/// The worker and the place in a line.
fn parse(line: &str) -> Result<(usize, &str)> {
    line.split_once(' ')
        .and_then(|(writer, place)| Some((writer.parse().ok()?, place)))
        .filter(|(writer, _)| *writer < WORKERS)
        .with_context(|| format!("{line:?} is no place of a worker"))
}

/// The number of units that are done at a place.
fn done(place: &str) -> Result<u64> {
    let done = place.split(' ').next().and_then(|done| done.parse().ok());
    done.with_context(|| format!("{place:?} is no place of a worker"))
}

/// The workers, and where they are.
struct Users {
    pool: String,
    places: Vec<String>,
    is_honest: bool,
}

impl Load for Users {
    fn run(self: Box<Self>, guest: &Guest, _: u64) -> Result<Infallible> {
        let mut child = Command::new(USERS)
            .args(["work", &self.pool, &guest.seed().to_string()])
            .args(&self.places)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the users")?;
        let stdout = child.stdout.take().context("standard output is not piped")?;
        let mut acknowledged = [0; WORKERS];
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            let (writer, place) = parse(&line)?;
            let note = match self.is_honest {
                true => place.to_owned(),
                false => format!("{} - -", done(place)? + EARLY_UNITS),
            };
            acknowledged[writer] += 1;
            // The note first: if a cut comes between the two, more is known than counted.
            guest.note(writer, note);
            guest.acknowledge(writer, acknowledged[writer]);
        }
        bail!("the users have ended with {}: see the console", child.wait()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_places_are_read() {
        assert_eq!(parse("2 17 - -").expect("a place"), (2, "17 - -"));
        assert_eq!(done("17 0300100000000009 4").expect("a place"), 17);
        for line in ["", "2", "3 17 - -", "x 17 - -"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
