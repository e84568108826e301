//! The commands: what each does to the store, and answers.

mod client;
mod config;
mod connection;
mod glob;
mod info;
mod introspection;
mod keyspace;
mod server;
mod sorted_set;
mod string;
pub(crate) mod table;
mod transaction;
mod wait;

use std::borrow::Cow;
use std::time::Duration;

use crate::Shared;
use crate::resp::{Output, OutputFailure, Request};
use crate::session::{Client, Progress};
use crate::statistics::Ended;
use crate::store::{Store, StoreError};

pub(crate) use table::{Command, Verb};

/// Arguments, or members that are asked for, beyond which a request holds up other connections for too long.
const LONG_ARGUMENTS: usize = 4096;
/// Bytes of arguments beyond which copying them holds up other connections for too long.
const LONG_BYTES: usize = 1 << 20;

/// Whether the request may take so long that other connections should not wait for it.
pub(crate) fn is_long(command: &Command, request: &Request<'_>) -> bool {
    match command.verb {
        Verb::Keys | Verb::FlushAll | Verb::FlushDb => true,
        Verb::Scan => keyspace::scan_count(request, 2) > LONG_ARGUMENTS as u64,
        Verb::WaitAof => wait::is_local(request),
        _ if request.len() > LONG_ARGUMENTS || request.bytes_len() > LONG_BYTES => true,
        verb => sorted_set::members_asked(verb, request) > LONG_ARGUMENTS as u64,
    }
}

/// How long the request may wait for a disk at most, where it does so and is limited.
pub(crate) fn sync_limit(command: &Command, request: &Request<'_>) -> Option<Duration> {
    if command.verb == Verb::WaitAof && is_long(command, request) {
        return wait::local_limit(request);
    }
    None
}

/// Why a command does not do what it was asked, in words for the client.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A text that begins with an error code.
    Text(Cow<'static, str>),
    /// The store's own reason.
    Store(StoreError),
    /// The answer has no room.
    Answer(OutputFailure),
    /// What the command would copy has no room.
    NoMemory,
}

impl Failure {
    pub(crate) const SYNTAX: Failure = Failure::Text(Cow::Borrowed("ERR syntax error"));
    pub(crate) const NOT_AN_INTEGER: Failure =
        Failure::Text(Cow::Borrowed("ERR value is not an integer or out of range"));
    pub(crate) const WRONG_TYPE: Failure = Failure::Text(Cow::Borrowed(
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    ));

    /// A text that begins with an error code.
    pub(crate) fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::Text(text.into())
    }

    fn to_line(&self) -> Cow<'_, str> {
        match self {
            Failure::Text(text) => Cow::Borrowed(text),
            Failure::Store(StoreError::Full) => {
                Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'.")
            }
            Failure::Store(error) => Cow::Owned(format!("ERR {error}")),
            Failure::Answer(OutputFailure::TooLong) => Cow::Borrowed(
                "ERR the answer is longer than what may wait for one client; ask for less at a time",
            ),
            Failure::Answer(OutputFailure::NoMemory) => Cow::Borrowed(
                "OOM the answer needs more memory than clients may take together (see --client-memory); \
                 ask for less at a time, or try again",
            ),
            Failure::NoMemory => Cow::Borrowed(
                "OOM the command needs more memory than clients may take together (see --client-memory); \
                 nothing was changed",
            ),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

/// Whether a command did what it was asked. Where it did not, what it had answered is taken back.
pub(crate) type Outcome = Result<(), Failure>;

/// A request that is not run.
struct Refused {
    /// The command, if it is known.
    command: Option<&'static Command>,
    failure: Failure,
}

/// One call of a command.
pub(crate) struct Call<'a, S> {
    pub(crate) shared: &'a Shared<S>,
    pub(crate) client: &'a mut Client,
    pub(crate) request: Request<'a>,
    pub(crate) reply: &'a mut Output,
}

/// What is said to a request that clients' memory has no room for.
pub(crate) const NO_MEMORY_FOR_REQUEST: &str = "OOM the request needs more memory than clients may \
    take together (see --client-memory); the connection is closed";

