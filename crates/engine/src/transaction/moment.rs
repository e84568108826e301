//! What reads take to say which moment they see.

use remanent_pmem::{Mapped, Medium};

use super::notes::Notes;
use super::view::View;
use crate::Result;
use crate::engine::Engine;

/// What reads take to say which moment they see: a [`Snapshot`](super::Snapshot), or a
/// [`Transaction`](super::Transaction), which sees what it has changed, too.
pub trait Moment<M: Medium = Mapped>: Sealed<M> {}

/// Keeps [`Moment`] from being implemented elsewhere.
pub trait Sealed<M: Medium> {
    /// What is seen of the database.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn view_in(&self, engine: &Engine<M>) -> Result<View>;

    /// Where a serializable transaction notes what it reads; `None` for all others.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else can call it")]
    fn notes(&self) -> Option<&Notes<M>>;
}
