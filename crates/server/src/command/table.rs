//! Which commands there are: how each is called, and what `COMMAND` tells of it.

/// A command, or a subcommand of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verb {
    Append,
    Auth,
    Client,
    ClientGetName,
    ClientHelp,
    ClientId,
    ClientInfo,
    ClientList,
    ClientNoEvict,
    ClientReply,
    ClientSetInfo,
    ClientSetName,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetKeys,
    CommandGetKeysAndFlags,
    CommandHelp,
    CommandInfo,
    CommandList,
    Config,
    ConfigGet,
    ConfigHelp,
    ConfigResetStat,
    ConfigSet,
    DbSize,
    Decr,
    DecrBy,
    Del,
    Discard,
    Echo,
    Exec,
    Exists,
    FlushAll,
    FlushDb,
    Get,
    GetDel,
    GetSet,
    Hello,
    Incr,
    IncrBy,
    Info,
    Keys,
    MGet,
    MSet,
    Multi,
    Ping,
    Quit,
    Reset,
    Scan,
    Select,
    Set,
    SetNx,
    Shutdown,
    StrLen,
    Time,
    Type,
    Unlink,
    Wait,
    WaitAof,
    ZAdd,
    ZCard,
    ZCount,
    ZIncrBy,
    ZLexCount,
    ZMScore,
    ZPopMax,
    ZPopMin,
    ZRange,
    ZRangeByLex,
    ZRangeByScore,
    ZRank,
    ZRem,
    ZRemRangeByLex,
    ZRemRangeByRank,
    ZRemRangeByScore,
    ZRevRange,
    ZRevRangeByLex,
    ZRevRangeByScore,
    ZRevRank,
    ZScan,
    ZScore,
}

impl Verb {
    /// How many there are.
    pub(crate) const COUNT: usize = Verb::ZScore as usize + 1;
}

/// The name of the command whose verb has this number.
pub(crate) fn name_of(number: u8) -> Option<&'static str> {
    let find = |list: &'static [Command]| list.iter().find(|c| c.verb as u8 == number);
    let subcommand = || COMMANDS.iter().find_map(|command| find(command.subcommands));
    find(COMMANDS).or_else(subcommand).map(|command| command.text)
}

/// What is known of a command before it runs.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    /// As `COMMAND` and errors spell it; a subcommand's begins with its container's and `|`.
    pub(crate) text: &'static str,
    /// Arguments, the name included; negative: at least so many.
    pub(crate) arity: i8,
    pub(crate) flags: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    /// First and last argument that is a key (negative counts from the end), and the step between.
    pub(crate) keys: [i8; 3],
    pub(crate) group: &'static str,
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) subcommands: &'static [Command],
}

impl Command {
    /// Whether it may be called with so many arguments, its name included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Whether a client may call it before it has authenticated.
    pub(crate) fn needs_no_auth(&self) -> bool {
        matches!(self.verb, Verb::Auth | Verb::Hello | Verb::Quit | Verb::Reset)
    }

    /// Whether it runs between `MULTI` and `EXEC`, where others are refused.
    pub(crate) fn runs_in_transaction(&self) -> bool {
        matches!(self.verb, Verb::Multi | Verb::Exec | Verb::Discard | Verb::Quit | Verb::Reset)
    }

    /// Where the keys are among so many arguments, the name included.
    pub(crate) fn key_positions(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let [first, last, step] = self.keys.map(isize::from);
        let last = if last < 0 { arguments as isize + last } else { last };
        let positions = if first > 0 { first..last + 1 } else { 0..0 };
        positions.step_by(step.max(1) as usize).map(|position| position as usize)
    }

    /// What it does to its keys, in the words of `COMMAND GETKEYSANDFLAGS`; `answers_old` is of a `SET` with `GET`.
    pub(crate) fn key_flags(&self, answers_old: bool) -> &'static [&'static str] {
        match self.verb {
            Verb::Append => &["RW", "insert"],
            Verb::Set if !answers_old => &["OW", "update"],
            Verb::Set | Verb::GetSet | Verb::ZIncrBy => &["RW", "access", "update"],
            Verb::Incr | Verb::IncrBy | Verb::Decr | Verb::DecrBy => &["RW", "access", "update"],
            Verb::SetNx => &["OW", "insert"],
            Verb::MSet => &["OW", "update"],
            Verb::Del | Verb::Unlink => &["RM", "delete"],
            Verb::GetDel | Verb::ZPopMax | Verb::ZPopMin => &["RW", "access", "delete"],
            Verb::ZAdd => &["RW", "update"],
            Verb::ZRem | Verb::ZRemRangeByLex | Verb::ZRemRangeByRank | Verb::ZRemRangeByScore => {
                &["RW", "delete"]
            }
            Verb::Exists | Verb::StrLen | Verb::Type | Verb::ZCard => &["RO"],
            _ => &["RO", "access"],
        }
    }

    /// The subcommand that a word names, in any case.
    pub(crate) fn subcommand(&self, word: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|command| {
            let (_, own) = command.text.split_once('|').expect("a subcommand's text has a bar");
            own.as_bytes().eq_ignore_ascii_case(word)
        })
    }
}

