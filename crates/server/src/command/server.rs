//! Commands to the server as a whole.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Call, Failure, Outcome};
use crate::resp::parse_i64;
use crate::session::Progress;
use crate::store::Store;

impl<S: Store> Call<'_, S> {
    pub(super) fn time(&mut self) -> Outcome {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.reply.array(2);
        self.reply.bulk(itoa::Buffer::new().format(now.as_secs()).as_bytes());
        self.reply.bulk(itoa::Buffer::new().format(now.subsec_micros()).as_bytes());
        Ok(())
    }

    /// There are no replicas to wait for, and what was answered is durable already.
    pub(super) fn wait(&mut self) -> Outcome {
        parse_i64(self.request.get(1)).ok_or(Failure::NOT_AN_INTEGER)?;
        let timeout_ms = parse_i64(self.request.get(2));
        match timeout_ms.ok_or(Failure::text("ERR timeout is not an integer or out of range"))? {
            ..0 => Err(Failure::text("ERR timeout is negative")),
            _ => {
                self.reply.integer(0);
                Ok(())
            }
        }
    }

    /// There is nothing to save: every acknowledged write is durable, so all ways of ending are
    /// one.
    pub(super) fn shutdown(&mut self) -> Outcome {
        for index in 1..self.request.len() {
            if self.is_word(index, "ABORT") && self.request.len() == 2 {
                return Err(Failure::text("ERR No shutdown in progress."));
            }
            if !["SAVE", "NOSAVE", "NOW", "FORCE"].iter().any(|word| self.is_word(index, word)) {
                return Err(Failure::SYNTAX);
            }
        }
        self.client.end = Some(Progress::ShutDown);
        Ok(())
    }
}
