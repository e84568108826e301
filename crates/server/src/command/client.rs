//! `CLIENT`: what the server knows of its connections.

use super::{Call, Failure, Outcome};
use crate::resp::parse_i64;
use crate::session::Replies;
use crate::store::Store;

pub(super) const HELP: &[&str] = &[
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

/// A connection's name, which must not break a line of `CLIENT LIST`.
pub(super) fn check_name(name: &[u8]) -> Result<String, Failure> {
    one_word(name).ok_or(Failure::text(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

/// Printable and without a space.
fn one_word(word: &[u8]) -> Option<String> {
    word.iter().all(u8::is_ascii_graphic).then(|| String::from_utf8_lossy(word).into_owned())
}

impl<S: Store> Call<'_, S> {
    pub(super) fn client_id(&mut self) -> Outcome {
        self.reply.integer(self.client.record.id as i64);
        Ok(())
    }

    pub(super) fn client_get_name(&mut self) -> Outcome {
        let name = self.client.record.about().name.clone();
        self.reply.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        Ok(())
    }

    pub(super) fn client_set_name(&mut self) -> Outcome {
        self.client.record.about().name = check_name(self.request.get(2))?;
        self.reply.simple("OK");
        Ok(())
    }

    pub(super) fn client_set_info(&mut self) -> Outcome {
        let option = self.request.get(2).to_ascii_lowercase();
        let value = one_word(self.request.get(3)).ok_or_else(|| {
            let option = String::from_utf8_lossy(&option);
            Failure::text(format!(
                "ERR {option} cannot contain spaces, newlines or special characters."
            ))
        })?;
        match option.as_slice() {
            b"lib-name" => self.client.record.about().library = value,
            b"lib-ver" => self.client.record.about().library_version = value,
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(Failure::text(format!("ERR Unrecognized option '{other}'")));
            }
        }
        self.reply.simple("OK");
        Ok(())
    }

    pub(super) fn client_info(&mut self) -> Outcome {
        self.reply.text(&self.client.record.line());
        Ok(())
    }

    pub(super) fn client_list(&mut self) -> Outcome {
        let wanted = self.listed_ids()?;
        let mut lines = String::new();
        for record in self.shared.clients.all() {
            if wanted.as_ref().is_none_or(|ids| ids.contains(&record.id)) {
                lines.push_str(&record.line());
            }
        }
        self.reply.text(&lines);
        Ok(())
    }

    /// The clients that `CLIENT LIST` was asked for; all when it was not said.
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
                // No client has a negative one.
                let ids = ids.map(|id| id.map(|id| u64::try_from(id).unwrap_or(0)));
                let ids = ids.collect::<Option<_>>();
                ids.map(Some).ok_or(Failure::text("ERR Invalid client ID"))
            }
            _ => Err(Failure::SYNTAX),
        }
    }

    pub(super) fn client_no_evict(&mut self) -> Outcome {
        if !self.is_word(2, "ON") && !self.is_word(2, "OFF") {
            return Err(Failure::SYNTAX);
        }
        self.reply.simple("OK");
        Ok(())
    }

    pub(super) fn client_reply(&mut self) -> Outcome {
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