/// The command that a word names, in any case.
pub(crate) fn find(word: &[u8]) -> Option<&'static Command> {
    let packed = pack(word)?;
    let mut slot = slot_of(packed);
    loop {
        match INDEX[slot] {
            (_, ABSENT) => return None,
            (found, command) if found == packed => return Some(&COMMANDS[usize::from(command)]),
            _ => slot = (slot + 1) % SLOTS,
        }
    }
}

/// Longest name of a command in bytes: it is one number of 128 bits.
const NAME_LEN_MAX: usize = 16;
/// Slots of the index: few enough to stay in cache, many enough that most names are found at once.
const SLOTS: usize = 256;
/// Marks a slot of the index that names no command.
const ABSENT: u8 = u8::MAX;

/// Open-addressing index over [`COMMANDS`], built by the compiler.
static INDEX: [(u128, u8); SLOTS] = {
    let mut index = [(0, ABSENT); SLOTS];
    let mut command = 0;
    while command < COMMANDS.len() {
        let Some(packed) = pack(COMMANDS[command].text.as_bytes()) else {
            panic!("a command's name is too long")
        };
        let mut slot = slot_of(packed);
        while index[slot].1 != ABSENT {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = (packed, command as u8);
        command += 1;
    }
    index
};

/// A name in lower case as one number; `None` when it can be none of a command.
const fn pack(word: &[u8]) -> Option<u128> {
    if word.len() > NAME_LEN_MAX {
        return None;
    }
    let mut packed = 0;
    let mut index = 0;
    while index < word.len() {
        // A zero byte would be lost in front of others, and is in no name.
        if word[index] == 0 {
            return None;
        }
        packed = packed << 8 | word[index].to_ascii_lowercase() as u128;
        index += 1;
    }
    Some(packed)
}

const fn slot_of(packed: u128) -> usize {
    // A multiplier with well-spread bits; the top bits of the product depend on every byte.
    let folded = (packed >> 64) as u64 ^ packed as u64;
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SLOTS
}

const NO_KEYS: [i8; 3] = [0, 0, 0];
const ONE_KEY: [i8; 3] = [1, 1, 1];
const ALL_KEYS: [i8; 3] = [1, -1, 1];

const CONNECTION: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const FAST_CONNECTION: &[&str] = &["@fast", "@connection"];
const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const STRING_READ: &[&str] = &["@read", "@string", "@fast"];
const STRING_WRITE: &[&str] = &["@write", "@string", "@fast"];
const STRING_WRITE_SLOW: &[&str] = &["@write", "@string", "@slow"];
const SORTED_SET_POP: &[&str] = &["write", "fast"];
const SORTED_SET_READ: &[&str] = &["@read", "@sortedset", "@fast"];
const SORTED_SET_READ_SLOW: &[&str] = &["@read", "@sortedset", "@slow"];
const SORTED_SET_WRITE: &[&str] = &["@write", "@sortedset", "@fast"];
const SORTED_SET_WRITE_SLOW: &[&str] = &["@write", "@sortedset", "@slow"];
const KEYSPACE_READ: &[&str] = &["@keyspace", "@read", "@fast"];
const KEYSPACE_WIPE: &[&str] = &["@keyspace", "@write", "@slow", "@dangerous"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];
const ADMIN_DANGEROUS: &[&str] = &["@admin", "@slow", "@dangerous"];
const ADMIN_CONNECTION: &[&str] = &["@admin", "@slow", "@dangerous", "@connection"];
const SUBCOMMAND: &[&str] = &["noscript", "loading", "stale"];
const TRANSACTION: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];
const ANYTIME: &[&str] = &["loading", "stale"];
const SLOW_CONNECTION: &[&str] = &["@slow", "@connection"];

