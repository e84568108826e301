//! Commands about the server as a whole.

use std::time::{SystemTime, UNIX_EPOCH};

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::row::{ADMIN_DANGEROUS, NO_KEYS, commands};
use crate::session::Progress;
use crate::store::Store;

#[rustfmt::skip]
commands! {
    "shutdown" -1 => shutdown,
        &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"],
        ADMIN_DANGEROUS, NO_KEYS,
        "server" "1.0.0" "O(1)" "Close the pool and shut down the server";
    "time" 1 => time, &["loading", "stale", "fast"], &["@fast"], NO_KEYS,
        "server" "2.6.0" "O(1)" "Return the current server time";
}

impl<S: Store> Call<'_, S> {
    fn time(&mut self) -> Outcome {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.reply.array(2);
        self.reply.bulk(itoa::Buffer::new().format(now.as_secs()).as_bytes());
        self.reply.bulk(itoa::Buffer::new().format(now.subsec_micros()).as_bytes());
        Ok(())
    }

    /// Ends the server. `SAVE` and `NOSAVE` make no difference: every acknowledged write is made
    /// safe before the end.
    fn shutdown(&mut self) -> Outcome {
        let is_known = |word: &[u8]| {
            ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"]
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        let words = || self.request.iter().skip(1);
        let has = |known: &str| words().any(|word| word.eq_ignore_ascii_case(known.as_bytes()));
        let is_abort = |word: &[u8]| word.eq_ignore_ascii_case(b"ABORT");
        let aborts = words().any(is_abort);
        if !words().all(is_known)
            || (has("SAVE") && has("NOSAVE"))
            || (aborts && !words().all(is_abort))
        {
            return Err(Failure::SYNTAX);
        }
        if aborts {
            return Err(Failure::text("ERR No shutdown in progress."));
        }
        self.client.end = Some(Progress::ShutDown);
        Ok(())
    }
}
