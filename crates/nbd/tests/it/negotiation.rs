//! What clients and the server agree on.

use std::sync::Arc;

use remanent_nbd::{Exports, ExportsError, Progress, REQUEST_LEN_MAX, Session};

use super::ram::Ram;
use super::wire::*;

const CONTEXT: &str = "base:allocation";

/// Two disks, of which the second is read-only and has sectors.
fn exports() -> Exports {
    let first = Ram { description: "the first disk".into(), ..Ram::new(1 << 20) };
    let second = Ram { is_read_only: true, block_size_min: 512, ..Ram::new(1000) };
    let mut exports = Exports::new();
    exports.add("first", Arc::new(first)).expect("a good name");
    exports.add("second", Arc::new(second)).expect("a good name");
    exports
}

fn connect() -> Client {
    Client::new(exports(), FIXED | NO_ZEROES)
}

/// What is told of an export: size, flags, name, description, and sizes of blocks.
fn describe(replies: &[(u32, Vec<u8>)]) -> (u64, u16, String, String, [u32; 3]) {
    let mut found = (0, 0, String::new(), String::new(), [0; 3]);
    let (end, infos) = replies.split_last().expect("a reply");
    assert_eq!(*end, (ACK, Vec::new()));
    for (reply, data) in infos {
        assert_eq!(*reply, REP_INFO);
        let mut reader = Reader(data);
        match reader.u16() {
            0 => (found.0, found.1) = (reader.u64(), reader.u16()),
            1 => found.2 = String::from_utf8(reader.0.to_vec()).expect("UTF-8"),
            2 => found.3 = String::from_utf8(reader.0.to_vec()).expect("UTF-8"),
            3 => found.4 = [reader.u32(), reader.u32(), reader.u32()],
            kind => panic!("nobody has asked for {kind}"),
        }
    }
    found
}

#[test]
fn only_known_flags_are_accepted() {
    for flags in 0..4 {
        Client::new(exports(), flags);
    }
    for flags in [4_u32, 1 << 31 | 1, u32::MAX] {
        let mut session = Session::new(Arc::new(exports()));
        session.sent();
        assert_eq!(feed(&mut session, &flags.to_be_bytes(), 9), (Vec::new(), Progress::Close));
    }
}

#[test]
fn old_clients_name_an_export_and_are_served() {
    for (flags, padding_len) in [(0, 124), (FIXED, 124), (FIXED | NO_ZEROES, 0), (NO_ZEROES, 0)] {
        let mut client = Client::new(exports(), flags);
        let replies = client.exchange(&option(EXPORT_NAME, b"first"));
        let mut reader = Reader(&replies);
        assert_eq!((reader.u64(), reader.u16()), (1 << 20, 0b1101_0110_1101));
        assert_eq!(reader.0, vec![0; padding_len]);
        assert!(!client.0.is_negotiating());
        assert_eq!(client.error(&request(FLUSH, 0, 0, 0)), 0);
    }
    let unknown = connect().send(&option(EXPORT_NAME, b"third"));
    assert_eq!(unknown, (Vec::new(), Progress::Close));
    let very_old = Client::new(exports(), 0).send(&option(LIST, b""));
    assert_eq!(very_old, (Vec::new(), Progress::Close));
}

#[test]
fn exports_are_listed_and_described() {
    let listed = connect().negotiate(LIST, b"");
    let server =
        |name: &[u8], description: &[u8]| (REP_SERVER, [&string(name), description].concat());
    let expected = [server(b"first", b"the first disk"), server(b"second", b""), (ACK, Vec::new())];
    assert_eq!(listed, expected);

    let mut client = connect();
    let info = client.negotiate(INFO, &export_data("", &[1, 2, 3, 77]));
    let blocks = [1, 4096, REQUEST_LEN_MAX];
    let first = (1 << 20, 0b1101_0110_1101, "first".into(), "the first disk".into(), blocks);
    assert_eq!(describe(&info), first);
    client.negotiate(STRUCTURED_REPLY, b"");
    let info = client.negotiate(GO, &export_data("second", &[1, 2]));
    // Half a block at the end cannot be reached.
    let second =
        (512, 0b101_1000_1111, "second".into(), String::new(), [512, 4096, REQUEST_LEN_MAX]);
    assert_eq!(describe(&info), second);
    assert!(!client.0.is_negotiating());
}

