//! Commands about the connection itself: authentication, and the version of the protocol.

use std::sync::atomic::Ordering;
use std::time::Instant;

use subtle::ConstantTimeEq;

use super::call::{Call, Handler};
use super::client;
use super::failure::{Failure, Outcome};
use super::row::{InTransaction, NO_KEYS, commands};
use crate::guard::Penalty;
use crate::resp::{Protocol, parse_i64};
use crate::session::{Progress, Replies};
use crate::store::Store;
use crate::version::REDIS_VERSION;

const CONNECTION: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const FAST_CONNECTION: &[&str] = &["@fast", "@connection"];

#[rustfmt::skip]
commands! {
    "auth" -2 => auth, CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Authenticate to the server";
    "echo" 2 => echo, &["loading", "stale", "fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Echo the given string";
    "hello" -1 => hello, CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "6.0.0" "O(1)" "Handshake with Redis";
    "ping" -1 => ping, &["fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Ping the server";
    "quit" -1 => quit, CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Close the connection",
        in_transaction: InTransaction::Runs;
    "reset" 1 => reset, CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "6.2.0" "O(1)" "Reset the connection",
        in_transaction: InTransaction::Runs;
    "select" 2 => select, &["loading", "stale", "fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Change the selected database for the current connection";
}

/// The only user.
const USER: &[u8] = b"default";

impl<S: Store> Call<'_, S> {
    fn ping(&mut self) -> Outcome {
        match self.request.len() {
            1 => self.reply.simple("PONG"),
            2 => self.reply.bulk(self.request.get(1)),
            _ => return Err(Failure::wrong_arity("ping")),
        }
        Ok(())
    }

    fn echo(&mut self) -> Outcome {
        self.reply.bulk(self.request.get(1));
        Ok(())
    }

    fn select(&mut self) -> Outcome {
        match parse_i64(self.request.get(1)) {
            None => Err(Failure::NOT_AN_INTEGER),
            Some(0) => {
                self.reply.simple("OK");
                Ok(())
            }
            Some(index) if i32::try_from(index).is_err() => Err(Failure::text(
                "ERR value is out of range, value must between -2147483648 and 2147483647",
            )),
            Some(_) => Err(Failure::text("ERR DB index is out of range")),
        }
    }

    fn quit(&mut self) -> Outcome {
        self.reply.simple("OK");
        self.client.end = Some(Progress::Close);
        Ok(())
    }

    fn reset(&mut self) -> Outcome {
        self.set_protocol(Protocol::Resp2);
        self.client.record.labels().name.clear();
        self.client.replies = Replies::All;
        self.client.authenticated = self.shared.config.password.is_none();
        self.client.is_in_transaction = false;
        self.reply.simple("RESET");
        Ok(())
    }

    fn auth(&mut self) -> Outcome {
        let (user, password) = match self.request.len() {
            2 => (0, 1),
            3 => (1, 2),
            _ => return Err(Failure::SYNTAX),
        };
        if self.shared.config.password.is_none() && self.request.len() == 2 {
            return Err(Failure::text(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        self.check_password(user, password)?;
        self.client.authenticated = true;
        self.reply.simple("OK");
        Ok(())
    }

    /// Checks the password in argument `password`, and the user in argument `user`, where 0 stands
    /// for the only user.
    ///
    /// Takes the same time for every password of the right length. Sets the delay of the answer
    /// ([`Guard`](crate::guard)).
    fn check_password(&mut self, user: usize, password: usize) -> Outcome {
        let right = match &self.shared.config.password {
            Some(expected) => expected.as_bytes().ct_eq(self.request.get(password)).into(),
            None => true,
        };
        let (address, now) = (self.client.record.address, Instant::now());
        if right && (user == 0 || self.request.get(user) == USER) {
            self.client.delay = self.shared.guard.right(address.ip(), now);
            return Ok(());
        }
        let Penalty { delay, count } = self.shared.guard.wrong(address.ip(), now);
        self.client.delay = Some(delay);
        // A client that guesses must not fill the log.
        if count.is_power_of_two() {
            tracing::warn!(client = %address, attempts = count, "a wrong password was given");
        }
        Err(Failure::text("WRONGPASS invalid username-password pair or user is disabled."))
    }

    fn hello(&mut self) -> Outcome {
        let protocol = self.hello_protocol()?;
        let mut authenticated = self.client.authenticated;
        let mut name = None;
        let mut index = 2;
        while index < self.request.len() {
            let left = self.request.len() - index - 1;
            if self.is_word(index, "AUTH") && left >= 2 {
                self.check_password(index + 1, index + 2)?;
                authenticated = true;
                index += 3;
            } else if self.is_word(index, "SETNAME") && left >= 1 {
                name = Some(client::check_name(self.request.get(index + 1))?);
                index += 2;
            } else {
                let option = String::from_utf8_lossy(self.request.get(index)).into_owned();
                return Err(Failure::text(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
        if !authenticated {
            return Err(Failure::text(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
                 the RESP protocol version at the same time",
            ));
        }
        self.client.authenticated = true;
        if let Some(name) = name {
            self.client.record.labels().name = name;
        }
        self.set_protocol(protocol);
        self.greet();
        Ok(())
    }

    fn hello_protocol(&self) -> Result<Protocol, Failure> {
        if self.request.len() < 2 {
            return Ok(self.reply.protocol());
        }
        match parse_i64(self.request.get(1)) {
            Some(2) => Ok(Protocol::Resp2),
            Some(3) => Ok(Protocol::Resp3),
            Some(_) => Err(Failure::text("NOPROTO unsupported protocol version")),
            None => Err(Failure::text("ERR Protocol version is not an integer or out of range")),
        }
    }

    /// Answers `HELLO`.
    fn greet(&mut self) {
        self.reply.map(7);
        self.reply.bulk(b"server");
        self.reply.bulk(b"redis");
        self.reply.bulk(b"version");
        self.reply.bulk(REDIS_VERSION.as_bytes());
        self.reply.bulk(b"proto");
        self.reply.integer(self.reply.protocol().version().into());
        self.reply.bulk(b"id");
        self.reply.integer(self.client.record.id as i64);
        self.reply.bulk(b"mode");
        self.reply.bulk(b"standalone");
        self.reply.bulk(b"role");
        self.reply.bulk(b"master");
        self.reply.bulk(b"modules");
        self.reply.array(0);
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.reply.set_protocol(protocol);
        // Relaxed: only shown to users.
        self.client.record.protocol.store(protocol.version(), Ordering::Relaxed);
    }
}
