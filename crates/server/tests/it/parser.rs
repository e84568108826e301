//! Properties of the parser: it never panics, and how bytes were split on the way changes nothing.

use proptest::prelude::*;
use remanent_server::resp::{Limits, Parser, ProtocolError, encode_request};

type Requests = Vec<Vec<Vec<u8>>>;

/// All requests in `bytes`, which arrive in the pieces that `cuts` make, and how it ended.
fn parse(bytes: &[u8], cuts: &[usize], limits: Limits) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new(limits);
    let mut requests = Vec::new();
    let mut buffer = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut arrived = 0;
    for cut in cuts {
        buffer.extend_from_slice(&bytes[arrived..cut]);
        arrived = cut;
        loop {
            match parser.parse(&mut buffer) {
                Ok(Some(len)) => {
                    let request = parser.request(&mut buffer[..len]);
                    requests.push(request.iter().map(<[u8]>::to_vec).collect());
                    buffer.drain(..len);
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

/// Parts of requests, right and wrong.
const PIECES: &[&[u8]] = &[
    b"*1\r\n",
    b"*2\r\n",
    b"*3\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1048577\r\n",
    b"$0\r\n",
    b"$1\r\n",
    b"$3\r\n",
    b"$4\r\n",
    b"$-1\r\n",
    b"$536870913\r\n",
    b"\r\n",
    b"\n",
    b"GET",
    b"PING",
    b"a",
    b"*",
    b"$",
    b":",
    b"\"",
    b"'",
    b" ",
    b"\\x41",
    b"\0",
];

/// Bytes that are often nearly requests.
fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(PIECES).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
        2 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5)
            .prop_map(|arguments| {
                let mut bytes = Vec::new();
                encode_request(&mut bytes, &arguments);
                bytes
            }),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn small_limits() -> Limits {
    Limits {
        arguments: 100,
        bulk_len: 1_000,
        request_len: 10_000,
        line_len: 40,
        ..Limits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn splitting_changes_nothing(
        bytes in nearly_requests(),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let limits = Limits::default();
        let whole = parse(&bytes, &[], limits);
        prop_assert_eq!(&parse(&bytes, &cuts, limits), &whole);
        let each_byte: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&parse(&bytes, &each_byte, limits), &whole);
    }

    #[test]
    fn anything_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes, &[], small_limits());
        let _ = parse(&bytes, &[], Limits { authenticated: false, ..small_limits() });
    }

    #[test]
    fn what_is_encoded_is_found(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for request in &requests {
            encode_request(&mut bytes, request);
        }
        prop_assert_eq!(parse(&bytes, &cuts, Limits::default()), (requests, None));
    }

    #[test]
    fn a_tag_takes_the_byte_before(value in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &[b"SET", &b"key"[..], &value]);
        let mut parser = Parser::new(Limits::default());
        let len = parser.parse(&mut bytes).unwrap().unwrap();
        let mut request = parser.request(&mut bytes[..len]);
        request.tag(2, 0xAB);
        prop_assert_eq!(request.tagged(2), [&[0xAB], &value[..]].concat());
        prop_assert_eq!(request.get(1), b"key");
        prop_assert_eq!(request.get(2), &value[..]);
    }
}

#[test]
fn limits_are_kept() {
    let limits = small_limits();
    let stranger = Limits { authenticated: false, ..Limits::default() };
    let bulks = [b"*11\r\n".to_vec(), b"$999\r\n".to_vec(), vec![b'x'; 999], b"\r\n".to_vec()];
    let eleven_bulks = [&bulks[0][..], &bulks[1..].concat().repeat(11)].concat();
    let cases: Vec<(&[u8], Limits, ProtocolError)> = vec![
        (b"*101\r\n", limits, ProtocolError::InvalidCount),
        (b"*1\r\n$1001\r\n", limits, ProtocolError::InvalidBulk),
        (&[b'x'; 41], limits, ProtocolError::InlineTooBig),
        (b"*00000000000000000000000000000000000000000", limits, ProtocolError::CountTooLong),
        (b"*1\r\n$00000000000000000000000000000000000000000", limits, ProtocolError::BulkTooLong),
        (&eleven_bulks, limits, ProtocolError::RequestTooBig),
        (b"*11\r\n", stranger, ProtocolError::UnauthenticatedCount),
        (b"a b c d e f g h i j k\r\n", stranger, ProtocolError::UnauthenticatedCount),
        (b"*1\r\n$16385\r\n", stranger, ProtocolError::UnauthenticatedBulk),
    ];
    for (bytes, limits, error) in cases {
        assert_eq!(parse(bytes, &[], limits), (Vec::new(), Some(error)));
    }
    for bytes in [&b"*100\r\n"[..], b"*1\r\n$1000\r\n", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]
    {
        assert_eq!(parse(bytes, &[], limits), (Vec::new(), None));
    }
}