impl<S: Store> Call<'_, S> {
    /// Runs `command`, which the request's first word named, and answers; returns which command it was, and how it ended.
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
        self.client.record.set_doing(command.verb);
        let outcome = self.run(command).and_then(|()| match self.reply.failure() {
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

    /// Answers an error in place of what was answered since the output was `start` bytes long.
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

    /// The command that is to run, which may be a subcommand of the one named.
    fn admitted(&mut self, command: Option<&'static Command>) -> Result<&'static Command, Refused> {
        let Some(mut command) = command else {
            let failure = self.unknown_command();
            return Err(Refused { command: None, failure });
        };
        if !command.subcommands.is_empty() && self.request.len() > 1 {
            let subcommand = command.subcommand(self.request.get(1));
            command = subcommand.ok_or_else(|| {
                let failure = self.unknown_subcommand(command);
                Refused { command: None, failure }
            })?;
        }
        let failure = if !command.accepts(self.request.len()) {
            self.wrong_arity_of(command)
        } else if !self.client.authenticated && !command.needs_no_auth() {
            Failure::text("NOAUTH Authentication required.")
        } else if self.client.is_in_transaction && !command.runs_in_transaction() {
            Failure::text(transaction::REFUSED)
        } else {
            return Ok(command);
        };
        Err(Refused { command: Some(command), failure })
    }

    fn run(&mut self, command: &'static Command) -> Outcome {
        match command.verb {
            Verb::Append => self.append(),
            Verb::Auth => self.auth(),
            Verb::Client => Err(wrong_arity(command.text)),
            Verb::ClientGetName => self.client_get_name(),
            Verb::ClientHelp => self.help(client::HELP),
            Verb::ClientId => self.client_id(),
            Verb::ClientInfo => self.client_info(),
            Verb::ClientList => self.client_list(),
            Verb::ClientNoEvict => self.client_no_evict(),
            Verb::ClientReply => self.client_reply(),
            Verb::ClientSetInfo => self.client_set_info(),
            Verb::ClientSetName => self.client_set_name(),
            Verb::Command => self.command_all(),
            Verb::CommandCount => self.command_count(),
            Verb::CommandDocs => self.command_docs(),
            Verb::CommandGetKeys => self.command_get_keys(false),
            Verb::CommandGetKeysAndFlags => self.command_get_keys(true),
            Verb::CommandHelp => self.help(introspection::HELP),
            Verb::CommandInfo => self.command_info(),
            Verb::CommandList => self.command_list(),
            Verb::Config => Err(wrong_arity(command.text)),
            Verb::ConfigGet => self.config_get(),
            Verb::ConfigHelp => self.help(config::HELP),
            Verb::ConfigResetStat => self.config_reset_stat(),
            Verb::ConfigSet => self.config_set(),
            Verb::DbSize => self.db_size(),
            Verb::Discard => self.discard(),
            Verb::Decr => self.add(|_| Ok(-1)),
            Verb::DecrBy => self.decr_by(),
            Verb::Del | Verb::Unlink => self.del(),
            Verb::Echo => self.echo(),
            Verb::Exec => self.exec(),
            Verb::Exists => self.exists(),
            Verb::FlushAll | Verb::FlushDb => self.flush(),
            Verb::Get => self.get(),
            Verb::GetDel => self.get_del(),
            Verb::GetSet => self.get_set(),
            Verb::Hello => self.hello(),
            Verb::Incr => self.add(|_| Ok(1)),
            Verb::IncrBy => self.incr_by(),
            Verb::Info => self.info(),
            Verb::Keys => self.keys(),
            Verb::MGet => self.mget(),
            Verb::MSet => self.mset(),
            Verb::Multi => self.multi(),
            Verb::Ping => self.ping(),
            Verb::Quit => self.quit(),
            Verb::Reset => self.reset(),
            Verb::Scan => self.scan(),
            Verb::Select => self.select(),
            Verb::Set => self.set(),
            Verb::SetNx => self.set_nx(),
            Verb::Shutdown => self.shutdown(),
            Verb::StrLen => self.str_len(),
            Verb::Time => self.time(),
            Verb::Type => self.type_of(),
            Verb::Wait => self.wait(),
            Verb::WaitAof => self.wait_aof(),
            on_sorted_set => self.run_on_sorted_set(on_sorted_set),
        }
    }

    fn wrong_arity_of(&mut self, command: &Command) -> Failure {
        if command.verb != Verb::Exec {
            return wrong_arity(command.text);
        }
        // It ends what MULTI began even so.
        self.client.is_in_transaction = false;
        Failure::text(
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        )
    }

    /// The error for a name that is none, with the beginning of the arguments, as Redis words it.
    fn unknown_command(&mut self) -> Failure {
        let name = self.request.get(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            // What a browser was tricked into sending here is no command, and neither is the rest.
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

    fn help(&mut self, lines: &[&str]) -> Outcome {
        self.reply.array(lines.len());
        for line in lines {
            self.reply.simple(line);
        }
        Ok(())
    }

    /// Whether the argument at `index` is `word`, in any case.
    fn is_word(&self, index: usize, word: &str) -> bool {
        self.request.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Bytes of a client's own words that an error repeats, at most.
const QUOTED_LEN_MAX: usize = 128;

/// The beginning of a client's own words, as text.
fn quote(word: &[u8], len_max: usize) -> String {
    String::from_utf8_lossy(&word[..word.len().min(len_max)]).into_owned()
}

fn wrong_arity(command: &str) -> Failure {
    Failure::text(format!("ERR wrong number of arguments for '{command}' command"))
}
