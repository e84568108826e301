//! Why a command on a key failed.

use crate::store::StoreError;

/// Why a command on a key failed. Nothing was changed, except where
/// [`Undecided`](KeyError::Undecided) says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// The key holds a value of another type.
    WrongType,
    /// The change was begun, and could be neither completed nor taken back. It stays written down,
    /// and is completed or taken back before the next command on its shard, or by the next opening.
    Undecided(StoreError),
    /// What the command would copy needs more memory than clients may take.
    NoMemory,
    /// The store refused, or failed.
    Store(StoreError),
}

impl From<StoreError> for KeyError {
    fn from(error: StoreError) -> Self {
        KeyError::Store(error)
    }
}

impl From<remanent_structures::Error> for KeyError {
    fn from(error: remanent_structures::Error) -> Self {
        KeyError::Store(error.into())
    }
}

/// The error for a store that contradicts itself, in words for the client.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Failed(format!("the pool is damaged: {what}; restore it from a backup"))
}
