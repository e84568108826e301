//! A client that executes requests.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use remanent_engine::{
    Database, Delete, Error, Find, Get, Result, Table, TransactionOptions, Update,
};
use remanent_pmem::{Mapped, Medium};

use crate::{Request, Tables};

/// The seven transactions, prepared. Threads have one each.
#[derive(Debug)]
pub struct Client<M: Medium = Mapped> {
    database: Database<M>,
    subscriber: Get<M>,
    subscriber_by_number: Get<M>,
    access_info: Get<M>,
    facility: Get<M>,
    facilities: Find<M>,
    forwardings: Find<M>,
    update_subscriber: Update<M>,
    update_by_number: Update<M>,
    update_facility: Update<M>,
    call_forwarding: Table<M>,
    delete_forwarding: Delete<M>,
}

// Columns, by their numbers.
const S_ID: usize = 0;
const BIT_1: usize = 2;
const VLR_LOCATION: usize = 33;
const SF_TYPE: usize = 1;
const IS_ACTIVE: usize = 2;
const DATA_A: usize = 4;
const START_TIME: usize = 2;
const END_TIME: usize = 3;
const NUMBERX: usize = 4;

impl<M: Medium> Client<M> {
    /// A client of a database with the four tables.
    ///
    /// # Errors
    ///
    /// When a table or an index is not there.
    pub fn new(database: &Database<M>) -> Result<Self> {
        let tables = Tables::open(database)?;
        Ok(Client {
            database: database.clone(),
            subscriber: tables.subscriber.prepare_get("primary")?,
            subscriber_by_number: tables.subscriber.prepare_get("by_sub_nbr")?,
            access_info: tables.access_info.prepare_get("primary")?,
            facility: tables.special_facility.prepare_get("primary")?,
            facilities: tables.special_facility.prepare_find("by_subscriber")?,
            forwardings: tables.call_forwarding.prepare_find("by_facility")?,
            update_subscriber: tables.subscriber.prepare_update("primary")?,
            update_by_number: tables.subscriber.prepare_update("by_sub_nbr")?,
            update_facility: tables.special_facility.prepare_update("primary")?,
            delete_forwarding: tables.call_forwarding.prepare_delete("primary")?,
            call_forwarding: tables.call_forwarding,
        })
    }

    /// Executes a request, again and again while others are in its way. False if a row is not
    /// there that it needs, or one is that it wants to add: the description counts these apart.
    ///
    /// # Errors
    ///
    /// When the pool is full, a row is damaged, or the medium met a fault.
    pub fn run(&self, request: &Request) -> Result<bool> {
        loop {
            match self.try_run(request) {
                Err(Error::Conflict { .. } | Error::Overtaken { .. }) => std::thread::yield_now(),
                result => return result,
            }
        }
    }

