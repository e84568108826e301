//! Values, the types of columns, and how a value lies in its cell.
//!
//! A cell has a fixed number of bytes. Integers have the bytes of their type, least byte first.
//! Text and bytes have their length first, in one byte, or in two if the column may have more than
//! 255; and zeros behind their end. So two cells of one column are equal if their bytes are.

use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Type {
    /// True or false: 1 byte.
    Bool,
    /// An integer with a sign, of 1 to 8 bytes.
    Int {
        /// Its bytes.
        len: u8,
    },
    /// An integer without a sign, of 1 to 8 bytes.
    Uint {
        /// Its bytes.
        len: u8,
    },
    /// A floating-point number of 8 bytes.
    F64,
    /// Text of at most so many bytes. Each row has room for all of them, and for their number: one
    /// byte, or two if there may be more than 255.
    ///
    /// As rows have [`ROW_LEN_MAX`](crate::ROW_LEN_MAX) bytes, so long a text is for a column that
    /// is [encoded](crate::TableSpec::encoded) alone.
    Text {
        /// Its bytes at most.
        max: u16,
    },
    /// Bytes, at most so many: as text.
    Bytes {
        /// Their number at most.
        max: u16,
    },
}

/// Bytes of a cell that has the number of a value in a dictionary.
pub(crate) const ID_LEN: usize = 4;
/// Texts of at most so many bytes have their length in one byte.
const SHORT_MAX: u16 = u8::MAX as u16;

impl Type {
    /// An integer of one byte.
    pub const I8: Type = Type::Int { len: 1 };
    /// An integer of two bytes.
    pub const I16: Type = Type::Int { len: 2 };
    /// An integer of four bytes.
    pub const I32: Type = Type::Int { len: 4 };
    /// An integer of eight bytes.
    pub const I64: Type = Type::Int { len: 8 };
    /// An integer of one byte, without a sign.
    pub const U8: Type = Type::Uint { len: 1 };
    /// An integer of two bytes, without a sign.
    pub const U16: Type = Type::Uint { len: 2 };
    /// An integer of four bytes, without a sign.
    pub const U32: Type = Type::Uint { len: 4 };
    /// An integer of eight bytes, without a sign.
    pub const U64: Type = Type::Uint { len: 8 };

    /// Bytes of a cell.
    pub(crate) fn cell_len(self) -> usize {
        match self {
            Type::Bool => 1,
            Type::Int { len } | Type::Uint { len } => usize::from(len),
            Type::F64 => 8,
            Type::Text { max } | Type::Bytes { max } => count_len(max) + usize::from(max),
        }
    }

