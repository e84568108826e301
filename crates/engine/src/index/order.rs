//! Keys of ordered indexes: bytes that have the order of the columns, compared from left to right.
//!
//! ```text
//! NULL         0, and nothing else; a value of a column that may be NULL has a 1 before it
//! BOOL         the cell
//! INT, UINT    the cell, greatest byte first; the sign bit of an INT is flipped
//! DOUBLE       the same; of a negative number, all bits are flipped: IEEE 754 `totalOrder`
//! TEXT, BYTES  the bytes, with 255 behind each 0; and 0, 0 as their end
//! ```
//!
//! No column's bytes are the beginning of other bytes of that column. So one key is never the
//! beginning of another, two keys are equal only if their cells are, and the keys that begin with
//! some columns are a range.
//!
//! An entry of an index is a key and the number of a row, greatest byte first.

use std::ops::Bound;

use remanent_structures::RowId;
use smallvec::SmallVec;

use crate::Result;
use crate::table::layout::{Format, KeyCells};
use crate::value::{Type, counted, put_counted};

/// Bytes of a key, or of an entry.
pub(crate) type OrderedBytes = SmallVec<[u8; 32]>;

/// Bytes of a key at the most.
pub(crate) const KEY_LEN_MAX: usize = 32 << 10;

/// Bytes of a row's number in an entry.
const ROW_LEN: usize = 5;
const _: () = assert!(RowId::MAX.get() >> (8 * ROW_LEN) == 0);

const IS_NULL: u8 = 0;
const IS_VALUE: u8 = 1;
/// Instead of the last column of a key, which names no value.
const DAMAGED: u8 = 0xff;
/// Ends text and bytes, twice.
const END: u8 = 0;
/// Behind a 0 that is a byte of a text.
const ESCAPED: u8 = 0xff;

/// Bytes that a column has in a key at the most.
pub(crate) fn len_max(of_type: Type, is_nullable: bool) -> usize {
    let len = match of_type {
        Type::Text { max } | Type::Bytes { max } => 2 * usize::from(max) + 2,
        Type::Bool | Type::Int { .. } | Type::Uint { .. } | Type::F64 => of_type.cell_len(),
    };
    usize::from(is_nullable) + len
}

/// Bytes that are written or compared one after the other. Says whether it wants more.
trait Sink {
    fn take(&mut self, bytes: &[u8]) -> bool;
}

impl Sink for OrderedBytes {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.extend_from_slice(bytes);
        true
    }
}

/// What is left of bytes that were the same so far.
struct Same<'b>(&'b [u8]);

impl Sink for Same<'_> {
    fn take(&mut self, bytes: &[u8]) -> bool {
        let rest = self.0.strip_prefix(bytes);
        self.0 = rest.unwrap_or_default();
        rest.is_some()
    }
}

/// Passes the bytes of a cell to a sink.
fn put(of_type: Type, cell: &[u8], sink: &mut impl Sink) -> bool {
    let is_signed = matches!(of_type, Type::Int { .. });
    match of_type {
        Type::Bool => sink.take(cell),
        Type::Int { .. } | Type::Uint { .. } => {
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..cell.len()];
            bytes.copy_from_slice(cell);
            bytes.reverse();
            bytes[0] ^= u8::from(is_signed) << 7;
            sink.take(bytes)
        }
        Type::F64 => {
            let bits = u64::from_le_bytes(cell.try_into().expect("8 bytes"));
            sink.take(&with_order(bits).to_be_bytes())
        }
        Type::Text { max } | Type::Bytes { max } => {
            // A damaged cell has some key, too.
            let bytes = counted(cell, max).unwrap_or(&cell[cell.len() - usize::from(max)..]);
            let mut parts = bytes.split(|&byte| byte == 0);
            parts.next().is_none_or(|first| sink.take(first))
                && parts.all(|part| sink.take(&[0, ESCAPED]) && sink.take(part))
                && sink.take(&[END, END])
        }
    }
}

