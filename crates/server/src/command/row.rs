//! A row of the command table, which says what is known of a command before it runs, and the macro
//! by which groups declare rows together with the functions that execute the commands.

use std::time::Duration;

use crate::resp::Request;

/// A request with more arguments, or that asks for more entries, would delay other connections for
/// too long.
const LONG_ARGUMENTS: usize = 4096;
/// Copying more bytes of arguments would delay other connections for too long.
const LONG_BYTES: usize = 1 << 20;

/// A command, or a subcommand of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Index of the row in the table.
    pub(crate) number: u8,
    /// The name as `COMMAND` and errors write it. That of a subcommand is `container|subcommand`.
    pub(crate) text: &'static str,
    /// Number of arguments, the name included. If it is negative, there may be more.
    pub(crate) arity: i8,
    pub(crate) flags: &'static [&'static str],
    /// ACL categories.
    pub(crate) categories: &'static [&'static str],
    /// First argument that is a key; last one, which counts from the end if it is negative; and the
    /// step between keys.
    pub(crate) keys: [i8; 3],
    /// What the command does to its keys, as `COMMAND GETKEYSANDFLAGS` says it.
    pub(crate) key_access: &'static [&'static str],
    /// The same for a call with the argument `GET`, if that differs.
    pub(crate) key_access_with_get: Option<&'static [&'static str]>,
    pub(crate) group: &'static str,
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
    /// How many of the rows that follow are the command's subcommands.
    pub(super) subcommands: u8,
    pub(super) in_transaction: InTransaction,
    /// Estimates from a request's arguments how many entries it reads or changes.
    pub(super) demand: Option<fn(&Request<'_>) -> u64>,
    /// How long a request may wait for a disk; `None` if it does not wait for one, or without a
    /// limit.
    pub(super) sync_limit: Option<fn(&Request<'_>) -> Option<Duration>>,
}

/// What happens to a command between `MULTI` and `EXEC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTransaction {
    Refused,
    Runs,
    /// The command runs, and ends the transaction even if the number of arguments is wrong.
    Ends,
}

impl Command {
    /// Defaults for the fields that a row need not state.
    pub(super) const DEFAULT: Command = Command {
        number: 0,
        text: "",
        arity: 1,
        flags: &[],
        categories: &[],
        keys: NO_KEYS,
        key_access: &["RO", "access"],
        key_access_with_get: None,
        group: "",
        since: "",
        complexity: "",
        summary: "",
        subcommands: 0,
        in_transaction: InTransaction::Refused,
        demand: None,
        sync_limit: None,
    };

    /// Whether the command may be called with so many arguments, its name included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Whether a client may call the command before it has authenticated.
    pub(super) fn needs_no_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Whether the first argument names a subcommand.
    pub(crate) fn is_container(&self) -> bool {
        self.subcommands > 0
    }

    /// The name of a subcommand without that of its container, or the name of another command.
    pub(super) fn own_name(&self) -> &'static str {
        self.text.split_once('|').map_or(self.text, |(_, own)| own)
    }

    /// Whether a request may take so long that it needs a thread of its own.
    pub(crate) fn is_long(&self, request: &Request<'_>) -> bool {
        request.len() > LONG_ARGUMENTS
            || request.bytes_len() > LONG_BYTES
            || self.demand.is_some_and(|demand| demand(request) > LONG_ARGUMENTS as u64)
    }

    /// How long a request may wait for a disk; `None` if it does not wait for one, or without a
    /// limit.
    pub(crate) fn sync_limit(&self, request: &Request<'_>) -> Option<Duration> {
        self.sync_limit.and_then(|limit| limit(request))
    }

    /// Positions of the keys among so many arguments, the name included.
    pub(super) fn key_positions(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let [first, last, step] = self.keys.map(isize::from);
        let last = if last < 0 { arguments as isize + last } else { last };
        let positions = if first > 0 { first..last + 1 } else { 0..0 };
        positions.step_by(step.max(1) as usize).map(|position| position as usize)
    }
}

pub(super) const NO_KEYS: [i8; 3] = [0, 0, 0];
pub(super) const ONE_KEY: [i8; 3] = [1, 1, 1];
pub(super) const ALL_KEYS: [i8; 3] = [1, -1, 1];

pub(super) const READ: &[&str] = &["readonly", "fast"];
pub(super) const WRITE: &[&str] = &["write", "denyoom", "fast"];
pub(super) const ANYTIME: &[&str] = &["loading", "stale"];
pub(super) const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];
pub(super) const ADMIN_DANGEROUS: &[&str] = &["@admin", "@slow", "@dangerous"];
pub(super) const SLOW_CONNECTION: &[&str] = &["@slow", "@connection"];

pub(super) const LOOK_UP: &[&str] = &["RO"];
pub(super) const READ_UPDATE: &[&str] = &["RW", "access", "update"];
pub(super) const READ_DELETE: &[&str] = &["RW", "access", "delete"];

/// Declares the commands of a group.
///
/// A row has the name and the arity, and the method of [`Call`](super::Call) that executes the
/// command; flags, ACL categories and positions of keys; group, version, complexity and summary for
/// `COMMAND DOCS`; and then any other fields of [`Command`]. A row without a method, or with one
/// that does not exist, does not compile. The group imports `Handler`.
macro_rules! commands {
    ($($text:literal $arity:literal => $method:ident, $flags:expr, $categories:expr, $keys:expr,
       $group:literal $since:literal $complexity:literal $summary:literal
       $(, $field:ident: $value:expr)*;)*) => {
        pub(in crate::command) const COMMANDS: &[$crate::command::Command] =
            &[$($crate::command::Command {
                text: $text,
                arity: $arity,
                flags: $flags,
                categories: $categories,
                keys: $keys,
                group: $group,
                since: $since,
                complexity: $complexity,
                summary: $summary,
                $($field: $value,)*
                ..$crate::command::Command::DEFAULT
            }),*];

        /// The functions that execute [`COMMANDS`], in the same order.
        pub(in crate::command) const fn handlers<S: $crate::store::Store>()
        -> [Handler<S>; COMMANDS.len()] {
            [$(|call| call.$method()),*]
        }
    };
}
pub(super) use commands;