macro_rules! commands {
    ($($name:ident $text:literal $arity:literal $flags:expr, $categories:expr, $keys:expr,
       $group:literal $since:literal $complexity:literal $summary:literal
       $(with $subcommands:expr)?;)*) => {
        &[$(Command {
            verb: Verb::$name,
            text: $text,
            arity: $arity,
            flags: $flags,
            categories: $categories,
            keys: $keys,
            group: $group,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            subcommands: commands!(@subcommands $($subcommands)?),
        }),*]
    };
    (@subcommands) => { &[] };
    (@subcommands $subcommands:expr) => { $subcommands };
}

/// All commands, in alphabetical order.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = commands! {
    Append "append" 3 WRITE, STRING_WRITE, ONE_KEY,
        "string" "2.0.0" "O(N) where N is the length of the new value" "Append a value to a key";
    Auth "auth" -2 CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Authenticate to the server";
    Client "client" -2 &[], &["@slow"], NO_KEYS,
        "connection" "2.4.0" "Depends on subcommand." "A container for client connection commands"
        with CLIENT;
    Command "command" -1 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of commands"
        "Get array of Redis command details"
        with COMMAND;
    Config "config" -2 &[], &["@slow"], NO_KEYS,
        "server" "2.0.0" "Depends on subcommand." "A container for server configuration commands"
        with CONFIG;
    DbSize "dbsize" 1 READ, KEYSPACE_READ, NO_KEYS,
        "server" "1.0.0" "O(1)" "Return the number of keys in the selected database";
    Decr "decr" 2 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Decrement the integer value of a key by one";
    DecrBy "decrby" 3 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Decrement the integer value of a key by the given number";
    Del "del" -2 &["write"], &["@keyspace", "@write", "@slow"], ALL_KEYS,
        "generic" "1.0.0" "O(N) where N is the number of keys" "Delete a key";
    Discard "discard" 1 TRANSACTION, &["@fast", "@transaction"], NO_KEYS,
        "transactions" "2.0.0" "O(1)" "End what MULTI began, which is nothing: there are no transactions";
    Echo "echo" 2 &["loading", "stale", "fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Echo the given string";
    Exec "exec" 1 &["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"], NO_KEYS,
        "transactions" "1.2.0" "O(1)" "Fail, and end what MULTI began: there are no transactions";
    Exists "exists" -2 READ, KEYSPACE_READ, ALL_KEYS,
        "generic" "1.0.0" "O(N) where N is the number of keys to check."
        "Determine if a key exists";
    FlushAll "flushall" -1 &["write"], KEYSPACE_WIPE, NO_KEYS,
        "server" "1.0.0" "O(N) where N is the number of keys" "Remove all keys from all databases";
    FlushDb "flushdb" -1 &["write"], KEYSPACE_WIPE, NO_KEYS,
        "server" "1.0.0" "O(N) where N is the number of keys"
        "Remove all keys from the current database";
    Get "get" 2 READ, STRING_READ, ONE_KEY,
        "string" "1.0.0" "O(1)" "Get the value of a key";
    GetDel "getdel" 2 &["write", "fast"], STRING_WRITE, ONE_KEY,
        "string" "6.2.0" "O(1)" "Get the value of a key and delete the key";
    GetSet "getset" 3 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the string value of a key and return its old value";
    Hello "hello" -1 CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "6.0.0" "O(1)" "Handshake with Redis";
    Incr "incr" 2 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Increment the integer value of a key by one";
    IncrBy "incrby" 3 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Increment the integer value of a key by the given amount";
    Info "info" -1 ANYTIME, &["@slow", "@dangerous"], NO_KEYS,
        "server" "1.0.0" "O(1)" "Get information and statistics about the server";
    Keys "keys" 2 &["readonly"], &["@keyspace", "@read", "@slow", "@dangerous"], NO_KEYS,
        "generic" "1.0.0" "O(N) with N being the number of keys"
        "Find all keys matching the given pattern";
    MGet "mget" -2 READ, STRING_READ, ALL_KEYS,
        "string" "1.0.0" "O(N) where N is the number of keys to retrieve."
        "Get the values of all the given keys";
    MSet "mset" -3 &["write", "denyoom"], STRING_WRITE_SLOW, [1, -1, 2],
        "string" "1.0.1" "O(N) where N is the number of keys to set."
        "Set multiple keys to multiple values";
    Multi "multi" 1 TRANSACTION, &["@fast", "@transaction"], NO_KEYS,
        "transactions" "1.2.0" "O(1)" "Fail: there are no transactions. What follows is refused until EXEC or DISCARD";
    Ping "ping" -1 &["fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Ping the server";
    Quit "quit" -1 CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Close the connection";
    Reset "reset" 1 CONNECTION, FAST_CONNECTION, NO_KEYS,
        "connection" "6.2.0" "O(1)" "Reset the connection";
    Scan "scan" -2 &["readonly"], &["@keyspace", "@read", "@slow"], NO_KEYS,
        "generic" "2.8.0" "O(1) for every call. O(N) for a complete iteration."
        "Incrementally iterate the keys space";
    Select "select" 2 &["loading", "stale", "fast"], FAST_CONNECTION, NO_KEYS,
        "connection" "1.0.0" "O(1)" "Change the selected database for the current connection";
    Set "set" -3 &["write", "denyoom"], STRING_WRITE_SLOW, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the string value of a key";
    SetNx "setnx" 3 WRITE, STRING_WRITE, ONE_KEY,
        "string" "1.0.0" "O(1)" "Set the value of a key, only if the key does not exist";
    Shutdown "shutdown" -1
        &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"],
        ADMIN_DANGEROUS, NO_KEYS,
        "server" "1.0.0" "O(1)" "Close the pool and shut down the server";
    StrLen "strlen" 2 READ, STRING_READ, ONE_KEY,
        "string" "2.2.0" "O(1)" "Get the length of the value stored in a key";
    Time "time" 1 &["loading", "stale", "fast"], &["@fast"], NO_KEYS,
        "server" "2.6.0" "O(1)" "Return the current server time";
    Type "type" 2 READ, KEYSPACE_READ, ONE_KEY,
        "generic" "1.0.0" "O(1)" "Determine the type stored at key";
    Unlink "unlink" -2 &["write", "fast"], &["@keyspace", "@write", "@fast"], ALL_KEYS,
        "generic" "4.0.0" "O(1) for each key removed regardless of its size." "Delete a key";
    Wait "wait" 3 &["noscript"], SLOW_CONNECTION, NO_KEYS,
        "generic" "3.0.0" "O(1)" "Return the number of replicas, which is 0";
    WaitAof "waitaof" 4 &["noscript"], SLOW_CONNECTION, NO_KEYS,
        "generic" "7.2.0" "O(1)" "Wait until everything written before is safe in the pool";
    ZAdd "zadd" -4 WRITE, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) for each item added, where N is the number of elements in the sorted set."
        "Add one or more members to a sorted set, or update its score if it already exists";
    ZCard "zcard" 2 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "1.2.0" "O(1), and O(N) when it is first asked for"
        "Get the number of members in a sorted set";
    ZCount "zcount" 4 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Count the members in a sorted set with scores within the given values";
    ZIncrBy "zincrby" 4 WRITE, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Increment the score of a member in a sorted set";
    ZLexCount "zlexcount" 4 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)) with N being the number of elements in the sorted set."
        "Count the number of members in a sorted set between a given lexicographical range";
    ZMScore "zmscore" -3 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "6.2.0" "O(M*log(N)) with M being the number of members that are requested."
        "Get the score associated with the given members in a sorted set";
    ZPopMax "zpopmax" -2 SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "5.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove and return members with the highest scores in a sorted set";
    ZPopMin "zpopmin" -2 SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "5.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove and return members with the lowest scores in a sorted set";
    ZRange "zrange" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set";
    ZRangeByLex "zrangebylex" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by lexicographical range";
    ZRangeByScore "zrangebyscore" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.0.5" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by score";
    ZRank "zrank" -3 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Determine the index of a member in a sorted set";
    ZRem "zrem" -3 SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove one or more members from a sorted set";
    ZRemRangeByLex "zremrangebylex" 4 &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set between the given lexicographical range";
    ZRemRangeByRank "zremrangebyrank" 4 &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "2.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set within the given indexes";
    ZRemRangeByScore "zremrangebyscore" 4 &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set within the given scores";
    ZRevRange "zrevrange" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by index, with scores ordered from high to low";
    ZRevRangeByLex "zrevrangebylex" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.";
    ZRevRangeByScore "zrevrangebyscore" -4 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by score, with scores ordered from high to low";
    ZRevRank "zrevrank" -3 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Determine the index of a member in a sorted set, with scores ordered from high to low";
    ZScan "zscan" -3 &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.0" "O(1) for every call. O(N) for a complete iteration."
        "Incrementally iterate sorted sets elements and associated scores";
    ZScore "zscore" 3 READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Get the score associated with the given member in a sorted set";
};

