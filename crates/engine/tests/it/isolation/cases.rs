//! Histories with one anomaly each, and some without one.

use super::anomaly::{Kind, check, check_serializable};
use super::history::{Step, Transaction};

/// A transaction of a thread that commits.
fn by(thread: usize, steps: impl IntoIterator<Item = Step>) -> Transaction {
    Transaction { thread, steps: steps.into_iter().collect(), is_committed: true }
}

fn aborted(of: Transaction) -> Transaction {
    Transaction { is_committed: false, ..of }
}

/// It reads the list of a key.
fn r(key: u32, list: impl Into<Vec<u16>>) -> Step {
    Step::Read(key, list.into())
}

/// It appends a number to the list of a key.
fn a(key: u32, number: u16) -> Step {
    Step::Append(key, number)
}

/// The anomaly of a history, and whether it is one of a thread's order.
fn found(history: impl IntoIterator<Item = Transaction>) -> Option<(Kind, bool)> {
    let history: Vec<Transaction> = history.into_iter().collect();
    check(&history).err().map(|anomaly| (anomaly.kind, anomaly.is_of_thread))
}

/// The same if all of them have to be serializable.
fn found_in_serial(history: impl IntoIterator<Item = Transaction>) -> Option<(Kind, bool)> {
    let history: Vec<Transaction> = history.into_iter().collect();
    assert_eq!(found(history.clone()), None);
    check_serializable(&history).err().map(|anomaly| (anomaly.kind, anomaly.is_of_thread))
}

#[test]
fn write_skew_is_no_serial_history() {
    let skew = [
        by(0, [r(1, []), r(2, []), a(1, 1)]),
        by(1, [r(1, []), r(2, []), a(2, 1)]),
        by(2, [r(1, [1]), r(2, [1])]),
    ];
    assert_eq!(found_in_serial(skew), Some((Kind::G2, false)));
    // Of three, each reads what the next one overwrites.
    let circle = [
        by(0, [r(1, []), a(2, 1)]),
        by(1, [r(2, []), a(3, 1)]),
        by(2, [r(3, []), a(1, 1)]),
        by(3, [r(1, [1]), r(2, [1]), r(3, [1])]),
    ];
    assert_eq!(found_in_serial(circle), Some((Kind::G2, false)));
    // The first two could be one after the other, without the third one.
    let of_a_reader = [
        by(0, [r(1, []), r(2, []), a(1, 1)]),
        by(1, [r(2, []), a(2, 1)]),
        by(2, [r(1, []), r(2, [1])]),
        by(3, [r(1, [1]), r(2, [1])]),
    ];
    assert_eq!(found_in_serial(of_a_reader.clone()), Some((Kind::G2, false)));
    let [first, second, _, last] = of_a_reader;
    assert_eq!(found_in_serial([first, second, last]), None);
    // What was read before a later moment was seen counts, too.
    let refreshed = [
        by(0, [r(1, []), Step::Refresh, r(2, [1]), a(3, 1)]),
        by(1, [a(1, 1)]),
        by(2, [r(1, [1]), a(2, 1)]),
        by(3, [r(1, [1]), r(2, [1]), r(3, [1])]),
    ];
    assert_eq!(found(refreshed.clone()), None);
    let of_serial = check_serializable(&refreshed).map_err(|anomaly| anomaly.kind);
    assert_eq!(of_serial, Err(Kind::GSingle));
}

#[test]
fn what_snapshot_isolation_allows_is_no_anomaly() {
    // Each reads what the other one overwrites: write skew.
    let skew = [
        by(0, [r(1, []), r(2, []), a(1, 1)]),
        by(1, [r(1, []), r(2, []), a(2, 1)]),
        by(2, [r(1, [1]), r(2, [1])]),
    ];
    assert_eq!(found(skew), None);
    // One may see less than another one that has ended before.
    let behind = [by(0, [a(1, 1)]), by(1, [r(1, [])]), by(1, [r(1, [1])])];
    assert_eq!(found(behind), None);
    // A later snapshot is another moment, but a list that was changed stays.
    let refreshed = [
        by(0, [a(1, 1)]),
        by(1, [r(1, []), r(2, []), a(2, 1), Step::Refresh, r(1, [1]), r(2, [1])]),
        by(2, [r(1, [1]), r(2, [1])]),
    ];
    assert_eq!(found(refreshed), None);
    let batches = [
        by(0, [a(1, 1), Step::Begin, a(1, 2), Step::Begin, a(1, 3), Step::TakeBack, r(1, [1, 2])]),
        by(1, [Step::Begin, a(2, 1), Step::TakeBack, r(2, []), Step::Begin, a(2, 2), Step::End]),
        by(2, [r(1, [1, 2]), r(2, [2])]),
    ];
    assert_eq!(found(batches), None);
}

#[test]
fn a_transaction_sees_itself_and_one_moment() {
    let internal = Some((Kind::Internal, false));
    assert_eq!(found([by(0, [a(1, 1), r(1, [])])]), internal);
    assert_eq!(found([by(0, [a(1, 1)]), by(1, [r(1, []), r(1, [1])])]), internal);
    // Nobody else can have changed a list that it has changed.
    let lost = [by(0, [a(1, 1)]), by(1, [r(1, []), a(1, 2), Step::Refresh, r(1, [1, 2])])];
    assert_eq!(found(lost), internal);
}

