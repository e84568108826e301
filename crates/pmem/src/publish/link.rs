//! Words that publish: an offset, with marks that say whether it is durable.
//!
//! # Link-and-persist
//!
//! A compare-exchange makes a new word visible at once, but durable only after a flush and a fence.
//! If another thread acted on the word in between, a crash could undo what that thread has already
//! answered. So a word is published with the mark [`Word::DIRTY`]. The thread that published it
//! flushes, fences and clears the mark. A thread that *reads* the mark does the same before it acts
//! on the word ([`Link::load_durable`]). The rule that makes this sound:
//!
//! **A dirty word is never replaced, except by itself without the mark.** So each word of a link
//! was durable before the next one became visible.
//!
//! In a medium that needs no flush, words are durable as soon as they are visible, and no mark is
//! set.
//!
//! # The word
//!
//! ```text
//!  63          48 47                              4   3   2   1   0
//! ┌──────────────┬────────────────────────────────┬───┬───┬───┬───┐
//! │ tag          │ offset / 16                    │ B │ A │ D │ M │
//! └──────────────┴────────────────────────────────┴───┴───┴───┴───┘
//!  the structure's own: a    targets are aligned    │   │   │   └ MARK: deleted, as the structure
//!  version, to tell a word   to 16 bytes, below     │   │   │     defines it
//!  from an older one         256 TiB                │   │   └ DIRTY: not known to be durable
//!                                                   └───┴ FLAG_A, FLAG_B: the structure's own
//! ```

use std::fmt;

use super::fresh::{Durable, Fresh};
use crate::medium::Medium;
use crate::persistent::Off;

/// The value of a [`Link`]: an offset, a tag and four bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Word(u64);

impl Word {
    /// Bit of a link whose owner is deleted, as in Harris's list. The structure defines its
    /// meaning.
    pub const MARK: u64 = 1;
    /// Bit of a word that may not be durable yet. Only [`Link`] sets and clears it.
    pub const DIRTY: u64 = 2;
    /// Bit whose meaning the structure defines.
    pub const FLAG_A: u64 = 4;
    /// Bit whose meaning the structure defines.
    pub const FLAG_B: u64 = 8;
    /// Bits of the offset, which is aligned to 16 bytes.
    pub const OFFSET_MASK: u64 = (1 << Self::TAG_SHIFT) - 16;
    /// Position of the lowest of the tag's 16 bits.
    pub const TAG_SHIFT: u32 = 48;

    /// The word without a target: all bits zero, as in a new block.
    pub const NULL: Word = Word(0);

    /// A word with target `offset`, tag zero and no bit set.
    ///
    /// # Panics
    ///
    /// When the offset is not aligned to 16 bytes, or is 2^48 or more.
    #[inline]
    pub const fn to(offset: u64) -> Self {
        assert!(offset & !Self::OFFSET_MASK == 0, "a link's target is aligned to 16 bytes, < 2^48");
        Word(offset)
    }

    /// A word from its bits.
    #[inline]
    pub const fn from_raw(bits: u64) -> Self {
        Word(bits)
    }