/// The bits of a floating-point number as an integer that has its order.
fn with_order(bits: u64) -> u64 {
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Passes the key of a row to a sink. Returns whether the sink took all of it, and whether the row
/// has no value in one of the columns.
fn put_row(
    format: &Format,
    columns: &[usize],
    row: KeyCells<'_>,
    sink: &mut impl Sink,
) -> (bool, bool) {
    let mut has_null = false;
    let is_taken = columns.iter().all(|&column| {
        let cell = format.cells[column];
        let Some(bytes) = format.cells.bytes_of(column, row) else {
            has_null = true;
            return sink.take(&[IS_NULL]);
        };
        if bytes.is_empty() {
            // A damaged cell of an encoded column: it is equal to no key.
            sink.take(&[DAMAGED]);
            return false;
        }
        (cell.null.is_none() || sink.take(&[IS_VALUE])) && put(cell.of_type, bytes, sink)
    });
    (is_taken, has_null)
}

/// The key of a row, and whether the row has no value in one of the columns.
pub(super) fn of_row(
    format: &Format,
    columns: &[usize],
    row: KeyCells<'_>,
) -> (OrderedBytes, bool) {
    let mut bytes = OrderedBytes::new();
    let (_, has_null) = put_row(format, columns, row, &mut bytes);
    (bytes, has_null)
}

/// Whether these bytes are the key of a row.
pub(crate) fn is_of_row(
    bytes: &[u8],
    format: &Format,
    columns: &[usize],
    row: KeyCells<'_>,
) -> bool {
    let mut rest = Same(bytes);
    put_row(format, columns, row, &mut rest).0 && rest.0.is_empty()
}

/// The key that has these cells, or its beginning if columns are left out. `write` writes each of
/// them into zeros, and says whether there is a value.
pub(crate) fn of_cells(
    format: &Format,
    columns: &[usize],
    mut write: impl FnMut(usize, &mut [u8]) -> Result<bool>,
) -> Result<OrderedBytes> {
    let mut bytes = OrderedBytes::new();
    let mut room: SmallVec<[u8; 256]> = SmallVec::new();
    for (index, &column) in columns.iter().enumerate() {
        let cell = format.cells[column];
        room.clear();
        room.resize(cell.of_type.cell_len(), 0);
        let is_value = write(index, &mut room)?;
        if cell.null.is_some() {
            bytes.push(if is_value { IS_VALUE } else { IS_NULL });
        }
        if is_value {
            put(cell.of_type, &room, &mut bytes);
        }
    }
    Ok(bytes)
}

/// Reads the cell that bytes begin with; `None` if they begin with none.
fn read(of_type: Type, bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut cell = vec![0; of_type.cell_len()];
    match of_type {
        Type::Bool => cell.copy_from_slice(bytes.split_off(..1)?),
        Type::Int { len } | Type::Uint { len } => {
            cell.copy_from_slice(bytes.split_off(..usize::from(len))?);
            cell[0] ^= u8::from(matches!(of_type, Type::Int { .. })) << 7;
            cell.reverse();
        }
        Type::F64 => {
            let ordered = u64::from_be_bytes(bytes.split_off(..8)?.try_into().ok()?);
            let bits = if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered };
            cell.copy_from_slice(&bits.to_le_bytes());
        }
        Type::Text { max } | Type::Bytes { max } => {
            let mut text = Vec::new();
            loop {
                let byte = *bytes.split_off_first()?;
                if byte == 0 && *bytes.split_off_first()? == END {
                    break;
                }
                text.push(byte);
            }
            if text.len() > usize::from(max) {
                return None;
            }
            put_counted(&text, max, &mut cell);
        }
    }
    Some(cell)
}

/// A key as a person writes it.
pub(super) fn tell(format: &Format, columns: &[usize], mut bytes: &[u8]) -> String {
    let told = columns.iter().map(|&column| {
        let cell = format.cells[column];
        if cell.null.is_some() && bytes.split_off_first() == Some(&IS_NULL) {
            return "NULL".to_owned();
        }
        let read = read(cell.of_type, &mut bytes);
        let value = read.as_deref().and_then(|read| cell.of_type.decode(read));
        value.map_or_else(|| "?".to_owned(), |value| value.to_string())
    });
    told.collect::<Vec<_>>().join(", ")
}

/// The entry of a row.
pub(super) fn entry(key: &[u8], row: RowId) -> OrderedBytes {
    let mut entry = OrderedBytes::from_slice(key);
    entry.extend_from_slice(&row.get().to_be_bytes()[8 - ROW_LEN..]);
    entry
}

/// The key and the row of an entry; `None` if it is damaged.
pub(crate) fn key_and_row(entry: &[u8]) -> Option<(&[u8], RowId)> {
    let (key, number) = entry.split_at_checked(entry.len().checked_sub(ROW_LEN)?)?;
    let number = number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((key, RowId::new(number)?))
}

/// In which order rows are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// From the least key to the greatest.
    #[default]
    Ascending,
    /// From the greatest key to the least.
    Descending,
}

/// A range of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(super) start: OrderedBytes,
    /// Is not in the range. `None` if nothing ends it.
    pub(super) end: Option<OrderedBytes>,
}

