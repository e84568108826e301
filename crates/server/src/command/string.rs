//! Commands on strings.

use std::borrow::Borrow;

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::row::{ALL_KEYS, LOOK_UP, ONE_KEY, READ, READ_DELETE, READ_UPDATE, WRITE, commands};
use crate::keyspace::{Keyspace, ValueType};
use crate::memory::Share;
use crate::resp::{Output, OutputFailure, parse_i64};
use crate::store::{Change, Edit, Store};

const STRING_READ: &[&str] = &["@read", "@string", "@fast"];
const STRING_WRITE: &[&str] = &["@write", "@string", "@fast"];
const STRING_WRITE_SLOW: &[&str] = &["@write", "@string", "@slow"];
const OVERWRITE: &[&str] = &["OW", "update"];

#[rustfmt::skip]
commands! {
    "append" 3 => append, WRITE, STRING_WRITE, ONE_KEY,
        "string" "2.0.0" "O(N) where N is the length of the new value" "Append a value to a key",
        key_access: &["RW", "insert"];
    "decr" 2 => decr, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Decrement the integer value of a key by one",
        key_access: READ_UPDATE;
    "decrby" 3 => decr_by, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Decrement the integer value of a key by the given number",
        key_access: READ_UPDATE;
    "get" 2 => get, READ, STRING_READ, ONE_KEY,
        "string" "1.0.0" "O(1)" "Get the value of a key";
    "getdel" 2 => get_del, &["write", "fast"], STRING_WRITE, ONE_KEY,
        "string" "6.2.0" "O(1)" "Get the value of a key and delete the key",
        key_access: READ_DELETE;
    "getset" 3 => get_set, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the string value of a key and return its old value",
        key_access: READ_UPDATE;
    "incr" 2 => incr, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Increment the integer value of a key by one",
        key_access: READ_UPDATE;
    "incrby" 3 => incr_by, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Increment the integer value of a key by the given amount",
        key_access: READ_UPDATE;
    "mget" -2 => mget, READ, STRING_READ, ALL_KEYS,
        "string" "1.0.0" "O(N) where N is the number of keys to retrieve."
        "Get the values of all the given keys";
    "mset" -3 => mset, &["write", "denyoom"], STRING_WRITE_SLOW, [1, -1, 2],
        "string" "1.0.1" "O(N) where N is the number of keys to set."
        "Set multiple keys to multiple values",
        key_access: OVERWRITE;
    "set" -3 => set, &["write", "denyoom"], STRING_WRITE_SLOW, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the string value of a key",
        key_access: OVERWRITE, key_access_with_get: Some(READ_UPDATE);
    "setnx" 3 => set_nx, WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the value of a key, only if the key does not exist",
        key_access: &["OW", "insert"];
    "strlen" 2 => str_len, READ, STRING_READ, ONE_KEY,
        "string" "2.2.0" "O(1)" "Get the length of the value stored in a key",
        key_access: LOOK_UP;
}

const STRING_TAG: u8 = ValueType::String.tag();

/// The bytes of the string in a stored value; an error if its type is another one.
fn payload(stored: &[u8]) -> Result<&[u8], Failure> {
    match stored.split_first() {
        Some((&tag, payload)) if tag == STRING_TAG => Ok(payload),
        _ => Err(Failure::WRONG_TYPE),
    }
}

/// The stored value of a string that consists of two parts. Its memory counts in `share`.
fn stored(share: &mut Share, payloads: [&[u8]; 2]) -> Result<Vec<u8>, Failure> {
    let [first, second] = payloads;
    let len = 1 + first.len() + second.len();
    let mut stored = Vec::new();
    if !share.resize(len) || stored.try_reserve_exact(len).is_err() {
        return Err(Failure::NoMemory);
    }
    stored.push(STRING_TAG);
    stored.extend_from_slice(first);
    stored.extend_from_slice(second);
    Ok(stored)
}

/// The options of `SET`.
#[derive(Clone, Copy, Default)]
struct SetOptions {
    only_missing: bool,
    only_present: bool,
    answer_old: bool,
    keep_expiry: bool,
    expiry: bool,
}

