//! What requests do, and what they are answered.

use std::sync::Arc;

use remanent_nbd::{ExportError, Exports, Progress, REQUEST_LEN_MAX};

use super::ram::{PAGE, Ram};
use super::wire::*;

const PAGE_LEN: u32 = PAGE as u32;

/// A disk of which the pages in `written` hold ones.
fn striped(pages: u64, written: &[u64]) -> Ram {
    use remanent_nbd::Export;
    let ram = Ram::new(pages * PAGE);
    for page in written {
        ram.write(page * PAGE, &[1; PAGE as usize]).expect("there is no fault");
    }
    ram
}

fn data(page: u64, len: u64, byte: u8) -> Chunk {
    Chunk::Data(page * PAGE, vec![byte; len as usize])
}

fn hole(page: u64, pages: u64) -> Chunk {
    Chunk::Hole(page * PAGE, (pages * PAGE) as u32)
}

#[test]
fn what_was_written_is_read() {
    for is_structured in [false, true] {
        let mut client = Client::transmitting(Ram::new(1 << 20), is_structured);
        let replies = client.exchange(&[write(FUA, 5, b"hello"), request(READ, 0, 4, 7)].concat());
        let mut reader = Reader(&replies);
        assert_eq!(reader.simple_reply(WRITE, 5), 0);
        if is_structured {
            assert_eq!(reader.chunks(READ, 4), [Chunk::Data(4, b"\0hello\0".to_vec())]);
        } else {
            assert_eq!(reader.simple_reply(READ, 4), 0);
            assert_eq!(reader.bytes(7), b"\0hello\0");
        }
        assert_eq!(reader.0, b"");
        for command in [FLUSH, TRIM, CACHE, WRITE_ZEROES] {
            let len = if command == FLUSH { 0 } else { PAGE_LEN };
            assert_eq!(client.error(&request(command, FUA, 0, len)), 0, "{command}");
        }
        assert_eq!(client.error(&request(READ, FUA, 0, 10)), 0);
    }
}

/// Whatever has arrived is answered at once, and the rest when it comes.
#[test]
fn requests_may_come_many_at_a_time() {
    let mut client = Client::transmitting(Ram::new(1 << 20), true);
    let requests: Vec<u8> = (0..100).flat_map(|n| write(0, n * 10, &[n as u8; 10])).collect();
    let (most, last) = requests.split_at(requests.len() - 1);
    assert_eq!(client.exchange(most).len(), 99 * 16);
    assert_eq!(client.exchange(last).len(), 16);
    let long = request(READ, DF, 0, 1 << 20).repeat(3);
    assert_eq!(client.exchange(&long).len(), 3 * (28 + (1 << 20)));
}

#[test]
fn holes_are_sent_as_holes() {
    let mut client = Client::transmitting(striped(8, &[2, 3, 6]), true);
    let cases: &[(u64, u64, u16, &[Chunk])] = &[
        (0, 8, 0, &[hole(0, 2), data(2, 2 * PAGE, 1), hole(4, 2), data(6, PAGE, 1), hole(7, 1)]),
        (4, 2, 0, &[hole(4, 2)]),
        (2, 1, 0, &[data(2, PAGE, 1)]),
        (0, 2, DF, &[data(0, 2 * PAGE, 0)]),
    ];
    for (page, pages, flags, expected) in cases {
        let chunks = client.chunks(READ, *flags, page * PAGE, (pages * PAGE) as u32);
        assert_eq!(&chunks, expected, "{page} {pages}");
    }
    assert_eq!(client.chunks(READ, 0, 0, 0), [Chunk::None]);
    // Holes too short for a chunk of their own, at either end.
    let chunks = client.chunks(READ, 0, 2 * PAGE - 10, 2 * PAGE_LEN + 20);
    let expected = [&[0; 10][..], &[1; 2 * PAGE as usize], &[0; 10]].concat();
    assert_eq!(chunks, [Chunk::Data(2 * PAGE - 10, expected)]);
    assert_eq!(client.chunks(READ, 0, 1, 10), [Chunk::Hole(1, 10)]);
}

