//! The negotiation: options of a client and the replies to them.

use std::sync::Arc;

use crate::buffer::Output;
use crate::export::{Export, Exports};
use crate::limits::{NAME_LEN_MAX, REQUEST_LEN_MAX};
use crate::requests::Transmission;
use crate::wire::{
    BLOCK_SIZE_PREFERRED, Fields, handshake, info, option, put_option_reply, reply, transmission,
};

/// The only context, and the prefix of queries for all contexts of its kind.
const CONTEXT: &[u8] = b"base:allocation";
const CONTEXT_NAMESPACE: &[u8] = b"base:";
/// The number that replies use for the context.
pub(super) const CONTEXT_ID: u32 = 1;
/// Zeroes behind the reply to `EXPORT_NAME`, unless the client has declined them.
const PADDING_LEN: usize = 124;

/// The state of a negotiation.
#[derive(Debug)]
pub(super) struct Negotiation {
    exports: Arc<Exports>,
    flags: u32,
    is_structured: bool,
    /// Index of the export whose allocation the client wants to know.
    context: Option<usize>,
    answered: u32,
}

/// What the client sends next.
pub(super) enum Outcome {
    /// Another option.
    Next,
    /// Requests.
    Transmit(Transmission),
    /// Nothing: the connection ends.
    Close,
}

/// The reason for refusing an option, with a text for people.
struct Refusal {
    reply: u32,
    text: &'static str,
}

const MALFORMED: Refusal =
    Refusal { reply: reply::ERR_INVALID, text: "the option's data is not what its head announces" };
const NOT_EMPTY: Refusal =
    Refusal { reply: reply::ERR_INVALID, text: "the option has data and should have none" };
const NAME_TOO_LONG: Refusal =
    Refusal { reply: reply::ERR_TOO_BIG, text: "the name of an export has at most 4096 bytes" };
const QUERY_TOO_LONG: Refusal =
    Refusal { reply: reply::ERR_TOO_BIG, text: "a query has at most 4096 bytes" };
const NO_SUCH_EXPORT: Refusal =
    Refusal { reply: reply::ERR_UNKNOWN, text: "there is no export of this name" };
const NOT_STRUCTURED: Refusal = Refusal {
    reply: reply::ERR_INVALID,
    text: "contexts need structured replies, ask for them first",
};
const UNSUPPORTED: Refusal =
    Refusal { reply: reply::ERR_UNSUP, text: "the option is not supported" };
const TOO_BIG: Refusal =
    Refusal { reply: reply::ERR_TOO_BIG, text: "the option has too much data" };

impl Negotiation {
    /// A negotiation with a client that has answered the greeting with `flags`.
    pub(super) fn new(exports: Arc<Exports>, flags: u32) -> Self {
        Negotiation { exports, flags, is_structured: false, context: None, answered: 0 }
    }

    /// Whether the client understands replies to options. If not, it can only choose an export.
    pub(super) fn is_fixed(&self) -> bool {
        self.has(handshake::FIXED_NEWSTYLE)
    }

    /// Number of options that were answered.
    pub(super) fn answered(&self) -> u32 {
        self.answered
    }

    /// Refuses an option with too much data, which nobody reads.
    pub(super) fn refuse_too_big(&mut self, option: u32, output: &mut Output) {
        self.answered += 1;
        TOO_BIG.put(option, output);
    }

    /// Answers one option.
    pub(super) fn answer(&mut self, option: u32, data: &[u8], output: &mut Output) -> Outcome {
        self.answered += 1;
        let first = output.len();
        let answered = match option {
            option::EXPORT_NAME => return self.export_name(data, output),
            option::ABORT => {
                put_option_reply(output, option, reply::ACK, &[]);
                return Outcome::Close;
            }
            option::GO => match self.info(option, data, output) {
                Ok(position) => return Outcome::Transmit(self.transmission(position)),
                Err(refusal) => Err(refusal),
            },
            option::INFO => self.info(option, data, output).map(|_| ()),
            option::LIST => self.list(data, output),
            option::STRUCTURED_REPLY => self.structured_reply(data, output),
            option::LIST_META_CONTEXT => self.list_contexts(data, output),
            option::SET_META_CONTEXT => self.set_context(data, output),
            _ => Err(UNSUPPORTED),
        };
        if let Err(refusal) = answered {
            output.truncate(first);
            refusal.put(option, output);
        }
        Outcome::Next
    }

    /// The old way to choose an export. It has no error reply, so the connection ends instead.
    fn export_name(&self, name: &[u8], output: &mut Output) -> Outcome {
        let found = self.exports.position(name).filter(|_| name.len() <= NAME_LEN_MAX);
        let Some(position) = found else { return Outcome::Close };
        let transmission = self.transmission(position);
        output.put(&transmission.size().to_be_bytes());
        output.put(&transmission.flags().to_be_bytes());
        if !self.has(handshake::NO_ZEROES) {
            output.put(&[0; PADDING_LEN]);
        }
        Outcome::Transmit(transmission)
    }

