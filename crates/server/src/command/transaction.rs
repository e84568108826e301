//! `MULTI`, `EXEC` and `DISCARD`: there are no transactions, so `MULTI` and `EXEC` answer errors.
//!
//! A client may send a whole transaction before it reads the first answer. So after `MULTI`, every
//! command up to `EXEC` or `DISCARD` is refused, too. Otherwise the commands of the transaction
//! would be executed one by one.

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::row::{InTransaction, NO_KEYS, commands};
use crate::store::Store;

const TRANSACTION: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];

#[rustfmt::skip]
commands! {
    "discard" 1 => discard, TRANSACTION, &["@fast", "@transaction"], NO_KEYS,
        "transactions" "2.0.0" "O(1)" "End what MULTI began, which is nothing: there are no transactions",
        in_transaction: InTransaction::Runs;
    "exec" 1 => exec, &["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"], NO_KEYS,
        "transactions" "1.2.0" "O(1)" "Fail, and end what MULTI began: there are no transactions",
        in_transaction: InTransaction::Ends;
    "multi" 1 => multi, TRANSACTION, &["@fast", "@transaction"], NO_KEYS,
        "transactions" "1.2.0" "O(1)" "Fail: there are no transactions. What follows is refused until EXEC or DISCARD",
        in_transaction: InTransaction::Runs;
}

impl<S: Store> Call<'_, S> {
    fn multi(&mut self) -> Outcome {
        if self.client.is_in_transaction {
            return Err(Failure::text("ERR MULTI calls can not be nested"));
        }
        self.client.is_in_transaction = true;
        Err(Failure::text(
            "ERR there are no transactions: what follows is refused until EXEC or DISCARD",
        ))
    }

    fn exec(&mut self) -> Outcome {
        if !std::mem::take(&mut self.client.is_in_transaction) {
            return Err(Failure::text("ERR EXEC without MULTI"));
        }
        Err(Failure::text("EXECABORT Transaction discarded because of previous errors."))
    }

    fn discard(&mut self) -> Outcome {
        if !std::mem::take(&mut self.client.is_in_transaction) {
            return Err(Failure::text("ERR DISCARD without MULTI"));
        }
        self.reply.simple("OK");
        Ok(())
    }
}