#[test]
fn zeroes_are_written_with_and_without_holes() {
    const HOLE: u32 = 3;
    const ZERO: u32 = 2;
    let mut client = Client::transmitting(striped(4, &[0, 1, 2, 3]), true);
    let zero = |flags, page| request(WRITE_ZEROES, flags, page * PAGE, PAGE_LEN);
    assert_eq!(client.error(&zero(0, 0)), 0);
    assert_eq!(client.error(&zero(NO_HOLE, 1)), 0);
    assert_eq!(client.error(&zero(FAST_ZERO, 2)), 0);
    assert_eq!(client.error(&zero(FAST_ZERO | NO_HOLE, 3)), ENOTSUP);
    let pieces = [HOLE, ZERO, HOLE, 0].map(|state| (PAGE_LEN, state)).to_vec();
    assert_eq!(client.chunks(BLOCK_STATUS, 0, 0, 4 * PAGE_LEN), [Chunk::Status(1, pieces)]);
    assert_eq!(client.error(&request(TRIM, 0, 3 * PAGE, PAGE_LEN)), 0);
    let pieces = vec![(2 * PAGE_LEN, HOLE)];
    let chunks = client.chunks(BLOCK_STATUS, 0, 2 * PAGE, 2 * PAGE_LEN);
    assert_eq!(chunks, [Chunk::Status(1, pieces)]);
}

