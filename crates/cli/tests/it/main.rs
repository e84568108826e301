//! The command and its server from outside: real processes, real sockets, real files.

mod batched;
#[cfg(feature = "client-tests")]
mod clients;
mod convert;
#[cfg(feature = "crash-test")]
mod damage;
#[cfg(feature = "demo")]
mod demo;
mod disk;
#[cfg(feature = "client-tests")]
mod disk_clients;
mod kill;
mod limits;
mod output;
mod pool;
mod room;
mod server;
mod support;
mod writes;