    /// Whether the type is one that can be.
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Type::Int { len } | Type::Uint { len } => (1..=8).contains(&len),
            Type::Text { max } | Type::Bytes { max } => max > 0,
            Type::Bool | Type::F64 => true,
        }
    }

    /// A number that stands for the type in a catalog.
    pub(crate) fn code(self) -> u32 {
        let (kind, len) = match self {
            Type::Bool => (1, 0),
            Type::Int { len } => (2, len.into()),
            Type::Uint { len } => (3, len.into()),
            Type::F64 => (4, 0),
            Type::Text { max } => (5, max),
            Type::Bytes { max } => (6, max),
        };
        kind | u32::from(len) << 8
    }

    /// The type of a code; `None` if there is none.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        let max = u16::try_from(code >> 8).ok()?;
        let len = u8::try_from(max);
        let found = match (code & 0xff, max) {
            (1, 0) => Type::Bool,
            (2, _) => Type::Int { len: len.ok()? },
            (3, _) => Type::Uint { len: len.ok()? },
            (4, 0) => Type::F64,
            (5, _) => Type::Text { max },
            (6, _) => Type::Bytes { max },
            _ => return None,
        };
        found.is_valid().then_some(found)
    }

    /// Writes a value into a cell of zeros. `Err` says why it does not fit; nulls are not asked
    /// for.
    pub(crate) fn encode(self, value: &Value<'_>, cell: &mut [u8]) -> Result<(), String> {
        match (self, *value) {
            (Type::Bool, Value::Bool(value)) => cell[0] = u8::from(value),
            (Type::F64, Value::Float(value)) => cell.copy_from_slice(&value.to_le_bytes()),
            (Type::Int { len }, Value::Int(value)) => self.encode_int(value, len, cell)?,
            (Type::Int { len }, Value::Uint(value)) => {
                let value = i64::try_from(value).map_err(|_| self.misfit(&value))?;
                self.encode_int(value, len, cell)?;
            }
            (Type::Uint { len }, Value::Uint(value)) => self.encode_uint(value, len, cell)?,
            (Type::Uint { len }, Value::Int(value)) => {
                let value = u64::try_from(value).map_err(|_| self.misfit(&value))?;
                self.encode_uint(value, len, cell)?;
            }
            (Type::Text { max }, Value::Text(text)) => {
                self.encode_bytes(text.as_bytes(), max, cell)?
            }
            (Type::Bytes { max }, Value::Bytes(bytes)) => self.encode_bytes(bytes, max, cell)?,
            _ => return Err(format!("{value} is no {self}")),
        }
        Ok(())
    }

    fn encode_int(self, value: i64, len: u8, cell: &mut [u8]) -> Result<(), String> {
        let unused = 64 - 8 * u32::from(len);
        if value << unused >> unused != value {
            return Err(self.misfit(&value));
        }
        cell.copy_from_slice(&value.to_le_bytes()[..usize::from(len)]);
        Ok(())
    }

    fn encode_uint(self, value: u64, len: u8, cell: &mut [u8]) -> Result<(), String> {
        let unused = 64 - 8 * u32::from(len);
        if value << unused >> unused != value {
            return Err(self.misfit(&value));
        }
        cell.copy_from_slice(&value.to_le_bytes()[..usize::from(len)]);
        Ok(())
    }

    fn encode_bytes(self, bytes: &[u8], max: u16, cell: &mut [u8]) -> Result<(), String> {
        if bytes.len() > usize::from(max) {
            return Err(format!("{} bytes are more than {self} can have", bytes.len()));
        }
        put_counted(bytes, max, cell);
        Ok(())
    }

    #[cold]
    fn misfit(self, value: &dyn fmt::Display) -> String {
        format!("{value} does not fit {self}")
    }

    /// The value of a cell; `None` if the cell is damaged.
    // Not as a call: its answer would go through memory, by stores that loads have to wait for.
    #[inline(always)]
    pub(crate) fn decode(self, cell: &[u8]) -> Option<Value<'_>> {
        Some(match self {
            Type::Bool => Value::Bool(cell[0] != 0),
            Type::Uint { .. } => Value::Uint(word(cell)),
            Type::Int { len } => {
                let unused = 64 - 8 * u32::from(len);
                Value::Int((word(cell) as i64) << unused >> unused)
            }
            Type::F64 => Value::Float(f64::from_bits(word(cell))),
            Type::Bytes { max } => Value::Bytes(counted(cell, max)?),
            Type::Text { max } => Value::Text(std::str::from_utf8(counted(cell, max)?).ok()?),
        })
    }
}

/// The number that up to eight bytes are, least byte first.
#[inline(always)]
fn word(cell: &[u8]) -> u64 {
    // The usual lengths each by one load: a copy of unknown length is a call.
    match *cell {
        [byte] => u64::from(byte),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => cell.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Bytes of the number with which the cell of a text begins.
fn count_len(max: u16) -> usize {
    if max <= SHORT_MAX { 1 } else { 2 }
}

/// The bytes in the cell of a text that has at most so many; `None` if it is damaged.
#[inline]
pub(crate) fn counted(cell: &[u8], max: u16) -> Option<&[u8]> {
    match max <= SHORT_MAX {
        true => cell.get(1..1 + usize::from(cell[0])),
        false => cell.get(2..2 + usize::from(u16::from_le_bytes([cell[0], cell[1]]))),
    }
}

/// Writes bytes that fit into the cell of zeros of such a text.
pub(crate) fn put_counted(bytes: &[u8], max: u16, cell: &mut [u8]) {
    let (count, room) = cell.split_at_mut(count_len(max));
    count.copy_from_slice(&(bytes.len() as u16).to_le_bytes()[..count.len()]);
    room[..bytes.len()].copy_from_slice(bytes);
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("BOOL"),
            Type::Int { len } => write!(f, "INT of {len} bytes"),
            Type::Uint { len } => write!(f, "UINT of {len} bytes"),
            Type::F64 => f.write_str("DOUBLE"),
            Type::Text { max } => write!(f, "TEXT({max})"),
            Type::Bytes { max } => write!(f, "BYTES({max})"),
        }
    }
}

/// A value of a column, or none.
///
/// Integers of any type that fit the column are taken; other types have to be those of the column.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Value<'v> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer, as columns without a sign have it.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(&'v str),
    /// Bytes.
    Bytes(&'v [u8]),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// Makes integer types values, by the variant that has their sign.
macro_rules! integers {
    ($variant:ident, $wide:ty: $($type:ty),*) => {$(
        impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Value::$variant(<$wide>::from(value))
            }
        }
    )*};
}

integers!(Int, i64: i8, i16, i32, i64);
integers!(Uint, u64: u8, u16, u32, u64);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(value: &'v str) -> Self {
        Value::Text(value)
    }
}