impl Span {
    /// The entries between two bounds, which are keys or their beginnings: a bound that is included
    /// includes all entries that begin with it.
    pub(crate) fn between(lower: Bound<OrderedBytes>, upper: Bound<OrderedBytes>) -> Self {
        let start = match lower {
            Bound::Unbounded => Some(OrderedBytes::new()),
            Bound::Included(prefix) => Some(prefix),
            Bound::Excluded(prefix) => behind(prefix),
        };
        let end = match upper {
            Bound::Unbounded => None,
            Bound::Included(prefix) => behind(prefix),
            Bound::Excluded(prefix) => Some(prefix),
        };
        match start {
            Some(start) => Span { start, end },
            // Nothing is behind the lower bound.
            None => Span { start: OrderedBytes::new(), end: Some(OrderedBytes::new()) },
        }
    }

    /// The entries of a key.
    pub(super) fn of_key(key: &[u8]) -> Self {
        let key = OrderedBytes::from_slice(key);
        Span::between(Bound::Included(key.clone()), Bound::Included(key))
    }

    /// Leaves out the entries that come behind one in an order.
    pub(crate) fn end_at(&mut self, entry: &[u8], order: Order) {
        match order {
            Order::Ascending => {
                let mut end = OrderedBytes::from_slice(entry);
                // Nothing lies between bytes and the same with a zero.
                end.push(0);
                self.end = Some(end);
            }
            Order::Descending => self.start = OrderedBytes::from_slice(entry),
        }
    }

    /// Leaves out an entry and those before it in an order.
    pub(crate) fn go_on_behind(&mut self, entry: &[u8], order: Order) {
        match order {
            Order::Ascending => {
                self.start = OrderedBytes::from_slice(entry);
                // Nothing lies between bytes and the same with a zero.
                self.start.push(0);
            }
            Order::Descending => self.end = Some(OrderedBytes::from_slice(entry)),
        }
    }
}

