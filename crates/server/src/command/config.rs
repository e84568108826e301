//! `CONFIG`: the parameters of a Redis server for which clients ask.

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::glob;
use super::row::{ADMIN, ADMIN_DANGEROUS, ANYTIME, NO_KEYS, commands};
use crate::store::Store;

#[rustfmt::skip]
commands! {
    "config" -2 => missing_subcommand, &[], &["@slow"], NO_KEYS,
        "server" "2.0.0" "Depends on subcommand." "A container for server configuration commands";
    "config|get" -3 => config_get, ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(N) where N is the number of configuration parameters"
        "Get the values of configuration parameters";
    "config|help" 2 => config_help, ANYTIME, &["@slow"], NO_KEYS,
        "server" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    "config|resetstat" 2 => config_reset_stat, ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(1)" "Reset the stats returned by INFO";
    "config|set" -4 => config_set, ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(N) where N is the number of parameters"
        "Set configuration parameters to the given values";
}

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Accepted when <directive> has that <value>: nothing can be changed while serving.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "HELP",
    "    Prints this help.",
];

impl<S: Store> Call<'_, S> {
    /// The parameters, under the names that they have in Redis.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let config = &self.shared.config;
        let size_max_bytes = self.shared.keys.store().describe().size_max_bytes;
        // In Redis, `always` syncs before the answer, and `everysec` soon after it.
        let appendfsync =
            if self.shared.keys.store().lag().is_some() { "everysec" } else { "always" };
        vec![
            ("appendfsync", appendfsync.into()),
            ("appendonly", "no".into()),
            ("bind", config.listen.ip().to_string()),
            ("client-query-buffer-limit", config.limits.request_len.to_string()),
            ("databases", "1".into()),
            ("maxclients", config.clients_max.to_string()),
            ("maxmemory", size_max_bytes.to_string()),
            ("maxmemory-clients", config.clients_memory_max.to_string()),
            ("maxmemory-policy", "noeviction".into()),
            ("port", config.listen.port().to_string()),
            ("proto-max-bulk-len", config.limits.bulk_len.to_string()),
            ("protected-mode", if config.unprotected { "no" } else { "yes" }.into()),
            ("requirepass", config.password.as_ref().map_or("", |_| "(set)").into()),
            ("save", "".into()),
            ("timeout", "0".into()),
        ]
    }

    fn config_help(&mut self) -> Outcome {
        self.help(HELP)
    }

    fn config_get(&mut self) -> Outcome {
        let mut parameters = self.parameters();
        parameters.retain(|(name, _)| {
            let mut patterns = self.request.iter().skip(2).map(<[u8]>::to_ascii_lowercase);
            patterns.any(|pattern| glob::matches(&pattern, name.as_bytes()))
        });
        self.reply.map(parameters.len());
        for (name, value) in parameters {
            self.reply.bulk(name.as_bytes());
            self.reply.bulk(value.as_bytes());
        }
        Ok(())
    }

    fn config_set(&mut self) -> Outcome {
        let parameters = self.parameters();
        for index in (2..self.request.len()).step_by(2) {
            let name = String::from_utf8_lossy(self.request.get(index)).to_lowercase();
            let parameter = parameters.iter().find(|(known, _)| *known == name);
            let Some((_, value)) = parameter.filter(|_| index + 1 < self.request.len()) else {
                return Err(Failure::text(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )));
            };
            if value.as_bytes() != self.request.get(index + 1) {
                return Err(Failure::text(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - \
                     can't set immutable config"
                )));
            }
        }
        self.reply.simple("OK");
        Ok(())
    }

    fn config_reset_stat(&mut self) -> Outcome {
        self.shared.reset_totals();
        self.reply.simple("OK");
        Ok(())
    }
}
