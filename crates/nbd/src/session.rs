//! One connection, without its socket.

use std::sync::Arc;

use crate::buffer::{Input, Output};
use crate::export::Exports;
use crate::limits::{OPTION_LEN_MAX, OPTION_LEN_SKIPPED_MAX, OPTIONS_MAX};
use crate::options::{Negotiation, Outcome};
use crate::requests::Transmission;
use crate::wire::{GREETING_MAGIC, OPTION_MAGIC, OptionHead, handshake, option};

/// Bytes of replies after which they are sent before more requests are executed: twice the answer
/// to a queue of sixteen reads of 4 KiB, and small enough to be in a near cache when the system
/// copies it.
const SEND_LEN: usize = 128 << 10;

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All requests were executed: send the replies, then receive more.
    Read,
    /// Send the replies, then go on with [`Session::run`].
    Yield,
    /// Send the replies, then close the connection.
    Close,
}

/// One connection without its socket: bytes in, replies out.
///
/// The owner of the socket repeats these steps: it sends [`output`](Session::output), which begins
/// with the greeting; calls [`sent`](Session::sent); receives into [`room`](Session::room); reports
/// the number of bytes with [`received`](Session::received); calls [`run`](Session::run); and does
/// what the [`Progress`] says.
///
/// ```
/// use std::sync::Arc;
/// use remanent_nbd::{Exports, Progress, Session};
///
/// let mut session = Session::new(Arc::new(Exports::new()));
/// assert_eq!(session.output(), b"NBDMAGICIHAVEOPT\0\x03");
/// session.sent();
/// // Flags, then the option to abort.
/// let bytes = b"\0\0\0\x03IHAVEOPT\0\0\0\x02\0\0\0\0";
/// session.room()[..bytes.len()].copy_from_slice(bytes);
/// session.received(bytes.len());
/// assert_eq!(session.run(), Progress::Close);
/// assert_eq!(session.output(), b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x02\0\0\0\x01\0\0\0\0");
/// ```
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    input: Input,
    output: Output,
    /// Bytes still to arrive of a message that was already answered.
    skipped: u64,
    /// Number of bytes, from the first of the present message, without which it cannot be complete.
    wanted: usize,
}

#[derive(Debug)]
enum Phase {
    /// The client has not answered the greeting.
    Greeted(Arc<Exports>),
    /// The client sends options.
    Negotiating(Negotiation),
    /// The client sends requests.
    Transmitting(Transmission),
    Closed,
}

/// The outcome of the message at the beginning of the input.
pub(super) enum Step {
    /// It was answered: consume `used` bytes, and skip `skipped` further ones.
    Done { used: usize, skipped: u32 },
    /// It is incomplete without so many bytes.
    Wanted(usize),
    /// It ends the connection.
    Close,
}

impl Session {
    /// A connection that was just accepted; the greeting is in the output.
    pub fn new(exports: Arc<Exports>) -> Self {
        let mut output = Output::new();
        output.put(GREETING_MAGIC);
        output.put(OPTION_MAGIC);
        output.put(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        let phase = Phase::Greeted(exports);
        Session { phase, input: Input::new(), output, skipped: 0, wanted: 1 }
    }

    /// Room to receive into; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        self.input.room(self.wanted)
    }

    /// Notes that the first `len` bytes of [`room`](Session::room) were received.
    ///
    /// # Panics
    ///
    /// When there is not so much room.
    pub fn received(&mut self, len: usize) {
        self.input.received(len);
    }

    /// Replies that wait to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.as_bytes()
    }

    /// Removes the replies, which were sent.
    pub fn sent(&mut self) {
        self.output.clear();
    }

    /// Whether the client has not chosen an export yet.
    pub fn is_negotiating(&self) -> bool {
        matches!(self.phase, Phase::Greeted(_) | Phase::Negotiating(_))
    }

    /// Whether a message has begun to arrive.
    pub fn is_midway(&self) -> bool {
        self.skipped > 0 || !self.input.arrived().is_empty()
    }

    /// Bytes of memory that the connection's buffers take.
    pub fn memory_len(&self) -> usize {
        self.input.memory_len() + self.output.memory_len()
    }

    /// Executes the complete messages, until something else is needed.
    pub fn run(&mut self) -> Progress {
        loop {
            self.skip();
            if self.output.len() >= SEND_LEN {
                return Progress::Yield;
            }
            if self.skipped > 0 {
                self.wanted = 1;
                return Progress::Read;
            }
            match self.step() {
                Step::Done { used, skipped } => {
                    self.input.used(used);
                    self.skipped = skipped.into();
                }
                Step::Wanted(wanted) => {
                    self.wanted = wanted;
                    return Progress::Read;
                }
                Step::Close => {
                    self.phase = Phase::Closed;
                    return Progress::Close;
                }
            }
        }
    }

    /// Drops the bytes of a message that was already answered.
    fn skip(&mut self) {
        let len = self.skipped.min(self.input.arrived().len() as u64);
        self.input.used(len as usize);
        self.skipped -= len;
    }

    fn step(&mut self) -> Step {
        let arrived = self.input.arrived();
        match &mut self.phase {
            Phase::Transmitting(transmission) => transmission.step(arrived, &mut self.output),
            Phase::Negotiating(negotiation) => {
                let mut chosen = None;
                let step = step_option(negotiation, &mut chosen, arrived, &mut self.output);
                if let Some(transmission) = chosen {
                    self.phase = Phase::Transmitting(transmission);
                }
                step
            }
            Phase::Greeted(exports) => {
                let Some(flags) = arrived.first_chunk::<4>() else { return Step::Wanted(4) };
                let flags = u32::from_be_bytes(*flags);
                let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
                if flags & !known != 0 {
                    return Step::Close;
                }
                self.phase = Phase::Negotiating(Negotiation::new(Arc::clone(exports), flags));
                Step::Done { used: 4, skipped: 0 }
            }
            Phase::Closed => Step::Close,
        }
    }
}

/// Answers the option at the beginning of `arrived`; `chosen` gets the transmission that the client
/// has chosen by it.
fn step_option(
    negotiation: &mut Negotiation,
    chosen: &mut Option<Transmission>,
    arrived: &[u8],
    output: &mut Output,
) -> Step {
    let Some(head) = arrived.first_chunk() else { return Step::Wanted(OptionHead::LEN) };
    let Some(OptionHead { option, len }) = OptionHead::parse(head) else { return Step::Close };
    let is_known = negotiation.is_fixed() || option == option::EXPORT_NAME;
    if !is_known || negotiation.answered() >= OPTIONS_MAX || len > OPTION_LEN_SKIPPED_MAX {
        return Step::Close;
    }
    if len > OPTION_LEN_MAX {
        // This option has no error reply.
        if option == option::EXPORT_NAME {
            return Step::Close;
        }
        negotiation.refuse_too_big(option, output);
        return Step::Done { used: OptionHead::LEN, skipped: len };
    }
    let used = OptionHead::LEN + len as usize;
    let Some(data) = arrived.get(OptionHead::LEN..used) else { return Step::Wanted(used) };
    match negotiation.answer(option, data, output) {
        Outcome::Next => {}
        Outcome::Transmit(transmission) => *chosen = Some(transmission),
        Outcome::Close => return Step::Close,
    }
    Step::Done { used, skipped: 0 }
}