    /// Describes an export, and returns its index.
    fn info(&self, option: u32, data: &[u8], output: &mut Output) -> Result<usize, Refusal> {
        let mut fields = Fields(data);
        let position = self.export(&mut fields)?;
        let count = fields.u16().ok_or(MALFORMED)?;
        let mut asked = Fields(fields.bytes(2 * usize::from(count)).ok_or(MALFORMED)?);
        if !fields.is_empty() {
            return Err(MALFORMED);
        }
        let (name, export) = self.exports.get(position);
        let mut put = |kind: u16, parts: [&[u8]; 3]| {
            let kind = kind.to_be_bytes();
            let [first, second, third] = parts;
            put_option_reply(output, option, reply::INFO, &[&kind, first, second, third]);
        };
        let transmission = self.transmission(position);
        let size = transmission.size().to_be_bytes();
        put(info::EXPORT, [&size, &transmission.flags().to_be_bytes(), &[]]);
        let (mut wants_name, mut wants_description) = (false, false);
        while let Some(kind) = asked.u16() {
            wants_name |= kind == info::NAME;
            wants_description |= kind == info::DESCRIPTION;
        }
        if wants_name {
            put(info::NAME, [name.as_bytes(), &[], &[]]);
        }
        let description = description(&**export);
        if wants_description && !description.is_empty() {
            put(info::DESCRIPTION, [description.as_bytes(), &[], &[]]);
        }
        // Sent to every client: unaligned requests are refused, whether or not the client has asked
        // for the block size.
        let min = export.block_size_min();
        let preferred = BLOCK_SIZE_PREFERRED.max(min);
        put(
            info::BLOCK_SIZE,
            [min, preferred, REQUEST_LEN_MAX]
                .map(u32::to_be_bytes)
                .each_ref()
                .map(|size| &size[..]),
        );
        put_option_reply(output, option, reply::ACK, &[]);
        Ok(position)
    }

    fn list(&self, data: &[u8], output: &mut Output) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err(NOT_EMPTY);
        }
        for (name, export) in self.exports.iter() {
            let len = (name.len() as u32).to_be_bytes();
            let description = description(export);
            let parts = [&len[..], name.as_bytes(), description.as_bytes()];
            put_option_reply(output, option::LIST, reply::SERVER, &parts);
        }
        put_option_reply(output, option::LIST, reply::ACK, &[]);
        Ok(())
    }

    fn structured_reply(&mut self, data: &[u8], output: &mut Output) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err(NOT_EMPTY);
        }
        self.is_structured = true;
        put_option_reply(output, option::STRUCTURED_REPLY, reply::ACK, &[]);
        Ok(())
    }

    /// Lists the contexts that a client may ask for: one, if it matches the queries.
    fn list_contexts(&self, data: &[u8], output: &mut Output) -> Result<(), Refusal> {
        let mut count = 0;
        let mut matches = false;
        self.queries(data, |query| {
            count += 1;
            matches |= query == CONTEXT || query == CONTEXT_NAMESPACE;
        })?;
        let listed = matches || count == 0;
        put_contexts(option::LIST_META_CONTEXT, listed.then_some(0), output);
        Ok(())
    }

    /// Sets the contexts that a client wants, replacing earlier ones.
    fn set_context(&mut self, data: &[u8], output: &mut Output) -> Result<(), Refusal> {
        self.context = None;
        let mut matches = false;
        let position = self.queries(data, |query| matches |= query == CONTEXT)?;
        self.context = matches.then_some(position);
        put_contexts(option::SET_META_CONTEXT, matches.then_some(CONTEXT_ID), output);
        Ok(())
    }

    /// The export and the queries of an option about contexts.
    fn queries(&self, data: &[u8], mut visit: impl FnMut(&[u8])) -> Result<usize, Refusal> {
        if !self.is_structured {
            return Err(NOT_STRUCTURED);
        }
        let mut fields = Fields(data);
        let position = self.export(&mut fields)?;
        let count = fields.u32().ok_or(MALFORMED)?;
        // A wrong count ends with the data.
        for _ in 0..count {
            let query = fields.string().ok_or(MALFORMED)?;
            if query.len() > NAME_LEN_MAX {
                return Err(QUERY_TOO_LONG);
            }
            visit(query);
        }
        if fields.is_empty() { Ok(position) } else { Err(MALFORMED) }
    }

    /// The export named at the beginning of an option's data.
    fn export(&self, fields: &mut Fields<'_>) -> Result<usize, Refusal> {
        let name = fields.string().ok_or(MALFORMED)?;
        if name.len() > NAME_LEN_MAX {
            return Err(NAME_TOO_LONG);
        }
        self.exports.position(name).ok_or(NO_SUCH_EXPORT)
    }

    /// The transmission that begins when the client chooses the export at `position`.
    fn transmission(&self, position: usize) -> Transmission {
        let (_, export) = self.exports.get(position);
        // Contexts were chosen for one export, and do not apply to another.
        let has_context = self.context == Some(position);
        let mut flags = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::SEND_CACHE
            | transmission::CAN_MULTI_CONN;
        flags |= if export.is_read_only() {
            transmission::READ_ONLY
        } else {
            transmission::SEND_TRIM | transmission::SEND_WRITE_ZEROES | transmission::SEND_FAST_ZERO
        };
        if self.is_structured {
            flags |= transmission::SEND_DF;
        }
        Transmission::new(Arc::clone(export), flags, has_context)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & u32::from(flag) != 0
    }
}

impl Refusal {
    fn put(&self, option: u32, output: &mut Output) {
        put_option_reply(output, option, self.reply, &[self.text.as_bytes()]);
    }
}

/// The context with its number, if there is one; then the end of the list.
fn put_contexts(option: u32, id: Option<u32>, output: &mut Output) {
    if let Some(id) = id {
        put_option_reply(output, option, reply::META_CONTEXT, &[&id.to_be_bytes(), CONTEXT]);
    }
    put_option_reply(output, option, reply::ACK, &[]);
}

/// The description of an export, shortened to the protocol's limit.
fn description(export: &dyn Export) -> String {
    let mut description = export.description();
    description.truncate(description.floor_char_boundary(NAME_LEN_MAX));
    description
}