#[rustfmt::skip]
static CLIENT: &[Command] = commands! {
    ClientGetName "client|getname" 2 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "2.6.9" "O(1)" "Get the current connection name";
    ClientHelp "client|help" 2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "connection" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    ClientId "client|id" 2 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "5.0.0" "O(1)" "Returns the client ID for the current connection";
    ClientInfo "client|info" 2 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "6.2.0" "O(1)" "Returns information about the current client connection.";
    ClientList "client|list" -2 ADMIN, ADMIN_CONNECTION, NO_KEYS,
        "connection" "2.4.0" "O(N) where N is the number of client connections"
        "Get the list of client connections";
    ClientNoEvict "client|no-evict" 3 ADMIN, ADMIN_CONNECTION, NO_KEYS,
        "connection" "7.0.0" "O(1)" "Set client eviction mode for the current connection";
    ClientReply "client|reply" 3 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "3.2.0" "O(1)" "Instruct the server whether to reply to commands";
    ClientSetInfo "client|setinfo" 4 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "7.2.0" "O(1)" "Set client or connection specific info";
    ClientSetName "client|setname" 3 SUBCOMMAND, SLOW_CONNECTION, NO_KEYS,
        "connection" "2.6.9" "O(1)" "Set the current connection name";
};

#[rustfmt::skip]
static COMMAND: &[Command] = commands! {
    CommandCount "command|count" 2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(1)" "Get total number of Redis commands";
    CommandDocs "command|docs" -2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of commands to look up"
        "Get array of specific Redis command documentation";
    CommandGetKeys "command|getkeys" -4 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of arguments to the command"
        "Extract keys given a full Redis command";
    CommandGetKeysAndFlags "command|getkeysandflags" -4 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of arguments to the command"
        "Extract keys and access flags given a full Redis command";
    CommandHelp "command|help" 2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    CommandInfo "command|info" -2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "2.8.13" "O(N) where N is the number of commands to look up"
        "Get array of specific Redis command details, or all when no argument is given.";
    CommandList "command|list" -2 ANYTIME, SLOW_CONNECTION, NO_KEYS,
        "server" "7.0.0" "O(N) where N is the number of commands"
        "Get an array of Redis command names";
};

