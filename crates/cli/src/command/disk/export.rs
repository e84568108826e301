//! A disk or a snapshot as an export.

use std::ops::ControlFlow;

use remanent::blockdev::{Disk, Error, Extent, Snapshot};
use remanent::pmem::{Mapped, Medium};
use remanent_nbd::{Allocation, Export, ExportError};

use super::super::advice_for;

/// Zeros that are written at once when they must occupy space.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// The error that a client gets.
fn told(error: Error) -> ExportError {
    match error {
        error if error.is_full() => ExportError::NoSpace,
        Error::OutOfRange { .. } => ExportError::OutOfRange,
        error => ExportError::Failed(format!("{error}{}", advice_for(&error))),
    }
}

/// A [`Disk`] that clients read and, unless it is served read-only, write.
///
/// Each write of a client is atomic, whatever its length. Trim and zeroes are atomic for each 1.75
/// MiB. Zeroes take no space, unless the client requests space for them (`NO_HOLE`); then they are
/// atomic for each 256 KiB.
#[derive(Debug)]
pub(super) struct DiskExport<M: Medium = Mapped> {
    disk: Disk<M>,
    is_read_only: bool,
}

impl<M: Medium> DiskExport<M> {
    /// Serves a disk.
    pub(super) fn new(disk: Disk<M>, is_read_only: bool) -> Self {
        DiskExport { disk, is_read_only }
    }
}

impl<M: Medium> Export for DiskExport<M> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn description(&self) -> String {
        "a disk in a Remanent pool".to_owned()
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError> {
        self.disk.read(offset, target).map_err(told)
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<(), ExportError> {
        self.disk.write(offset, source).map_err(told)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ExportError> {
        if may_unmap {
            return self.disk.write_zeros(offset, len).map_err(told);
        }
        for at in (offset..offset + len).step_by(ZEROS.len()) {
            let part = (offset + len - at).min(ZEROS.len() as u64);
            self.disk.write(at, &ZEROS[..part as usize]).map_err(told)?;
        }
        Ok(())
    }

    fn is_zeroing_fast(&self, may_unmap: bool) -> bool {
        may_unmap
    }

    fn trim(&self, offset: u64, len: u64) -> Result<(), ExportError> {
        self.disk.trim(offset, len).map_err(told)
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.disk.flush().map_err(told)
    }

    fn status(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        self.disk.extents(offset, len, |extent| visit(extent.len, allocation(extent))).map_err(told)
    }
}

fn allocation(extent: Extent) -> Allocation {
    if extent.is_mapped { Allocation::Data } else { Allocation::Hole }
}

/// A [`Snapshot`] that clients read.
#[derive(Debug)]
pub(super) struct SnapshotExport<M: Medium = Mapped>(pub(super) Snapshot<M>);

impl<M: Medium> Export for SnapshotExport<M> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        "a snapshot of a disk in a Remanent pool".to_owned()
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError> {
        self.0.read(offset, target).map_err(told)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), ExportError> {
        Err(ExportError::ReadOnly)
    }

    fn write_zeroes(&self, _: u64, _: u64, _: bool) -> Result<(), ExportError> {
        Err(ExportError::ReadOnly)
    }

    fn trim(&self, _: u64, _: u64) -> Result<(), ExportError> {
        Err(ExportError::ReadOnly)
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn status(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        self.0.extents(offset, len, |extent| visit(extent.len, allocation(extent))).map_err(told)
    }
}
