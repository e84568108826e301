//! `COMMAND`: what the server tells of its commands.

use super::table::{self, COMMANDS, Command};
use super::{Call, Outcome};
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
        self.reply.array(COMMANDS.len());
        for command in COMMANDS {
            self.reply.bulk(command.text.as_bytes());
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
