//! Properties of a session: nothing makes it panic or take much memory, and how bytes were split on
//! the way changes nothing.

use std::sync::Arc;

use proptest::prelude::*;
use remanent_nbd::{ExportError, Exports, Progress, Session};

use super::ram::{PAGE, Ram};
use super::wire::*;

const SIZE: u64 = 16 * PAGE;
/// What a session takes beside what a client makes it take: the first buffer, and replies that were
/// not sent yet.
const MEMORY_LEN: usize = 1 << 20;

fn session() -> Session {
    let fault = Some((14 * PAGE..15 * PAGE, ExportError::Failed("a bad page".into())));
    let mut exports = Exports::new();
    exports.add("disk", Arc::new(Ram { fault, ..Ram::new(SIZE) })).expect("a good name");
    let rest = Ram { is_read_only: true, block_size_min: 512, ..Ram::new(SIZE) };
    exports.add("rest", Arc::new(rest)).expect("a good name");
    Session::new(Arc::new(exports))
}

/// What a session answers to bytes that come in pieces.
fn replies(bytes: &[u8], piece_len: usize) -> (Vec<u8>, Progress) {
    let mut session = session();
    let fed = feed(&mut session, bytes, piece_len);
    let memory_len = session.memory_len();
    assert!(memory_len <= MEMORY_LEN + 2 * bytes.len(), "{memory_len} for {}", bytes.len());
    fed
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "disk", "rest", "other"])
}

/// Options that mean something.
fn good_option() -> impl Strategy<Value = Vec<u8>> {
    let queries = prop::sample::select(vec!["base:", "base:allocation", "other:", ""]);
    let queries = prop::collection::vec(queries, 0..3);
    prop_oneof![
        1 => Just(option(LIST, b"")),
        4 => Just(option(STRUCTURED_REPLY, b"")),
        2 => (name(), prop::collection::vec(0..5_u16, 0..4), prop_oneof![Just(GO), Just(INFO)])
            .prop_map(|(name, kinds, code)| option(code, &export_data(name, &kinds))),
        2 => (name(), queries, LIST_META_CONTEXT..=SET_META_CONTEXT)
            .prop_map(|(name, queries, code)| option(code, &context_data(name, &queries))),
        1 => (any::<u32>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(code, data)| option(code, &data)),
    ]
}

/// Requests that mean something, or nearly.
fn good_request() -> impl Strategy<Value = Vec<u8>> {
    let offset = prop_oneof![
        8 => (0..SIZE / 512).prop_map(|sector| sector * 512),
        2 => 0..SIZE + 100,
        1 => any::<u64>(),
    ];
    let len = prop_oneof![
        8 => (0..20_u32).prop_map(|sectors| sectors * 512),
        2 => 0..5000_u32,
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![4 => Just(0), 2 => 0..32_u16, 1 => any::<u16>()];
    let command = prop_oneof![8 => 0..2_u16, 8 => 3..8_u16, 1 => any::<u16>()];
    (command, flags, offset, len).prop_map(|(command, flags, offset, len)| {
        let mut bytes = request(command, flags, offset, len);
        if command == WRITE && len < 20_000 {
            bytes.resize(bytes.len() + len as usize, offset as u8);
        }
        bytes
    })
}

/// Whole sessions, which may be anything but silent.
fn good_session() -> impl Strategy<Value = Vec<u8>> {
    let options = prop::collection::vec(good_option(), 0..6);
    let requests = prop::collection::vec(good_request(), 0..12);
    let chosen = prop_oneof![
        4 => name().prop_map(|name| option(GO, &export_data(name, &[]))),
        1 => name().prop_map(|name| option(EXPORT_NAME, name.as_bytes())),
    ];
    (0..4_u32, options, chosen, requests).prop_map(|(flags, options, chosen, requests)| {
        let parts = [vec![flags.to_be_bytes().to_vec()], options, vec![chosen], requests];
        parts.concat().concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn splitting_changes_nothing(bytes in good_session(), piece_len in 2..6000_usize) {
        let whole = replies(&bytes, usize::MAX);
        prop_assert_eq!(&replies(&bytes, 1), &whole);
        prop_assert_eq!(&replies(&bytes, piece_len), &whole);
    }

    #[test]
    fn anything_may_arrive(
        flags in 0..4_u32,
        begins_well in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let begin = if begins_well { flags.to_be_bytes().to_vec() } else { Vec::new() };
        replies(&[begin, bytes].concat(), usize::MAX);
    }

    #[test]
    fn what_was_damaged_may_arrive(
        bytes in good_session(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = bytes;
        for (place, byte) in damages {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.remove(cut.index(bytes.len()));
        }
        prop_assert_eq!(&replies(&bytes, 7), &replies(&bytes, usize::MAX));
    }
}