#[test]
fn the_default_export_has_the_empty_name_or_is_the_first() {
    let size = |exports: Exports| {
        let mut client = Client::new(exports, FIXED);
        describe(&client.negotiate(INFO, &export_data("", &[]))).0
    };
    assert_eq!(size(exports()), 1 << 20);
    let mut with_empty = exports();
    with_empty.add("", Arc::new(Ram::new(7))).expect("a good name");
    assert_eq!(size(with_empty), 7);
    let mut client = Client::new(Exports::new(), FIXED);
    assert_eq!(client.negotiate(GO, &export_data("", &[]))[0].0, ERR_UNKNOWN);
    assert_eq!(client.negotiate(LIST, b""), [(ACK, Vec::new())]);
}

#[test]
fn what_cannot_be_is_refused() {
    let long = "x".repeat(4097);
    let cases: &[(u32, &[u8], u32)] = &[
        (STARTTLS, b"", ERR_UNSUP),
        (4, b"", ERR_UNSUP),
        (11, b"", ERR_UNSUP),
        (12, b"", ERR_UNSUP),
        (u32::MAX, b"whatever", ERR_UNSUP),
        (LIST, b"x", ERR_INVALID),
        (STRUCTURED_REPLY, b"x", ERR_INVALID),
        (GO, b"", ERR_INVALID),
        (GO, b"\0\0\0", ERR_INVALID),
        (GO, b"\0\0\0\x05firs", ERR_INVALID),
        (GO, b"\0\0\0\x05first", ERR_INVALID),
        (GO, b"\0\0\0\x05first\0", ERR_INVALID),
        (GO, b"\0\0\0\x05first\0\x01\0", ERR_INVALID),
        (GO, b"\0\0\0\x05first\0\x01\0\0\0", ERR_INVALID),
        (INFO, b"\xff\xff\xff\xfffirst\0\0", ERR_INVALID),
        (INFO, &export_data("third", &[]), ERR_UNKNOWN),
        (INFO, &export_data("\u{fffd}", &[]), ERR_UNKNOWN),
        (INFO, &export_data(&long, &[]), ERR_TOO_BIG),
        (LIST_META_CONTEXT, &context_data("first", &[]), ERR_INVALID),
        (SET_META_CONTEXT, &context_data("first", &[CONTEXT]), ERR_INVALID),
    ];
    let mut client = connect();
    for (option, data, expected) in cases {
        let replies = client.negotiate(*option, data);
        let [(reply, message)] = &replies[..] else { panic!("{option}: {replies:?}") };
        assert_eq!(reply, expected, "{option} {}", data.escape_ascii());
        assert!(!message.is_empty(), "people want to know why");
    }
    assert_eq!(client.negotiate(STRUCTURED_REPLY, b""), [(ACK, Vec::new())]);
    let counts_more = [&string(b"first")[..], &[0xff; 4], &string(b"base:")].concat();
    let more_follows = [context_data("first", &[CONTEXT]), b"x".to_vec()].concat();
    let cases: &[(u32, &[u8], u32)] = &[
        (SET_META_CONTEXT, &counts_more, ERR_INVALID),
        (SET_META_CONTEXT, &more_follows, ERR_INVALID),
        (SET_META_CONTEXT, &context_data("third", &[CONTEXT]), ERR_UNKNOWN),
        (LIST_META_CONTEXT, &context_data("first", &[CONTEXT, &long]), ERR_TOO_BIG),
        (LIST_META_CONTEXT, &context_data(&long, &[]), ERR_TOO_BIG),
    ];
    for (option, data, expected) in cases {
        let replies = client.negotiate(*option, data);
        assert_eq!(replies.iter().map(|reply| reply.0).collect::<Vec<_>>(), [*expected]);
    }
}

#[test]
fn contexts_are_found_by_queries() {
    let mut client = connect();
    client.negotiate(STRUCTURED_REPLY, b"");
    let cases: &[(u32, &[&str], Option<u32>)] = &[
        (LIST_META_CONTEXT, &[], Some(0)),
        (LIST_META_CONTEXT, &["base:"], Some(0)),
        (LIST_META_CONTEXT, &["qemu:", "base:allocation", "base:"], Some(0)),
        (LIST_META_CONTEXT, &["base:other", "qemu:dirty-bitmap:x", ""], None),
        (SET_META_CONTEXT, &[CONTEXT], Some(1)),
        (SET_META_CONTEXT, &["qemu:", CONTEXT, CONTEXT], Some(1)),
        (SET_META_CONTEXT, &["base:"], None),
        (SET_META_CONTEXT, &[], None),
        (SET_META_CONTEXT, &["base:allocatio", "base:allocations"], None),
    ];
    for (option, queries, id) in cases {
        let context = |id: &u32| [&id.to_be_bytes(), CONTEXT.as_bytes()].concat();
        let mut expected: Vec<_> = id.iter().map(|id| (REP_META_CONTEXT, context(id))).collect();
        expected.push((ACK, Vec::new()));
        assert_eq!(client.negotiate(*option, &context_data("", queries)), expected);
    }
}

