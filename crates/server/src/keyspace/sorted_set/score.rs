//! Scores, and the forms in which they are stored.

/// The score of a member: any number or infinity, and never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Score(f64);

/// Bytes of a stored score, in either form.
pub(super) const SCORE_LEN: usize = size_of::<f64>();
const SIGN: u64 = 1 << 63;
/// The zero note of −0.
const MINUS_ZERO: &[u8] = b"-";

impl Score {
    pub(crate) const ZERO: Score = Score(0.0);

    /// `None` when `value` is not a number.
    pub(crate) fn new(value: f64) -> Option<Self> {
        (!value.is_nan()).then_some(Score(value))
    }

    pub(crate) fn value(self) -> f64 {
        self.0
    }

    /// The ordered form: an integer that compares as the score does. 0 and −0 have the same.
    pub(super) fn to_ordered(self) -> u64 {
        // Adding 0 turns −0 into 0.
        let bits = (self.0 + 0.0).to_bits();
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }

    /// The score of an ordered form and its [`zero_note`](Score::zero_note).
    pub(super) fn from_ordered(ordered: u64, zero_note: &[u8]) -> Option<Self> {
        let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
        let score = Score::new(f64::from_bits(bits))?;
        Some(if zero_note == MINUS_ZERO { Score(-0.0) } else { score })
    }

    /// What the ordered form loses: a byte for −0, and nothing for every other score.
    pub(super) fn zero_note(self) -> &'static [u8] {
        if self.0 == 0.0 && self.0.is_sign_negative() { MINUS_ZERO } else { &[] }
    }

    /// The plain form: the bits of the number, little-endian.
    pub(super) fn to_bytes(self) -> [u8; SCORE_LEN] {
        self.0.to_le_bytes()
    }

    /// Reads the plain form; `None` when it is not a score.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Score::new(f64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Whether both are the same number to the bit: 0 is not −0.
    pub(super) fn is_identical(self, other: Score) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ordered_as_numbers() {
        let numbers = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            0.1,
            1e300,
            f64::INFINITY,
        ];
        for pair in numbers.windows(2) {
            let [low, high] =
                [pair[0], pair[1]].map(|number| Score::new(number).unwrap().to_ordered());
            assert!(low < high, "{pair:?}");
        }
        for number in numbers {
            let ordered = Score(number).to_ordered();
            let read = Score::from_ordered(ordered, &[]).unwrap();
            assert_eq!(read.value().to_bits(), number.to_bits());
        }
        assert_eq!(Score(-0.0).to_ordered(), Score(0.0).to_ordered());
    }
}
