//! Any arguments, encoded as clients do and parsed: the same arguments.
//!
//! `cargo +nightly fuzz run resp_round_trip`
#![no_main]

use libfuzzer_sys::fuzz_target;
use remanent_server::resp::{Limits, Parser, encode_request};

fuzz_target!(|arguments: Vec<Vec<u8>>| {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, &arguments);
    let mut parser = Parser::new(Limits::default());
    let len = bytes.len();
    assert_eq!(parser.parse(&mut bytes), Ok(Some(len)));
    let request = parser.request(&mut bytes);
    assert!(request.iter().eq(arguments.iter().map(Vec::as_slice)));
});