impl<S: Store> Call<'_, S> {
    fn get(&mut self) -> Outcome {
        self.answer_value(1)
    }

    /// Answers the string whose key is argument `index`.
    fn answer_value(&mut self, index: usize) -> Outcome {
        let reply = &mut *self.reply;
        let found = self.shared.keys.get_with(self.request.get(index), |stored| {
            payload(stored).map(|payload| reply.bulk(payload))
        })?;
        self.count_lookup(found.is_some());
        found.unwrap_or_else(|| {
            self.reply.null();
            Ok(())
        })
    }

    fn mget(&mut self) -> Outcome {
        self.reply.array(self.request.len() - 1);
        for index in 1..self.request.len() {
            match self.answer_value(index) {
                Err(Failure::Text(_)) => self.reply.null(),
                outcome => outcome?,
            }
            if self.reply.failure().is_some() {
                break;
            }
        }
        Ok(())
    }

    fn str_len(&mut self) -> Outcome {
        let len = self
            .shared
            .keys
            .get_with(self.request.get(1), |stored| payload(stored).map(<[u8]>::len))?;
        self.count_lookup(len.is_some());
        self.reply.integer(len.transpose()?.unwrap_or(0) as i64);
        Ok(())
    }

    fn set(&mut self) -> Outcome {
        let options = self.set_options()?;
        self.request.tag(2, STRING_TAG);
        if options.answer_old {
            return self.set_and_answer_old(options);
        }
        let (key, value) = (self.request.get(1), self.request.tagged(2));
        let done = match options {
            SetOptions { only_missing: true, .. } => self.shared.keys.insert(key, value)?,
            SetOptions { only_present: true, .. } => self.shared.keys.replace(key, value)?,
            _ => self.shared.keys.put(key, value).map(|()| true)?,
        };
        if done {
            self.reply.simple("OK")
        } else {
            self.reply.null()
        }
        Ok(())
    }

    fn set_options(&self) -> Result<SetOptions, Failure> {
        let mut options = SetOptions::default();
        let mut index = 3;
        while index < self.request.len() {
            let followed = index + 1 < self.request.len();
            let expires = ["EX", "PX", "EXAT", "PXAT"].iter().any(|word| self.is_word(index, word));
            if self.is_word(index, "NX") && !options.only_present {
                options.only_missing = true;
            } else if self.is_word(index, "XX") && !options.only_missing {
                options.only_present = true;
            } else if self.is_word(index, "GET") {
                options.answer_old = true;
            } else if self.is_word(index, "KEEPTTL") && !options.expiry {
                options.keep_expiry = true;
            } else if expires && followed && !options.keep_expiry && !options.expiry {
                options.expiry = true;
                index += 1;
            } else {
                return Err(Failure::SYNTAX);
            }
            index += 1;
        }
        if options.expiry {
            return Err(Failure::text(
                "ERR expiry is not supported: a key stays until it is deleted; \
                 leave out EX, PX, EXAT and PXAT",
            ));
        }
        Ok(options)
    }

    fn set_and_answer_old(&mut self, options: SetOptions) -> Outcome {
        let value = self.request.tagged(2);
        answering_old(self.reply, &self.shared.keys, self.request.get(1), |old| {
            match (options.only_missing, options.only_present, old) {
                (true, _, true) | (_, true, false) => Change::Keep,
                _ => Change::Put(value),
            }
        })
        .map(|_| ())
    }

    fn get_set(&mut self) -> Outcome {
        self.request.tag(2, STRING_TAG);
        let (key, value) = (self.request.get(1), self.request.tagged(2));
        let found = answering_old(self.reply, &self.shared.keys, key, |_| Change::Put(value))?;
        self.count_lookup(found);
        Ok(())
    }

    fn get_del(&mut self) -> Outcome {
        let key = self.request.get(1);
        let found = answering_old(self.reply, &self.shared.keys, key, |old| {
            if old { Change::<&[u8]>::Remove } else { Change::Keep }
        })?;
        self.count_lookup(found);
        Ok(())
    }

    fn set_nx(&mut self) -> Outcome {
        self.request.tag(2, STRING_TAG);
        let done = self.shared.keys.insert(self.request.get(1), self.request.tagged(2))?;
        self.reply.integer(done.into());
        Ok(())
    }

    /// Sets all keys. A crash leaves all of them set or none, where the store can do that. Other
    /// clients may see one key set before another.
    fn mset(&mut self) -> Outcome {
        if self.request.len().is_multiple_of(2) {
            return Err(Failure::wrong_arity("mset"));
        }
        for index in (1..self.request.len()).step_by(2) {
            self.request.tag(index + 1, STRING_TAG);
        }
        if self.request.len() == 3 {
            self.shared.keys.put(self.request.get(1), self.request.tagged(2))?;
        } else {
            let request = &self.request;
            let edit =
                |index| Edit { key: request.get(index), value: Some(request.tagged(index + 1)) };
            let edits: Vec<Edit<'_>> = (1..request.len()).step_by(2).map(edit).collect();
            self.edit_all(&edits)?;
        }
        self.reply.simple("OK");
        Ok(())
    }

    fn incr(&mut self) -> Outcome {
        self.add(|_| Ok(1))
    }

    fn decr(&mut self) -> Outcome {
        self.add(|_| Ok(-1))
    }

    fn incr_by(&mut self) -> Outcome {
        self.add(|call| parse_i64(call.request.get(2)).ok_or(Failure::NOT_AN_INTEGER))
    }

    fn decr_by(&mut self) -> Outcome {
        self.add(|call| {
            let taken = parse_i64(call.request.get(2)).ok_or(Failure::NOT_AN_INTEGER)?;
            taken.checked_neg().ok_or(Failure::text("ERR decrement would overflow"))
        })
    }

    /// Adds to the number that a string spells, and answers the sum.
    fn add(&mut self, addend: impl Fn(&Self) -> Result<i64, Failure>) -> Outcome {
        let addend = addend(self)?;
        let mut share = self.shared.copies();
        let sum = self.shared.keys.modify(self.request.get(1), |old| {
            let mut number = itoa::Buffer::new();
            let changed = sum(old, addend).and_then(|sum| {
                Ok((stored(&mut share, [number.format(sum).as_bytes(), b""])?, sum))
            });
            match changed {
                Ok((change, sum)) => (Change::Put(change), Ok(sum)),
                Err(failure) => (Change::Keep, Err(failure)),
            }
        })??;
        self.reply.integer(sum);
        Ok(())
    }

    fn append(&mut self) -> Outcome {
        let (key, tail) = (self.request.get(1), self.request.get(2));
        let len_max = self.shared.config.limits.bulk_len;
        let mut share = self.shared.copies();
        let len = self.shared.keys.modify(key, |old| {
            let changed = old.map_or(Ok(&b""[..]), payload).and_then(|head| {
                let len = head.len() + tail.len();
                if len > len_max {
                    return Err(Failure::text(TOO_LONG));
                }
                Ok((stored(&mut share, [head, tail])?, len))
            });
            match changed {
                Ok((change, len)) => (Change::Put(change), Ok(len)),
                Err(failure) => (Change::Keep, Err(failure)),
            }
        })??;
        self.reply.integer(len as i64);
        Ok(())
    }
}

