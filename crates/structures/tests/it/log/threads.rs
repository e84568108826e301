//! Logs that several threads use.

use std::thread;
use std::time::Duration;

use remanent_structures::Log;

use crate::support::{options, scratch};

#[test]
fn what_threads_append_arrives_once_and_in_the_order_of_each() {
    const EACH: u64 = 3_000;
    let dir = scratch();
    let pool = options().create(dir.path().join("pool")).unwrap();
    let log: Log<[u8; 16]> = Log::create(&pool, "log").unwrap();
    let record = |writer: u64, number: u64| {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&writer.to_le_bytes());
        record[8..].copy_from_slice(&number.to_le_bytes());
        record
    };
    thread::scope(|scope| {
        for writer in 0..4 {
            let log = log.clone();
            scope.spawn(move || {
                for number in (0..EACH).step_by(2) {
                    let records = [record(writer, number), record(writer, number + 1)];
                    let at = log.append_many(&records.each_ref()).unwrap();
                    let found = log.read(at[1]).unwrap();
                    // The reader below may have come to it already, and removed it.
                    let is_truncated = found.is_none() && at[1] < log.first();
                    assert!(is_truncated || found == Some(records[1]), "{found:?}");
                }
            });
        }
        let mut tail = log.tail(log.first());
        let log = log.clone();
        scope.spawn(move || {
            let mut next = [0; 4];
            for seen in 0..4 * EACH {
                let (at, found) =
                    tail.wait(Duration::from_secs(60)).unwrap().expect("it comes within a minute");
                let [writer, number] =
                    [0, 8].map(|at| u64::from_le_bytes(*found[at..].first_chunk().unwrap()));
                assert_eq!(next[writer as usize], number);
                next[writer as usize] += 1;
                if seen % 1000 == 0 {
                    log.truncate_front(at).unwrap();
                }
            }
            assert_eq!(next, [EACH; 4]);
        });
    });
    assert_eq!(log.check().unwrap(), []);
}
