//! Numbers in columns, as sums are made of them.

use std::cmp::Ordering;

use crate::value::{Type, Value};

/// A number that a column has, or the sum of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// A table has fewer than 2^36 rows, so that no sum of their integers overflows.
    Integer(i128),
    Float(f64),
}

impl Number {
    /// A value as a number; `None` if it is none.
    pub(super) fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Number::Integer(value.into())),
            Value::Uint(value) => Some(Number::Integer(value.into())),
            Value::Float(value) => Some(Number::Float(value)),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::Bytes(_) => None,
        }
    }

    /// Whether columns of this type have such numbers.
    pub(super) fn is_of(self, of_type: Type) -> bool {
        match self {
            Number::Integer(_) => matches!(of_type, Type::Int { .. } | Type::Uint { .. }),
            Number::Float(_) => of_type == Type::F64,
        }
    }

    /// The sum; `None` if finite numbers have an infinite one, or they are of two kinds.
    pub(super) fn plus(self, other: Number) -> Option<Self> {
        match (self, other) {
            (Number::Integer(one), Number::Integer(other)) => {
                one.checked_add(other).map(Number::Integer)
            }
            (Number::Float(one), Number::Float(other)) => {
                let sum = one + other;
                let is_right = sum.is_finite() || !one.is_finite() || !other.is_finite();
                is_right.then_some(Number::Float(sum))
            }
            _ => None,
        }
    }

    /// The order of numbers of one column: that of ordered indexes.
    pub(super) fn order(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Integer(one), Number::Integer(other)) => one.cmp(&other),
            (Number::Float(one), Number::Float(other)) => one.total_cmp(&other),
            // Not in one column.
            (Number::Integer(_), Number::Float(_)) => Ordering::Less,
            (Number::Float(_), Number::Integer(_)) => Ordering::Greater,
        }
    }

    /// The number as a value; `None` if none has 64 bits for it.
    pub(super) fn value(self) -> Option<Value<'static>> {
        match self {
            Number::Integer(integer) => {
                let signed = i64::try_from(integer).map(Value::Int);
                signed.or_else(|_| u64::try_from(integer).map(Value::Uint)).ok()
            }
            Number::Float(float) => Some(Value::Float(float)),
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Integer(integer) => write!(f, "{integer}"),
            Number::Float(float) => write!(f, "{float}"),
        }
    }
}
