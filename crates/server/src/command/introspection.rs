//! `COMMAND`: what the server tells of its commands.

use super::table::{self, COMMANDS, Command};
use super::{Call, Failure, Outcome, glob};
use crate::resp::Output;
use crate::store::Store;

pub(super) const HELP: &[&str] = &[
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

/// A command, or with `container|subcommand` one of its subcommands.
fn find(word: &[u8]) -> Option<&'static Command> {
    match word.iter().position(|byte| *byte == b'|') {
        None => table::find(word),
        Some(bar) => table::find(&word[..bar])?.subcommand(&word[bar + 1..]),
    }
}

/// Decides whether a command is listed.
type Filter = Box<dyn Fn(&Command) -> bool>;

impl<S: Store> Call<'_, S> {
    pub(super) fn command_all(&mut self) -> Outcome {
        self.reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| answer_details(self.reply, command));
        Ok(())
    }

    pub(super) fn command_count(&mut self) -> Outcome {
        self.reply.integer(COMMANDS.len() as i64);
        Ok(())
    }

    pub(super) fn command_list(&mut self) -> Outcome {
        let filter = self.listed()?;
        let subcommands = |command: &'static Command| command.subcommands;
        let all = COMMANDS
            .iter()
            .flat_map(|command| std::iter::once(command).chain(subcommands(command)));
        let names: Vec<_> = all.filter(|command| filter(command)).map(|c| c.text).collect();
        self.reply.array(names.len());
        names.iter().for_each(|name| self.reply.bulk(name.as_bytes()));
        Ok(())
    }

    /// Which commands `COMMAND LIST` was asked for.
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

    /// The keys of the command that the arguments from the third on spell.
    pub(super) fn command_get_keys(&mut self, with_flags: bool) -> Outcome {
        let count = self.request.len() - 2;
        let mut command = table::find(self.request.get(2));
        if let Some(container) = command.filter(|command| !command.subcommands.is_empty()) {
            command = container.subcommand(self.request.get(3));
        }
        let command = command.ok_or(Failure::text("ERR Invalid command specified"))?;
        if command.keys[0] == 0 {
            return Err(Failure::text("ERR The command has no key arguments"));
        }
        if !command.accepts(count) {
            return Err(Failure::text("ERR Invalid number of arguments specified for command"));
        }
        let answers_old = (3..count).any(|index| self.is_word(2 + index, "GET"));
        let positions: Vec<_> = command.key_positions(count).collect();
        self.reply.array(positions.len());
        for position in positions {
            if with_flags {
                self.reply.array(2);
            }
            self.reply.bulk(self.request.get(2 + position));
            if with_flags {
                answer_words(self.reply, command.key_flags(answers_old));
            }
        }
        Ok(())
    }

    pub(super) fn command_info(&mut self) -> Outcome {
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

    pub(super) fn command_docs(&mut self) -> Outcome {
        let commands: Vec<_> = match self.request.len() {
            2 => COMMANDS.iter().collect(),
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
    // No tips for cluster clients, and no key specifications beyond the three positions.
    reply.array(0);
    reply.array(0);
    reply.array(command.subcommands.len());
    command.subcommands.iter().for_each(|command| answer_details(reply, command));
}

fn answer_words(reply: &mut Output, words: &[&str]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

fn answer_docs(reply: &mut Output, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.text.as_bytes());
        reply.map(if command.subcommands.is_empty() { 4 } else { 5 });
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
        if !command.subcommands.is_empty() {
            reply.bulk(b"subcommands");
            answer_docs(reply, &command.subcommands.iter().collect::<Vec<_>>());
        }
    }
}
