//! The NBD server: its protocol, its sockets, and real clients.

mod anything;
#[cfg(feature = "client-tests")]
mod clients;
mod negotiation;
mod ram;
mod sockets;
mod transmission;
mod wire;
