//! Any bytes, in two pieces and whole: no panic, and the same requests.
//!
//! `cargo +nightly fuzz run resp_parser`
#![no_main]

use libfuzzer_sys::fuzz_target;
use remanent_server::resp::{Limits, Parser, ProtocolError};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let cut = usize::from(cut) % (bytes.len() + 1);
    let whole = parse([bytes, &[]]);
    let split = parse([&bytes[..cut], &bytes[cut..]]);
    assert_eq!(whole, split);
});

type Requests = Vec<Vec<Vec<u8>>>;

fn parse(pieces: [&[u8]; 2]) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new(Limits::default());
    let mut requests = Vec::new();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.parse(&mut buffer) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    let request = parser.request(&mut buffer[..len]);
                    requests.push(request.iter().map(<[u8]>::to_vec).collect());
                    buffer.drain(..len);
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}
