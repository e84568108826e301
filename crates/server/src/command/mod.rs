//! The commands: what each does to the keys, and what it answers.
//!
//! Commands come in groups, one module each. A group declares its commands with `row::commands`:
//! what `COMMAND` says of each, and the method of [`Call`] that executes it. A new group is a
//! module, and its name in the list below.

mod call;
mod client;
mod config;
mod connection;
mod failure;
mod glob;
mod info;
mod introspection;
mod keyspace;
mod row;
mod server;
mod sorted_set;
mod string;
mod table;
mod transaction;
mod wait;

use std::marker::PhantomData;

use self::call::Handler;
use self::table::Table;
use crate::store::Store;

pub(crate) use self::call::Call;
pub(crate) use self::failure::{Failure, NO_MEMORY_FOR_REQUEST, Outcome};
pub(crate) use self::row::Command;

/// Joins the groups to two tables in the same order: of commands, and of the functions that execute
/// them.
macro_rules! groups {
    ($($group:ident),* $(,)?) => {
        const GROUPS: &[&[Command]] = &[$($group::COMMANDS),*];
        const COUNT: usize = table::count(GROUPS);
        const ORDER: [u8; COUNT] = table::order(GROUPS);

        /// All commands.
        pub(crate) static TABLE: Table<COUNT> = Table::new(GROUPS, &ORDER);

        /// The functions that execute the commands on a store of type `S`.
        struct Handlers<S>(PhantomData<S>);

        impl<S: Store> Handlers<S> {
            /// In the order of [`TABLE`], so that a command's number is the index.
            const BY_NUMBER: &'static [Handler<S>; COUNT] =
                &table::arrange(&[$(&$group::handlers::<S>()),*], &ORDER);
        }
    };
}

groups! {
    client,
    config,
    connection,
    info,
    introspection,
    keyspace,
    server,
    sorted_set,
    string,
    transaction,
    wait,
}
