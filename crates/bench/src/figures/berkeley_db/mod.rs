//! Berkeley DB as memcachedb uses it, in one directory beside another (nvramdisk, section 7.4,
//! Figure 11).

#[cfg(has_berkeley_db)]
mod memcachedb;

#[cfg(has_berkeley_db)]
use memcachedb::run;

use super::bench::Bench;
use crate::setup::Extra;

pub(super) const BENCH: Bench = Bench {
    extras: &[Extra::On, Extra::Operations],
    ..Bench::new(
        "berkeley-db",
        "Berkeley DB as memcachedb uses it, in one directory beside another (nvramdisk, Figure 11)",
        run,
    )
};

#[cfg(not(has_berkeley_db))]
fn run(_: &crate::setup::Setup) -> anyhow::Result<crate::report::Report> {
    anyhow::bail!(
        "this program was built without Berkeley DB: install Debian's libdb5.3-dev, and build it again"
    )
}
