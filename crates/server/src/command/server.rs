//! Commands to the server as a whole.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Call, Failure, Outcome};
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

    /// All ways of ending are one: every acknowledged write is durable, or made so before the end.
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
