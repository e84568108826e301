//! `WAIT` and `WAITAOF`: waiting until what was written is safe.
//!
//! Redis waits for replicas that it has not got until the time is up, for ever if that is 0, and then answers
//! how many there are. Here none can come while a client waits, so that answer is known and given at once.
//! Clients have to compare it with what they asked for in either case.

use std::time::Duration;

use super::{Call, Failure, Outcome};
use crate::resp::{Request, parse_i64};
use crate::store::Store;

/// What `WAITAOF` was asked.
struct Asked {
    /// Whether to wait until this server has made safe what was written before.
    local: bool,
    /// For how long at most.
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

/// A number of milliseconds; none for 0, which means for ever.
fn limit(argument: &[u8]) -> Result<Option<Duration>, Failure> {
    let ms = parse_i64(argument)
        .ok_or(Failure::text("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(ms) {
        Ok(0) => Ok(None),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(_) => Err(Failure::text("ERR timeout is negative")),
    }
}

/// Whether a `WAITAOF` waits for a disk.
pub(super) fn is_local(request: &Request<'_>) -> bool {
    request.len() == 4 && Asked::parse(request).is_ok_and(|asked| asked.local)
}

/// How long a `WAITAOF` that waits for a disk may do so, if that is limited.
pub(super) fn local_limit(request: &Request<'_>) -> Option<Duration> {
    Asked::parse(request).ok().filter(|asked| asked.local)?.limit
}

impl<S: Store> Call<'_, S> {
    pub(super) fn wait(&mut self) -> Outcome {
        parse_i64(self.request.get(1)).ok_or(Failure::NOT_AN_INTEGER)?;
        limit(self.request.get(2))?;
        self.reply.integer(0);
        Ok(())
    }

    /// Answers whether what everybody wrote before the call is safe here, and on how many replicas.
    pub(super) fn wait_aof(&mut self) -> Outcome {
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
