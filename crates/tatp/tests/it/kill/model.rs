//! What each worker does, and what the tables then have: the same in every process.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use remanent_engine::{Error, Moment, Row, Table};
use remanent_tatp::{Mix, Population, Random, Request, Tables, sub_nbr};

/// Subscribers.
pub(super) const POPULATION: u32 = 1_200;
/// Threads with subscribers of their own. One more part of them is everybody's.
pub(super) const WORKERS: u32 = 3;

/// A thing that a worker does, as a whole.
#[derive(Clone, Debug)]
pub(super) enum Unit {
    /// A request of TATP.
    Request(Request),
    /// A transaction of several statements.
    Transaction(Vec<Statement>, End),
    /// One that is durable at its commit.
    AtCommit(Vec<Statement>),
}

/// A statement of a transaction, which always changes something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    /// Gives a subscriber a place that nobody had before.
    Locate(u32, u32),
    /// Adds a forwarding, or removes it if it is there.
    Toggle(Forwarding),
    /// Both, for the subscriber of the forwarding.
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

/// The unit of this number that a worker does.
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
        end => Unit::Transaction(
            statements,
            [End::Commit, End::CommitWith, End::Abort][end as usize - 1],
        ),
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

/// What workers change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// `bit_1` and `vlr_location` of each subscriber.
    subscribers: BTreeMap<u32, (u8, u32)>,
    /// `data_a` of each facility.
    facilities: BTreeMap<(u32, u8), u16>,
    /// Ends and numbers.
    forwardings: BTreeMap<Forwarding, (u8, String)>,
}

fn id(number: &str) -> u32 {
    number.parse().expect("a number, as it was written")
}

impl State {
    /// That of a worker's subscribers, as they are loaded.
    pub(super) fn loaded(population: &Population, worker: u32) -> Self {
        let is_own = |s_id: u32| owner(s_id) == worker;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("digits");
        let subscribers = population.subscribers.iter().filter(|row| is_own(row.s_id));
        let facilities = population.special_facilities.iter().filter(|row| is_own(row.s_id));
        let forwardings = population.call_forwardings.iter().filter(|row| is_own(row.s_id));
        State {
            subscribers: subscribers
                .map(|row| (row.s_id, (row.bits[0], row.vlr_location)))
                .collect(),
            facilities: facilities.map(|row| ((row.s_id, row.sf_type), row.data_a)).collect(),
            forwardings: forwardings
                .map(|row| {
                    let key = (row.s_id, row.sf_type, row.start_time);
                    (key, (row.end_time, text(&row.numberx)))
                })
                .collect(),
        }
    }

    /// What a moment of the tables has of a worker's subscribers.
    pub(super) fn seen(tables: &Tables, moment: &impl Moment, worker: u32) -> Result<Self, Error> {
        let mut state = State::default();
        scan(&tables.subscriber, moment, worker, |s_id, row| {
            state.subscribers.insert(s_id, (row.get(2)?, row.get(33)?));
            Ok(())
        })?;
        scan(&tables.special_facility, moment, worker, |s_id, row| {
            state.facilities.insert((s_id, row.get(1)?), row.get(4)?);
            Ok(())
        })?;
        scan(&tables.call_forwarding, moment, worker, |s_id, row| {
            let key = (s_id, row.get(1)?, row.get(2)?);
            let before =
                state.forwardings.insert(key, (row.get(3)?, row.get::<&str>(4)?.to_owned()));
            assert_eq!(before, None, "{key:?} is there twice");
            Ok(())
        })?;
        Ok(state)
    }

    /// Executes a request.
    pub(super) fn request(&mut self, request: &Request) {
        match request {
            Request::UpdateSubscriberData { s_id, sf_type, bit_1, data_a } => {
                if let Some(data) = self.facilities.get_mut(&(*s_id, *sf_type)) {
                    *data = *data_a;
                    self.subscribers.get_mut(s_id).expect("it is there").0 = *bit_1;
                }
            }
            Request::UpdateLocation { sub_nbr, vlr_location } => {
                self.subscribers.get_mut(&id(sub_nbr)).expect("it is there").1 = *vlr_location;
            }
            Request::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx } => {
                let s_id = id(sub_nbr);
                if self.facilities.contains_key(&(s_id, *sf_type)) {
                    let key = (s_id, *sf_type, *start_time);
                    self.forwardings.entry(key).or_insert((*end_time, numberx.clone()));
                }
            }
            Request::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
                self.forwardings.remove(&(id(sub_nbr), *sf_type, *start_time));
            }
            Request::GetSubscriberData { .. }
            | Request::GetNewDestination { .. }
            | Request::GetAccessData { .. } => {}
        }
    }

    /// Executes a statement of a transaction.
    pub(super) fn statement(&mut self, statement: Statement) {
        match statement {
            Statement::Locate(s_id, location) => {
                self.subscribers.get_mut(&s_id).expect("it is there").1 = location;
            }
            Statement::Toggle(key) => {
                if self.forwardings.remove(&key).is_none() {
                    let (end, number) = TOGGLED;
                    self.forwardings.insert(key, (end, number.to_owned()));
                }
            }
            Statement::Batch(location, key) => {
                self.statement(Statement::Locate(key.0, location));
                self.statement(Statement::Toggle(key));
            }
        }
    }

    /// Executes a unit.
    pub(super) fn apply(&mut self, unit: &Unit) {
        match unit {
            Unit::Request(request) => self.request(request),
            Unit::Transaction(_, End::Abort) => {}
            Unit::Transaction(statements, _) | Unit::AtCommit(statements) => {
                statements.iter().for_each(|statement| self.statement(*statement));
            }
        }
    }
}

/// The worker that has a subscriber.
pub(super) fn owner(s_id: u32) -> u32 {
    (s_id - 1) % (WORKERS + 1)
}

fn scan(
    table: &Table,
    moment: &impl Moment,
    worker: u32,
    mut visit: impl FnMut(u32, &Row<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = table.scan(moment, |row| {
        let visited = row.get(0).and_then(|s_id| match owner(s_id) == worker {
            true => visit(s_id, row),
            false => Ok(()),
        });
        match visited {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    })?;
    failed.map_or(Ok(()), Err)
}
