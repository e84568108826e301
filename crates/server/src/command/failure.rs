//! Why commands fail, and the error lines that clients get.

use std::borrow::Cow;

use crate::keyspace::KeyError;
use crate::resp::OutputFailure;
use crate::store::StoreError;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The error line, which begins with an error code.
    Text(Cow<'static, str>),
    /// The store failed.
    Store(StoreError),
    /// There was no room for the answer.
    Answer(OutputFailure),
    /// There was no memory for what the command would copy.
    NoMemory,
}

/// Result of a command. A failure replaces the answer so far by the error line.
pub(crate) type Outcome = Result<(), Failure>;

/// The answer to a request for which there is no clients' memory.
pub(crate) const NO_MEMORY_FOR_REQUEST: &str = "OOM the request needs more memory than clients may \
    take together (`maxmemory-clients`); the connection is closed";

impl Failure {
    pub(super) const SYNTAX: Failure = Failure::Text(Cow::Borrowed("ERR syntax error"));
    pub(super) const NOT_AN_INTEGER: Failure =
        Failure::Text(Cow::Borrowed("ERR value is not an integer or out of range"));
    pub(super) const WRONG_TYPE: Failure = Failure::Text(Cow::Borrowed(
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    ));

    /// An error line, which begins with an error code.
    pub(super) fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::Text(text.into())
    }

    /// The error for a call of `command` with a wrong number of arguments.
    pub(super) fn wrong_arity(command: &str) -> Self {
        Failure::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// The error line.
    pub(super) fn to_line(&self) -> Cow<'_, str> {
        match self {
            Failure::Text(text) => Cow::Borrowed(text),
            Failure::Store(StoreError::Full) => {
                Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'.")
            }
            Failure::Store(error) => Cow::Owned(format!("ERR {error}")),
            Failure::Answer(OutputFailure::TooLong) => Cow::Borrowed(
                "ERR the answer is longer than what may wait for one client; ask for less at a \
                 time",
            ),
            Failure::Answer(OutputFailure::NoMemory) => Cow::Borrowed(
                "OOM the answer needs more memory than clients may take together \
                 (`maxmemory-clients`); ask for less at a time, or try again",
            ),
            Failure::NoMemory => Cow::Borrowed(
                "OOM the command needs more memory than clients may take together \
                 (`maxmemory-clients`); nothing was changed",
            ),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::WrongType => Failure::WRONG_TYPE,
            KeyError::Undecided(error) => {
                let code = if error == StoreError::Full { "OOM" } else { "ERR" };
                Failure::text(format!(
                    "{code} {error}, in the middle of the command: whether it takes effect is \
                     decided before its key is used again, or at the next start"
                ))
            }
            KeyError::NoMemory => Failure::NoMemory,
            KeyError::Store(error) => error.into(),
        }
    }
}
