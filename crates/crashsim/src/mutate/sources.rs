//! Explanations of redundant flushes, fences and syncs, read from source texts.

use crate::sim::trace::{Site, SiteKind};

/// Source texts that may explain why mutants survive.
///
/// A comment at the redundant flush, fence or sync explains it, so that the explanation moves with
/// the code:
///
/// ```text
/// // Redundant: the superblock's checksum would tell.
/// medium.persist(offset, len);
/// ```
///
/// The comment stands directly above the statement, or at the end of the line of the call. A site
/// that is explained but killed is no error.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The end of each file's path, and the file's text.
    texts: Vec<(&'static str, &'static str)>,
}

impl Sources {
    /// No source texts.
    pub fn new() -> Self {
        Sources::default()
    }

    /// Adds the source file whose path ends with `path`. `text` comes from `include_str!`.
    #[must_use]
    pub fn file(mut self, path: &'static str, text: &'static str) -> Self {
        self.texts.push((path, text));
        self
    }

    /// The explanation of a site: `// Redundant: reason` above it, or at the end of its line. At a
    /// place with two sites, `// Redundant fence: reason` and `// Redundant flush: reason` explain
    /// one of them.
    pub fn reason(&self, site: &Site) -> Option<String> {
        let (_, text) = self.texts.iter().find(|(path, _)| site.file.ends_with(path))?;
        let lines: Vec<&str> = text.lines().take(site.line as usize).map(str::trim).collect();
        let (last, above) = lines.split_last()?;
        if let Some(reason) = marked(last, site.kind) {
            return Some(reason);
        }
        // Upwards through the statement and the comments above it.
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

/// The reason after the marker, if the line has one.
fn marked(line: &str, kind: SiteKind) -> Option<String> {
    let (_, marked) = line.split_once("// Redundant")?;
    let (of, reason) = marked.split_once(": ")?;
    (of.is_empty() || of.trim_start() == kind.name()).then(|| reason.trim().to_owned())
}
