//! What a connection remembers between requests, and what it asks of the owner of its socket.

use std::sync::Arc;
use std::time::Duration;

use crate::clients::{Record, Totals};
use crate::syncs::Ticket;

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All requests were run: send the answers, then read more.
    Read,
    /// Send the answers, let others have a turn, then go on.
    Yield,
    /// Wait for so long, then do as for [`Yield`](Progress::Yield): a password was given, after
    /// wrong ones.
    Wait(Duration),
    /// Send the answers, then call [`run_long`](super::Session::run_long) where it holds nobody up.
    Long,
    /// Send the answers, then close the connection.
    Close,
    /// As [`Close`](Progress::Close), and then end the server.
    ShutDown,
}

/// What a connection remembers from one request to the next.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) record: Arc<Record>,
    pub(crate) authenticated: bool,
    pub(crate) replies: Replies,
    /// Set by `QUIT` and `SHUTDOWN`: how the connection ends after the present answer.
    pub(crate) end: Option<Progress>,
    /// Set by a password that is wrong, or comes after wrong ones: how long the present answer
    /// waits.
    pub(crate) delay: Option<Duration>,
    /// Whether requests are refused because `MULTI` was sent, and neither `EXEC` nor `DISCARD` since.
    pub(crate) is_in_transaction: bool,
    /// Which syncs make safe all that the long request waits for.
    pub(crate) ticket: Ticket,
    /// Whether the long request has waited for as long as it may.
    pub(crate) is_overdue: bool,
    /// What was done since it was last added to the record.
    pub(crate) counts: Totals,
}

impl Client {
    /// What is to be done after a request, before the next one is run; `None` if nothing.
    #[inline]
    pub(super) fn what_follows(&mut self) -> Option<Progress> {
        self.end.or_else(|| self.delay.take().map(Progress::Wait))
    }
}

/// Which answers a client wants, as it said with `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    All,
    None,
    /// All, but the answer to the next request.
    SkipNext,
}
