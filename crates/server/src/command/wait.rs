//! `WAIT` and `WAITAOF`: waiting until writes are safe.
//!
//! If a client asks for more replicas than Redis has, Redis waits until the time is up, or forever
//! if the time is 0, and answers how many there are. This server has no replicas, and none can come
//! while a client waits, so it answers 0 at once. Clients compare the answer with the number that
//! they asked for in either case.

use std::time::Duration;

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::row::{NO_KEYS, SLOW_CONNECTION, commands};
use crate::resp::{Request, parse_i64};
use crate::store::Store;

#[rustfmt::skip]
commands! {
    "wait" 3 => wait, &["noscript"], SLOW_CONNECTION, NO_KEYS,
        "generic" "3.0.0" "O(1)" "Return the number of replicas, which is 0";
    "waitaof" 4 => wait_aof, &["noscript"], SLOW_CONNECTION, NO_KEYS,
        "generic" "7.2.0" "O(1)" "Wait until everything written before is safe in the pool",
        demand: Some(demand), sync_limit: Some(local_limit);
}

/// The arguments of `WAITAOF`.
struct Asked {
    /// Whether to wait until this server has made earlier writes safe.
    local: bool,
    /// How long to wait at most; `None` for no limit.
    limit: Option<Duration>,
}

impl Asked {
    fn parse(request: &Request<'_>) -> Result<Self, Failure> {
        let number = |index| parse_i64(request.get(index)).ok_or(Failure::NOT_AN_INTEGER);
        let local = match number(1)? {
            0 => false,
            1 => true,
            _ => {
                let text = "ERR value is out of range, value must between 0 and 1";
                return Err(Failure::text(text));
            }
        };
        if number(2)? < 0 {
            return Err(Failure::text("ERR value is out of range, must be positive"));
        }
        Ok(Asked { local, limit: limit(request.get(3))? })
    }
}

/// A time in milliseconds; `None` for 0, which means no limit.
fn limit(argument: &[u8]) -> Result<Option<Duration>, Failure> {
    let ms = parse_i64(argument)
        .ok_or(Failure::text("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(ms) {
        Ok(0) => Ok(None),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(_) => Err(Failure::text("ERR timeout is negative")),
    }
}

/// The arguments of a `WAITAOF`; `None` unless it waits for a disk.
fn local_wait(request: &Request<'_>) -> Option<Asked> {
    (request.len() == 4).then(|| Asked::parse(request).ok())?.filter(|asked| asked.local)
}

/// Gives a wait for a disk a thread of its own, as if it asked for very many entries.
fn demand(request: &Request<'_>) -> u64 {
    local_wait(request).map_or(0, |_| u64::MAX)
}

fn local_limit(request: &Request<'_>) -> Option<Duration> {
    local_wait(request)?.limit
}

impl<S: Store> Call<'_, S> {
    fn wait(&mut self) -> Outcome {
        parse_i64(self.request.get(1)).ok_or(Failure::NOT_AN_INTEGER)?;
        limit(self.request.get(2))?;
        self.reply.integer(0);
        Ok(())
    }

    /// Answers whether all clients' writes before the call are safe here, and on how many replicas.
    fn wait_aof(&mut self) -> Outcome {
        let asked = Asked::parse(&self.request)?;
        let waits = asked.local && !self.client.is_overdue;
        if waits {
            self.shared.sync(self.client.ticket)?;
        }
        let is_safe = waits || self.shared.keys.store().lag().is_none_or(|lag| lag.bytes == 0);
        self.reply.array(2);
        self.reply.integer(is_safe.into());
        self.reply.integer(0);
        Ok(())
    }
}
