//! Serves a store in ordinary memory: what the server costs apart from the persistent map.
//!
//! `cargo run --release -p remanent-server --example volatile -- 127.0.0.1:6381 [THREADS]`

use std::future::pending;

use remanent_server::{Config, Server, Volatile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut config = Config::default();
    if let Some(address) = arguments.next() {
        config.listen = address.parse()?;
    }
    if let Some(threads) = arguments.next() {
        config.threads = threads.parse()?;
    }
    let server = Server::bind(Volatile::new(4 << 30), config)?;
    println!("listening on {}", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(server.run(pending()))?;
    Ok(())
}