#[test]
fn a_status_is_told_in_pieces() {
    let mut client = Client::transmitting(striped(8, &[2, 3, 6]), true);
    type Case = (u64, u64, u16, &'static [(u64, u32)]);
    let cases: &[Case] = &[
        (0, 8 * PAGE, 0, &[(2 * PAGE, 3), (2 * PAGE, 0), (2 * PAGE, 3), (PAGE, 0), (PAGE, 3)]),
        (0, 8 * PAGE, REQ_ONE, &[(2 * PAGE, 3)]),
        (2 * PAGE, 6 * PAGE, REQ_ONE | FUA, &[(2 * PAGE, 0)]),
        (2 * PAGE, 10, REQ_ONE, &[(10, 0)]),
        (2 * PAGE - 10, 20, 0, &[(10, 3), (10, 0)]),
    ];
    for (offset, len, flags, expected) in cases {
        let chunks = client.chunks(BLOCK_STATUS, *flags, *offset, *len as u32);
        let pieces = expected.iter().map(|(len, state)| (*len as u32, *state)).collect();
        assert_eq!(chunks, [Chunk::Status(1, pieces)], "{offset} {len}");
    }
    // A long list ends early, and goes on from there.
    let written: Vec<u64> = (0..5000).step_by(2).collect();
    let mut client = Client::transmitting(striped(5000, &written), true);
    let chunks = client.chunks(BLOCK_STATUS, 0, 0, 5000 * PAGE_LEN);
    let [Chunk::Status(1, pieces)] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(pieces.len(), 4096);
    let chunks = client.chunks(BLOCK_STATUS, 0, 4096 * PAGE, 904 * PAGE_LEN);
    let [Chunk::Status(1, pieces)] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(pieces.len(), 904);
}

/// Requests that fail whatever is behind the export, with their errors.
#[test]
fn wrong_requests_are_refused() {
    const SIZE: u64 = 1 << 20;
    const MAX: u64 = u64::MAX;
    let cases: &[(Vec<u8>, u32)] = &[
        (request(READ, 0, SIZE, 1), EINVAL),
        (request(READ, 0, SIZE - 1, 2), EINVAL),
        (request(READ, 0, MAX, 2), EINVAL),
        (write(0, SIZE, b"x"), ENOSPC),
        (write(0, SIZE - 1, b"xy"), ENOSPC),
        (write(0, MAX, b"xy"), ENOSPC),
        (request(WRITE_ZEROES, 0, SIZE - 1, 2), ENOSPC),
        (request(WRITE_ZEROES, 0, 0, u32::MAX), ENOSPC),
        (request(TRIM, 0, SIZE - 1, 2), EINVAL),
        (request(TRIM, 0, MAX, u32::MAX), EINVAL),
        (request(CACHE, 0, SIZE - 1, 2), EINVAL),
        (request(BLOCK_STATUS, 0, SIZE - 1, 2), EINVAL),
        (request(BLOCK_STATUS, 0, 0, 0), EINVAL),
        (request(FLUSH, 0, 0, 1), EINVAL),
        (request(FLUSH, 0, 1, 0), EINVAL),
        (request(8, 0, 0, 0), EINVAL),
        (request(0xFFFF, 0, 0, 0), EINVAL),
        (request(READ, NO_HOLE, 0, 1), EINVAL),
        (request(READ, 32, 0, 1), EINVAL),
        (write(DF, 0, b"x"), EINVAL),
        (request(TRIM, REQ_ONE, 0, 1), EINVAL),
        (request(WRITE_ZEROES, DF, 0, 1), EINVAL),
        (request(BLOCK_STATUS, FAST_ZERO, 0, 1), EINVAL),
        (request(FLUSH, FAST_ZERO, 0, 0), EINVAL),
    ];
    for is_structured in [false, true] {
        let mut client = Client::transmitting(Ram::new(SIZE), is_structured);
        for (bytes, expected) in cases {
            assert_eq!(client.error(bytes), *expected, "{}", bytes.escape_ascii());
        }
        // All of them have left the stream where the next request begins.
        assert_eq!(client.error(&request(READ, 0, SIZE - 1, 1)), 0);
    }
    let mut simple = Client::transmitting(Ram::new(SIZE), false);
    assert_eq!(simple.error(&request(READ, DF, 0, 1)), EINVAL);
    assert_eq!(simple.error(&request(BLOCK_STATUS, 0, 0, 1)), EINVAL);
}

/// Nothing is done to nothing: the export, which would panic, hears of none of these.
#[test]
fn empty_ranges_stay_with_the_session() {
    for is_structured in [false, true] {
        let ram = Ram { poison: 0..1 << 20, ..Ram::new(1 << 20) };
        let mut client = Client::transmitting(ram, is_structured);
        for command in [READ, WRITE, TRIM, WRITE_ZEROES, CACHE] {
            assert_eq!(client.error(&request(command, 0, 5, 0)), 0, "{command}");
            assert_eq!(client.error(&request(command, 0, 1 << 20, 0)), 0, "{command}");
        }
    }
}

#[test]
fn a_read_only_export_is_not_written() {
    for is_structured in [false, true] {
        let ram = Ram { is_read_only: true, ..Ram::with(b"read me") };
        let mut client = Client::transmitting(ram, is_structured);
        for bytes in [
            write(0, 0, b"write"),
            write(0, 1 << 40, b"write"),
            request(WRITE_ZEROES, 0, 0, 5),
            request(TRIM, 0, 0, 5),
        ] {
            assert_eq!(client.error(&bytes), EPERM);
        }
        assert!(client.exchange(&request(READ, 0, 0, 7)).ends_with(b"read me"));
        assert_eq!(client.error(&request(FLUSH, 0, 0, 0)), 0);
    }
}

#[test]
fn blocks_are_kept_whole() {
    let ram = Ram { block_size_min: 512, ..Ram::new(4096) };
    let mut client = Client::transmitting(ram, true);
    for (offset, len, expected) in [(0, 512, 0), (512, 1024, 0), (1, 512, EINVAL), (0, 511, EINVAL)]
    {
        for command in [READ, TRIM, WRITE_ZEROES, CACHE, BLOCK_STATUS] {
            let error = client.error(&request(command, 0, offset, len));
            assert_eq!(error, expected, "{command} {offset} {len}");
        }
        assert_eq!(client.error(&write(0, offset, &vec![7; len as usize])), expected);
    }
}

#[test]
fn errors_of_the_export_are_told() {
    let cases = [
        (ExportError::ReadOnly, EPERM, EPERM),
        (ExportError::NoSpace, ENOSPC, ENOSPC),
        (ExportError::OutOfRange, ENOSPC, EINVAL),
        (ExportError::Unsupported, ENOTSUP, ENOTSUP),
        (ExportError::NoMemory, ENOMEM, ENOMEM),
        (ExportError::ShuttingDown, ESHUTDOWN, ESHUTDOWN),
        (ExportError::Failed("a bad page ö".repeat(200)), EIO, EIO),
    ];
    for is_structured in [false, true] {
        for (fault, to_writers, to_others) in cases.clone() {
            let ram = Ram { fault: Some((PAGE..2 * PAGE, fault)), ..Ram::new(4 * PAGE) };
            let mut client = Client::transmitting(ram, is_structured);
            let range = (0, 4 * PAGE_LEN);
            assert_eq!(client.error(&write(0, 0, &[1; 2 * PAGE as usize])), to_writers);
            assert_eq!(client.error(&request(WRITE_ZEROES, 0, range.0, range.1)), to_writers);
            assert_eq!(client.error(&request(TRIM, 0, range.0, range.1)), to_others);
            assert_eq!(client.error(&request(READ, 0, range.0, range.1)), to_others);
            if is_structured {
                assert_eq!(client.error(&request(READ, DF, range.0, range.1)), to_others);
                assert_eq!(client.error(&request(BLOCK_STATUS, 0, range.0, range.1)), to_others);
            }
            assert_eq!(client.error(&request(READ, 0, 2 * PAGE, PAGE_LEN)), 0);
        }
    }
}

#[test]
fn long_requests_are_skipped_or_refused() {
    let size = u64::from(REQUEST_LEN_MAX) + 100;
    let mut client = Client::transmitting(Ram::new(size), true);
    assert_eq!(client.error(&request(READ, 0, 0, REQUEST_LEN_MAX + 1)), EINVAL);
    assert_eq!(client.error(&request(READ, DF, 0, REQUEST_LEN_MAX + 1)), EOVERFLOW);
    assert_eq!(client.error(&request(CACHE, 0, 0, REQUEST_LEN_MAX + 1)), 0);
    assert_eq!(client.error(&request(READ, DF, 0, REQUEST_LEN_MAX)), 0);
    let kept_len = client.0.memory_len();
    assert!(kept_len <= 5 << 20, "{kept_len} bytes are kept after a long reply");
    let payload = vec![9; REQUEST_LEN_MAX as usize + 1];
    assert_eq!(client.error(&write(0, 0, &payload)), EINVAL);
    assert_eq!(client.0.memory_len(), kept_len, "a payload that is skipped is not kept");
    assert_eq!(client.error(&write(0, 7, &payload[1..])), 0);
    assert_eq!(client.chunks(READ, 0, 6, 3), [Chunk::Data(6, vec![0, 9, 9])]);
    client.0.room();
    assert!(client.0.memory_len() <= 9 << 20, "{} bytes are kept", client.0.memory_len());
}

/// Announcing much costs the server nothing.
#[test]
fn memory_follows_what_has_arrived() {
    let mut client = Client::transmitting(Ram::new(1 << 30), true);
    let memory_len = client.0.memory_len();
    client.exchange(&request(WRITE, 0, 0, REQUEST_LEN_MAX));
    client.0.room();
    assert_eq!(client.0.memory_len(), memory_len);
    for arrived in (1 << 20..REQUEST_LEN_MAX as usize).step_by(1 << 20) {
        assert_eq!(client.exchange(&vec![1; 1 << 20]), b"");
        client.0.room();
        let input_len = client.0.memory_len() - memory_len;
        assert!(input_len <= 2 * arrived + (1 << 20), "{input_len} after {arrived} bytes");
    }
}

#[test]
fn a_connection_ends_where_it_must() {
    let connect = || Client::transmitting(Ram::new(1 << 20), true);
    let read = request(READ, 0, 0, 10);
    for end in [request(DISC, 0, 0, 0), b"0123456789012345678901234567".to_vec()] {
        let (replies, progress) = connect().send(&[&read[..], &end, &read].concat());
        assert_eq!(progress, Progress::Close);
        let mut reader = Reader(&replies);
        reader.chunks(READ, 0);
        assert_eq!(reader.0, b"", "the end comes before the last request");
    }
}

/// Two connections see one disk.
#[test]
fn exports_are_shared() {
    let mut exports = Exports::new();
    exports.add("", Arc::new(Ram::new(1 << 20))).expect("a good name");
    let mut clients = [(); 2].map(|()| {
        let mut client = Client::new(exports.clone(), FIXED);
        client.negotiate(STRUCTURED_REPLY, b"");
        client.negotiate(GO, &export_data("", &[]));
        client
    });
    assert_eq!(clients[0].error(&write(0, 3, b"x")), 0);
    assert_eq!(clients[1].chunks(READ, 0, 3, 1), [Chunk::Data(3, b"x".to_vec())]);
}
