//! Words that publish: an offset, with marks that tell what is durable about it.
//!
//! # Link-and-persist
//!
//! A compare-exchange makes a new word visible at once but durable only after a flush and a fence. If
//! another thread acted on it in between, a crash could take away what that thread has already
//! answered. So a word is published with the mark [`Word::DIRTY`]; whoever changed it flushes, fences
//! and clears the mark, and whoever *reads* the mark does the same before acting on the word
//! ([`Link::load_durable`]). The rule that makes it sound:
//!
//! **A dirty word is never replaced, except by itself without the mark.** Each word that a link ever
//! held was therefore durable before the next one became visible.
//!
//! In a medium that needs no flush words are durable as soon as they are visible, and no mark is set.
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
    /// Bit of a link whose owner is deleted, as in Harris's list; its meaning is the structure's.
    pub const MARK: u64 = 1;
    /// Bit of a word that may not be durable yet. Set and cleared by [`Link`] alone.
    pub const DIRTY: u64 = 2;
    /// Bit with a meaning that the structure gives it.
    pub const FLAG_A: u64 = 4;
    /// Bit with a meaning that the structure gives it.
    pub const FLAG_B: u64 = 8;
    /// Bits of the offset, which is aligned to 16 bytes.
    pub const OFFSET_MASK: u64 = (1 << Self::TAG_SHIFT) - 16;
    /// Place of the lowest of the tag's 16 bits.
    pub const TAG_SHIFT: u32 = 48;

    /// The word that leads nowhere: all bits zero, as in a new block.
    pub const NULL: Word = Word(0);

    /// A word that leads to `offset`, with tag zero and no bit set.
    ///
    /// # Panics
    ///
    /// When the offset is not aligned to 16 bytes, or is 2^48 or more.
    #[inline]
    pub const fn to(offset: u64) -> Self {
        assert!(offset & !Self::OFFSET_MASK == 0, "a link's target is aligned to 16 bytes, < 2^48");
        Word(offset)
    }

    /// A word from its bits, as a medium holds it.
    #[inline]
    pub const fn from_raw(bits: u64) -> Self {
        Word(bits)
    }

    /// Its bits, as a medium holds it.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Pool offset of what it leads to, in bytes; zero when nowhere.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::OFFSET_MASK
    }

    /// What it leads to.
    #[inline]
    pub const fn target<T: ?Sized>(self) -> Off<T> {
        Off::new(self.offset())
    }

    /// Whether it leads nowhere, whatever its tag and bits are.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.offset() == 0
    }

    /// Whether the structure has marked it.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.has(Self::MARK)
    }

    /// Whether a crash might still take it away.
    #[inline]
    pub const fn is_dirty(self) -> bool {
        self.has(Self::DIRTY)
    }

    /// Whether any of `bits` is set.
    #[inline]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// The structure's 16 bits: a version, most often.
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

    /// The same, leading to `offset`, with tag and bits kept.
    ///
    /// # Panics
    ///
    /// As [`Word::to`].
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

    /// The same with the next tag, wrapping: a word is not mistaken for an older one that led to the
    /// same place, unless 65,536 changes passed in between.
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
/// Changing it costs one fence, reading it none, unless the word is met while another thread is
/// making it durable. See the [module](self) for the rule that every access has to keep; structures
/// that change the word by other means (two words at once) set [`Word::DIRTY`] themselves, when
/// [`Medium::needs_flush`], and call [`help`](Link::help).
pub struct Link<'m, M: Medium> {
    medium: &'m M,
    offset: u64,
}

/// Proof that a word was published: visible, and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published(Word);

impl Published {
    /// The word that was published, as it reads until somebody changes it.
    #[inline]
    pub const fn word(self) -> Word {
        self.0
    }
}

