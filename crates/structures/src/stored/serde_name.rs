//! The name by which a type asks serde for its content.
//!
//! It is the only fact about a type's form that serde tells before there is a value, and that stays
//! the same in all releases of serde. The list of a struct's fields does not.

use std::fmt;

use serde_core::de::{Deserialize, Deserializer, Error, Visitor};

/// Name of a struct or an enum, as serde knows it. For other types, what they are to serde.
pub(super) fn serde_name<T: for<'de> Deserialize<'de>>() -> String {
    let mut name = None;
    // This fails, because there is nothing to deserialize.
    let _ = T::deserialize(Listener(&mut name));
    name.unwrap_or("value").to_owned()
}

/// A deserializer without content, which notes what it is asked for first.
struct Listener<'n>(&'n mut Option<&'static str>);

impl Listener<'_> {
    fn hear<R>(self, name: &'static str) -> Result<R, Nothing> {
        self.0.get_or_insert(name);
        Err(Nothing)
    }
}

/// The error of a [`Listener`].
#[derive(Debug)]
struct Nothing;

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is nothing to deserialize")
    }
}

impl std::error::Error for Nothing {}

impl Error for Nothing {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Nothing
    }
}

/// Methods for types without a name of their own.
macro_rules! hear_unnamed {
    ($($method:ident $name:literal)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Nothing> {
            self.hear($name)
        }
    )*};
}

/// Methods for types that give their name, and further arguments that matter to formats.
macro_rules! hear_named {
    ($($method:ident($($other:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(
            self,
            name: &'static str,
            $(_: $other,)*
            _: V,
        ) -> Result<V::Value, Nothing> {
            self.hear(name)
        }
    )*};
}

impl<'de> Deserializer<'de> for Listener<'_> {
    type Error = Nothing;

    hear_named! {
        deserialize_unit_struct()
        deserialize_newtype_struct()
        deserialize_tuple_struct(usize)
        deserialize_struct(&'static [&'static str])
        deserialize_enum(&'static [&'static str])
    }

    hear_unnamed! {
        deserialize_any "any"
        deserialize_bool "bool"
        deserialize_i8 "i8"
        deserialize_i16 "i16"
        deserialize_i32 "i32"
        deserialize_i64 "i64"
        deserialize_i128 "i128"
        deserialize_u8 "u8"
        deserialize_u16 "u16"
        deserialize_u32 "u32"
        deserialize_u64 "u64"
        deserialize_u128 "u128"
        deserialize_f32 "f32"
        deserialize_f64 "f64"
        deserialize_char "char"
        deserialize_str "str"
        deserialize_string "str"
        deserialize_bytes "bytes"
        deserialize_byte_buf "bytes"
        deserialize_option "option"
        deserialize_unit "unit"
        deserialize_seq "sequence"
        deserialize_map "map"
        deserialize_identifier "identifier"
        deserialize_ignored_any "any"
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Nothing> {
        self.hear("tuple")
    }

    /// As in the encoding: some types have another form where people read it.
    fn is_human_readable(&self) -> bool {
        false
    }
}
