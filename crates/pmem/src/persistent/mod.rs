//! Types that may live in a pool: plain data with a fixed layout.
//!
//! The trait [`Persistent`] is implemented by `#[derive(Persistent)]`, and here for primitive
//! types. The derive computes a type's layout as a constant, with [`LayoutHash`]; this makes the
//! compiler refuse types that a pool cannot hold. [`TypeName`] computes the type's name.

mod off;

pub use off::Off;

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::medium::{LINE_LEN, Medium, WORD_LEN};

/// Plain data that may be stored in a pool: every bit pattern is a value, and no byte is padding.
///
/// Use the derive of the same name, on a `#[repr(C)]` struct of integers, floats, arrays, [`Off`]
/// and structs that are themselves `Persistent`:
///
/// ```
/// use remanent_pmem::{Off, Persistent};
///
/// #[derive(Clone, Copy, Persistent)]
/// #[repr(C)]
/// struct Node {
///     next: Off<Node>,
///     key: u64,
///     flags: u32,
///     value: [u8; 12],
/// }
/// assert_eq!(Node::TYPE_NAME, "Node");
/// ```
///
/// A type parameter must be bounded by `Persistent`. Const parameters are allowed, lifetimes are
/// refused. If your crate knows this one under another name, state it with `#[persistent(crate =
/// "path")]`.
///
/// # Safety
///
/// The implementor promises:
/// - Each bit pattern of the type's size is a valid value, because after a crash memory holds any
///   mixture of words.
/// - The type has no padding and no other uninitialised bytes.
/// - It holds no reference, pointer or handle, whose meaning would end with the process.
/// - Its layout does not depend on the compiler (`#[repr(C)]` or `#[repr(transparent)]`).
///
/// The derive's checks for a *generic* type run when its [`LAYOUT`](Self::LAYOUT) is first used.
/// Unsafe code that relies on them goes through [`bytes_of`] and [`read_value`], which use it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in a pool: it is not `Persistent`",
    label = "not plain data with a fixed layout",
    note = "a pool outlives the process and may hold any bits after a crash, so it takes integers, \
            floats, arrays, `Off<T>`, and `#[repr(C)]` structs of these with \
            `#[derive(Persistent)]`",
    note = "instead of a reference, pointer, `Box`, `Vec` or `String`, store an `Off<T>` to a \
            block, or the bytes in place as `[u8; N]`; instead of `bool` or an enum an integer \
            such as `u8`, instead of `char` a `u32`, instead of `usize` a `u64`"
)]
pub unsafe trait Persistent: Copy + Send + Sync + 'static {
    /// The type's name, as error messages and the root directory show it.
    const TYPE_NAME: &'static str;

    /// A hash of the name, and of the fields' names, layouts and offsets.
    ///
    /// Roots store it, so that a program whose type has changed does not open the pool.
    const LAYOUT: u64;
}

/// Implements [`Persistent`] for primitive types; their layout hash is that of their name.
macro_rules! persistent_primitives {
    ($($primitive:ty)*) => {$(
        // SAFETY: a primitive number: no padding, every bit pattern valid, nothing pointed to.
        #[diagnostic::do_not_recommend]
        unsafe impl Persistent for $primitive {
            const TYPE_NAME: &'static str = stringify!($primitive);
            const LAYOUT: u64 = name_hash(Self::TYPE_NAME);
        }
    )*};
}
persistent_primitives! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

// SAFETY: an array has no padding besides that of its elements, which have none.
unsafe impl<T: Persistent, const N: usize> Persistent for [T; N] {
    const TYPE_NAME: &'static str = const {
        &TypeName::new("[").push(T::TYPE_NAME).push("; ").push_number(N as i128).push("]")
    }
    .as_str();
    const LAYOUT: u64 = fnv1a(name_hash(Self::TYPE_NAME), &T::LAYOUT.to_le_bytes());
}

// SAFETY: it has no bytes. Its bounds are those of the trait's supertraits.
#[diagnostic::do_not_recommend]
unsafe impl<T: ?Sized + Send + Sync + 'static> Persistent for PhantomData<T> {
    const TYPE_NAME: &'static str = "PhantomData";
    const LAYOUT: u64 = name_hash(Self::TYPE_NAME);
}

