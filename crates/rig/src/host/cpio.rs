//! Writes the archive that the kernel unpacks as its first file system, in cpio's format `newc`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive under construction; `finish` completes it.
pub(crate) struct Archive<W> {
    out: W,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Archive<W> {
        Archive { out, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a directory and its parents.
    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let path = &path[..end];
            if !path.is_empty() && self.directories.insert(path.to_owned()) {
                self.entry(path, DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    /// Adds an executable file and its parent directories.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, PROGRAM, content)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, LINK, target.as_bytes())
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match Path::new(path).parent().and_then(Path::to_str) {
            Some(parent) if !parent.is_empty() => self.directory(parent),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let len = u32::try_from(content.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{name} has {} bytes; the archive's format ends at 4 GiB", content.len()),
            )
        })?;
        self.entries += 1;
        let name_len = name.len() as u32 + 1;
        // inode, mode, user, group, links, time, length, device twice of two numbers, name's
        // length, sum
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    /// Pads to a multiple of four bytes, at which each header and each content begins.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_drawn_by_its_bytes() {
        let mut archive = Archive::new(Vec::new());
        archive.file("bin/a", b"hello").expect("written");
        archive.file("bin/b", b"").expect("written");
        let bytes = archive.finish().expect("written");
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let names: Vec<&str> = ["bin\0", "bin/a\0", "bin/b\0", "TRAILER!!!\0"]
            .into_iter()
            .filter(|name| text.contains(name))
            .collect();
        assert_eq!(names.len(), 4, "{text}");
        assert_eq!(text.matches("070701").count(), 4, "the directory is there once: {text}");
        let header = "07070100000002000081ed00000000000000000000000100000000\
                      0000000500000000000000000000000000000000\
                      0000000600000000bin/a\0";
        assert!(text.contains(header), "{text}");
    }
}
