//! State of the file behind the medium: which calls for room fail, and which pages a crash may
//! bring back.

use super::State;
use super::trace::Event;

/// Calls for which the file system needs room, or which give room back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) calls: u64,
    /// Number of the call that fails.
    pub(super) fails_at: Option<u64>,
}

impl State {
    /// Records an event of the file and counts it, if the medium is recording.
    pub(super) fn record_file(&mut self, event: &'static str, happened: Event) {
        if let Some(events) = &mut self.events {
            events.push(happened);
            self.reach(event);
        }
    }

    /// Counts a call for which the file system needs room, or which gives room back. Returns
    /// whether the call fails.
    pub(super) fn lacks_room(&mut self) -> bool {
        self.room.calls += 1;
        let fails = self.room.fails_at == Some(self.room.calls);
        if fails {
            self.reach("no room");
        }
        fails
    }

    /// Notes that a page was released, or that its release became durable, if changes can be
    /// undone.
    pub(super) fn set_punched(&mut self, page: u32, is_punched: bool) {
        if self.undo.is_none() {
            return;
        }
        let was_punched =
            if is_punched { !self.punched.insert(page) } else { self.punched.remove(&page) };
        if was_punched != is_punched {
            self.punched_undo.push((page, was_punched));
        }
    }
}
