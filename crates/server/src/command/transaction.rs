//! `MULTI`, `EXEC` and `DISCARD`: there are no transactions, and nobody is to believe that there are.
//!
//! A client may send all of a transaction before it reads the first answer. So `MULTI` is answered by an error, and what
//! follows is refused up to `EXEC` or `DISCARD`: else its writes would happen one by one.

use super::{Call, Failure, Outcome};
use crate::store::Store;

/// What is said to a command between `MULTI` and `EXEC`.
pub(super) const REFUSED: &str = "ERR refused: MULTI was sent, and there are no transactions; EXEC or \
    DISCARD ends this";

impl<S: Store> Call<'_, S> {
    pub(super) fn multi(&mut self) -> Outcome {
        if self.client.is_in_transaction {
            return Err(Failure::text("ERR MULTI calls can not be nested"));
        }
        self.client.is_in_transaction = true;
        Err(Failure::text(
            "ERR there are no transactions: what follows is refused until EXEC or DISCARD",
        ))
    }

    pub(super) fn exec(&mut self) -> Outcome {
        if !std::mem::take(&mut self.client.is_in_transaction) {
            return Err(Failure::text("ERR EXEC without MULTI"));
        }
        Err(Failure::text("EXECABORT Transaction discarded because of previous errors."))
    }

    pub(super) fn discard(&mut self) -> Outcome {
        if !std::mem::take(&mut self.client.is_in_transaction) {
            return Err(Failure::text("ERR DISCARD without MULTI"));
        }
        self.reply.simple("OK");
        Ok(())
    }
}
