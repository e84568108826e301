//! TATP's transactions in SQLite, prepared.

use std::hint::black_box;
use std::path::Path;

use anyhow::{Context, Result};
use remanent_engine::{TableSpec, Type, Value};
use remanent_tatp::{Population, Request, tables};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, params, params_from_iter};

/// A database with TATP's tables.
pub(super) struct Sqlite {
    connection: Connection,
}

/// A value as SQLite takes it.
fn to_sqlite<'v>(value: &Value<'v>) -> ToSqlOutput<'v> {
    ToSqlOutput::Borrowed(match *value {
        Value::Uint(value) => ValueRef::Integer(value as i64),
        Value::Int(value) => ValueRef::Integer(value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        _ => ValueRef::Null,
    })
}

fn create_statement(spec: &TableSpec) -> String {
    // As SQLite recommends it for keys of several columns; the subscriber's key is the row's own.
    let (key, rest) = match spec.name() {
        "subscriber" => ("PRIMARY KEY (s_id), UNIQUE (sub_nbr)", ""),
        "call_forwarding" => ("PRIMARY KEY (s_id, sf_type, start_time)", " WITHOUT ROWID"),
        "access_info" => ("PRIMARY KEY (s_id, ai_type)", " WITHOUT ROWID"),
        _ => ("PRIMARY KEY (s_id, sf_type)", " WITHOUT ROWID"),
    };
    let columns = spec.columns().iter().map(|column| match column.of_type {
        Type::Text { .. } => format!("{} TEXT NOT NULL", column.name),
        _ => format!("{} INTEGER NOT NULL", column.name),
    });
    let columns: Vec<String> = columns.collect();
    format!("CREATE TABLE {} ({}, {key}){rest};", spec.name(), columns.join(", "))
}

impl Sqlite {
    /// In memory, without a guarantee.
    pub(super) fn in_memory() -> Result<Self> {
        Self::with_tables(Connection::open_in_memory()?)
    }

    /// With a write-ahead log that is synchronized at each commit.
    pub(super) fn with_log(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Self::with_tables(connection)
    }

