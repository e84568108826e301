//! The content of a pool file in memory, as the pages that are not all zeros.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use remanent_pmem::PAGE_LEN;

/// A page of a file.
pub(super) type Page = Box<[u8; PAGE_LEN as usize]>;

/// A pool file at one moment. Missing pages hold zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Length of the file in bytes.
    pub(super) len: u64,
    /// Pages by their numbers.
    pub(super) pages: BTreeMap<u64, Page>,
}

impl Image {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut pages = BTreeMap::new();
        for number in 0..len.div_ceil(PAGE_LEN) {
            let mut page = Box::new([0; PAGE_LEN as usize]);
            let at = number * PAGE_LEN;
            let wanted = (len - at).min(PAGE_LEN) as usize;
            file.read_exact_at(&mut page[..wanted], at)?;
            if page.iter().any(|&byte| byte != 0) {
                pages.insert(number, page);
            }
        }
        Ok(Image { len, pages })
    }

    /// Writes a file, with holes in place of zeros.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        for (number, page) in &self.pages {
            file.write_all_at(&page[..], number * PAGE_LEN)?;
        }
        file.set_len(self.len)
    }

    /// The bytes at `offset`, which do not cross a page.
    pub(super) fn get(&self, offset: u64, len: usize) -> Vec<u8> {
        let at = (offset % PAGE_LEN) as usize;
        match self.pages.get(&(offset / PAGE_LEN)) {
            Some(page) => page[at..at + len].to_vec(),
            None => vec![0; len],
        }
    }

    /// Replaces the bytes at `offset`, which do not cross a page.
    pub(super) fn set(&mut self, offset: u64, bytes: &[u8]) {
        let page = self.pages.entry(offset / PAGE_LEN);
        let page = page.or_insert_with(|| Box::new([0; PAGE_LEN as usize]));
        let at = (offset % PAGE_LEN) as usize;
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
