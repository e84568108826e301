//! Parts of composite keys and values.

use smallvec::SmallVec;

/// A part of a composite key or value: a field of a derived type, or of a tuple.
///
/// The form of a part has the order of its type, and marks its own end. So the forms of several
/// parts, one after the other, have the order of the parts and can be taken apart.
///
/// | part | form |
/// |---|---|
/// | `u8` to `u128` | big-endian |
/// | `i8` to `i128` | big-endian, the sign bit flipped |
/// | `f32`, `f64` | big-endian; all bits flipped if negative, otherwise the sign bit |
/// | `bool`, `()`, `char` | one byte, none, as `u32` |
/// | `String`, `Vec<u8>` | their bytes, with 0 as 0 255; then 0 1 |
/// | `Option` | 0; or 1 and the part |
/// | `[T; N]`, tuples, derived structs | their parts |
/// | derived enums | the number of the variant, counted from 0, in one byte |
/// | derived enums with a discriminant | the discriminant of the variant, as `i64` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a stored type",
    label = "has no stored form",
    note = "a part is an integer, float, `bool`, `char`, `()`, `String`, `Vec<u8>`, an array, \
            `Option` or tuple of parts, or a type with `#[derive(Clone, Stored)]`",
    note = "instead of `usize` and `isize`, whose length depends on the machine, use `u64` and \
            `i64`; instead of a reference the owned type, such as `String` or `Vec<u8>`"
)]
pub trait Part: Clone {
    /// Bytes of the form, if all values have the same number.
    const LEN: Option<u32>;

    /// Describes how values are stored. It is equal for two types only if each reads what the other
    /// has written.
    fn shape() -> String;

    /// Appends the form.
    fn write(&self, writer: &mut PartWriter);

    /// Takes a value off the front of `bytes`. `None` when there is none, which only damage can
    /// cause.
    fn read(bytes: &mut &[u8]) -> Option<Self>;

    /// The value that replaces a damaged one: zeros and empty parts.
    fn fallback() -> Self;
}

/// Collects the form of a value.
#[derive(Debug, Default)]
pub struct PartWriter(SmallVec<[u8; 64]>);

impl PartWriter {
    /// Appends bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The bytes that were appended so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

macro_rules! integer_parts {
    ($($integer:ty => $flipped:expr),*) => {$(
        impl Part for $integer {
            const LEN: Option<u32> = Some(size_of::<$integer>() as u32);

            fn shape() -> String {
                stringify!($integer).to_owned()
            }

            #[inline]
            fn write(&self, writer: &mut PartWriter) {
                writer.put(&(*self ^ $flipped).to_be_bytes());
            }

            #[inline]
            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Some(<$integer>::from_be_bytes(take(bytes)?) ^ $flipped)
            }

            fn fallback() -> Self {
                0
            }
        }
    )*};
}

integer_parts!(
    u8 => 0, u16 => 0, u32 => 0, u64 => 0, u128 => 0,
    i8 => i8::MIN, i16 => i16::MIN, i32 => i32::MIN, i64 => i64::MIN, i128 => i128::MIN
);

macro_rules! float_parts {
    ($($float:ty, $bits:ty);*) => {$(
        impl Part for $float {
            const LEN: Option<u32> = Some(size_of::<$float>() as u32);

            fn shape() -> String {
                stringify!($float).to_owned()
            }

            #[inline]
            fn write(&self, writer: &mut PartWriter) {
                let bits = self.to_bits();
                let sign = 1 << (<$bits>::BITS - 1);
                let flipped = if bits & sign == 0 { sign } else { <$bits>::MAX };
                writer.put(&(bits ^ flipped).to_be_bytes());
            }

            #[inline]
            fn read(bytes: &mut &[u8]) -> Option<Self> {
                let bits = <$bits>::from_be_bytes(take(bytes)?);
                let sign = 1 << (<$bits>::BITS - 1);
                let flipped = if bits & sign == 0 { <$bits>::MAX } else { sign };
                Some(<$float>::from_bits(bits ^ flipped))
            }

            fn fallback() -> Self {
                0.0
            }
        }
    )*};
}

float_parts!(f32, u32; f64, u64);

impl Part for bool {
    const LEN: Option<u32> = Some(1);

    fn shape() -> String {
        "bool".to_owned()
    }

