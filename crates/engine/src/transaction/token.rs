//! Names of transactions that outlive the process.

use std::fmt;
use std::str::FromStr;

use super::layout::{SLOT_COUNT, Serial};
use crate::Error;

/// The name of a transaction, by which a program asks after a crash what became of it:
/// [`Database::resume`](crate::Database::resume).
///
/// It is shown as 16 hexadecimal digits, and read again from them.
///
/// ```
/// use remanent_engine::Token;
///
/// let token: Token = "0300100000000009".parse()?;
/// assert_eq!(token.to_string(), "0300100000000009");
/// # Ok::<(), remanent_engine::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    const SLOT_SHIFT: u32 = 56;

    pub(super) fn new(slot: u32, serial: Serial) -> Self {
        Token(u64::from(slot) << Self::SLOT_SHIFT | serial.get())
    }

    /// That of a transaction of which it is not known any more how it ended.
    pub(super) fn forgotten(slot: u32) -> Self {
        Token::new(slot, Serial { number: 0, opening: 0 })
    }

    /// A number that stands for it.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The token that a number stands for.
    pub(crate) fn of_word(word: u64) -> Self {
        Token(word)
    }

    pub(super) fn is_forgotten(self) -> bool {
        self.serial().number == 0
    }

    pub(super) fn slot(self) -> u32 {
        (self.0 >> Self::SLOT_SHIFT) as u32 % SLOT_COUNT
    }

    pub(super) fn serial(self) -> Serial {
        Serial::new(self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word = u64::from_str_radix(text, 16).ok().filter(|_| is_one);
        word.map(Token).ok_or_else(|| Error::NoToken { text: text.to_owned() })
    }
}
