//! A tree of files that is written with `fsync`, and what a power cut may leave of it.
//!
//! Each round has a directory, with one directory for each writer. A writer creates files, replaces
//! one by renaming another over it, appends to one, and removes some. Each of these is one write,
//! synced before it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::in_threads;
use crate::guest::{Guest, remove_directory};
use crate::message::{Lost, Past};
use crate::random::Random;

pub(crate) const WRITERS: usize = 3;
/// More writes than can be in flight: the content of the port to the host.
const LEAD_MAX: u64 = 1_000;
/// Number of rounds whose files are kept, and compared again after each cut.
const ROUNDS_KEPT: u64 = 3;
/// Maximal number of losses described for each writer.
const NAMED_MAX: usize = 6;
const CONTENT_MAX: u64 = 20_000;

const REPLACED: &str = "replaced";
const APPENDED: &str = "appended";
const TEMPORARY: &str = "temporary";

/// Whether writes are synced before they are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Each,
    /// Never: for a control, which must lose something.
    Never,
}

type Content = Vec<u8>;
/// Files of a writer in a round, by name.
type Files = BTreeMap<String, Content>;

enum Write {
    Create(String, Content),
    Replace(Content),
    Append(Content),
    Remove(String),
}

impl Write {
    /// The write of this number.
    fn numbered(seed: u64, round: u64, writer: usize, number: u64) -> Write {
        let mut random = Random::of(&[seed, round, writer as u64, number]);
        let kind = random.below(20);
        let mut content = format!("{round}.{writer}.{number}.").into_bytes();
        let mut fill = |len: u64| {
            // Distinct words, so that exchanged blocks are detected.
            while (content.len() as u64) < len {
                content.extend_from_slice(&random.next().to_le_bytes());
            }
            content.clone()
        };
        match kind {
            0..11 => {
                let len = Random::of(&[seed, round, number, 1]).below(CONTENT_MAX);
                Write::Create(file_name(number), fill(len))
            }
            11..14 => Write::Replace(fill(3_000)),
            14..17 => Write::Append(fill(500)),
            // Of the earlier files, some were never created, or are already removed.
            _ => Write::Remove(file_name(number.saturating_sub(1 + kind % 3))),
        }
    }

    fn name(&self) -> &str {
        match self {
            Write::Create(name, _) | Write::Remove(name) => name,
            Write::Replace(_) => REPLACED,
            Write::Append(_) => APPENDED,
        }
    }

    /// Applies the write to the expected files, as `run` does to the file system.
    fn apply(&self, files: &mut Files) {
        match self {
            Write::Create(name, content) => {
                files.insert(name.clone(), content.clone());
            }
            Write::Replace(content) => {
                files.insert(REPLACED.to_owned(), content.clone());
            }
            Write::Append(content) => {
                files.entry(APPENDED.to_owned()).or_default().extend_from_slice(content);
            }
            Write::Remove(name) => {
                files.remove(name);
            }
        }
    }

    fn run(&self, directory: &Path, sync: Sync) -> Result<()> {
        let path = directory.join(self.name());
        match self {
            Write::Create(_, content) => write_file(&path, content, sync)?,
            Write::Replace(content) => {
                let temporary = directory.join(TEMPORARY);
                write_file(&temporary, content, sync)?;
                fs::rename(&temporary, &path)?;
            }
            Write::Append(content) => {
                let mut file = File::options().append(true).create(true).open(&path)?;
                file.write_all(content)?;
                sync.file(&file)?;
            }
            Write::Remove(_) => match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            },
        }
        sync.file(&File::open(directory)?)
    }
}

impl Sync {
    fn file(self, file: &File) -> Result<()> {
        match self {
            Sync::Each => Ok(file.sync_all()?),
            Sync::Never => Ok(()),
        }
    }
}

fn write_file(path: &Path, content: &[u8], sync: Sync) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    sync.file(&file)
}

fn file_name(number: u64) -> String {
    format!("file-{number}")
}

/// Writes until the power is cut.
pub(crate) fn load(guest: &Guest, root: &Path, round: u64, sync: Sync) -> Result<Infallible> {
    if let Some(old) = round.checked_sub(ROUNDS_KEPT) {
        remove_directory(&root.join(round_name(old)))?;
    }
    for writer in 0..WRITERS {
        fs::create_dir_all(writer_directory(root, round, writer))?;
    }
    // The directories count as acknowledged with the first file in them.
    for directory in [root.to_owned(), root.join(round_name(round))] {
        sync.file(&File::open(directory)?)?;
    }
    in_threads(guest, vec![(); WRITERS], |writer, ()| {
        let directory = writer_directory(root, round, writer);
        for number in 0.. {
            let write = Write::numbered(guest.seed(), round, writer, number);
            write.run(&directory, sync).with_context(|| {
                format!("cannot write {} of {}", write.name(), directory.display())
            })?;
            guest.acknowledge(writer, number + 1);
        }
        unreachable!("nobody writes as often as there are numbers")
    })
}

