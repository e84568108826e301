//! What to do about an error of the library, in words of the command.
//!
//! Errors of the library name its own functions and settings. The command prints them as they are,
//! and adds the option or the command that does the same.

use std::error::Error;

use remanent::blockdev::Error as DiskError;
use remanent::pmem::Error as PoolError;
use remanent::structures::Error as StructureError;
use remanent_nbd::BindError as NbdBindError;
use remanent_server::BindError;
use remanent_server::store::StoreError;

const POOL_CHECK: &str = " (command `remanent pool check`)";
const SIZE: &str = " (option --size, or --pool-size of `remanent disk create`)";

/// Text to append to the error; empty if neither an option nor a command helps.
pub(crate) fn advice(error: &anyhow::Error) -> &'static str {
    error.chain().find_map(of_cause).unwrap_or_default()
}

/// The same for one error, without its causes.
pub(crate) fn advice_for(error: &(dyn Error + 'static)) -> &'static str {
    of_cause(error).unwrap_or_default()
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    let of_pool = || cause.downcast_ref().and_then(of_pool);
    let of_structure = || cause.downcast_ref().and_then(of_structure);
    let of_disk = || cause.downcast_ref().and_then(of_disk);
    let of_store = || cause.downcast_ref().and_then(of_store);
    let of_server = || cause.downcast_ref().and_then(of_server);
    let of_nbd = || cause.downcast_ref().and_then(of_nbd);
    of_pool()
        .or_else(of_structure)
        .or_else(of_disk)
        .or_else(of_store)
        .or_else(of_server)
        .or_else(of_nbd)
}

fn of_pool(error: &PoolError) -> Option<&'static str> {
    match error {
        PoolError::Full { .. } | PoolError::TooSmall { .. } => Some(SIZE),
        PoolError::Locked { .. } => Some(" (option --wait)"),
        PoolError::NotAPool { .. } => Some(" (command `remanent pool create`)"),
        PoolError::NotPrivate { .. } => Some(" (option --pool)"),
        PoolError::NoSuchRoot { .. } | PoolError::RootExists { .. } => Some(" (option --name)"),
        PoolError::Unsupported { asked, .. } if asked.starts_with("durability") => {
            Some(" (option --durability)")
        }
        PoolError::Corrupt { .. } => Some(POOL_CHECK),
        _ => None,
    }
}

fn of_structure(error: &StructureError) -> Option<&'static str> {
    match error {
        StructureError::Pool(error) => of_pool(error),
        StructureError::Checksum { .. } | StructureError::Corrupt { .. } => Some(POOL_CHECK),
        _ => None,
    }
}

fn of_disk(error: &DiskError) -> Option<&'static str> {
    match error {
        DiskError::Pool(error) => of_pool(error),
        DiskError::OutOfRange { .. } => Some(" (command `remanent disk resize`)"),
        DiskError::Damaged { .. } => Some(" (command `remanent disk check`)"),
        _ => None,
    }
}

/// A store keeps of an error the words for clients alone; what is neither room nor length is damage
/// or the medium's.
fn of_store(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Full => Some(SIZE),
        StoreError::Failed(_) => Some(POOL_CHECK),
        _ => None,
    }
}

fn of_server(error: &BindError) -> Option<&'static str> {
    match error {
        BindError::Unprotected(_) => Some(" (options --password-file, --listen and --unprotected)"),
        BindError::Listen { .. } => Some(" (option --listen)"),
        BindError::Store(error) => of_store(error),
        _ => None,
    }
}

fn of_nbd(error: &NbdBindError) -> Option<&'static str> {
    match error {
        NbdBindError::Unprotected(_) => Some(" (options --listen, --socket and --unprotected)"),
        NbdBindError::Tcp { .. } => Some(" (option --listen)"),
        NbdBindError::Unix { .. } => Some(" (option --socket)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};

    use clap::CommandFactory;

    use super::*;
    use crate::command::Arguments;

    fn address() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1))
    }

    /// Errors of every kind that has advice.
    fn errors() -> Vec<anyhow::Error> {
        let path = || "a.pool".into();
        let refused = || io::Error::from(io::ErrorKind::AddrInUse);
        let name = || "disk".to_owned();
        vec![
            PoolError::Full { needed: 1, size: 1, size_max: 1 }.into(),
            PoolError::Locked { path: path(), holder: Some(1) }.into(),
            PoolError::NotAPool { path: path(), reason: String::new() }.into(),
            PoolError::NotPrivate { path: path(), reason: String::new() }.into(),
            PoolError::NoSuchRoot { name: name(), present: name() }.into(),
            PoolError::Unsupported { path: path(), asked: "durability `power`", reason: name() }
                .into(),
            StructureError::Pool(PoolError::corrupt(1, "")).into(),
            StructureError::Checksum {
                pool: path(),
                root: name(),
                offset: 1,
                stored: 1,
                computed: 2,
            }
            .into(),
            DiskError::Pool(PoolError::corrupt(1, "")).into(),
            DiskError::OutOfRange { offset: 1, len: 1, size: 1 }.into(),
            StoreError::Full.into(),
            BindError::Unprotected(address()).into(),
            BindError::Listen { address: address(), source: refused() }.into(),
            BindError::Store(StoreError::Failed(String::new())).into(),
            NbdBindError::Unprotected(address()).into(),
            NbdBindError::Tcp { address: address(), source: refused() }.into(),
            NbdBindError::Unix { path: path(), source: refused() }.into(),
        ]
    }

    fn has_option(command: &clap::Command, name: &str) -> bool {
        command.get_arguments().any(|argument| argument.get_long() == Some(name))
            || command.get_subcommands().any(|subcommand| has_option(subcommand, name))
    }

    fn has_command(command: &clap::Command, path: &str) -> bool {
        let mut names = path.split(' ').skip(1);
        names.try_fold(command, |command, name| command.find_subcommand(name)).is_some()
    }

    #[test]
    fn advice_names_options_and_commands_that_exist() {
        let command = Arguments::command();
        for error in errors() {
            let advice = advice(&error.context("cannot go on"));
            assert!(!advice.is_empty());
            let letters = |letter: char| letter != '-' && !letter.is_ascii_alphabetic();
            for option in advice.split(letters).filter_map(|word| word.strip_prefix("--")) {
                assert!(has_option(&command, option), "{advice}");
            }
            for path in advice.split('`').skip(1).step_by(2) {
                assert!(has_command(&command, path), "{advice}");
            }
        }
    }

    /// The library's words are not the command's, so there is nothing to translate but by what is
    /// added.
    #[test]
    fn errors_of_the_library_name_no_option_and_no_command() {
        for error in errors() {
            let told = format!("{error:#}");
            assert!(!told.contains("--") && !told.contains("remanent "), "{told}");
        }
    }
}