#[test]
fn lists_hold_what_was_appended_in_one_order() {
    assert_eq!(found([by(0, [r(1, [7])])]), Some((Kind::Garbage, false)));
    let twice = [by(0, [a(1, 1)]), by(1, [r(1, [1, 1])])];
    assert_eq!(found(twice), Some((Kind::Duplicate, false)));
    let two_orders =
        [by(0, [a(1, 1)]), by(1, [a(1, 2)]), by(2, [r(1, [1, 2])]), by(3, [r(1, [2])])];
    assert_eq!(found(two_orders), Some((Kind::IncompatibleOrder, false)));
}

#[test]
fn updates_are_not_lost() {
    let lost = [by(0, [r(1, []), a(1, 1)]), by(1, [r(1, []), a(1, 2)]), by(2, [r(1, [1, 2])])];
    assert_eq!(found(lost), Some((Kind::LostUpdate, false)));
    // The first one is in no list.
    let gone = [by(0, [r(1, []), a(1, 1)]), by(1, [r(1, []), a(1, 2)]), by(2, [r(1, [2])])];
    assert_eq!(found(gone), Some((Kind::LostUpdate, false)));
}

#[test]
fn cycles_of_writes_are_told() {
    let writes = [
        by(0, [a(1, 1), a(2, 1)]),
        by(1, [a(1, 2), a(2, 2)]),
        by(2, [r(1, [1, 2])]),
        by(3, [r(2, [2, 1])]),
    ];
    assert_eq!(found(writes), Some((Kind::G0, false)));
    // Another one's number is between those of a transaction.
    let between = [by(0, [a(1, 1), a(1, 3)]), by(1, [a(1, 2)]), by(2, [r(1, [1, 2, 3])])];
    assert_eq!(found(between), Some((Kind::G0, false)));
    let circular = [by(0, [a(1, 1), r(2, [1])]), by(1, [a(2, 1), r(1, [1])])];
    assert_eq!(found(circular), Some((Kind::G1c, false)));
}

#[test]
fn nothing_is_read_that_is_not_there_to_stay() {
    let given_up = [aborted(by(0, [a(1, 1)])), by(1, [r(1, [1])])];
    assert_eq!(found(given_up), Some((Kind::G1a, false)));
    let in_batch =
        [by(0, [a(2, 1), Step::Begin, a(1, 1), a(2, 2), Step::TakeBack]), by(1, [r(1, [1])])];
    assert_eq!(found(in_batch), Some((Kind::G1a, false)));
    let below = [by(0, [a(2, 1), Step::Begin, a(2, 2), Step::TakeBack]), by(1, [r(2, [1, 2])])];
    assert_eq!(found(below), Some((Kind::G1a, false)));
    // One that is given up sees a moment, too.
    let by_aborted = [by(0, [a(1, 1), a(2, 1)]), aborted(by(1, [r(1, [1]), r(2, [])]))];
    assert_eq!(found(by_aborted), Some((Kind::GSingle, false)));
    let itself = [by(0, [Step::Begin, a(1, 1), Step::TakeBack, r(1, [1])])];
    assert_eq!(found(itself), Some((Kind::G1a, false)));
    let half = [by(0, [a(1, 1), a(1, 2)]), by(1, [r(1, [1])])];
    assert_eq!(found(half), Some((Kind::G1b, false)));
}

#[test]
fn a_transaction_is_seen_as_a_whole() {
    // It sees half of another one, whose other half somebody else sees.
    let half =
        [by(0, [a(1, 1), a(2, 1)]), by(1, [r(1, [1]), r(2, [])]), by(2, [r(1, [1]), r(2, [1])])];
    assert_eq!(found(half), Some((Kind::GSingle, false)));
    // The same, through a transaction that has read the first half.
    let through =
        [by(0, [a(1, 1), a(2, 1)]), by(1, [r(1, [1]), a(3, 1)]), by(2, [r(3, [1]), r(2, [])])];
    assert_eq!(found(through), Some((Kind::GSingle, false)));
    // Two see two transactions in different orders: a long fork.
    let fork = [
        by(0, [a(1, 1)]),
        by(1, [a(2, 1)]),
        by(2, [r(1, [1]), r(2, [])]),
        by(3, [r(1, []), r(2, [1])]),
    ];
    assert_eq!(found(fork), Some((Kind::GNonadjacent, false)));
}

#[test]
fn threads_see_what_they_have_seen_and_done() {
    let own = [by(0, [a(1, 1)]), by(0, [r(1, [])])];
    assert_eq!(found(own), Some((Kind::GSingle, true)));
    let seen = [by(0, [a(1, 1)]), by(1, [r(1, [1])]), by(1, [r(1, [])])];
    assert_eq!(found(seen), Some((Kind::GSingle, true)));
    let back = [by(0, [a(1, 1)]), by(1, [r(1, [1]), Step::Refresh, r(1, [])])];
    assert_eq!(found(back), Some((Kind::GSingle, true)));
    let ahead = [by(0, [r(1, [1])]), by(0, [a(1, 1)])];
    assert_eq!(found(ahead), Some((Kind::G1c, true)));
    let order = [by(0, [a(1, 2)]), by(0, [a(1, 1)]), by(1, [r(1, [1, 2])])];
    assert_eq!(found(order), Some((Kind::G0, true)));
}
