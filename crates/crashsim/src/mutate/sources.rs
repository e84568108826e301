//! Explanations of redundant flushes, fences and syncs, read from the source.

use crate::sim::trace::{Site, SiteKind};

/// Source texts in which survivors may be explained.
///
/// A redundant flush, fence or sync is marked where it stands, so that the explanation moves with it:
///
/// ```text
/// // Redundant: the superblock's checksum would tell.
/// medium.persist(offset, len);
/// ```
///
/// The marker is a line comment directly above the statement, or at the end of the line of the call.
/// A marked site that is killed all the same is no error; it only was not redundant.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The end of the file's path, and its text.
    texts: Vec<(&'static str, &'static str)>,
}

impl Sources {
    /// No source.
    pub fn new() -> Self {
        Sources::default()
    }

    /// Adds the source file whose path ends with `path`; `text` comes from `include_str!`.
    #[must_use]
    pub fn file(mut self, path: &'static str, text: &'static str) -> Self {
        self.texts.push((path, text));
        self
    }

    /// Why a site is redundant, if its source says so: `// Redundant: reason` above it, or at the
    /// end of its line; of two at one place, `// Redundant fence: reason` and
    /// `// Redundant flush: reason` speak of one.
    pub fn reason(&self, site: &Site) -> Option<String> {
        let (_, text) = self.texts.iter().find(|(path, _)| site.file.ends_with(path))?;
        let lines: Vec<&str> = text.lines().take(site.line as usize).map(str::trim).collect();
        let (last, above) = lines.split_last()?;
        if let Some(reason) = marked(last, site.kind) {
            return Some(reason);
        }
        // Upwards through the statement and the comments over it.
        let mut reason = Vec::new();
        for line in above.iter().rev() {
            match line.strip_prefix("//") {
                Some(comment) => match marked(line, site.kind) {
                    Some(first) => {
                        reason.push(first);
                        reason.reverse();
                        return Some(reason.join(" "));
                    }
                    None => reason.push(comment.trim().to_owned()),
                },
                None => {
                    let code = line.split("//").next().unwrap_or(line).trim_end();
                    if code.is_empty() || code.ends_with([';', '{', '}']) {
                        return None;
                    }
                    reason.clear();
                }
            }
        }
        None
    }
}

/// The reason after the marker, when the line has one.
fn marked(line: &str, kind: SiteKind) -> Option<String> {
    let (_, marked) = line.split_once("// Redundant")?;
    let (of, reason) = marked.split_once(": ")?;
    (of.is_empty() || of.trim_start() == kind.name()).then(|| reason.trim().to_owned())
}
