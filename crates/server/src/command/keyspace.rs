//! Commands on keys of any type, and on all keys.

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::glob;
use super::row::{ALL_KEYS, LOOK_UP, NO_KEYS, ONE_KEY, READ, commands};
use crate::keyspace::{Keyspace, ValueType};
use crate::resp::{Request, parse_cursor, parse_i64};
use crate::store::{Edit, Store, StoreError};

/// Copies of keys and values that are in memory while a batch changes them: two in the batch, and
/// two on their way to what the batch writes down.
const COPIES: usize = 4;
/// Bytes that a batch takes for each key, besides the copies.
const EDIT_OVERHEAD: usize = 400;

const KEYSPACE_READ: &[&str] = &["@keyspace", "@read", "@fast"];
const KEYSPACE_WIPE: &[&str] = &["@keyspace", "@write", "@slow", "@dangerous"];
const REMOVE: &[&str] = &["RM", "delete"];

#[rustfmt::skip]
commands! {
    "dbsize" 1 => db_size, READ, KEYSPACE_READ, NO_KEYS,
        "server" "1.0.0" "O(1)" "Return the number of keys in the selected database";
    "del" -2 => del, &["write"], &["@keyspace", "@write", "@slow"], ALL_KEYS,
        "generic" "1.0.0" "O(N) where N is the number of keys" "Delete a key",
        key_access: REMOVE;
    "exists" -2 => exists, READ, KEYSPACE_READ, ALL_KEYS,
        "generic" "1.0.0" "O(N) where N is the number of keys to check."
        "Determine if a key exists",
        key_access: LOOK_UP;
    "flushall" -1 => flush, &["write"], KEYSPACE_WIPE, NO_KEYS,
        "server" "1.0.0" "O(N) where N is the number of keys" "Remove all keys from all databases",
        demand: Some(|_| u64::MAX);
    "flushdb" -1 => flush, &["write"], KEYSPACE_WIPE, NO_KEYS,
        "server" "1.0.0" "O(N) where N is the number of keys"
        "Remove all keys from the current database",
        demand: Some(|_| u64::MAX);
    "keys" 2 => keys, &["readonly"], &["@keyspace", "@read", "@slow", "@dangerous"], NO_KEYS,
        "generic" "1.0.0" "O(N) with N being the number of keys"
        "Find all keys matching the given pattern",
        demand: Some(|_| u64::MAX);
    "scan" -2 => scan, &["readonly"], &["@keyspace", "@read", "@slow"], NO_KEYS,
        "generic" "2.8.0" "O(1) for every call. O(N) for a complete iteration."
        "Incrementally iterate the keys space",
        demand: Some(|request| scan_count(request, 2));
    "type" 2 => type_of, READ, KEYSPACE_READ, ONE_KEY,
        "generic" "1.0.0" "O(1)" "Determine the type stored at key",
        key_access: LOOK_UP;
    "unlink" -2 => del, &["write", "fast"], &["@keyspace", "@write", "@fast"], ALL_KEYS,
        "generic" "4.0.0" "O(1) for each key removed regardless of its size." "Delete a key",
        key_access: REMOVE;
}

/// Entries that `SCAN` looks at without `COUNT`.
const SCAN_COUNT: u64 = 10;
/// Entries that `KEYS` looks at in one scan of the store.
const KEYS_BATCH: usize = 1024;

