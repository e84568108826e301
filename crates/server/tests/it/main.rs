//! The server without sockets: bytes in, answers out.

mod commands;
mod damage;
mod fences;
mod forms;
mod limits;
mod net;
mod parser;
mod session;
mod sorted_sets;
mod sweeper;
