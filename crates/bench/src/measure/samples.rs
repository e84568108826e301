//! Samples of one quantity, and their statistics.

/// The samples of one quantity, one for each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// No samples yet.
    pub(crate) const fn new() -> Self {
        Samples(Vec::new())
    }

    /// Appends the sample of the next round.
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Number of rounds sampled.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }

    /// The middle sample; the mean of the middle two when their number is even. NaN when none.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        }
    }

    /// The samples, in the order of the rounds.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    /// The arithmetic mean. NaN when there are no samples.
    pub(crate) fn mean(&self) -> f64 {
        self.values().sum::<f64>() / self.runs() as f64
    }

    /// The standard deviation σ of the quantity, estimated from the samples. NaN if there are fewer
    /// than two.
    pub(crate) fn sigma(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.values().map(|value| (value - mean) * (value - mean)).sum();
        (squares / (self.runs() as f64 - 1.0)).sqrt()
    }

    /// The smallest sample.
    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest sample.
    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// This quantity over another, round by round.
    pub(crate) fn over(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// This quantity plus another, round by round.
    pub(crate) fn plus(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours + theirs).collect())
    }

    /// This quantity minus another, round by round.
    pub(crate) fn minus(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours - theirs).collect())
    }

    /// This quantity times a factor.
    pub(crate) fn times(&self, factor: f64) -> Samples {
        Samples(self.0.iter().map(|sample| sample * factor).collect())
    }

    /// The reciprocal of the quantity times `scale`: with 1000, nanoseconds become millions a
    /// second.
    pub(crate) fn reciprocal(&self, scale: f64) -> Samples {
        Samples(self.0.iter().map(|sample| scale / sample).collect())
    }
}

impl Extend<f64> for Samples {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, samples: I) {
        samples.into_iter().for_each(|sample| self.push(sample));
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Samples(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_samples() {
        assert_eq!(Samples::from_iter([3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Samples::from_iter([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn means_and_standard_deviations() {
        let samples = Samples::from_iter([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(samples.mean(), 5.0);
        assert!((samples.sigma() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Samples::from_iter([1.0]).mean(), 1.0);
        assert!(Samples::from_iter([1.0]).sigma().is_nan() && Samples::new().mean().is_nan());
    }

    #[test]
    fn ratios_and_differences_are_taken_round_by_round() {
        let (ours, theirs) = (Samples::from_iter([2.0, 8.0]), Samples::from_iter([1.0, 2.0]));
        let ratio = ours.over(&theirs);
        assert_eq!((ratio.min(), ratio.max(), ratio.runs()), (2.0, 4.0, 2));
        assert_eq!(ours.plus(&theirs), Samples::from_iter([3.0, 10.0]));
        assert_eq!(ours.times(2.0), Samples::from_iter([4.0, 16.0]));
        let difference = ours.minus(&theirs);
        assert_eq!((difference.min(), difference.max(), difference.runs()), (1.0, 6.0, 2));
    }
}
