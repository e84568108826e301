//! `CLIENT`: connections, their names, and which answers they want.

use std::sync::atomic::{AtomicU64, Ordering};

use super::TABLE;
use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::row::{ADMIN, ANYTIME, NO_KEYS, SLOW_CONNECTION, commands};
use crate::clients::Record;
use crate::resp::parse_i64;
use crate::session::Replies;
use crate::store::Store;

const SUBCOMMAND: &[&str] = &["noscript", "loading", "stale"];
const ADMIN_CONNECTION: &[&str] = &["@admin", "@slow", "@dangerous", "@connection"];

#[rustfmt::skip]
commands! {
    "client" -2 => missing_subcommand, &[], &["@slow"], NO_KEYS,
        "connection" "2.4.0" "Depends on subcommand." "A container for client connection commands";
    "client|getname" 2 => client_get_name, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "2.6.9" "O(1)" "Get the current connection name";
    "client|help" 2 => client_help, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "connection" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    "client|id" 2 => client_id, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "5.0.0" "O(1)" "Returns the client ID for the current connection";
    "client|info" 2 => client_info, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "6.2.0" "O(1)" "Returns information about the current client connection.";
    "client|list" -2 => client_list, ADMIN, ADMIN_CONNECTION, NO_KEYS,
        "connection" "2.4.0" "O(N) where N is the number of client connections"
        "Get the list of client connections";
    "client|no-evict" 3 => client_no_evict, ADMIN, ADMIN_CONNECTION, NO_KEYS,
        "connection" "7.0.0" "O(1)" "Set client eviction mode for the current connection";
    "client|reply" 3 => client_reply, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "3.2.0" "O(1)" "Instruct the server whether to reply to commands";
    "client|setinfo" 4 => client_set_info, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "7.2.0" "O(1)" "Set client or connection specific info";
    "client|setname" 3 => client_set_name, SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "2.6.9" "O(1)" "Set the current connection name";
}

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return clients of specified IDs only.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set the name (LIB-NAME) or version (LIB-VER) of the client's library.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Accepted and without effect: no connection is evicted.",
    "HELP",
    "    Prints this help.",
];

/// Checks a connection's name, which must not break a line of `CLIENT LIST`.
pub(super) fn check_name(name: &[u8]) -> Result<String, Failure> {
    one_word(name).ok_or(Failure::text(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

/// The word as text; `None` unless all of it is printable and without spaces.
fn one_word(word: &[u8]) -> Option<String> {
    word.iter().all(u8::is_ascii_graphic).then(|| String::from_utf8_lossy(word).into_owned())
}

/// A client's line in `CLIENT LIST`.
fn line(record: &Record) -> String {
    let labels = record.labels().clone();
    // Relaxed: what the list shows may be a moment old.
    let number = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let age_ms = record.age_ms();
    let idle_ms = age_ms.saturating_sub(number(&record.last_active_ms));
    let (flags, multi) = match record.is_in_transaction.load(Ordering::Relaxed) {
        true => ("x", 0),
        false => ("N", -1),
    };
    let (query_len, query_free) =
        (number(&record.buffers.query_len), number(&record.buffers.query_free));
    let reply_capacity = number(&record.buffers.reply_capacity);
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db=0 sub=0 psub=0 \
         ssub=0 multi={multi} qbuf={query_len} qbuf-free={query_free} argv-mem=0 multi-mem=0 \
         rbs={reply_capacity} rbp={reply_capacity} obl={} oll=0 omem=0 tot-mem={} events=r \
         cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
        record.id,
        record.address,
        record.local,
        record.descriptor.load(Ordering::Relaxed),
        labels.name,
        age_ms / 1000,
        idle_ms / 1000,
        number(&record.buffers.reply_len),
        query_len + query_free + reply_capacity,
        record.last_command().and_then(|number| TABLE.get(number)).map_or("NULL", |c| c.text),
        record.protocol.load(Ordering::Relaxed),
        labels.library,
        labels.library_version,
    )
}

impl<S: Store> Call<'_, S> {
    fn client_help(&mut self) -> Outcome {
        self.help(HELP)
    }

    fn client_id(&mut self) -> Outcome {
        self.reply.integer(self.client.record.id as i64);
        Ok(())
    }

    fn client_get_name(&mut self) -> Outcome {
        let name = self.client.record.labels().name.clone();
        self.reply.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        Ok(())
    }

    fn client_set_name(&mut self) -> Outcome {
        self.client.record.labels().name = check_name(self.request.get(2))?;
        self.reply.simple("OK");
        Ok(())
    }

    fn client_set_info(&mut self) -> Outcome {
        let option = self.request.get(2).to_ascii_lowercase();
        let value = one_word(self.request.get(3)).ok_or_else(|| {
            let option = String::from_utf8_lossy(&option);
            Failure::text(format!(
                "ERR {option} cannot contain spaces, newlines or special characters."
            ))
        })?;
        match option.as_slice() {
            b"lib-name" => self.client.record.labels().library = value,
            b"lib-ver" => self.client.record.labels().library_version = value,
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(Failure::text(format!("ERR Unrecognized option '{other}'")));
            }
        }
        self.reply.simple("OK");
        Ok(())
    }

    fn client_info(&mut self) -> Outcome {
        self.reply.text(&line(&self.client.record));
        Ok(())
    }

    fn client_list(&mut self) -> Outcome {
        let wanted = self.listed_ids()?;
        let mut lines = String::new();
        for record in self.shared.clients.all() {
            if wanted.as_ref().is_none_or(|ids| ids.contains(&record.id)) {
                lines.push_str(&line(&record));
            }
        }
        self.reply.text(&lines);
        Ok(())
    }

    /// The ids that the arguments of `CLIENT LIST` select; `None` for all clients.
    fn listed_ids(&self) -> Result<Option<Vec<u64>>, Failure> {
        match self.request.len() {
            2 => Ok(None),
            4 if self.is_word(2, "TYPE") => {
                if self.is_word(3, "NORMAL") {
                    return Ok(None);
                }
                if ["MASTER", "REPLICA", "SLAVE", "PUBSUB"].iter().any(|kind| self.is_word(3, kind))
                {
                    return Ok(Some(Vec::new()));
                }
                let kind = String::from_utf8_lossy(self.request.get(3));
                Err(Failure::text(format!("ERR Unknown client type '{kind}'")))
            }
            4.. if self.is_word(2, "ID") => {
                let ids = self.request.iter().skip(3).map(parse_i64);
                // No client has a negative id, nor the id 0.
                let ids = ids.map(|id| id.map(|id| u64::try_from(id).unwrap_or(0)));
                let ids = ids.collect::<Option<_>>();
                ids.map(Some).ok_or(Failure::text("ERR Invalid client ID"))
            }
            _ => Err(Failure::SYNTAX),
        }
    }

    fn client_no_evict(&mut self) -> Outcome {
        if !self.is_word(2, "ON") && !self.is_word(2, "OFF") {
            return Err(Failure::SYNTAX);
        }
        self.reply.simple("OK");
        Ok(())
    }

    fn client_reply(&mut self) -> Outcome {
        if self.is_word(2, "ON") {
            self.client.replies = Replies::All;
            self.reply.simple("OK");
        } else if self.is_word(2, "OFF") {
            self.client.replies = Replies::None;
        } else if self.is_word(2, "SKIP") {
            if self.client.replies == Replies::All {
                self.client.replies = Replies::SkipNext;
            }
        } else {
            return Err(Failure::SYNTAX);
        }
        Ok(())
    }
}