impl<'v> From<&'v String> for Value<'v> {
    fn from(value: &'v String) -> Self {
        Value::Text(value)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(value: &'v [u8]) -> Self {
        Value::Bytes(value)
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// What a column's value can be read as.
pub trait FromValue<'v>: Sized {
    /// Converts it; `None` if it has another type, or does not fit.
    fn from_value(value: Value<'v>) -> Option<Self>;
}

/// Reads integers of either sign.
macro_rules! from_integers {
    ($($type:ty),*) => {$(
        impl<'v> FromValue<'v> for $type {
            #[inline]
            fn from_value(value: Value<'v>) -> Option<Self> {
                match value {
                    Value::Int(value) => value.try_into().ok(),
                    Value::Uint(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}

from_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Reads types that one variant has.
macro_rules! from_variant {
    ($($variant:ident: $type:ty),*) => {$(
        impl<'v> FromValue<'v> for $type {
            #[inline]
            fn from_value(value: Value<'v>) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value),
                    _ => None,
                }
            }
        }
    )*};
}

from_variant!(Bool: bool, Float: f64, Text: &'v str, Bytes: &'v [u8]);

impl<'v, T: FromValue<'v>> FromValue<'v> for Option<T> {
    #[inline]
    fn from_value(value: Value<'v>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(of_type: Type, value: Value<'_>) -> Result<(), String> {
        let mut cell = vec![0; of_type.cell_len()];
        of_type.encode(&value, &mut cell)?;
        assert_eq!(of_type.decode(&cell), Some(value), "{of_type}");
        Ok(())
    }

    proptest! {
        #[test]
        fn integers_that_fit_come_back_and_others_are_refused(value: i64, len in 1u8..=8) {
            let bits = 8 * u32::from(len) - 1;
            let fits = value >> bits == 0 || value >> bits == -1;
            prop_assert_eq!(round_trip(Type::Int { len }, Value::Int(value)).is_ok(), fits);
            let fits = u32::from(len) == 8 || (value as u64) >> (8 * u32::from(len)) == 0;
            let unsigned = Value::Uint(value as u64);
            prop_assert_eq!(round_trip(Type::Uint { len }, unsigned).is_ok(), fits);
        }

        #[test]
        fn text_comes_back(text in ".{0,40}") {
            let fits = text.len() <= 60;
            prop_assert_eq!(round_trip(Type::Text { max: 60 }, Value::Text(&text)).is_ok(), fits);
        }

        #[test]
        fn bytes_of_any_length_come_back(len in 0usize..=70_000, max in 1u16..) {
            let bytes = vec![7; len];
            let fits = len <= usize::from(max);
            prop_assert_eq!(round_trip(Type::Bytes { max }, Value::Bytes(&bytes)).is_ok(), fits);
        }
    }

    #[test]
    fn the_longest_texts_come_back() {
        for max in [1, 254, 255, 256, 257, u16::MAX] {
            for len in [max, max - 1, 0] {
                let text = "x".repeat(len.into());
                round_trip(Type::Text { max }, Value::Text(&text)).unwrap();
            }
            let text = "x".repeat(usize::from(max) + 1);
            assert!(round_trip(Type::Text { max }, Value::Text(&text)).is_err(), "{max}");
        }
    }

    #[test]
    fn types_have_codes() {
        for of_type in [
            Type::Bool,
            Type::I8,
            Type::U64,
            Type::F64,
            Type::Text { max: 15 },
            Type::Bytes { max: 255 },
            Type::Text { max: 256 },
            Type::Bytes { max: u16::MAX },
        ] {
            assert_eq!(Type::from_code(of_type.code()), Some(of_type));
        }
        for code in [0, 0x101, 2, 0x903, 0x1_0102, 5, 0x107] {
            assert_eq!(Type::from_code(code), None, "{code:#x}");
        }
        assert_eq!(Type::from_code(5 | 1 << 24), None);
    }

    #[test]
    fn a_cell_that_is_damaged_has_no_value() {
        assert_eq!(Type::Text { max: 3 }.decode(&[4, b'a', b'b', b'c']), None);
        assert_eq!(Type::Text { max: 3 }.decode(&[1, 0xff, 0, 0]), None);
        assert_eq!(Type::Text { max: 3 }.decode(&[1, b'a', 0, 0]), Some(Value::Text("a")));
        let mut long = vec![0; Type::Bytes { max: 256 }.cell_len()];
        for (count, bytes) in [(256, Some(256)), (257, None), (u16::MAX, None), (0, Some(0))] {
            long[..2].copy_from_slice(&u16::to_le_bytes(count));
            let decoded = Type::Bytes { max: 256 }.decode(&long);
            assert_eq!(decoded, bytes.map(|len| Value::Bytes(&long[2..2 + len])), "{count}");
        }
    }
}
