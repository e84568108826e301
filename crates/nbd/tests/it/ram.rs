//! A disk in memory, with faults where a test wants them.

use std::ops::{ControlFlow, Range};
use std::sync::{PoisonError, RwLock};

use remanent_nbd::{Allocation, Export, ExportError};

pub(super) const PAGE: u64 = 4096;

pub(super) type Page = Box<[u8]>;

/// Pages that are there once they were written.
#[derive(Debug, Default)]
pub(super) struct Ram {
    pub(super) pages: RwLock<Vec<Option<Page>>>,
    pub(super) size: u64,
    pub(super) is_read_only: bool,
    pub(super) description: String,
    pub(super) block_size_min: u32,
    /// A range that cannot be read or written, and why.
    pub(super) fault: Option<(Range<u64>, ExportError)>,
    /// A range that makes whoever touches it panic.
    pub(super) poison: Range<u64>,
}

impl Ram {
    pub(super) fn new(size: u64) -> Self {
        let pages = vec![None; size.div_ceil(PAGE) as usize];
        Ram { pages: RwLock::new(pages), size, block_size_min: 1, ..Ram::default() }
    }

    /// A disk with these bytes from its beginning on.
    pub(super) fn with(bytes: &[u8]) -> Self {
        let ram = Ram::new(bytes.len() as u64);
        ram.write(0, bytes).expect("there is no fault");
        ram
    }

    fn touch(&self, offset: u64, len: u64) -> Result<(), ExportError> {
        let meets = |range: &Range<u64>| range.start < offset + len && offset < range.end;
        assert!(!meets(&self.poison), "this panic is part of a test");
        match &self.fault {
            Some((range, error)) if meets(range) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Tells `change` each page of a range, with the part of it that lies in the range.
    fn change(
        &self,
        offset: u64,
        len: u64,
        mut change: impl FnMut(&mut Option<Page>, Range<usize>),
    ) -> Result<(), ExportError> {
        self.touch(offset, len)?;
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, part) in parts(offset, len) {
            change(&mut pages[page], part);
        }
        Ok(())
    }

    fn clear(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ExportError> {
        self.change(offset, len, |page, part| {
            if may_unmap && part.len() as u64 == PAGE {
                *page = None;
            } else {
                page.get_or_insert_with(empty)[part].fill(0);
            }
        })
    }
}

fn empty() -> Page {
    vec![0; PAGE as usize].into()
}

/// The pages of a range, with the part of each that lies in the range.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (usize, Range<usize>)> {
    let end = offset + len;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let first = offset.max(page * PAGE) - page * PAGE;
        let after = end.min((page + 1) * PAGE) - page * PAGE;
        (page as usize, first as usize..after as usize)
    })
}

impl Export for Ram {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn block_size_min(&self) -> u32 {
        self.block_size_min
    }

    fn read(&self, offset: u64, mut target: &mut [u8]) -> Result<(), ExportError> {
        let len = target.len() as u64;
        self.touch(offset, len)?;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, part) in parts(offset, len) {
            let filled = target.split_off_mut(..part.len()).expect("parts make up the range");
            match &pages[page] {
                Some(page) => filled.copy_from_slice(&page[part]),
                None => filled.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, mut source: &[u8]) -> Result<(), ExportError> {
        self.change(offset, source.len() as u64, |page, part| {
            let written = source.split_off(..part.len()).expect("parts make up the range");
            page.get_or_insert_with(empty)[part].copy_from_slice(written);
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ExportError> {
        self.clear(offset, len, may_unmap)
    }

    fn is_zeroing_fast(&self, may_unmap: bool) -> bool {
        may_unmap
    }

    fn trim(&self, offset: u64, len: u64) -> Result<(), ExportError> {
        self.clear(offset, len, true)
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
        self.touch(offset, len)?;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, part) in parts(offset, len) {
            let allocation = match &pages[page] {
                None => Allocation::Hole,
                Some(page) if page.iter().all(|byte| *byte == 0) => Allocation::Zero,
                Some(_) => Allocation::Data,
            };
            if visit(part.len() as u64, allocation).is_break() {
                break;
            }
        }
        Ok(())
    }
}
