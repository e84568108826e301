//! Any bytes sent to a server: no panic, and it always asks for something that ends.
//!
//! `cargo +nightly fuzz run session`
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use remanent_server::{Config, Keyspace, Progress, Session, Shared, Volatile};

fuzz_target!(|bytes: &[u8]| {
    let keys = Keyspace::open(Volatile::new(1 << 20)).expect("an empty store");
    let shared = Arc::new(Shared::new(keys, Config::default()));
    let address = "127.0.0.1:50000".parse().expect("an address");
    let mut session = Session::new(shared, address, address);
    session.input().extend_from_slice(bytes);
    let mut progress = session.run();
    // Each request takes at most one turn, and none is shorter than two bytes.
    for _ in 0..=bytes.len() {
        session.sent();
        progress = match progress {
            Progress::Yield | Progress::Wait(_) => session.run(),
            Progress::Long => session.run_long(),
            Progress::Read | Progress::Close | Progress::ShutDown => return,
        };
    }
    panic!("the session does not end");
});