/// The options of `SCAN`, and of scans of a collection such as `ZSCAN`.
pub(super) struct ScanOptions<'a> {
    pub(super) pattern: Option<&'a [u8]>,
    pub(super) count: u64,
    pub(super) type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the options that begin with argument `first`.
    pub(super) fn parse(request: &'a Request<'_>, first: usize) -> Result<Self, Failure> {
        let mut options = ScanOptions { pattern: None, count: SCAN_COUNT, type_name: None };
        for index in (first..request.len()).step_by(2) {
            if index + 1 == request.len() {
                return Err(Failure::SYNTAX);
            }
            let value = request.get(index + 1);
            match request.get(index).to_ascii_lowercase().as_slice() {
                b"match" => options.pattern = Some(value),
                b"type" => options.type_name = Some(value),
                b"count" => {
                    let count = parse_i64(value).ok_or(Failure::NOT_AN_INTEGER)?;
                    options.count = u64::try_from(count)
                        .ok()
                        .filter(|count| *count > 0)
                        .ok_or(Failure::SYNTAX)?;
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(options)
    }

    fn selects(&self, key: &[u8], stored: &[u8]) -> bool {
        let named = |name: &[u8]| name.eq_ignore_ascii_case(ValueType::name_of(stored).as_bytes());
        self.pattern.is_none_or(|pattern| glob::matches(pattern, key))
            && self.type_name.is_none_or(named)
    }
}

/// The `COUNT` of a scan whose options begin with argument `first`, or how many entries it looks at
/// without one.
pub(super) fn scan_count(request: &Request<'_>, first: usize) -> u64 {
    ScanOptions::parse(request, first).map_or(0, |options| options.count)
}

impl<S: Store> Call<'_, S> {
    fn del(&mut self) -> Outcome {
        if self.request.len() == 2 {
            return self.answer_count(Keyspace::remove).map(|_| ());
        }
        let edits: Vec<Edit<'_>> =
            self.request.iter().skip(1).map(|key| Edit { key, value: None }).collect();
        let removed = self.edit_all(&edits)?.into_iter().filter(|&was_there| was_there).count();
        self.reply.integer(removed as i64);
        Ok(())
    }

    fn exists(&mut self) -> Outcome {
        let present = self.answer_count(Keyspace::contains)?;
        self.client.counts.hits += present;
        self.client.counts.misses += self.request.len() as u64 - 1 - present;
        Ok(())
    }

    /// Makes edits as one, whose copies count in the memory of clients.
    pub(super) fn edit_all(&self, edits: &[Edit<'_>]) -> Result<Vec<bool>, Failure> {
        let value_len = |edit: &Edit<'_>| edit.value.map_or(0, <[u8]>::len);
        let len_of = |edit: &Edit<'_>| edit.key.len() + value_len(edit);
        let len = edits.iter().map(|edit| COPIES * len_of(edit) + EDIT_OVERHEAD).sum();
        let mut share = self.shared.copies();
        if !share.resize(len) {
            return Err(Failure::NoMemory);
        }
        Ok(self.shared.keys.edit_all(edits)?)
    }

    /// Answers for how many of the arguments `test` returns true, and returns the number.
    fn answer_count(
        &mut self,
        test: impl Fn(&Keyspace<S>, &[u8]) -> Result<bool, StoreError>,
    ) -> Result<u64, Failure> {
        let mut count = 0;
        for key in self.request.iter().skip(1) {
            count += u64::from(test(&self.shared.keys, key)?);
        }
        self.reply.integer(count as i64);
        Ok(count)
    }

    fn type_of(&mut self) -> Outcome {
        let name = self.shared.keys.get_with(self.request.get(1), ValueType::name_of)?;
        self.reply.simple(name.unwrap_or("none"));
        Ok(())
    }

    fn db_size(&mut self) -> Outcome {
        self.reply.integer(self.shared.keys.len()? as i64);
        Ok(())
    }

    fn flush(&mut self) -> Outcome {
        match self.request.len() {
            1 => {}
            2 if self.is_word(1, "ASYNC") || self.is_word(1, "SYNC") => {}
            _ => return Err(Failure::SYNTAX),
        }
        self.shared.keys.clear()?;
        self.reply.simple("OK");
        Ok(())
    }

    fn keys(&mut self) -> Outcome {
        let pattern = self.request.get(1);
        let (start, reply) = (self.reply.len(), &mut *self.reply);
        let (mut cursor, mut len) = (0, 0);
        loop {
            cursor = self.shared.keys.scan(cursor, KEYS_BATCH, |key, _| {
                if glob::matches(pattern, key) {
                    reply.bulk(key);
                    len += 1;
                }
            })?;
            if cursor == 0 || reply.failure().is_some() {
                break;
            }
        }
        reply.close_array(start, len);
        Ok(())
    }

    fn scan(&mut self) -> Outcome {
        let cursor = parse_cursor(self.request.get(1));
        let cursor = cursor.ok_or(Failure::text("ERR invalid cursor"))?;
        let options = ScanOptions::parse(&self.request, 2)?;
        let limit = usize::try_from(options.count).unwrap_or(usize::MAX);
        let (start, reply) = (self.reply.len(), &mut *self.reply);
        let mut len = 0;
        let next = self.shared.keys.scan(cursor, limit, |key, stored| {
            if options.selects(key, stored) {
                reply.bulk(key);
                len += 1;
            }
        })?;
        reply.close_scan(start, next, len);
        Ok(())
    }
}