/// The bytes of a value, as a pool stores them.
///
/// A generic type with padding is refused here, when it is first used:
///
/// ```compile_fail,E0080
/// use remanent_pmem::{Persistent, persistent::bytes_of};
///
/// #[derive(Clone, Copy, Persistent)]
/// #[repr(C)]
/// struct Pair<A: Persistent, B: Persistent>(A, B);
///
/// bytes_of(&Pair(1_u8, 2_u64));
/// ```
#[inline]
pub fn bytes_of<T: Persistent>(value: &T) -> &[u8] {
    const { T::LAYOUT };
    // SAFETY: the value is `size_of::<T>()` bytes, all initialised (Persistent has no padding,
    // which evaluating LAYOUT has checked), and borrowed for as long as the slice.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Copies a value out of a pool.
///
/// Each word that other threads store meanwhile is read atomically, but not the value as a whole.
#[inline]
pub fn read_value<T: Persistent>(medium: &impl Medium, offset: u64) -> T {
    const { T::LAYOUT };
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the value is `size_of::<T>()` bytes, all initialised to zero, and borrowed only here.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
    if is_few_words::<T>() {
        for (offset, word) in (offset..).step_by(8).zip(bytes.chunks_exact_mut(8)) {
            word.copy_from_slice(&medium.load(offset).to_ne_bytes());
        }
    } else {
        medium.read(offset, bytes);
    }
    // SAFETY: all bytes are initialised, and every bit pattern is a valid `T`.
    unsafe { value.assume_init() }
}

/// Copies a value out of a pool by loads of whole words, even while other threads store to it. The
/// value is then a mixture, which the caller detects. `offset` is aligned to 8 bytes. The last word
/// is read completely.
#[inline(always)]
pub fn read_shared<T: Persistent>(medium: &impl Medium, offset: u64) -> T {
    const { T::LAYOUT };
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the value is `size_of::<T>()` bytes, all initialised to zero, and borrowed only here.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    for (offset, part) in (offset..).step_by(8).zip(bytes.chunks_mut(8)) {
        part.copy_from_slice(&medium.load(offset).to_ne_bytes()[..part.len()]);
    }
    // SAFETY: all bytes are initialised, and every bit pattern is a valid `T`.
    unsafe { value.assume_init() }
}

/// Stores a value with ordinary stores; a small value that consists of words is stored word by
/// word.
#[inline]
pub(crate) fn write_value<T: Persistent>(medium: &impl Medium, offset: u64, value: &T) {
    debug_assert!(offset.is_multiple_of(align_of::<T>() as u64), "misaligned {}", T::TYPE_NAME);
    let bytes = bytes_of(value);
    if is_few_words::<T>() {
        let (words, _) = bytes.as_chunks::<8>();
        for (offset, word) in (offset..).step_by(8).zip(words) {
            medium.store(offset, u64::from_ne_bytes(*word));
        }
    } else {
        medium.write(offset, bytes);
    }
}

/// Whether a type is best copied word by word: at most a line, so that the loop is unrolled.
const fn is_few_words<T>() -> bool {
    let len = size_of::<T>() as u64;
    len <= LINE_LEN && len.is_multiple_of(WORD_LEN) && align_of::<T>() as u64 >= WORD_LEN
}

/// Computes [`Persistent::LAYOUT`] for the derive, and refuses padding.
#[derive(Clone, Copy, Debug)]
pub struct LayoutHash {
    hash: u64,
    /// Bytes of the fields so far, which are adjacent.
    len: usize,
}

impl LayoutHash {
    /// Begins with the type's name.
    pub const fn new(type_name: &str) -> Self {
        LayoutHash { hash: name_hash(type_name), len: 0 }
    }

    /// Adds the field `name` of type `F` at `offset`; fields come in the order of their
    /// declaration.
    ///
    /// # Panics
    ///
    /// When there is padding before the field. The derive calls this in a constant: compilation
    /// fails.
    #[track_caller]
    #[must_use]
    pub const fn field<F: Persistent>(self, name: &str, offset: usize) -> Self {
        assert!(
            offset == self.len,
            "there is padding before this field, and padding would carry undefined bytes into the \
             pool: order the fields from the most aligned to the least, or fill the gap with a \
             field such as `_pad: [u8; 4]`"
        );
        let hash = fnv1a(self.hash, &name_hash(name).to_le_bytes());
        let hash = fnv1a(hash, &(offset as u64).to_le_bytes());
        LayoutHash { hash: fnv1a(hash, &F::LAYOUT.to_le_bytes()), len: offset + size_of::<F>() }
    }

    /// The hash, after all fields of `T` were added.
    ///
    /// # Panics
    ///
    /// When there is padding after the last field. The derive calls this in a constant: compilation
    /// fails.
    #[track_caller]
    pub const fn finish<T>(self) -> u64 {
        assert!(
            size_of::<T>() == self.len,
            "there is padding after the last field, and padding would carry undefined bytes into \
             the pool: end the struct with a field such as `_pad: [u8; 4]` that makes its size a \
             multiple of its alignment"
        );
        let hash = fnv1a(self.hash, &(size_of::<T>() as u64).to_le_bytes());
        fnv1a(hash, &(align_of::<T>() as u64).to_le_bytes())
    }
}

/// A type's name, built at compile time.
#[derive(Clone, Copy, Debug)]
pub struct TypeName {
    bytes: [u8; TYPE_NAME_LEN_MAX],
    len: usize,
}

/// Bytes that the root directory keeps for a type's name.
pub const TYPE_NAME_LEN_MAX: usize = 128;

impl TypeName {
    /// Begins with `text`.
    pub const fn new(text: &str) -> Self {
        TypeName { bytes: [0; TYPE_NAME_LEN_MAX], len: 0 }.push(text)
    }

    /// Appends text.
    ///
    /// # Panics
    ///
    /// When the name exceeds [`TYPE_NAME_LEN_MAX`]: in a constant, compilation fails.
    #[must_use]
    pub const fn push(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        assert!(
            self.len + text.len() <= TYPE_NAME_LEN_MAX,
            "the name of a persistent type exceeds 128 bytes, more than a pool's root directory \
             keeps: shorten it, or wrap what it nests in a struct with a name of its own"
        );
        // Indices rather than iterators: this runs at compile time.
        let mut at = 0;
        while at < text.len() {
            self.bytes[self.len + at] = text[at];
            at += 1;
        }
        self.len += text.len();
        self
    }

    /// Appends a number in decimal.
    ///
    /// # Panics
    ///
    /// Like [`push`](Self::push).
    #[must_use]
    pub const fn push_number(self, number: i128) -> Self {
        let mut digits = [0; 40];
        let mut begin = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            begin -= 1;
            digits[begin] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            begin -= 1;
            digits[begin] = b'-';
        }
        let (_, digits) = digits.split_at(begin);
        match std::str::from_utf8(digits) {
            Ok(text) => self.push(text),
            Err(_) => unreachable!(),
        }
    }

    /// The name.
    pub const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => unreachable!(),
        }
    }
}