/// The outcome of publishing a block: done, or the word that was found and the block handed back.
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

    /// Loads the word as it is: perhaps dirty, and then not to be acted on.
    #[inline]
    pub fn load(self) -> Word {
        // Acquire: what the block at the word's offset holds was stored before the releasing
        // compare-exchange in `exchange`, and is visible from here on.
        Word(self.medium.load(self.offset))
    }

    /// Loads the word, and makes it durable if it is not; the word returned is clean.
    #[inline]
    #[track_caller]
    pub fn load_durable(self) -> Word {
        let word = self.load();
        if word.is_dirty() { self.help(word) } else { word }
    }

    /// Makes a dirty word durable and clears its mark, whoever published it: its writer does so, and every
    /// reader that comes earlier (*help*). Returns the word without the mark, durable even if the link has since moved on.
    #[inline]
    #[track_caller]
    pub fn help(self, word: Word) -> Word {
        debug_assert!(word.is_dirty(), "{word:?} at {:#x} is not dirty", self.offset);
        let clean = word.without(Word::DIRTY);
        // Flush: the link's line, holding this word or a later one (and then this one was durable
        // before the later one was stored).
        self.medium.flush(self.offset, 8);
        // Fence: partner of the flush above; the word is durable before the mark that says otherwise
        // is gone.
        self.medium.fence();
        // Release: a thread that acquires the clean word acts on it without a flush, which is right
        // since the fence came first. When the exchange fails, another thread has cleared the mark.
        // The cleared mark itself needs no flush: a mark found after a crash is only cleared again.
        let _ = self.medium.compare_exchange(self.offset, word.0, clean.0);
        clean
    }

    /// Publishes a durable block in place of `expected`: visible and durable on return, for one fence.
    ///
    /// The new word leads to the block, carries the tag of `expected`, and has no bit set;
    /// [`publish_as`](Link::publish_as) is for any other.
    ///
    /// # Errors
    ///
    /// The word found instead of `expected`, and the block, unpublished:
    /// [`reopen`](Fresh::reopen) it to change what it leads to, and try again.
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

    /// Publishes a durable block by the word `new`, whose offset is the block's.
    ///
    /// # Errors
    ///
    /// As [`publish`](Link::publish).
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

    /// Replaces `expected` by a word that publishes no fresh block (a mark, a successor, null):
    /// visible and durable on return, for one fence.
    ///
    /// # Errors
    ///
    /// The word found instead of `expected`, perhaps dirty; nothing was changed.
    #[inline]
    #[track_caller]
    pub fn replace(self, expected: Word, new: Word) -> Result<Published, Word> {
        self.replace_with(expected, new, || {})
    }

    /// As [`replace`](Link::replace), with other flushes under the same fence: `flush` is called once
    /// `new` is visible, for a flush before the exchange would hold it up.
    ///
    /// # Errors
    ///
    /// As [`replace`](Link::replace); `flush` was not called then.
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

    /// Replaces `expected` by `new`, visible on return and durable later, so that several words share a fence.
    ///
    /// The caller flushes the word's line, fences, and then [`confirm`](Link::confirm)s the word. Readers that act on it
    /// earlier make it durable themselves, as always.
    ///
    /// # Errors
    ///
    /// As [`replace`](Link::replace).
    #[inline]
    #[track_caller]
    pub fn replace_unfenced(self, expected: Word, new: Word) -> Result<(), Word> {
        self.exchange(expected, new)
    }

    /// Clears the mark of a word that [`replace_unfenced`](Link::replace_unfenced) made visible, once it is durable.
    #[inline]
    pub fn confirm(self, new: Word) {
        if self.medium.needs_flush() {
            // Release: a thread that acquires the clean word acts on it without a flush, which is right since the caller's
            // fence came first. When the exchange fails, a reader has cleared the mark.
            let _ = self.medium.compare_exchange(self.offset, new.with(Word::DIRTY).0, new.0);
        }
    }

    /// Makes `new` visible, dirty if it has to become durable.
    #[inline]
    fn exchange(self, expected: Word, new: Word) -> Result<(), Word> {
        debug_assert!(!expected.is_dirty(), "{expected:?} is replaced before it is durable");
        debug_assert!(!new.is_dirty(), "{new:?} is given the dirty mark by its link alone");
        let dirty = if self.medium.needs_flush() { Word::DIRTY } else { 0 };
        // Release: the block that the word leads to, and all that was stored in it, is visible to
        // whoever acquires the word in `load`. Acquire, on failure: the same for the word found.
        match self.medium.compare_exchange(self.offset, expected.0, new.0 | dirty) {
            Ok(_) => Ok(()),
            Err(found) => Err(Word(found)),
        }
    }
}

// Apart, by value: formatting it in place would keep the block in memory instead of registers.
#[cold]
#[track_caller]
fn misled(new: Word, offset: u64) -> ! {
    panic!("{new:?} does not lead to the block at {offset:#x}");
}

// Derives would ask the medium for the same trait; a link only borrows it.
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
