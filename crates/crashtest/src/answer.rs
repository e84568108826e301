//! Answers of operations, in a form that models produce, too.

use remanent_pmem::Error as PoolError;
use remanent_structures::Error;

/// The answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    Bool(bool),
    Value(T),
    /// There was nothing.
    None,
    /// The pool was full or the medium faulty. Nothing was changed.
    Refused(String),
    /// Any other error; no model produces it.
    Failed(String),
}

pub(crate) fn answer<T, V, E: Into<Error>>(
    result: Result<T, E>,
    map: impl FnOnce(T) -> Answer<V>,
) -> Answer<V> {
    match result.map_err(Into::into) {
        Ok(value) => map(value),
        Err(error) if error.is_full() => Answer::Refused(error.to_string()),
        Err(error @ Error::Pool(PoolError::Medium(_))) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

pub(crate) fn is_refused<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Answer::Refused(_))
}