    fn write(&self, writer: &mut PartWriter) {
        writer.put(&[u8::from(*self)]);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn fallback() -> Self {
        false
    }
}

impl Part for char {
    const LEN: Option<u32> = Some(4);

    fn shape() -> String {
        "char".to_owned()
    }

    fn write(&self, writer: &mut PartWriter) {
        u32::from(*self).write(writer);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        u32::read(bytes).and_then(char::from_u32)
    }

    fn fallback() -> Self {
        '\0'
    }
}

/// Follows each zero within bytes of variable length.
const ZERO: u8 = 255;
/// Follows the zero at the end of such bytes. It is less than [`ZERO`], so that a prefix comes
/// first.
const END: u8 = 1;

fn write_terminated(bytes: &[u8], writer: &mut PartWriter) {
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        writer.put(&rest[..zero]);
        writer.put(&[0, ZERO]);
        rest = &rest[zero + 1..];
    }
    writer.put(rest);
    writer.put(&[0, END]);
}

fn read_terminated(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        let zero = bytes.iter().position(|&byte| byte == 0)?;
        read.extend_from_slice(&bytes[..zero]);
        let kind = *bytes.get(zero + 1)?;
        *bytes = &bytes[zero + 2..];
        match kind {
            END => return Some(read),
            ZERO => read.push(0),
            _ => return None,
        }
    }
}

impl Part for Vec<u8> {
    const LEN: Option<u32> = None;

    fn shape() -> String {
        "[u8]".to_owned()
    }

    fn write(&self, writer: &mut PartWriter) {
        write_terminated(self, writer);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        read_terminated(bytes)
    }

    fn fallback() -> Self {
        Vec::new()
    }
}

impl Part for String {
    const LEN: Option<u32> = None;

    fn shape() -> String {
        "str".to_owned()
    }

    fn write(&self, writer: &mut PartWriter) {
        write_terminated(self.as_bytes(), writer);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        read_terminated(bytes).and_then(|text| String::from_utf8(text).ok())
    }

    fn fallback() -> Self {
        String::new()
    }
}

impl<T: Part> Part for Option<T> {
    const LEN: Option<u32> = None;

    fn shape() -> String {
        format!("Option<{}>", T::shape())
    }

    fn write(&self, writer: &mut PartWriter) {
        self.is_some().write(writer);
        if let Some(part) = self {
            part.write(writer);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(match bool::read(bytes)? {
            true => Some(T::read(bytes)?),
            false => None,
        })
    }

    fn fallback() -> Self {
        None
    }
}

impl<T: Part, const N: usize> Part for [T; N] {
    const LEN: Option<u32> = match T::LEN {
        Some(len) => Some(len * N as u32),
        None => None,
    };

    fn shape() -> String {
        format!("[{}; {N}]", T::shape())
    }

    fn write(&self, writer: &mut PartWriter) {
        self.iter().for_each(|part| part.write(writer));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let parts: Option<Vec<T>> = (0..N).map(|_| T::read(bytes)).collect();
        parts?.try_into().ok()
    }

    fn fallback() -> Self {
        std::array::from_fn(|_| T::fallback())
    }
}

/// The length of parts one after the other.
pub const fn sum(lens: &[Option<u32>]) -> Option<u32> {
    let (mut total, mut index) = (0, 0);
    while index < lens.len() {
        match lens[index] {
            Some(len) => total += len,
            None => return None,
        }
        index += 1;
    }
    Some(total)
}

macro_rules! tuple_parts {
    ($([$($part:ident $index:tt),*])*) => {$(
        impl<$($part: Part),*> Part for ($($part,)*) {
            const LEN: Option<u32> = sum(&[$($part::LEN),*]);

            fn shape() -> String {
                let parts: &[String] = &[$($part::shape()),*];
                format!("({})", parts.join(", "))
            }

            #[allow(unused_variables, reason = "the empty tuple has no part")]
            fn write(&self, writer: &mut PartWriter) {
                $(self.$index.write(writer);)*
            }

            #[allow(unused_variables, reason = "the empty tuple has no part")]
            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::read(bytes)?,)*))
            }

            #[allow(clippy::unused_unit, reason = "the empty tuple has no part")]
            fn fallback() -> Self {
                ($($part::fallback(),)*)
            }
        }
    )*};
}

tuple_parts!([] [A 0] [A 0, B 1] [A 0, B 1, C 2] [A 0, B 1, C 2, D 3]);