/// The least bytes that are greater than all that begin with a prefix; `None` if there are none.
fn behind(mut prefix: OrderedBytes) -> Option<OrderedBytes> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::schema::TableSpec;
    use crate::value::Value;

    /// Types of all kinds, each of which may be NULL.
    const TYPES: [Type; 9] = [
        Type::Bool,
        Type::I8,
        Type::Int { len: 5 },
        Type::I64,
        Type::Uint { len: 3 },
        Type::F64,
        Type::Text { max: 4 },
        Type::Bytes { max: 255 },
        Type::Bytes { max: 300 },
    ];

    fn format(of_type: Type) -> Format {
        let spec = TableSpec::new("t").nullable("a", of_type).column("b", Type::U8);
        let spec = spec.index("i", ["a", "b"]).ordered(["i"]);
        Format::new(spec.columns(), &spec.key_columns(&spec.resolve().unwrap()), None)
    }

    /// The key of two values, once from these values and once from a row.
    fn key(of_type: Type, value: &Value<'_>, other: u8) -> OrderedBytes {
        let format = format(of_type);
        let by_cells = of_cells(&format, &[0, 1], |index, cell| {
            if index == 1 {
                cell[0] = other;
            } else if *value != Value::Null {
                of_type.encode(value, cell).unwrap();
            }
            Ok(index == 1 || *value != Value::Null)
        })
        .unwrap();
        let mut keys = vec![0; format.group_len[0] as usize];
        match value {
            Value::Null => keys[0] |= 1,
            value => of_type.encode(value, &mut keys[format.cells[0].range()]).unwrap(),
        }
        keys[format.cells[1].range()][0] = other;
        let keys = [&keys[..], &[]];
        let (by_row, has_null) = of_row(&format, &[0, 1], keys);
        assert_eq!((&by_cells, *value == Value::Null), (&by_row, has_null));
        assert!(is_of_row(&by_row, &format, &[0, 1], keys));
        assert!(!is_of_row(&by_row[..by_row.len() - 1], &format, &[0, 1], keys));
        assert!(!is_of_row(&[&by_row[..], &[0]].concat(), &format, &[0, 1], keys));
        assert!(by_row.len() <= len_max(of_type, true) + 1);
        assert_eq!(tell(&format, &[0, 1], &by_row), format!("{value}, {other}"));
        by_row
    }

    fn rank(value: &Value<'_>) -> u8 {
        u8::from(*value != Value::Null)
    }

    /// The order of two values of one type.
    fn compared(one: &Value<'_>, other: &Value<'_>) -> Ordering {
        match (one, other) {
            (Value::Float(one), Value::Float(other)) => one.total_cmp(other),
            (Value::Text(one), Value::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
            (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
            _ => rank(one).cmp(&rank(other)).then_with(|| {
                one.partial_cmp(other).expect("values of one type without floating-point numbers")
            }),
        }
    }

    /// Values that fit a type, by numbers that a test draws.
    fn value(of_type: Type, word: u64, bytes: &[u8]) -> Value<'_> {
        match of_type {
            _ if word.is_multiple_of(9) => Value::Null,
            Type::Bool => Value::Bool(word & 1 != 0),
            Type::Int { len } => {
                let unused = 64 - 8 * u32::from(len);
                Value::Int((word << unused) as i64 >> unused)
            }
            Type::Uint { len } => Value::Uint(word >> (64 - 8 * u32::from(len))),
            Type::F64 => Value::Float(f64::from_bits(word)),
            Type::Text { .. } => Value::Text(std::str::from_utf8(bytes).unwrap_or("\0\u{1}")),
            Type::Bytes { .. } => Value::Bytes(bytes),
        }
    }

    proptest! {
        #[test]
        fn keys_have_the_order_of_their_values(
            of_type in prop::sample::select(TYPES.to_vec()),
            words in [any::<u64>(), any::<u64>()],
            bytes in prop::array::uniform2(prop::collection::vec(
                prop::sample::select(vec![0, 1, b'a', 0x7f]), 0..=4)),
            others: [u8; 2],
        ) {
            let [one, other] = [0, 1].map(|at| value(of_type, words[at], &bytes[at]));
            let keys = [key(of_type, &one, others[0]), key(of_type, &other, others[1])];
            let expected = compared(&one, &other).then(others[0].cmp(&others[1]));
            prop_assert_eq!(keys[0].cmp(&keys[1]), expected, "{} and {}", one, other);
            // None is the beginning of another one.
            prop_assert_eq!(keys[0].starts_with(&keys[1]), expected.is_eq());
        }

        #[test]
        fn an_entry_has_its_key_and_its_row(bytes: Vec<u8>, row in 0..=RowId::MAX.get()) {
            let row = RowId::new(row).unwrap();
            let entry = entry(&bytes, row);
            prop_assert_eq!(key_and_row(&entry), Some((&bytes[..], row)));
        }
    }

    #[test]
    fn numbers_at_the_ends_have_their_order() {
        let ascending = |of_type, values: &[Value<'_>]| {
            let keys: Vec<_> = values.iter().map(|value| key(of_type, value, 0)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{of_type}: {keys:?}");
        };
        let ints = [i64::MIN, -256, -255, -1, 0, 1, 255, 256, i64::MAX];
        ascending(Type::I64, &[&[Value::Null], &ints.map(Value::Int)[..]].concat());
        ascending(Type::U64, &[0, 255, 256, u64::MAX].map(Value::Uint));
        let nan = f64::NAN.copysign(1.0);
        let floats = [-nan, f64::NEG_INFINITY, f64::MIN, -1.0, -5e-324, -0.0];
        let greater = [0.0, 5e-324, 1.0, f64::MAX, f64::INFINITY, nan];
        let all = [&floats[..], &greater].concat();
        let all: Vec<Value<'_>> = all.into_iter().map(Value::Float).collect();
        for pair in all.windows(2) {
            let [one, other] = [0, 1].map(|at| key_of_float(&pair[at]));
            assert!(one < other, "{pair:?}");
        }
    }

    /// As `key`, which compares values, and so refuses NaN.
    fn key_of_float(value: &Value<'_>) -> OrderedBytes {
        let mut cell = [0; 8];
        Type::F64.encode(value, &mut cell).unwrap();
        let mut bytes = OrderedBytes::new();
        put(Type::F64, &cell, &mut bytes);
        assert_eq!(read(Type::F64, &mut &bytes[..]).as_deref(), Some(&cell[..]));
        bytes
    }

    #[test]
    fn bounds_are_ranges_of_bytes() {
        let of = |bytes: &[u8]| OrderedBytes::from_slice(bytes);
        let span = |start: &[u8], end: Option<&[u8]>| Span { start: of(start), end: end.map(of) };
        let (a, b) = (|| of(&[7, 0]), || of(&[7, 0xff]));
        for (lower, upper, expected) in [
            (Bound::Unbounded, Bound::Unbounded, span(&[], None)),
            (Bound::Included(a()), Bound::Included(a()), span(&[7, 0], Some(&[7, 1]))),
            (Bound::Excluded(a()), Bound::Excluded(b()), span(&[7, 1], Some(&[7, 0xff]))),
            (Bound::Excluded(b()), Bound::Included(b()), span(&[8], Some(&[8]))),
            (Bound::Included(of(&[])), Bound::Included(of(&[])), span(&[], None)),
            (Bound::Excluded(of(&[])), Bound::Unbounded, span(&[], Some(&[]))),
            (Bound::Excluded(of(&[0xff])), Bound::Included(of(&[0xff])), span(&[], Some(&[]))),
        ] {
            assert_eq!(Span::between(lower, upper), expected);
        }
        let mut rest = span(&[1], Some(&[9]));
        rest.go_on_behind(&[3], Order::Ascending);
        rest.go_on_behind(&[5], Order::Descending);
        assert_eq!(rest, span(&[3, 0], Some(&[5])));
    }
}