/// A client that has chosen contexts, and then something else.
#[test]
fn contexts_belong_to_one_export_and_to_the_last_choice() {
    let status = |options: &[(&str, &[&str])], export: &str| {
        let mut client = connect();
        client.negotiate(STRUCTURED_REPLY, b"");
        for (name, queries) in options {
            client.negotiate(SET_META_CONTEXT, &context_data(name, queries));
        }
        client.negotiate(GO, &export_data(export, &[]));
        client.error(&request(BLOCK_STATUS, 0, 0, 512))
    };
    assert_eq!(status(&[("first", &[CONTEXT])], "first"), 0);
    assert_eq!(status(&[("", &[CONTEXT])], "first"), 0);
    assert_eq!(status(&[("first", &[]), ("first", &[CONTEXT])], ""), 0);
    assert_eq!(status(&[], "first"), EINVAL);
    assert_eq!(status(&[("second", &[CONTEXT])], "first"), EINVAL);
    assert_eq!(status(&[("first", &[CONTEXT]), ("first", &[])], "first"), EINVAL);
    assert_eq!(status(&[("first", &[CONTEXT]), ("third", &[CONTEXT])], "first"), EINVAL);
}

#[test]
fn abort_is_answered_and_ends_the_connection() {
    let (replies, progress) = connect().send(&[option(LIST, b"x"), option(ABORT, b"")].concat());
    let mut reader = Reader(&replies);
    assert_eq!(reader.option_reply().1, ERR_INVALID);
    assert_eq!(reader.option_reply(), (ABORT, ACK, &b""[..]));
    assert_eq!((reader.0, progress), (&b""[..], Progress::Close));
}

#[test]
fn options_have_limits() {
    let mut client = connect();
    for len in [65_537, 16 << 20] {
        let (replies, _) = client.send(&option(GO, &vec![0; len]));
        assert_eq!(Reader(&replies).option_reply().1, ERR_TOO_BIG);
        assert!(client.0.memory_len() < 1 << 20, "the data is not kept");
    }
    let fits = client.negotiate(77, &[0; 65_536]);
    assert_eq!(fits[0].0, ERR_UNSUP);
    for head in [
        &b"IHAVEOPT\0\0\0\x03\x01\0\0\x01"[..],
        b"IHAVEOPT\0\0\0\x01\0\x01\0\x01",
        b"IHAVEOPTS\0\0\0\x03\0\0\0\0",
        b"0123456789abcdef",
    ] {
        let mut client = connect();
        assert_eq!(client.send(head), (Vec::new(), Progress::Close), "{}", head.escape_ascii());
        assert_eq!(client.send(b"more"), (Vec::new(), Progress::Close));
    }
    let (replies, progress) = connect().send(&option(STARTTLS, b"").repeat(2000));
    let mut reader = Reader(&replies);
    let count =
        std::iter::from_fn(|| (!reader.0.is_empty()).then(|| reader.option_reply())).count();
    assert_eq!((count, progress), (1024, Progress::Close));
}

#[test]
fn exports_have_names_of_their_own() {
    let mut exports = exports();
    let mut add = |name: &str, ram| exports.add(name, Arc::new(ram)).expect_err(name);
    assert_eq!(add("first", Ram::new(1)), ExportsError::Duplicate("first".into()));
    assert_eq!(add(&"x".repeat(4097), Ram::new(1)), ExportsError::NameTooLong(4097));
    assert_eq!(add("a\nb", Ram::new(1)), ExportsError::NameNotPrintable("a\nb".into()));
    for size in [0, 3, 1 << 17] {
        let ram = Ram { block_size_min: size, ..Ram::new(1) };
        assert_eq!(add("blocks", ram), ExportsError::BlockSize { name: "blocks".into(), size });
    }
    assert_eq!(exports.names().collect::<Vec<_>>(), ["first", "second"]);
}