    /// The bits of the word.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Pool offset of the target in bytes; zero if there is none.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::OFFSET_MASK
    }

    /// Pointer to the target.
    #[inline]
    pub const fn target<T: ?Sized>(self) -> Off<T> {
        Off::new(self.offset())
    }

    /// Whether it has no target, whatever its tag and bits are.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.offset() == 0
    }

    /// Whether the structure has marked it.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.has(Self::MARK)
    }

    /// Whether a crash might still undo it.
    #[inline]
    pub const fn is_dirty(self) -> bool {
        self.has(Self::DIRTY)
    }

    /// Whether any of `bits` is set.
    #[inline]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// The structure's 16 bits, usually a version.
    #[inline]
    pub const fn tag(self) -> u16 {
        (self.0 >> Self::TAG_SHIFT) as u16
    }

    /// The same with `bits` set: [`MARK`](Self::MARK), [`FLAG_A`](Self::FLAG_A) and the like.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: u64) -> Self {
        Word(self.0 | bits)
    }

    /// The same with `bits` cleared.
    #[inline]
    #[must_use]
    pub const fn without(self, bits: u64) -> Self {
        Word(self.0 & !bits)
    }

    /// The same, marked.
    #[inline]
    #[must_use]
    pub const fn with_mark(self) -> Self {
        self.with(Self::MARK)
    }

    /// The same with target `offset`; tag and bits are kept.
    ///
    /// # Panics
    ///
    /// Like [`Word::to`].
    #[inline]
    #[must_use]
    pub const fn with_offset(self, offset: u64) -> Self {
        Word(self.0 & !Self::OFFSET_MASK | Word::to(offset).0)
    }

    /// The same with another tag.
    #[inline]
    #[must_use]
    pub const fn with_tag(self, tag: u16) -> Self {
        Word(self.0 & !(u64::MAX << Self::TAG_SHIFT) | (tag as u64) << Self::TAG_SHIFT)
    }

    /// The same with the next tag, wrapping. The new word differs from each of the last 65,535
    /// words with the same target.
    #[inline]
    #[must_use]
    pub const fn with_next_tag(self) -> Self {
        self.with_tag(self.tag().wrapping_add(1))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.offset())?;
        if self.tag() != 0 {
            write!(f, " v{}", self.tag())?;
        }
        let bits = [
            (Self::MARK, "MARK"),
            (Self::DIRTY, "DIRTY"),
            (Self::FLAG_A, "FLAG_A"),
            (Self::FLAG_B, "FLAG_B"),
        ];
        for (_, name) in bits.into_iter().filter(|(bit, _)| self.has(*bit)) {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

/// A published word of pool memory, changed by compare-exchange and made durable in place.
///
/// Changing it costs one fence. Reading it costs none, unless another thread is just making the
/// word durable. See the [module](self) for the rule that every access must keep. Structures that
/// change the word by other means (two words at once) set [`Word::DIRTY`] themselves, if
/// [`Medium::needs_flush`], and call [`help`](Link::help).
pub struct Link<'m, M: Medium> {
    medium: &'m M,
    offset: u64,
}

/// Proof that a word was published: visible, and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published(Word);

impl Published {
    /// The published word, as it reads until it is changed.
    #[inline]
    pub const fn word(self) -> Word {
        self.0
    }
}

/// The outcome of publishing a block: success, or the word that was found, with the block handed
/// back.
pub type PublishResult<'m, T, M> = Result<Published, (Word, Fresh<'m, T, Durable, M>)>;

impl<'m, M: Medium> Link<'m, M> {
    /// The link at pool offset `offset`, which is aligned to 8 bytes.
    #[inline]
    pub fn at(medium: &'m M, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(8), "link at misaligned offset {offset:#x}");
        Link { medium, offset }
    }

    /// Pool offset of the word in bytes.
    #[inline]
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Loads the word as it is. Do not act on it if it is dirty.
    #[inline]
    pub fn load(self) -> Word {
        // Acquire: partner of the compare-exchange in `exchange`; the content of the block that the
        // word leads to is visible from here on.
        Word(self.medium.load(self.offset))
    }

    /// Loads the word, and makes it durable if necessary. The returned word is clean.
    #[inline]
    #[track_caller]
    pub fn load_durable(self) -> Word {
        let word = self.load();
        if word.is_dirty() { self.help(word) } else { word }
    }

    /// Makes a dirty word durable and clears its mark, whoever published it (*help*): its writer
    /// calls this, and so does every earlier reader. Returns the word without the mark; it is
    /// durable even if the link has changed since.
    #[inline]
    #[track_caller]
    pub fn help(self, word: Word) -> Word {
        debug_assert!(word.is_dirty(), "{word:?} at {:#x} is not dirty", self.offset);
        let clean = word.without(Word::DIRTY);
        // Flush: the link's line. It holds this word, or a later one; then this word was durable
        // before the later one was stored.
        self.medium.flush(self.offset, 8);
        // Fence: partner of the flush above; the word is durable before its mark is cleared.
        self.medium.fence();
        // Release: a thread that acquires the clean word acts on it without a flush, because the
        // fence came first. If the exchange fails, another thread has cleared the mark. Clearing
        // needs no flush: a mark that is found after a crash is only cleared again.
        let _ = self.medium.compare_exchange(self.offset, word.0, clean.0);
        clean
    }

