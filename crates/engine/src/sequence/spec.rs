//! How a sequence is described when it is created.

use std::ops::RangeInclusive;

use crate::schema::NAME_LEN_MAX;
use crate::{Error, Result};

/// Description of a sequence, for [`Database::create_sequence`](crate::Database::create_sequence).
///
/// ```
/// use remanent_engine::SequenceSpec;
///
/// let orders = SequenceSpec::new("orders"); // 1, 2, 3 …
/// let countdown = SequenceSpec::new("countdown").increment(-1).range(0..=10); // 10, 9 … 0
/// let shelves = SequenceSpec::new("shelves").range(1..=3).cycling(); // 1, 2, 3, 1 …
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceSpec {
    pub(super) name: String,
    pub(super) increment: i64,
    range: Option<RangeInclusive<i64>>,
    start: Option<i64>,
    pub(super) is_cycling: bool,
    pub(super) block_len: u32,
}

impl SequenceSpec {
    /// The numbers from 1 on, reserved in blocks of 32.
    pub fn new(name: impl Into<String>) -> Self {
        SequenceSpec {
            name: name.into(),
            increment: 1,
            range: None,
            start: None,
            is_cycling: false,
            block_len: 32,
        }
    }

    /// Says how much is added from number to number: 1, if nothing is said. If it is negative, the
    /// numbers go down, from -1 if nothing else is said.
    #[must_use]
    pub fn increment(mut self, increment: i64) -> Self {
        self.increment = increment;
        self
    }

    /// Says which numbers there are: all positive ones, if nothing is said, or all negative ones.
    #[must_use]
    pub fn range(mut self, range: RangeInclusive<i64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Says which number is the first one: that end of the range at which the numbers begin, if
    /// nothing is said.
    #[must_use]
    pub fn start(mut self, start: i64) -> Self {
        self.start = Some(start);
        self
    }

    /// Has the numbers begin again at an end of the range, behind the other one. Otherwise there is
    /// none then ([`Error::SequenceExhausted`]).
    #[must_use]
    pub fn cycling(mut self) -> Self {
        self.is_cycling = true;
        self
    }

    /// Says how many numbers a handle reserves at once, for one fence: 32, if nothing is said. What
    /// it has not given out is lost when it is dropped, and in a crash: blocks of 1 lose nothing.
    #[must_use]
    pub fn block_len(mut self, numbers: u32) -> Self {
        self.block_len = numbers;
        self
    }

    /// The numbers that there are.
    pub(super) fn bounds(&self) -> RangeInclusive<i64> {
        let usual = if self.increment > 0 { 1..=i64::MAX } else { i64::MIN..=-1 };
        self.range.clone().unwrap_or(usual)
    }

    /// The first number.
    pub(super) fn first(&self) -> i64 {
        self.start.unwrap_or_else(|| first_of(&self.bounds(), self.increment))
    }

    /// Refuses a description by which there are no numbers.
    pub(super) fn require_right(&self) -> Result<()> {
        let (bounds, first) = (self.bounds(), self.first());
        let reason = if self.name.is_empty() || self.name.len() > NAME_LEN_MAX {
            format!("its name has {} bytes, and has to have 1 to {NAME_LEN_MAX}", self.name.len())
        } else if self.increment == 0 {
            "its increment is 0, so that all numbers would be the same".to_owned()
        } else if bounds.is_empty() {
            format!("its range {}..={} has no numbers", bounds.start(), bounds.end())
        } else if !bounds.contains(&first) {
            format!("its start {first} is not in its range {}..={}", bounds.start(), bounds.end())
        } else if self.block_len == 0 {
            "its blocks have 0 numbers, and have to have 1 at least".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Sequence { sequence: self.name.clone(), reason })
    }
}

/// The end of a range at which numbers begin.
pub(super) fn first_of(bounds: &RangeInclusive<i64>, increment: i64) -> i64 {
    if increment > 0 { *bounds.start() } else { *bounds.end() }
}
