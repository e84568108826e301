//! Files on the memory's own file system: shows that the rig itself loses nothing, and that it
//! detects a loss.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;

use super::tree::{self, Sync};
use super::{Load, Opened, Scenario};
use crate::guest::Guest;
use crate::message::Past;
use crate::program::Program;

/// The scenario, and the control that must fail.
pub(crate) const HONEST: Ext4 = Ext4 { sync: Sync::Each };
pub(crate) const UNSYNCED: Ext4 = Ext4 { sync: Sync::Never };

/// See `HONEST`.
pub(crate) struct Ext4 {
    sync: Sync,
}

impl Scenario for Ext4 {
    fn name(&self) -> &'static str {
        match self.sync {
            Sync::Each => "ext4-baseline",
            Sync::Never => "ext4-unsynced",
        }
    }

    fn about(&self) -> &'static str {
        match self.sync {
            Sync::Each => {
                "files with fsync on the ext4 of the memory itself: the rig loses nothing"
            }
            Sync::Never => "control, must fail: as ext4-baseline, but without fsync",
        }
    }

    fn writers(&self) -> usize {
        tree::WRITERS
    }

    fn acks(&self) -> Range<u64> {
        match self.sync {
            Sync::Each => 20..1_000,
            // Files younger than the file system's interval of five seconds are lost.
            Sync::Never => 20..200,
        }
    }

    fn programs(&self) -> &'static [Program] {
        &[]
    }

    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened> {
        let root = guest.directory().join("tree");
        std::fs::create_dir_all(&root)?;
        let kept = tree::check(guest.seed(), &root, past)?;
        let load = Box::new(Tree { root, sync: self.sync });
        Ok(Opened { kept, facts: BTreeMap::new(), load })
    }
}

/// Files that are written into a directory.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) sync: Sync,
}

impl Load for Tree {
    fn run(self: Box<Self>, guest: &Guest, round: u64) -> Result<Infallible> {
        tree::load(guest, &self.root, round, self.sync)
    }
}
