//! Executing a request: decides whether the command may run, runs it, and answers.

use super::failure::{Failure, Outcome};
use super::row::{Command, InTransaction};
use super::{Handlers, TABLE};
use crate::Shared;
use crate::resp::{Output, OutputFailure, Request};
use crate::session::{Client, Progress};
use crate::statistics::Ended;
use crate::store::Store;

/// One call of a command. Each group of commands adds the methods that execute its commands.
pub(crate) struct Call<'a, S> {
    pub(crate) shared: &'a Shared<S>,
    pub(crate) client: &'a mut Client,
    pub(crate) request: Request<'a>,
    pub(crate) reply: &'a mut Output,
}

/// The function that executes a command.
pub(super) type Handler<S> = fn(&mut Call<'_, S>) -> Outcome;

/// The answer to a command between `MULTI` and `EXEC`.
const IN_TRANSACTION: &str = "ERR refused: MULTI was sent, and there are no transactions; EXEC or \
    DISCARD ends this";

/// Most bytes of a client's request that an error repeats.
const QUOTED_LEN_MAX: usize = 128;

/// Why a request is not run.
struct Refused {
    /// The command, if it is known.
    command: Option<&'static Command>,
    failure: Failure,
}

impl<S: Store> Call<'_, S> {
    /// Runs `command`, which is the one that the request names, and answers.
    ///
    /// Returns the command or subcommand that the call was of, and how it ended.
    pub(crate) fn execute(
        &mut self,
        command: Option<&'static Command>,
    ) -> Option<(&'static Command, Ended)> {
        self.client.counts.commands += 1;
        let start = self.reply.len();
        let command = match self.admitted(command) {
            Ok(command) => command,
            Err(Refused { command, failure }) => {
                self.fail(start, &failure);
                return command.map(|command| (command, Ended::Rejected));
            }
        };
        self.client.record.set_last_command(command.number);
        let handler = Handlers::<S>::BY_NUMBER[usize::from(command.number)];
        let outcome = handler(self).and_then(|()| match self.reply.failure() {
            None => Ok(()),
            Some(reason) => Err(Failure::Answer(reason)),
        });
        match outcome {
            Ok(()) => Some((command, Ended::Done)),
            Err(failure) => {
                self.fail(start, &failure);
                Some((command, Ended::Failed))
            }
        }
    }

    /// Answers an error, in place of everything that was answered since the output was `start`
    /// bytes long.
    fn fail(&mut self, start: usize, failure: &Failure) {
        self.client.counts.errors += 1;
        if matches!(failure, Failure::Answer(OutputFailure::NoMemory) | Failure::NoMemory) {
            self.shared.memory_refused(self.client.record.address);
        }
        let line = failure.to_line();
        self.shared.statistics.count_error(&line);
        self.reply.truncate(start);
        self.reply.error(&line);
    }

    /// The command that may run: `command`, or its subcommand.
    fn admitted(&mut self, command: Option<&'static Command>) -> Result<&'static Command, Refused> {
        let Some(mut command) = command else {
            let failure = self.unknown_command();
            return Err(Refused { command: None, failure });
        };
        if command.is_container() && self.request.len() > 1 {
            let subcommand = TABLE.subcommand(command, self.request.get(1));
            command = subcommand.ok_or_else(|| {
                let failure = self.unknown_subcommand(command);
                Refused { command: None, failure }
            })?;
        }
        let failure = if !command.accepts(self.request.len()) {
            self.wrong_arity_of(command)
        } else if !self.client.authenticated && !command.needs_no_auth() {
            Failure::text("NOAUTH Authentication required.")
        } else if self.client.is_in_transaction && command.in_transaction == InTransaction::Refused
        {
            Failure::text(IN_TRANSACTION)
        } else {
            return Ok(command);
        };
        Err(Refused { command: Some(command), failure })
    }

    fn wrong_arity_of(&mut self, command: &Command) -> Failure {
        if command.in_transaction != InTransaction::Ends {
            return Failure::wrong_arity(command.text);
        }
        self.client.is_in_transaction = false;
        Failure::text(format!(
            "EXECABORT Transaction discarded because of: wrong number of arguments for '{}' \
             command",
            command.text
        ))
    }

    /// The error for an unknown name. It repeats the first arguments, as in Redis.
    fn unknown_command(&mut self) -> Failure {
        let name = self.request.get(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            // A web page can make a browser send an HTTP request here. Its lines must not be run as
            // commands.
            tracing::warn!(client = %self.client.record.address, "an HTTP request was refused");
            self.client.end = Some(Progress::Close);
        }
        let mut arguments = String::new();
        for argument in self.request.iter().skip(1) {
            if arguments.len() >= QUOTED_LEN_MAX {
                break;
            }
            let quoted = quote(argument, QUOTED_LEN_MAX - arguments.len());
            arguments.push_str(&format!("'{quoted}' "));
        }
        Failure::text(format!(
            "ERR unknown command '{}', with args beginning with: {arguments}",
            quote(name, QUOTED_LEN_MAX)
        ))
    }

    fn unknown_subcommand(&self, container: &Command) -> Failure {
        Failure::text(format!(
            "ERR unknown subcommand '{}'. Try {} HELP.",
            quote(self.request.get(1), QUOTED_LEN_MAX),
            container.text.to_uppercase()
        ))
    }

    /// Executes a container that was called without a subcommand: an error.
    pub(super) fn missing_subcommand(&mut self) -> Outcome {
        let name = quote(self.request.get(0), QUOTED_LEN_MAX).to_lowercase();
        Err(Failure::wrong_arity(&name))
    }

    /// Answers the lines of a `HELP` subcommand.
    pub(super) fn help(&mut self, lines: &[&str]) -> Outcome {
        self.reply.array(lines.len());
        for line in lines {
            self.reply.simple(line);
        }
        Ok(())
    }

    /// Whether the argument at `index` is `word`, in any case.
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.request.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Counts a key that was read, as found or as missing.
    pub(super) fn count_lookup(&mut self, found: bool) {
        match found {
            true => self.client.counts.hits += 1,
            false => self.client.counts.misses += 1,
        }
    }
}

/// The first bytes of a word that a client sent, as text.
fn quote(word: &[u8], len_max: usize) -> String {
    String::from_utf8_lossy(&word[..word.len().min(len_max)]).into_owned()
}