const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

fn sum(old: Option<&[u8]>, addend: i64) -> Result<i64, Failure> {
    let number = match old {
        None => 0,
        Some(stored) => parse_i64(payload(stored)?).ok_or(Failure::NOT_AN_INTEGER)?,
    };
    let sum = number.checked_add(addend);
    sum.ok_or(Failure::text("ERR increment or decrement would overflow"))
}

/// Answers the string at `key`, or null if there is none, and replaces it as `change` says, which
/// is told whether there is one. Returns whether there was one.
fn answering_old<S: Store, T: Borrow<[u8]>>(
    reply: &mut Output,
    keys: &Keyspace<S>,
    key: &[u8],
    change: impl Fn(bool) -> Change<T>,
) -> Result<bool, Failure> {
    let start = reply.len();
    keys.modify(key, |old| {
        // The store calls again if another client changed the value meanwhile.
        reply.truncate(start);
        let payload = match old.map(payload).transpose() {
            Err(failure) => return (Change::Keep, Err(failure)),
            Ok(payload) => payload,
        };
        if !reply.reserve(payload.map_or(0, <[u8]>::len)) {
            let reason = reply.failure().unwrap_or(OutputFailure::NoMemory);
            return (Change::Keep, Err(Failure::Answer(reason)));
        }
        reply.bulk_or_null(payload);
        (change(payload.is_some()), Ok(payload.is_some()))
    })?
}