#[rustfmt::skip]
static CONFIG: &[Command] = commands! {
    ConfigGet "config|get" -3 ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(N) where N is the number of configuration parameters"
        "Get the values of configuration parameters";
    ConfigHelp "config|help" 2 ANYTIME, &["@slow"], NO_KEYS,
        "server" "5.0.0" "O(1)" "Show helpful text about the different subcommands";
    ConfigResetStat "config|resetstat" 2 ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(1)" "Reset the stats returned by INFO";
    ConfigSet "config|set" -4 ADMIN, ADMIN_DANGEROUS, NO_KEYS,
        "server" "2.0.0" "O(N) where N is the number of parameters"
        "Set configuration parameters to the given values";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in COMMANDS {
            for word in [command.text.to_owned(), command.text.to_uppercase()] {
                assert_eq!(find(word.as_bytes()).map(|found| found.verb), Some(command.verb));
            }
            for sub in command.subcommands {
                let word = sub.text.split_once('|').unwrap().1.to_uppercase();
                let found = command.subcommand(word.as_bytes()).map(|found| found.verb);
                assert_eq!(found, Some(sub.verb));
            }
        }
        for word in [&b""[..], b"nosuch", b"ge", b"gett", b"\0get", b"a name that is too long"] {
            assert!(find(word).is_none());
        }
    }

    #[test]
    fn commands_are_in_order_and_named_once() {
        for list in [COMMANDS, CLIENT, COMMAND, CONFIG] {
            assert!(list.is_sorted_by(|a, b| a.text < b.text));
        }
    }

    #[test]
    fn arity_counts_the_name() {
        let get = find(b"get").unwrap();
        assert!(!get.accepts(1) && get.accepts(2) && !get.accepts(3));
        let del = find(b"del").unwrap();
        assert!(!del.accepts(1) && del.accepts(2) && del.accepts(99));
    }
}