    fn with_tables(connection: Connection) -> Result<Self> {
        connection.set_prepared_statement_cache_capacity(32);
        // Otherwise it plans anew for each value that a range is compared with.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        for spec in tables() {
            connection.execute_batch(&create_statement(&spec))?;
        }
        Ok(Sqlite { connection })
    }

    /// Inserts all rows, in one transaction.
    pub(super) fn load(&self, population: &Population) -> Result<()> {
        self.connection.execute_batch("BEGIN")?;
        for row in &population.subscribers {
            row.with_values(|values| self.insert("subscriber", values))?;
        }
        for row in &population.access_infos {
            row.with_values(|values| self.insert("access_info", values))?;
        }
        for row in &population.special_facilities {
            row.with_values(|values| self.insert("special_facility", values))?;
        }
        for row in &population.call_forwardings {
            row.with_values(|values| self.insert("call_forwarding", values))?;
        }
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn insert(&self, table: &str, values: &[Value<'_>]) -> Result<()> {
        let places = vec!["?"; values.len()].join(", ");
        let mut insert = self.prepared(&format!("INSERT INTO {table} VALUES ({places})"))?;
        insert.execute(params_from_iter(values.iter().map(to_sqlite)))?;
        Ok(())
    }

    fn prepared(&self, sql: &str) -> Result<CachedStatement<'_>> {
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Executes a request; false as [`remanent_tatp::Client::run`].
    pub(super) fn run(&self, request: &Request) -> Result<bool> {
        match *request {
            Request::GetSubscriberData { s_id } => {
                let sql = "SELECT * FROM subscriber WHERE s_id = ?";
                self.reads(sql, params![s_id], 34)
            }
            Request::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                let sql = "SELECT cf.numberx FROM special_facility sf JOIN call_forwarding cf \
                           ON cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type \
                           WHERE sf.s_id = ? AND sf.sf_type = ? AND sf.is_active = 1 \
                           AND cf.start_time <= ? AND ? < cf.end_time";
                self.reads(sql, params![s_id, sf_type, start_time, end_time], 1)
            }
            Request::GetAccessData { s_id, ai_type } => {
                let sql = "SELECT data1, data2, data3, data4 FROM access_info \
                           WHERE s_id = ? AND ai_type = ?";
                self.reads(sql, params![s_id, ai_type], 4)
            }
            Request::UpdateSubscriberData { s_id, sf_type, bit_1, data_a } => {
                self.update_subscriber_data(s_id, sf_type, bit_1, data_a)
            }
            Request::UpdateLocation { ref sub_nbr, vlr_location } => {
                let sql = "UPDATE subscriber SET vlr_location = ? WHERE sub_nbr = ?";
                Ok(self.prepared(sql)?.execute(params![vlr_location, sub_nbr])? == 1)
            }
            Request::InsertCallForwarding {
                ref sub_nbr,
                sf_type,
                start_time,
                end_time,
                ref numberx,
            } => {
                let Some(s_id) = self.s_id_of(sub_nbr)? else { return Ok(false) };
                if !self.has_facility(s_id, sf_type)? {
                    return Ok(false);
                }
                let sql = "INSERT INTO call_forwarding VALUES (?, ?, ?, ?, ?)";
                let values = params![s_id, sf_type, start_time, end_time, numberx];
                match self.prepared(sql)?.execute(values) {
                    Ok(_) => Ok(true),
                    Err(error)
                        if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
                    {
                        Ok(false)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Request::DeleteCallForwarding { ref sub_nbr, sf_type, start_time } => {
                let Some(s_id) = self.s_id_of(sub_nbr)? else { return Ok(false) };
                let sql = "DELETE FROM call_forwarding \
                           WHERE s_id = ? AND sf_type = ? AND start_time = ?";
                Ok(self.prepared(sql)?.execute(params![s_id, sf_type, start_time])? == 1)
            }
        }
    }

    /// Reads all columns of all rows. Whether there are any.
    fn reads(&self, sql: &str, key: impl rusqlite::Params, columns: usize) -> Result<bool> {
        let mut get = self.prepared(sql)?;
        let mut rows = get.query(key)?;
        let mut is_any = false;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                black_box(row.get_ref(column).context("a column that was asked for")?);
            }
            is_any = true;
        }
        Ok(is_any)
    }

    fn s_id_of(&self, sub_nbr: &str) -> Result<Option<u32>> {
        let mut get = self.prepared("SELECT s_id FROM subscriber WHERE sub_nbr = ?")?;
        let mut rows = get.query(params![sub_nbr])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
    }

    fn has_facility(&self, s_id: u32, sf_type: u8) -> Result<bool> {
        let mut get = self.prepared("SELECT sf_type FROM special_facility WHERE s_id = ?")?;
        let mut rows = get.query(params![s_id])?;
        let mut is_there = false;
        while let Some(row) = rows.next()? {
            is_there |= row.get::<_, u8>(0)? == sf_type;
        }
        Ok(is_there)
    }

    fn update_subscriber_data(
        &self,
        s_id: u32,
        sf_type: u8,
        bit_1: u8,
        data_a: u16,
    ) -> Result<bool> {
        self.prepared("BEGIN")?.execute([])?;
        let update = "UPDATE subscriber SET bit_1 = ? WHERE s_id = ?";
        let is_subscriber = self.prepared(update)?.execute(params![bit_1, s_id])? == 1;
        let update = "UPDATE special_facility SET data_a = ? WHERE s_id = ? AND sf_type = ?";
        let is_facility = self.prepared(update)?.execute(params![data_a, s_id, sf_type])? == 1;
        let is_done = is_subscriber && is_facility;
        self.prepared(if is_done { "COMMIT" } else { "ROLLBACK" })?.execute([])?;
        Ok(is_done)
    }
}
