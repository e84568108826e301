//! Keys and values that are composed of parts, and owned text and bytes.

use xxhash_rust::xxh3::xxh3_64;

use super::part::{Part, PartWriter};
use super::{Key, OrderedKey, Stored};

/// Passes the form of a value to `use_bytes`.
pub fn with_form<T: Part, R>(value: &T, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
    let mut writer = PartWriter::default();
    value.write(&mut writer);
    use_bytes(writer.bytes())
}

/// Reads a form. Returns the fallback if it is damaged.
pub fn read_form<T: Part>(mut bytes: &[u8]) -> T {
    // A form of a fixed length may be followed by zeros, up to the next word.
    let read = T::read(&mut bytes).filter(|_| T::LEN.is_some() || bytes.is_empty());
    read.unwrap_or_else(T::fallback)
}

/// A name for people, followed by a hash of how values are stored.
pub fn name_with_shape(name: &str, shape: &str) -> String {
    format!("{name} {{{:08x}}}", xxh3_64(shape.as_bytes()) as u32)
}

/// How a struct is stored: its fields in their order, with their names.
pub fn shape_of_struct(name: &str, parts: &[(&str, String)]) -> String {
    let parts: Vec<String> = parts.iter().map(|(part, shape)| format!("{part}: {shape}")).collect();
    format!("{name} {{ {} }}", parts.join(", "))
}

/// How an enum is stored: its variants, with their numbers.
pub fn shape_of_enum(name: &str, variants: &[(&str, i128)]) -> String {
    let variants: Vec<String> =
        variants.iter().map(|(variant, number)| format!("{variant} = {number}")).collect();
    format!("{name} {{ {} }}", variants.join(", "))
}

/// Types whose stored form is their form as a part.
macro_rules! stored_as_part {
    ($([$($parameter:ident),*] $stored:ty),*) => {$(
        impl<$($parameter: Part),*> Stored for $stored {
            fn type_name() -> String {
                <$stored as Part>::shape()
            }

            const LEN: Option<u32> = <$stored as Part>::LEN;

            #[inline]
            fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                with_form(self, use_bytes)
            }

            #[inline]
            fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
                use_value(&read_form(bytes))
            }
        }

        impl<$($parameter: Part),*> Key for $stored {}

        impl<$($parameter: Part),*> OrderedKey for $stored {
            #[inline]
            fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                with_form(self, use_bytes)
            }

            #[inline]
            fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
                use_key(&read_form(bytes))
            }
        }
    )*};
}

stored_as_part!(
    [] bool, [] char, [] u128, [] i128, [] f32, [] f64, [] (), [T] Option<T>,
    [A] (A,), [A, B] (A, B), [A, B, C] (A, B, C), [A, B, C, D] (A, B, C, D)
);

/// Owned types, which are stored as the type that they own.
macro_rules! stored_as_owned {
    ($($owned:ty => $borrowed:ty),*) => {$(
        impl Stored for $owned {
            fn type_name() -> String {
                <$borrowed>::type_name()
            }

            const LEN: Option<u32> = None;

            #[inline]
            fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                <$borrowed>::with_bytes(self, use_bytes)
            }

            #[inline]
            fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
                <$borrowed>::with_stored(bytes, |value| use_value(&value.to_owned()))
            }
        }

        impl Key for $owned {}

        impl OrderedKey for $owned {
            #[inline]
            fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                <$borrowed>::with_ordered(self, use_bytes)
            }

            #[inline]
            fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
                <$borrowed>::from_ordered(bytes, |key| use_key(&key.to_owned()))
            }
        }
    )*};
}

stored_as_owned!(String => str, Vec<u8> => [u8]);