/// Checks the trees of the last rounds. Returns the number of each writer's writes in the last
/// round.
pub(crate) fn check(seed: u64, root: &Path, past: &Past) -> Result<Vec<u64>> {
    let mut losses = Vec::new();
    let rounds = past.kept.iter().chain([&past.acknowledged]).enumerate();
    for (round, acknowledged) in rounds {
        let round = round as u64;
        // The next round began by removing the oldest files, and may have been cut there.
        if round + ROUNDS_KEPT <= past.round() {
            continue;
        }
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let found = read_files(&writer_directory(root, round, writer))?;
            let lines = compare(seed, round, writer, *acknowledged, &found);
            losses.extend(lines.into_iter().take(NAMED_MAX).map(|line| {
                format!("round {round}, writer {writer}, {acknowledged} acknowledged: {line}")
            }));
        }
    }
    if losses.is_empty() { Ok(past.acknowledged.clone()) } else { Err(Lost(losses).into()) }
}

/// Describes the files that are neither as acknowledged nor as a write in flight may leave them.
fn compare(seed: u64, round: u64, writer: usize, acknowledged: u64, found: &Files) -> Vec<String> {
    let write = |number| Write::numbered(seed, round, writer, number);
    let mut expected = Files::new();
    (0..acknowledged).map(write).for_each(|write| write.apply(&mut expected));
    let mut in_flight: BTreeMap<String, Vec<Write>> = BTreeMap::new();
    for write in (acknowledged..acknowledged + LEAD_MAX).map(write) {
        in_flight.entry(write.name().to_owned()).or_default().push(write);
    }
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let mut losses = Vec::new();
    for name in names {
        let (found, expected) = (found.get(name), expected.get(name));
        let writes = in_flight.get(name).map_or(&[][..], Vec::as_slice);
        if found != expected && !writes.iter().any(|w| w.may_leave(found, expected)) {
            losses.push(format!("{name} {}", difference(found, expected)));
        }
    }
    losses
}

impl Write {
    /// Whether a cut during this write may leave `found` in place of `expected`.
    fn may_leave(&self, found: Option<&Content>, expected: Option<&Content>) -> bool {
        match self {
            // A new file may have any part of its content, and none of its blocks may be written.
            Write::Create(..) => true,
            Write::Replace(content) => found == Some(content),
            Write::Append(_) => {
                let before = expected.map_or(&[][..], Vec::as_slice);
                found.is_some_and(|found| found.starts_with(before))
            }
            Write::Remove(_) => found.is_none(),
        }
    }
}

fn difference(found: Option<&Content>, expected: Option<&Content>) -> String {
    match (found, expected) {
        (None, _) => "is gone".to_owned(),
        (Some(found), None) => format!("is there with {} bytes, and was removed", found.len()),
        (Some(found), Some(expected)) => {
            let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
            format!(
                "has {} bytes, expected {}; the first that is wrong is at {}",
                found.len(),
                expected.len(),
                first.unwrap_or(found.len().min(expected.len()))
            )
        }
    }
}

/// The files of a directory, which may be missing; without the one that is never acknowledged.
fn read_files(directory: &Path) -> Result<Files> {
    let mut files = Files::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        entries => entries.with_context(|| format!("cannot list {}", directory.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != TEMPORARY {
            let content = fs::read(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            files.insert(name, content);
        }
    }
    Ok(files)
}

fn round_name(round: u64) -> String {
    format!("round-{round}")
}

fn writer_directory(root: &Path, round: u64, writer: usize) -> PathBuf {
    root.join(round_name(round)).join(format!("writer-{writer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files after so many writes in a real file system.
    fn written(count: u64) -> Files {
        let directory = tempfile::tempdir().expect("a directory");
        for number in 0..count {
            Write::numbered(7, 1, 2, number).run(directory.path(), Sync::Never).expect("written");
        }
        read_files(directory.path()).expect("read")
    }

    fn losses(acknowledged: u64, found: &Files) -> Vec<String> {
        compare(7, 1, 2, acknowledged, found)
    }

    #[test]
    fn what_was_acknowledged_or_a_little_more_is_accepted() {
        let found = written(200);
        for acknowledged in [200, 199, 190, 0] {
            assert_eq!(losses(acknowledged, &found), [""; 0], "{acknowledged}");
        }
    }

    #[test]
    fn every_kind_of_loss_is_found() {
        let found = written(200);
        let name = found.keys().find(|name| name.starts_with("file")).expect("a file").clone();
        for name in [&name, REPLACED, APPENDED] {
            let mut gone = found.clone();
            gone.remove(name);
            assert_eq!(losses(200, &gone), [format!("{name} is gone")]);
            let mut damaged = found.clone();
            damaged.get_mut(name).expect("a file")[3] ^= 1;
            assert!(losses(200, &damaged)[0].ends_with("is wrong is at 3"), "{name}");
            let mut shorter = found.clone();
            shorter.get_mut(name).expect("a file").pop();
            assert_eq!(losses(200, &shorter).len(), 1, "{name}");
        }
        let mut resurrected = found;
        resurrected.insert("file-stranger".to_owned(), b"?".to_vec());
        assert_eq!(losses(200, &resurrected).len(), 1);
    }
}
