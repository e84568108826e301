//! SQLite on pools: from Rust, with the SQLite that rusqlite brings, which commits without
//! journals; and, with the feature `client-tests`, Debian's `sqlite3` and Python, which load this
//! crate as an extension.

#[cfg(feature = "client-tests")]
mod atomic_writes;
#[cfg(feature = "client-tests")]
mod clients;
mod connections;
mod damage;
mod full;
mod kill;
mod links;
mod support;