    fn try_run(&self, request: &Request) -> Result<bool> {
        match *request {
            Request::GetSubscriberData { s_id } => self.get_subscriber_data(s_id),
            Request::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                self.get_new_destination(s_id, sf_type, start_time, end_time)
            }
            Request::GetAccessData { s_id, ai_type } => self.get_access_data(s_id, ai_type),
            Request::UpdateSubscriberData { s_id, sf_type, bit_1, data_a } => {
                self.update_subscriber_data(s_id, sf_type, bit_1, data_a)
            }
            Request::UpdateLocation { ref sub_nbr, vlr_location } => {
                let key = [sub_nbr.as_str().into()];
                let found =
                    self.update_by_number.run(&key, |_, row| row.set(VLR_LOCATION, vlr_location));
                Ok(found?.is_some())
            }
            Request::InsertCallForwarding {
                ref sub_nbr,
                sf_type,
                start_time,
                end_time,
                ref numberx,
            } => self.insert_call_forwarding(sub_nbr, sf_type, start_time, end_time, numberx),
            Request::DeleteCallForwarding { ref sub_nbr, sf_type, start_time } => {
                match self.s_id_of(sub_nbr)? {
                    Some(s_id) => self.delete_forwarding.run(&[
                        s_id.into(),
                        sf_type.into(),
                        start_time.into(),
                    ]),
                    None => Ok(false),
                }
            }
        }
    }

    fn get_subscriber_data(&self, s_id: u32) -> Result<bool> {
        let found = self.subscriber.run(&self.database.snapshot(), &[s_id.into()], |row| {
            row.values().try_for_each(|value| {
                black_box(value?);
                Ok(())
            })
        });
        Ok(found?.is_some())
    }

    fn get_access_data(&self, s_id: u32, ai_type: u8) -> Result<bool> {
        let key = [s_id.into(), ai_type.into()];
        let found = self.access_info.run(&self.database.snapshot(), &key, |row| {
            (2..6).try_for_each(|column| {
                row.value(column).map(|value| {
                    black_box(value);
                })
            })
        });
        Ok(found?.is_some())
    }

    fn get_new_destination(
        &self,
        s_id: u32,
        sf_type: u8,
        start_time: u8,
        end_time: u8,
    ) -> Result<bool> {
        let now = self.database.snapshot();
        let key = [s_id.into(), sf_type.into()];
        let is_active = self.facility.run(&now, &key, |row| Ok(row.get::<u8>(IS_ACTIVE)? == 1))?;
        if is_active != Some(true) {
            return Ok(false);
        }
        let mut is_any = false;
        let failed = self.forwardings.run(&now, &key, |row| {
            let mut of_row = || {
                let begins = row.get::<u8>(START_TIME)?;
                if begins <= start_time && end_time < row.get::<u8>(END_TIME)? {
                    black_box(row.get::<&str>(NUMBERX)?);
                    is_any = true;
                }
                Ok(())
            };
            match of_row() {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        failed.map_or(Ok(is_any), Err)
    }

    fn update_subscriber_data(
        &self,
        s_id: u32,
        sf_type: u8,
        bit_1: u8,
        data_a: u16,
    ) -> Result<bool> {
        // Nobody resumes it after a crash. With the usual time limit, it would keep its row from
        // others for a minute then.
        let options = TransactionOptions::new().time_limit(Duration::ZERO);
        let mut transaction = self.database.begin_with(&options)?;
        let facility = [s_id.into(), sf_type.into()];
        if self.facility.run(&transaction, &facility, |_| Ok(()))?.is_none() {
            return Ok(false);
        }
        let set = |transaction: &mut _| {
            let change = self
                .update_subscriber
                .run_in(transaction, &[s_id.into()], |_, row| row.set(BIT_1, bit_1));
            change.map(|found| found.is_some())
        };
        if !set(&mut transaction)? {
            return Ok(false);
        }
        let found = transaction.commit_with(|last| {
            self.update_facility.run_in(last, &facility, |_, row| row.set(DATA_A, data_a))
        });
        Ok(found?.is_some())
    }

    fn insert_call_forwarding(
        &self,
        sub_nbr: &str,
        sf_type: u8,
        start_time: u8,
        end_time: u8,
        numberx: &str,
    ) -> Result<bool> {
        let Some(s_id) = self.s_id_of(sub_nbr)? else { return Ok(false) };
        let mut is_facility = false;
        let now = self.database.snapshot();
        let failed = self.facilities.run(&now, &[s_id.into()], |row| {
            match row.get::<u8>(SF_TYPE) {
                Ok(of_row) => is_facility |= of_row == sf_type,
                Err(error) => return ControlFlow::Break(error),
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if !is_facility {
            return Ok(false);
        }
        drop(now);
        let values =
            [s_id.into(), sf_type.into(), start_time.into(), end_time.into(), numberx.into()];
        match self.call_forwarding.insert(&values) {
            Ok(_) => Ok(true),
            Err(Error::Unique { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn s_id_of(&self, sub_nbr: &str) -> Result<Option<u32>> {
        let now = self.database.snapshot();
        self.subscriber_by_number.run(&now, &[sub_nbr.into()], |row| row.get::<u32>(S_ID))
    }

    /// What contradicts the description: forwardings whose facility is not there, and facilities
    /// and access infos without a subscriber. No request may be in progress.
    ///
    /// # Errors
    ///
    /// When a row is damaged, or the medium met a fault.
    pub fn check(&self) -> Result<Vec<String>> {
        let tables = Tables::open(&self.database)?;
        let now = self.database.snapshot();
        let mut wrong = Vec::new();
        for (table, parent, columns) in [
            (&tables.access_info, &self.subscriber, 1),
            (&tables.special_facility, &self.subscriber, 1),
            (&tables.call_forwarding, &self.facility, 2),
        ] {
            let failed = table.scan(&now, |row| {
                let mut of_row = || {
                    let key = [row.value(0)?, row.value(1)?];
                    if parent.run(&now, &key[..columns], |_| Ok(()))?.is_none() {
                        wrong.push(format!("{}: {row:?} has nothing to belong to", table.name()));
                    }
                    Ok(())
                };
                match of_row() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(wrong)
    }
}