    /// Publishes a durable block in place of `expected`, for one fence: visible and durable on
    /// return.
    ///
    /// The new word leads to the block, has the tag of `expected`, and no bit set. Use
    /// [`publish_as`](Link::publish_as) for any other word.
    ///
    /// # Errors
    ///
    /// The word found instead of `expected`, and the block, still unpublished.
    /// [`reopen`](Fresh::reopen) the block to change its content, and try again.
    #[inline]
    #[track_caller]
    pub fn publish<'f, T>(
        self,
        expected: Word,
        block: Fresh<'f, T, Durable, M>,
    ) -> PublishResult<'f, T, M> {
        let new = Word::to(block.offset()).with_tag(expected.tag());
        self.publish_as(expected, block, new)
    }

    /// Publishes a durable block by the word `new`, which leads to the block.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Link::publish).
    ///
    /// # Panics
    ///
    /// When the word does not lead to the block.
    #[inline]
    #[track_caller]
    pub fn publish_as<'f, T>(
        self,
        expected: Word,
        block: Fresh<'f, T, Durable, M>,
        new: Word,
    ) -> PublishResult<'f, T, M> {
        if new.offset() != block.offset() {
            misled(new, block.offset());
        }
        match self.replace(expected, new) {
            Ok(published) => Ok(published),
            Err(found) => Err((found, block)),
        }
    }

    /// Replaces `expected` by a word that publishes no fresh block (a mark, a successor, null), for
    /// one fence: visible and durable on return.
    ///
    /// # Errors
    ///
    /// The word found instead of `expected`, perhaps dirty; nothing was changed.
    #[inline]
    #[track_caller]
    pub fn replace(self, expected: Word, new: Word) -> Result<Published, Word> {
        self.replace_with(expected, new, || {})
    }

    /// Like [`replace`](Link::replace), with other flushes under the same fence. `flush` is called
    /// once `new` is visible, because a flush before the exchange would delay the exchange.
    ///
    /// # Errors
    ///
    /// Those of [`replace`](Link::replace); `flush` was not called then.
    #[inline]
    #[track_caller]
    pub fn replace_with(
        self,
        expected: Word,
        new: Word,
        flush: impl FnOnce(),
    ) -> Result<Published, Word> {
        self.exchange(expected, new)?;
        flush();
        if self.medium.needs_flush() {
            self.help(new.with(Word::DIRTY));
        }
        Ok(Published(new))
    }

    /// Replaces `expected` by `new`. The new word is visible on return and durable later, so that
    /// several words can share a fence.
    ///
    /// The caller flushes the word's line, fences, and then [`confirm`](Link::confirm)s the word. A
    /// reader that acts on the word earlier makes it durable itself, as it does with every dirty
    /// word.
    ///
    /// # Errors
    ///
    /// As [`replace`](Link::replace).
    #[inline]
    #[track_caller]
    pub fn replace_unfenced(self, expected: Word, new: Word) -> Result<(), Word> {
        self.exchange(expected, new)
    }

    /// Clears the mark of a word that [`replace_unfenced`](Link::replace_unfenced) made visible.
    /// The word must be durable.
    #[inline]
    pub fn confirm(self, new: Word) {
        if self.medium.needs_flush() {
            // Release: a thread that acquires the clean word acts on it without a flush, because
            // the caller's fence came first. If the exchange fails, a reader has cleared the mark.
            let _ = self.medium.compare_exchange(self.offset, new.with(Word::DIRTY).0, new.0);
        }
    }

    /// Makes `new` visible, dirty if the medium needs a flush.
    #[inline]
    fn exchange(self, expected: Word, new: Word) -> Result<(), Word> {
        debug_assert!(!expected.is_dirty(), "{expected:?} is replaced before it is durable");
        debug_assert!(!new.is_dirty(), "{new:?} is given the dirty mark by its link alone");
        let dirty = if self.medium.needs_flush() { Word::DIRTY } else { 0 };
        // Release: partner of `load`; the block that the word leads to, with all its content, is
        // visible to a thread that acquires the word. Acquire, on failure: the same for the word
        // found.
        match self.medium.compare_exchange(self.offset, expected.0, new.0 | dirty) {
            Ok(_) => Ok(()),
            Err(found) => Err(Word(found)),
        }
    }
}

// In a function of its own, with arguments by value: formatting in place would keep the block in
// memory instead of registers.
#[cold]
#[track_caller]
fn misled(new: Word, offset: u64) -> ! {
    panic!("{new:?} does not lead to the block at {offset:#x}");
}

// By hand: a derive would require the same trait of the medium, which a link only borrows.
impl<M: Medium> Clone for Link<'_, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Medium> Copy for Link<'_, M> {}

impl<M: Medium> fmt::Debug for Link<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:#x} -> {:?})", self.offset, self.load())
    }
}
