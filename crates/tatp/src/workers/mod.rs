//! Workers whose acknowledged work can be checked after a crash.
//!
//! Each of [`WORKERS`] workers has subscribers of its own. Its work is a sequence of units that
//! seed, worker and number determine: requests of TATP, and transactions of up to six statements,
//! which end by a commit, by a commit with the last statement, or by being given up. Some
//! statements are batches, and some transactions are durable at their commit alone. After each step
//! a [`Worker`] tells its [`Place`] in this sequence, which includes the token of its open
//! transaction.
//!
//! After a crash, [`check`] compares the database with what each worker has told last:
//!
//! - All units that are done are there, and the next ones completely or not at all.
//! - An open transaction is resumed by its token, behind the statement that was told last or a
//!   later one. It sees what it has written, and others do not.
//! - At most `lead` further steps took effect: as many as can be told without being heard.
//!
//! The check leaves open transactions suspended, for the workers that go on. One more part of the
//! subscribers is for threads that [`race`] for them.

mod check;
mod state;
mod unit;
mod worker;

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error};
use remanent_engine::Token;

pub use self::check::{Found, Known, check};
pub use self::worker::{Worker, race};

/// Number of subscribers.
pub const POPULATION: u32 = 1_200;
/// Number of threads that have subscribers of their own.
pub const WORKERS: u32 = 3;

/// The worker that a subscriber belongs to; [`WORKERS`] for those of everybody.
fn owner(s_id: u32) -> u32 {
    (s_id - 1) % (WORKERS + 1)
}

/// A worker's place in its work. Shown as `done - -` or `done token statements`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of units that are done.
    pub done: u64,
    /// The open transaction of the next unit, and how many of its statements took effect.
    pub open: Option<(Token, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.open {
            Some((token, statements)) => write!(f, "{} {token} {statements}", self.done),
            None => write!(f, "{} - -", self.done),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let [done, token, statements] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let open = match (token, statements) {
                ("-", "-") => None,
                _ => Some((token.parse().ok()?, statements.parse().ok()?)),
            };
            Some(Place { done: done.parse().ok()?, open })
        };
        parse().with_context(|| format!("{text:?} is no place of a worker"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_shown() {
        let token = "0300100000000009".parse().unwrap();
        for open in [None, Some((token, 4))] {
            let place = Place { done: 17, open };
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
        for text in ["", "1", "1 -", "x - -", "1 0300100000000009 -", "1 - - -"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
