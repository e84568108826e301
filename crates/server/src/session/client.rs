//! The state of a connection between requests, and what it asks of the owner of its socket.

use std::sync::Arc;
use std::time::Duration;

use crate::clients::{Record, Totals};
use crate::syncs::Ticket;

/// What the owner of the socket has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All requests were run: send the answers, then read more.
    Read,
    /// Send the answers, let other connections have a turn, then call [`run`](super::Session::run).
    Yield,
    /// Wait for so long, then do as for [`Yield`](Progress::Yield): the answer to a password is
    /// delayed.
    Wait(Duration),
    /// Send the answers, then call [`run_long`](super::Session::run_long) on a thread where it
    /// delays no other connection.
    Long,
    /// Send the answers, then close the connection.
    Close,
    /// Do as for [`Close`](Progress::Close), then end the server.
    ShutDown,
}

/// The state of a connection between requests.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) record: Arc<Record>,
    pub(crate) authenticated: bool,
    pub(crate) replies: Replies,
    /// How the connection ends after the present answer, if it does.
    pub(crate) end: Option<Progress>,
    /// Delay of the present answer. Set by a password that is wrong, or that comes after wrong
    /// ones.
    pub(crate) delay: Option<Duration>,
    /// Whether `MULTI` was sent, and neither `EXEC` nor `DISCARD` since: requests are refused.
    pub(crate) is_in_transaction: bool,
    /// The moment in the order of syncs at which the long request came: see
    /// [`Syncs::wait`](crate::syncs::Syncs::wait).
    pub(crate) ticket: Ticket,
    /// Whether the sync of the long request did not end in time.
    pub(crate) is_overdue: bool,
    /// Counts that were not added to the record yet.
    pub(crate) counts: Totals,
}

impl Client {
    /// What the owner of the socket has to do before the next request is run; `None` if nothing.
    #[inline]
    pub(super) fn what_follows(&mut self) -> Option<Progress> {
        self.end.or_else(|| self.delay.take().map(Progress::Wait))
    }
}

/// Which answers a client wants: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    All,
    None,
    /// All, except the answer to the next request.
    SkipNext,
}
