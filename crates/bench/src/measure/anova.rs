//! One-way analysis of variance: whether the means of several groups of samples differ by more than
//! the samples within them scatter.

use std::fmt;

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::samples::Samples;

/// The outcome of an analysis, which prints as papers do: `F(2) = 14162.668, p < 0.001`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Anova {
    /// The variance between the groups' means over the variance within the groups.
    f: f64,
    /// Degrees of freedom between the groups: one less than there are groups.
    between: usize,
    /// Degrees of freedom within the groups: samples less groups.
    within: usize,
    /// How probable so large an `f` would be if all groups were samples of one quantity.
    p: f64,
}

impl Anova {
    /// Compares groups of samples. `None` if there are fewer than two groups, a group without
    /// samples, or no group with two.
    pub(crate) fn of(groups: &[&Samples]) -> Option<Self> {
        let count: usize = groups.iter().map(|group| group.runs()).sum();
        let between = groups.len().checked_sub(1).filter(|&between| between > 0)?;
        let within = count.checked_sub(groups.len()).filter(|&within| within > 0)?;
        let sum: f64 = groups.iter().flat_map(|group| group.values()).sum();
        let mean = sum / count as f64;
        let square = |difference: f64| difference * difference;
        let (mut squares_between, mut squares_within) = (0.0, 0.0);
        for group in groups {
            if group.runs() == 0 {
                return None;
            }
            squares_between += group.runs() as f64 * square(group.mean() - mean);
            squares_within += group.values().map(|value| square(value - group.mean())).sum::<f64>();
        }
        let f = (squares_between / between as f64) / (squares_within / within as f64);
        // If no group scatters at all, the groups are certainly different, or all equal.
        let p = if squares_within == 0.0 {
            f64::from(u8::from(squares_between == 0.0))
        } else {
            p_of(f, between, within)?
        };
        Some(Anova { f, between, within, p })
    }
}

/// The share of the F distribution that lies above `f`.
fn p_of(f: f64, between: usize, within: usize) -> Option<f64> {
    Some(FisherSnedecor::new(between as f64, within as f64).ok()?.sf(f))
}

impl fmt::Display for Anova {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "F({}) = {:.3}, ", self.between, self.f)?;
        if self.p < 0.001 { write!(out, "p < 0.001") } else { write!(out, "p = {:.3}", self.p) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anova<const N: usize>(groups: [&[f64]; N]) -> Option<Anova> {
        let groups = groups.map(|group| Samples::from_iter(group.iter().copied()));
        Anova::of(&groups.iter().collect::<Vec<_>>())
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 5e-4 * expected.abs(), "{value} is not {expected}");
    }

    #[test]
    fn a_textbook_example_comes_out() {
        // Three treatments, six samples each. For two degrees of freedom p is (1 + 2 F / 15)^-7.5.
        let a = [6.0, 8.0, 4.0, 5.0, 3.0, 4.0];
        let b = [8.0, 12.0, 9.0, 11.0, 6.0, 8.0];
        let c = [13.0, 9.0, 11.0, 8.0, 7.0, 12.0];
        let anova = anova([&a, &b, &c]).expect("there are enough samples");
        assert_eq!((anova.between, anova.within), (2, 15));
        assert_near(anova.f, 9.264_706);
        assert_near(anova.p, 0.002_399);
        assert_eq!(anova.to_string(), "F(2) = 9.265, p = 0.002");
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (f, between, within, p) in [
            (4.965, 1, 10, 0.05),
            (3.708, 3, 10, 0.05),
            (7.559, 2, 10, 0.01),
            (2.606, 4, 40, 0.05),
            (6.171, 3, 60, 0.001),
        ] {
            assert_near(p_of(f, between, within).expect("the degrees are positive"), p);
        }
    }

    #[test]
    fn groups_may_have_different_sizes() {
        // Student's test on the same two samples: F is its t squared, 2.546, and p the same.
        let anova = anova([&[1.0, 2.0, 3.0, 4.0, 5.0], &[4.0, 5.0, 6.0, 7.0]]);
        let anova = anova.expect("there are enough samples");
        assert_eq!((anova.between, anova.within), (1, 7));
        assert_near(anova.f, 6.25 / (15.0 / 7.0) / (1.0 / 5.0 + 1.0 / 4.0));
        assert_near(anova.p, 0.038_334);
    }

    #[test]
    fn far_apart_is_significant_and_equal_is_not() {
        let [low, high] = [[1.0, 1.01, 0.99], [100.0, 100.1, 99.9]];
        let apart = anova([&low, &high]).expect("there are enough samples");
        assert!(
            apart.to_string().starts_with("F(1) = ") && apart.to_string().ends_with("p < 0.001")
        );
        let equal = anova([&low, &low]).expect("there are enough samples");
        assert_eq!(equal.to_string(), "F(1) = 0.000, p = 1.000");
    }

    #[test]
    fn samples_that_do_not_scatter_are_no_division_by_zero() {
        let apart = anova([&[1.0, 1.0], &[2.0, 2.0]]).expect("there are enough samples");
        assert_eq!((apart.f, apart.p), (f64::INFINITY, 0.0));
        assert_eq!(anova([&[1.0, 1.0], &[1.0, 1.0]]).map(|same| same.p), Some(1.0));
    }

    #[test]
    fn too_few_samples_have_no_variance() {
        assert_eq!(anova([]), None);
        assert_eq!(anova([&[1.0, 2.0]]), None);
        assert_eq!(anova([&[1.0], &[2.0]]), None);
        assert_eq!(anova([&[1.0, 2.0], &[]]), None);
    }
}
