//! The rows of a worker's subscribers, as its units leave them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::ensure;
use remanent_engine::{Moment, Result, Row, Table};

use super::owner;
use super::unit::{End, Forwarding, Statement, TOGGLED, Unit};
use crate::{Population, Request, Tables};

/// The columns and rows that workers change.
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
    /// The state of a worker's subscribers after loading.
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

    /// The state of a worker's subscribers in the tables.
    ///
    /// # Errors
    ///
    /// When the tables cannot be read, or a key is there twice.
    pub(super) fn seen(tables: &Tables, moment: &impl Moment, worker: u32) -> anyhow::Result<Self> {
        let (mut state, mut twice) = (State::default(), Vec::new());
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
            let forwarding = (row.get(3)?, row.get::<&str>(4)?.to_owned());
            if state.forwardings.insert(key, forwarding).is_some() {
                twice.push(key);
            }
            Ok(())
        })?;
        ensure!(twice.is_empty(), "forwardings are there twice: {twice:?}");
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

fn scan(
    table: &Table,
    moment: &impl Moment,
    worker: u32,
    mut visit: impl FnMut(u32, &Row<'_>) -> Result<()>,
) -> Result<()> {
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

/// What differs between two states, in a few words.
pub(super) fn difference(found: &State, expected: &State) -> String {
    /// How many differences are named.
    const NAMED_MAX: usize = 4;
    fn of<K: Ord + Copy + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
        name: &str,
        found: &BTreeMap<K, V>,
        expected: &BTreeMap<K, V>,
        lines: &mut Vec<String>,
    ) {
        let keys: std::collections::BTreeSet<K> =
            found.keys().chain(expected.keys()).copied().collect();
        for key in keys {
            let (is, due) = (found.get(&key), expected.get(&key));
            if is != due {
                lines.push(format!("{name} {key:?} is {is:?}, expected {due:?}"));
            }
        }
    }
    let mut lines = Vec::new();
    of("subscriber", &found.subscribers, &expected.subscribers, &mut lines);
    of("facility", &found.facilities, &expected.facilities, &mut lines);
    of("forwarding", &found.forwardings, &expected.forwardings, &mut lines);
    let more = lines.len().saturating_sub(NAMED_MAX);
    lines.truncate(NAMED_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