/// The layout hash of a type that is described by its name alone.
pub(crate) const fn name_hash(name: &str) -> u64 {
    // FNV-1a: a few lines at compile time. It is no defence against an attacker.
    fnv1a(0xcbf2_9ce4_8422_2325, name.as_bytes())
}

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Off, Persistent};

    #[derive(Clone, Copy, Persistent)]
    #[repr(C)]
    struct Node {
        next: Off<Node>,
        key: u64,
    }

    #[derive(Clone, Copy, Persistent)]
    #[repr(C)]
    struct Pair<A: Persistent, B>(A, B)
    where
        B: Persistent;

    #[derive(Clone, Copy, Persistent)]
    #[repr(transparent)]
    struct Key<const LEN: usize>([u8; LEN]);

    #[derive(Clone, Copy, Persistent)]
    #[repr(C)]
    struct Tagged<const TAG: i8> {
        value: u32,
    }

    #[test]
    fn names_show_arguments() {
        assert_eq!(Node::TYPE_NAME, "Node");
        assert_eq!(Pair::<u32, [i8; 4]>::TYPE_NAME, "Pair<u32, [i8; 4]>");
        assert_eq!(Key::<16>::TYPE_NAME, "Key<16>");
        assert_eq!(Tagged::<-128>::TYPE_NAME, "Tagged<-128>");
        assert_eq!(<[[u64; 0]; 12]>::TYPE_NAME, "[[u64; 0]; 12]");
    }

    #[test]
    fn layouts_differ_in_names_types_order_and_arguments() {
        mod renamed {
            use super::Off;
            use crate::Persistent;

            #[derive(Clone, Copy, Persistent)]
            #[repr(C)]
            pub(super) struct Node {
                pub(super) next: Off<Node>,
                pub(super) hash: u64,
            }
        }
        mod retyped {
            use super::Off;
            use crate::Persistent;

            #[derive(Clone, Copy, Persistent)]
            #[repr(C)]
            pub(super) struct Node {
                pub(super) next: Off<Node>,
                pub(super) key: i64,
            }
        }
        let layouts = [
            Node::LAYOUT,
            renamed::Node::LAYOUT,
            retyped::Node::LAYOUT,
            <[Node; 1]>::LAYOUT,
            <[Node; 2]>::LAYOUT,
            Pair::<u32, i32>::LAYOUT,
            Pair::<i32, u32>::LAYOUT,
            Tagged::<1>::LAYOUT,
            Tagged::<2>::LAYOUT,
            Key::<1>::LAYOUT,
            <[u8; 1]>::LAYOUT,
            u8::LAYOUT,
            i8::LAYOUT,
            <Off<u8>>::LAYOUT,
        ];
        let distinct: std::collections::BTreeSet<u64> = layouts.into();
        assert_eq!(distinct.len(), layouts.len());
    }

    /// Roots store layouts, so a changed hash would make every existing pool unusable.
    #[test]
    fn layouts_are_the_same_in_every_release() {
        assert_eq!(u64::LAYOUT, 0x4d35_d319_3e8d_66f2);
        assert_eq!(<[u64; 4]>::LAYOUT, 0x1000_d038_355e_46c2);
        assert_eq!(Node::LAYOUT, 0x103a_5ae3_6a26_1d61);
    }

    #[test]
    fn bytes_are_the_fields_in_order() {
        let node = Node { next: Off::new(0x0102), key: 7 };
        let mut expected = [0; 16];
        expected[..8].copy_from_slice(&0x0102_u64.to_ne_bytes());
        expected[8..].copy_from_slice(&7_u64.to_ne_bytes());
        assert_eq!(bytes_of(&node), expected);
    }
}
