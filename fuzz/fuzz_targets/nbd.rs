//! Any bytes sent to a server of block devices, whole and in pieces: no panic, the same replies,
//! and memory only for what has arrived.
//!
//! `cargo +nightly fuzz run nbd`
#![no_main]

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use remanent_nbd::{Allocation, Export, ExportError, Exports, Progress, Session};

/// Bytes of the export. It is a multiple of the pages that its status reports.
const SIZE: usize = 64 << 10;
const PAGE: usize = 4096;
/// Memory that a session may take in addition to what has arrived: its first buffer, and replies to
/// send.
const MEMORY_LEN: usize = 1 << 20;

/// The flags of a client, its requests for structured replies and for contexts, and its choice of
/// the default export. Fuzzing alone would take long to find them.
const CHOICE: &[u8] = b"\0\0\0\x03\
    IHAVEOPT\0\0\0\x08\0\0\0\0\
    IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation\
    IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

fuzz_target!(|input: (bool, u16, &[u8])| {
    let (begins_well, piece_len, bytes) = input;
    let begin = if begins_well { CHOICE } else { &[] };
    let bytes = [begin, bytes].concat();
    let whole = replies(&bytes, bytes.len());
    let split = replies(&bytes, piece_len.into());
    assert_eq!(whole, split);
});

fn replies(mut bytes: &[u8], piece_len: usize) -> (Vec<u8>, Progress) {
    let memory_len_max = MEMORY_LEN + 2 * bytes.len();
    let mut exports = Exports::new();
    exports.add("ram", Arc::new(Ram(Mutex::new(vec![0; SIZE])))).expect("a good name");
    let mut session = Session::new(Arc::new(exports));
    let mut replies = Vec::new();
    loop {
        let progress = session.run();
        replies.extend_from_slice(session.output());
        session.sent();
        assert!(session.memory_len() <= memory_len_max, "{} bytes", session.memory_len());
        match progress {
            Progress::Yield => continue,
            Progress::Read if !bytes.is_empty() => {}
            Progress::Read | Progress::Close => return (replies, progress),
        }
        let room = session.room();
        let len = room.len().min(piece_len.max(1)).min(bytes.len());
        let (piece, rest) = bytes.split_at(len);
        room[..len].copy_from_slice(piece);
        session.received(len);
        bytes = rest;
    }
}

/// A small disk. Access beyond its end panics, so the session must prevent it.
struct Ram(Mutex<Vec<u8>>);

impl Ram {
    fn fill(&self, offset: u64, len: u64, byte: u8) {
        self.0.lock().expect("no panic")[offset as usize..][..len as usize].fill(byte);
    }
}

impl Export for Ram {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError> {
        let bytes = self.0.lock().expect("no panic");
        target.copy_from_slice(&bytes[offset as usize..][..target.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<(), ExportError> {
        let mut bytes = self.0.lock().expect("no panic");
        bytes[offset as usize..][..source.len()].copy_from_slice(source);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: bool) -> Result<(), ExportError> {
        self.fill(offset, len, 0);
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<(), ExportError> {
        self.fill(offset, len, 0);
        Ok(())
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn status(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let bytes = self.0.lock().expect("no panic");
        let mut rest = &bytes[offset as usize..][..len as usize];
        let mut first_len = PAGE - offset as usize % PAGE;
        while !rest.is_empty() {
            let piece;
            (piece, rest) = rest.split_at(first_len.min(rest.len()));
            first_len = PAGE;
            let is_hole = piece.iter().all(|byte| *byte == 0);
            let allocation = if is_hole { Allocation::Hole } else { Allocation::Data };
            if visit(piece.len() as u64, allocation).is_break() {
                break;
            }
        }
        Ok(())
    }
}
