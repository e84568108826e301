//! Integers, byte arrays, byte slices and strings.

use remanent_pmem::Medium;

use super::{Key, OrderedKey, Stored};

/// A bijective mix of 64 bits (the finalizer of SplitMix64).
#[inline(always)]
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// An integer's ordered form: big-endian, the sign bit of a signed one flipped.
macro_rules! ordered_integer {
    ($($integer:ty => $flipped:expr),*) => {$(
        impl OrderedKey for $integer {
            #[inline(always)]
            fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                use_bytes(&(*self ^ $flipped).to_be_bytes())
            }

            #[inline(always)]
            fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
                let mut whole = [0; size_of::<$integer>()];
                let len = bytes.len().min(whole.len());
                whole[..len].copy_from_slice(&bytes[..len]);
                use_key(&(<$integer>::from_be_bytes(whole) ^ $flipped))
            }
        }
    )*};
}

ordered_integer!(
    u8 => 0, u16 => 0, u32 => 0, u64 => 0,
    i8 => i8::MIN, i16 => i16::MIN, i32 => i32::MIN, i64 => i64::MIN
);

macro_rules! stored_integer {
    ($($integer:ty),*) => {$(
        impl Stored for $integer {
            fn type_name() -> String {
                stringify!($integer).to_owned()
            }

            const LEN: Option<u32> = Some(size_of::<$integer>() as u32);

            #[inline(always)]
            fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                use_bytes(&self.to_le_bytes())
            }

            #[inline(always)]
            fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
                let mut whole = [0; size_of::<$integer>()];
                let len = bytes.len().min(whole.len());
                whole[..len].copy_from_slice(&bytes[..len]);
                use_value(&<$integer>::from_le_bytes(whole))
            }
        }

        impl Key for $integer {
            #[inline(always)]
            fn hash(&self, seed: u64) -> u64 {
                mix((*self as u64).wrapping_add(seed))
            }

            #[inline(always)]
            fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
                // Keys begin on a word. A shorter integer is padded with zeros up to the next one.
                medium.load(offset) as $integer == *self
            }
        }
    )*};
}

stored_integer!(u8, u16, u32, u64, i8, i16, i32, i64);

impl<const N: usize> Stored for [u8; N] {
    fn type_name() -> String {
        format!("[u8; {N}]")
    }

    const LEN: Option<u32> = Some(N as u32);

    #[inline(always)]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(self)
    }

    #[inline(always)]
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        match bytes.first_chunk::<N>() {
            Some(array) => use_value(array),
            None => use_value(&[0; N]),
        }
    }
}

impl<const N: usize> Key for [u8; N] {}

impl Stored for [u8] {
    fn type_name() -> String {
        "[u8]".to_owned()
    }

    const LEN: Option<u32> = None;

    #[inline(always)]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(self)
    }

    #[inline(always)]
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(bytes)
    }
}

impl Key for [u8] {}

impl Stored for str {
    fn type_name() -> String {
        "str".to_owned()
    }

    const LEN: Option<u32> = None;

    #[inline(always)]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(self.as_bytes())
    }

    #[inline(always)]
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(std::str::from_utf8(bytes).unwrap_or_default())
    }
}

impl Key for str {}

/// Types whose stored form has the order of the type.
macro_rules! ordered_as_stored {
    ($([$($parameter:tt)*] $key:ty),*) => {$(
        impl<$($parameter)*> OrderedKey for $key {
            #[inline(always)]
            fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
                self.with_bytes(use_bytes)
            }

            #[inline(always)]
            fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
                Self::with_stored(bytes, use_key)
            }
        }
    )*};
}

ordered_as_stored!([const N: usize] [u8; N], [] [u8], [] str);

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered<K: OrderedKey + ?Sized>(key: &K) -> Vec<u8> {
        key.with_ordered(<[u8]>::to_vec)
    }

    #[test]
    fn ordered_forms_have_the_order_of_their_keys() {
        let numbers = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
        assert!(numbers.map(|number| ordered(&number)).is_sorted());
        assert!([0_u32, 1, 255, 256, u32::MAX].map(|number| ordered(&number)).is_sorted());
        assert!(["", "a", "aa", "b"].map(ordered).is_sorted());
    }

    #[test]
    fn keys_come_back_from_their_ordered_forms() {
        for number in [i16::MIN, -1, 0, 7, i16::MAX] {
            assert_eq!(i16::from_ordered(&ordered(&number), |key| *key), number);
        }
        assert_eq!(str::from_ordered(&ordered("key"), str::to_owned), "key");
        assert_eq!(<[u8; 3]>::from_ordered(&ordered(&[1, 2, 3]), |key| *key), [1, 2, 3]);
    }
}
