//! A bench, as the command line sees it.

use anyhow::Result;

use crate::report::Report;
use crate::setup::{Extra, Setup};

/// A bench that can be called by its name.
pub(crate) struct Bench {
    /// Its name on the command line and of its files.
    pub(crate) name: &'static str,
    /// Its line in the help.
    pub(crate) about: &'static str,
    /// Options that it takes beyond those of all benches.
    pub(crate) extras: &'static [Extra],
    /// Whether the help leaves it out.
    pub(crate) is_hidden: bool,
    /// Measures, and says what came out.
    pub(crate) run: fn(&Setup) -> Result<Report>,
}

impl Bench {
    /// A bench in the help, without options of its own.
    pub(crate) const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&Setup) -> Result<Report>,
    ) -> Self {
        Bench { name, about, extras: &[], is_hidden: false, run }
    }
}
