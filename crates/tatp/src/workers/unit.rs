//! Units of work: requests of TATP, and transactions of several statements.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{POPULATION, WORKERS};
use crate::{Mix, Population, Random, Request, sub_nbr};

/// An atomic piece of a worker's work.
#[derive(Clone, Debug)]
pub(super) enum Unit {
    /// A request of TATP.
    Request(Request),
    /// A transaction of several statements.
    Transaction(Vec<Statement>, End),
    /// A transaction that is durable at its commit.
    AtCommit(Vec<Statement>),
}

impl Unit {
    /// How often a worker tells its place while it does the unit.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Unit::Request(_) | Unit::AtCommit(_) => 1,
            // The beginning, each statement, and the end.
            Unit::Transaction(statements, End::Commit | End::Abort) => statements.len() as u64 + 2,
            // The last statement is the end, unless it is a batch.
            Unit::Transaction(statements, End::CommitWith) => {
                let is_batch = matches!(statements.last(), Some(Statement::Batch(..)));
                statements.len() as u64 + 1 + u64::from(is_batch)
            }
        }
    }
}

/// A statement of a transaction, which always changes something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    /// Gives a subscriber a location that no subscriber had before.
    Locate(u32, u32),
    /// Adds a forwarding, or removes it if it is there.
    Toggle(Forwarding),
    /// Both as one batch, for the subscriber of the forwarding.
    Batch(u32, Forwarding),
}

/// Subscriber, facility, start.
pub(super) type Forwarding = (u32, u8, u8);

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    /// With the last statement.
    CommitWith,
    Abort,
}

/// The end of forwardings that statements add, and where calls go.
pub(super) const TOGGLED: (u8, &str) = (24, "toggled");

/// The facilities of each subscriber, which nobody changes.
static FACILITIES: LazyLock<BTreeMap<u32, Vec<u8>>> = LazyLock::new(|| {
    let mut facilities: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for row in Population::new(POPULATION).special_facilities {
        facilities.entry(row.s_id).or_default().push(row.sf_type);
    }
    facilities
});

/// The worker's unit of this number.
pub(super) fn unit(seed: u64, worker: u32, number: u64) -> Unit {
    let part = POPULATION / (WORKERS + 1);
    let mut random = Random::new(seed ^ u64::from(worker) << 56 ^ number << 8);
    let mut own = || worker + 1 + (WORKERS + 1) * random.within(0, u64::from(part) - 1) as u32;
    let (s_id, others) = (own(), [own(), own(), own()]);
    if random.within(0, 9) < 7 {
        let request = Mix::new(POPULATION, random.within(0, u64::MAX - 1)).draw();
        return Unit::Request(of_subscriber(request, s_id));
    }
    let count = random.within(1, 6);
    let statements = (0..count).map(|at| {
        let s_id = others[random.within(0, 2) as usize];
        let facilities = &FACILITIES[&s_id];
        let of = random.within(0, facilities.len() as u64 - 1) as usize;
        let forwarding = (s_id, facilities[of], random.within(0, 2) as u8 * 8);
        let location = (number * 8 + at) as u32;
        match random.within(0, 2) {
            0 => Statement::Locate(s_id, location),
            1 => Statement::Toggle(forwarding),
            _ => Statement::Batch(location, forwarding),
        }
    });
    let statements = statements.collect();
    match random.within(0, 3) {
        0 => Unit::AtCommit(statements),
        1 => Unit::Transaction(statements, End::Commit),
        2 => Unit::Transaction(statements, End::CommitWith),
        _ => Unit::Transaction(statements, End::Abort),
    }
}

/// The same request for another subscriber.
pub(super) fn of_subscriber(mut request: Request, subscriber: u32) -> Request {
    match &mut request {
        Request::GetSubscriberData { s_id }
        | Request::GetNewDestination { s_id, .. }
        | Request::GetAccessData { s_id, .. }
        | Request::UpdateSubscriberData { s_id, .. } => *s_id = subscriber,
        Request::UpdateLocation { sub_nbr: number, .. }
        | Request::InsertCallForwarding { sub_nbr: number, .. }
        | Request::DeleteCallForwarding { sub_nbr: number, .. } => *number = sub_nbr(subscriber),
    }
    request
}
