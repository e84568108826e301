//! `COMMAND`: what the server says of its commands.

use super::TABLE;
use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::glob;
use super::row::{ANYTIME, Command, NO_KEYS, SLOW_CONNECTION, commands};
use crate::resp::Output;
use crate::store::Store;

#[rustfmt::skip]
commands! {
    "command" -1 => command_all, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of commands"
        "Get array of Redis command details";
    "command|count" 2 => command_count, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(1)" "Get total number of Redis commands";
    "command|docs" -2 => command_docs, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of commands to look up"
        "Get array of specific Redis command documentation";
    "command|getkeys" -4 => command_get_keys, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of arguments to the command"
        "Extract keys given a full Redis command";
    "command|getkeysandflags" -4 => command_get_keys_and_flags, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of arguments to the command"
        "Extract keys and access flags given a full Redis command";
    "command|help" 2 => command_help, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    "command|info" -2 => command_info, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of commands to look up"
        "Get array of specific Redis command details, or all when no argument is given.";
    "command|list" -2 => command_list, ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of commands"
        "Get an array of Redis command names";
}

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full Redis command.",
    "HELP",
    "    Prints this help.",
];

/// The command that a name means. `container|subcommand` means a subcommand.
fn find(word: &[u8]) -> Option<&'static Command> {
    match word.iter().position(|byte| *byte == b'|') {
        None => TABLE.find(word),
        Some(bar) => TABLE.subcommand(TABLE.find(&word[..bar])?, &word[bar + 1..]),
    }
}

/// Decides whether a command is listed.
type Filter = Box<dyn Fn(&Command) -> bool>;

impl<S: Store> Call<'_, S> {
    fn command_help(&mut self) -> Outcome {
        self.help(HELP)
    }

    fn command_all(&mut self) -> Outcome {
        self.reply.array(TABLE.commands().count());
        TABLE.commands().for_each(|command| answer_details(self.reply, command));
        Ok(())
    }

    fn command_count(&mut self) -> Outcome {
        self.reply.integer(TABLE.commands().count() as i64);
        Ok(())
    }

    fn command_list(&mut self) -> Outcome {
        let filter = self.listed()?;
        let all = TABLE.all().iter();
        let names: Vec<_> = all.filter(|command| filter(command)).map(|c| c.text).collect();
        self.reply.array(names.len());
        names.iter().for_each(|name| self.reply.bulk(name.as_bytes()));
        Ok(())
    }

    /// The filter that the arguments of `COMMAND LIST` ask for.
    fn listed(&self) -> Result<Filter, Failure> {
        match self.request.len() {
            2 => return Ok(Box::new(|_| true)),
            5 if self.is_word(2, "FILTERBY") => {}
            _ => return Err(Failure::SYNTAX),
        }
        let word = self.request.get(4).to_ascii_lowercase();
        if self.is_word(3, "PATTERN") {
            Ok(Box::new(move |command| glob::matches(&word, command.text.as_bytes())))
        } else if self.is_word(3, "ACLCAT") {
            let is_named = move |category: &&&str| {
                category.strip_prefix('@').is_some_and(|name| name.as_bytes() == word)
            };
            Ok(Box::new(move |command| command.categories.iter().any(|c| is_named(&c))))
        } else if self.is_word(3, "MODULE") {
            Ok(Box::new(|_| false))
        } else {
            Err(Failure::SYNTAX)
        }
    }

    fn command_get_keys(&mut self) -> Outcome {
        self.answer_keys(false)
    }

    fn command_get_keys_and_flags(&mut self) -> Outcome {
        self.answer_keys(true)
    }

    /// Answers the keys of the request that the arguments from the third on are.
    fn answer_keys(&mut self, with_flags: bool) -> Outcome {
        let count = self.request.len() - 2;
        let mut command = TABLE.find(self.request.get(2));
        if let Some(container) = command.filter(|command| command.is_container()) {
            command = TABLE.subcommand(container, self.request.get(3));
        }
        let command = command.ok_or(Failure::text("ERR Invalid command specified"))?;
        if command.keys[0] == 0 {
            return Err(Failure::text("ERR The command has no key arguments"));
        }
        if !command.accepts(count) {
            return Err(Failure::text("ERR Invalid number of arguments specified for command"));
        }
        let has_get = (3..count).any(|index| self.is_word(2 + index, "GET"));
        let access_with_get = command.key_access_with_get.filter(|_| has_get);
        let positions: Vec<_> = command.key_positions(count).collect();
        self.reply.array(positions.len());
        for position in positions {
            if with_flags {
                self.reply.array(2);
            }
            self.reply.bulk(self.request.get(2 + position));
            if with_flags {
                answer_words(self.reply, access_with_get.unwrap_or(command.key_access));
            }
        }
        Ok(())
    }

    fn command_info(&mut self) -> Outcome {
        if self.request.len() == 2 {
            return self.command_all();
        }
        self.reply.array(self.request.len() - 2);
        for word in self.request.iter().skip(2) {
            match find(word) {
                Some(command) => answer_details(self.reply, command),
                None => self.reply.null_array(),
            }
        }
        Ok(())
    }

    fn command_docs(&mut self) -> Outcome {
        let commands: Vec<_> = match self.request.len() {
            2 => TABLE.commands().collect(),
            _ => self.request.iter().skip(2).filter_map(find).collect(),
        };
        answer_docs(self.reply, &commands);
        Ok(())
    }
}

fn answer_details(reply: &mut Output, command: &Command) {
    reply.array(10);
    reply.bulk(command.text.as_bytes());
    reply.integer(command.arity.into());
    answer_words(reply, command.flags);
    for position in command.keys {
        reply.integer(position.into());
    }
    answer_words(reply, command.categories);
    // Neither tips for clients of clusters, nor key specifications beyond the three positions.
    reply.array(0);
    reply.array(0);
    let subcommands = TABLE.subcommands(command);
    reply.array(subcommands.len());
    subcommands.iter().for_each(|command| answer_details(reply, command));
}

fn answer_words(reply: &mut Output, words: &[&str]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

fn answer_docs(reply: &mut Output, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.text.as_bytes());
        reply.map(if command.is_container() { 5 } else { 4 });
        let facts = [
            ("summary", command.summary),
            ("since", command.since),
            ("group", command.group),
            ("complexity", command.complexity),
        ];
        for (name, fact) in facts {
            reply.bulk(name.as_bytes());
            reply.bulk(fact.as_bytes());
        }
        if command.is_container() {
            reply.bulk(b"subcommands");
            answer_docs(reply, &TABLE.subcommands(command).iter().collect::<Vec<_>>());
        }
    }
}
