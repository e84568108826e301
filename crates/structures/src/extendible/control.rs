//! The volatile words of a bucket: its control word, and its fingerprints.

use super::layout::SLOT_COUNT;

pub(super) const CONTROL: u64 = 0;
pub(super) const PRINTS: u64 = 8;

/// Shadows that a control word can name.
pub(super) const SHADOWS_MAX: usize = 1 << Control::SHADOW_BITS;

/// The control word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control(pub(super) u64);

impl Control {
    /// A thread has the bucket.
    const HELD: u64 = 1;
    /// The value of a slot is being replaced. Readers take it from a shadow.
    const REPLACING: u64 = 1 << 1;
    const SLOT_SHIFT: u32 = 2;
    const SHADOW_SHIFT: u32 = 5;
    const SHADOW_BITS: u32 = 13;
    const DISPLACED_SHIFT: u32 = Self::SHADOW_SHIFT + Self::SHADOW_BITS;
    const DISPLACED_MAX: u64 = 31;
    /// An entry of the segment may be lost.
    const DAMAGED: u64 = 1 << (Self::DISPLACED_SHIFT + 5);
    const VERSION: u64 = Self::DAMAGED << 1;

    /// The control word of a bucket from which so many entries are displaced.
    pub(super) fn new(displaced: u32) -> Self {
        Control(u64::from(displaced).min(Self::DISPLACED_MAX) << Self::DISPLACED_SHIFT)
    }

    /// The same, of a bucket whose segment may have lost an entry.
    pub(super) fn damaged(self) -> Self {
        Control(self.0 | Self::DAMAGED)
    }

    #[inline(always)]
    pub(super) fn is_damaged(self) -> bool {
        self.0 & Self::DAMAGED != 0
    }

    #[inline(always)]
    pub(super) fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    #[inline(always)]
    pub(super) fn held(self) -> Self {
        Control(self.0 | Self::HELD)
    }

    #[inline(always)]
    pub(super) fn free(self) -> Self {
        Control(self.0 & !Self::HELD)
    }

    /// Whether nothing has changed between the two that a reader has to know of.
    #[inline(always)]
    pub(super) fn is_same_as(self, other: Control) -> bool {
        (self.0 ^ other.0) & !Self::HELD == 0
    }

    #[inline(always)]
    pub(super) fn next_version(self) -> Self {
        Control(self.0.wrapping_add(Self::VERSION))
    }

    /// The number of the shadow that has the value of `slot`.
    #[inline(always)]
    pub(super) fn shadow_of(self, slot: u32) -> Option<usize> {
        let is_replaced =
            self.0 & Self::REPLACING != 0 && (self.0 >> Self::SLOT_SHIFT & 7) as u32 == slot;
        let shadow = self.0 >> Self::SHADOW_SHIFT & ((1 << Self::SHADOW_BITS) - 1);
        is_replaced.then_some(shadow as usize)
    }

    pub(super) fn replacing(self, slot: u32, shadow: usize) -> Self {
        let place = u64::from(slot) << Self::SLOT_SHIFT | (shadow as u64) << Self::SHADOW_SHIFT;
        Control(self.0 | place | Self::REPLACING)
    }

    pub(super) fn replaced(self) -> Self {
        Control(self.0 >> Self::DISPLACED_SHIFT << Self::DISPLACED_SHIFT | self.0 & Self::HELD)
    }

    /// Whether entries whose home this bucket is may lie in other buckets.
    #[inline(always)]
    pub(super) fn has_displaced(self) -> bool {
        self.displaced() != 0
    }

    /// The number of displaced entries that it counts.
    pub(super) fn displaced(self) -> u64 {
        self.0 >> Self::DISPLACED_SHIFT & Self::DISPLACED_MAX
    }

    /// With one more displaced entry, or one less. What has reached the maximum stays there.
    pub(super) fn with_displaced(self, added: i64) -> Self {
        match self.displaced() {
            Self::DISPLACED_MAX => self,
            count => {
                let others = self.0 & !(Self::DISPLACED_MAX << Self::DISPLACED_SHIFT);
                Control(others | count.wrapping_add_signed(added) << Self::DISPLACED_SHIFT)
            }
        }
    }
}

/// The fingerprints of a bucket's slots, and which slots are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prints(pub(super) u64);

impl Prints {
    const USED_SHIFT: u32 = 56;
    const SLOTS: u64 = (1 << SLOT_COUNT) - 1;

    /// Slots in use, as bits.
    #[inline(always)]
    pub(super) fn used(self) -> u32 {
        (self.0 >> Self::USED_SHIFT & Self::SLOTS) as u32
    }

    /// Slots in use with this fingerprint, as bits.
    #[inline(always)]
    pub(super) fn matching(self, fingerprint: u8) -> u32 {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        /// Gathers the lowest bits of eight bytes in the topmost byte.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let differ = self.0 ^ (ONES * u64::from(fingerprint));
        // The top bit of each byte that is zero, and no other bit.
        let zeros = !(((differ & LOW_BITS) + LOW_BITS) | differ | LOW_BITS);
        ((zeros >> 7).wrapping_mul(GATHER) >> 56) as u32 & self.used()
    }

    #[inline(always)]
    pub(super) fn with(self, slot: u32, fingerprint: u8) -> Self {
        let others = self.0 & !(0xff << (slot * 8));
        Prints(others | u64::from(fingerprint) << (slot * 8) | 1 << (Self::USED_SHIFT + slot))
    }

    #[inline(always)]
    pub(super) fn without(self, slots: u32) -> Self {
        Prints(self.0 & !(u64::from(slots) << Self::USED_SHIFT))
    }
}

/// The slots that are set in `bits`.
pub(super) fn each_slot(bits: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)))
        .take_while(|bits| *bits != 0)
        .map(u32::trailing_zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_find_the_used_slots_with_a_fingerprint() {
        let prints = Prints::default().with(0, 7).with(3, 7).with(6, 0).with(5, 8);
        assert_eq!((prints.used(), prints.matching(7)), (0b110_1001, 0b1001));
        assert_eq!((prints.matching(0), prints.matching(9)), (0b100_0000, 0));
        assert_eq!(prints.without(0b1001).matching(7), 0);
        assert_eq!(each_slot(0b110_1001).collect::<Vec<_>>(), [0, 3, 5, 6]);
    }

    #[test]
    fn control_words_keep_their_parts_apart() {
        let control = Control::new(3).next_version().held();
        let replacing = control.replacing(6, SHADOWS_MAX - 1);
        assert_eq!((replacing.shadow_of(6), replacing.shadow_of(5)), (Some(SHADOWS_MAX - 1), None));
        assert!(replacing.is_held() && replacing.has_displaced());
        assert_eq!(replacing.replaced(), control);
        assert!(control.is_same_as(control.free()) && !control.is_same_as(replacing));
        assert_eq!(control.with_displaced(-3), Control::new(0).next_version().held());
        assert_eq!(Control::new(40).with_displaced(-1), Control::new(31));
    }
}
