//! The two buffers of a connection.
//!
//! Both stay initialized from one message to the next, so receiving and reading from an export
//! never begin with writing zeroes.

/// Bytes of an input buffer without a long message: three times a queue of sixteen writes of 4 KiB.
const INPUT_LEN: usize = 256 << 10;
/// Maximal number of bytes of either buffer that an idle connection keeps. Clients that copy whole
/// disks send up to 2 MiB at a time; their buffers should not be allocated anew for each message.
const KEPT_LEN: usize = 4 << 20;
/// Messages of at least this length are received alone: what follows begins at the buffer's start,
/// and need not be moved there.
const ALONE_LEN: usize = INPUT_LEN / 4;

/// Bytes that have arrived and were not consumed.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    first: usize,
    after: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Input { bytes: vec![0; INPUT_LEN], first: 0, after: 0 }
    }

    /// Bytes that have arrived and were not consumed.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.bytes[self.first..self.after]
    }

    /// Consumes the first `len` bytes.
    pub(super) fn used(&mut self, len: usize) {
        self.first += len;
        debug_assert!(self.first <= self.after, "more was used than has arrived");
    }

    /// Room to receive into; never empty. The present message needs `wanted` bytes, counted from
    /// its first.
    ///
    /// Room grows with what has arrived. So a client pays for memory with the bytes that it sends.
    pub(super) fn room(&mut self, wanted: usize) -> &mut [u8] {
        let len = self.after - self.first;
        let kept = INPUT_LEN.max(len).max(wanted);
        if self.bytes.len() > KEPT_LEN && kept <= KEPT_LEN {
            self.move_to_front();
            self.bytes.truncate(kept);
            self.bytes.shrink_to_fit();
        }
        // A message that would end behind the buffer is moved; so is one that left no room at all.
        if self.first == self.after
            || self.first + wanted > self.bytes.len()
            || self.after == self.bytes.len()
        {
            self.move_to_front();
        }
        if self.after == self.bytes.len() {
            let grown = (2 * self.bytes.len()).min(wanted.max(len + 1));
            grow(&mut self.bytes, grown.max(len + 1));
        }
        let end = if wanted >= ALONE_LEN { self.first + wanted } else { self.bytes.len() };
        let end = end.clamp(self.after + 1, self.bytes.len());
        &mut self.bytes[self.after..end]
    }

    /// Notes that `len` bytes of [`room`](Input::room) were filled.
    pub(super) fn received(&mut self, len: usize) {
        self.after += len;
        assert!(self.after <= self.bytes.len(), "more was received than there is room for");
    }

    /// Bytes of memory that the buffer takes.
    pub(super) fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }

    fn move_to_front(&mut self) {
        if self.first > 0 {
            self.bytes.copy_within(self.first..self.after, 0);
            self.after -= self.first;
            self.first = 0;
        }
    }
}

/// Replies that wait to be sent.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    len: usize,
}

impl Output {
    pub(super) fn new() -> Self {
        Output { bytes: Vec::new(), len: 0 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.extend(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `len` bytes for the caller to fill; until then they hold anything.
    pub(super) fn extend(&mut self, len: usize) -> &mut [u8] {
        let first = self.len;
        self.len += len;
        if self.len > self.bytes.len() {
            self.bytes.resize(self.len, 0);
        }
        &mut self.bytes[first..self.len]
    }

    /// Makes room for exactly `len` more bytes.
    pub(super) fn reserve(&mut self, len: usize) {
        let len = self.len + len;
        if len > self.bytes.len() {
            grow(&mut self.bytes, len);
        }
    }

    /// Overwrites bytes that were appended before.
    pub(super) fn patch(&mut self, first: usize, bytes: &[u8]) {
        self.bytes[first..first + bytes.len()].copy_from_slice(bytes);
    }

    /// Removes all but the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes what was sent.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if self.bytes.len() > KEPT_LEN {
            self.bytes.truncate(KEPT_LEN);
            self.bytes.shrink_to_fit();
        }
    }

    /// Bytes of memory that the buffer takes.
    pub(super) fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Lengthens a buffer without the spare capacity that a vector would add.
fn grow(bytes: &mut Vec<u8>, len: usize) {
    bytes.reserve_exact(len - bytes.len());
    bytes.resize(len, 0);
}
