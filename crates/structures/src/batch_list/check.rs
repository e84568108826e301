//! Consistency check of a list.

use std::collections::HashSet;

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::core::Core;
use super::layout::{ELEMENT, KIND_MASK, NEXT, Position};
use super::stream::End;
use super::variant::Variant;
use crate::Result;

impl<V: Variant, M: Medium> Core<V, M> {
    /// Checks the list. `end` is the state of the writer, which is the caller.
    pub(super) fn check(&self, end: &End) -> Result<Vec<Violation>> {
        // While this is held, nobody takes a segment.
        let committed = self.stream.begin_batch();
        let mut violations = Vec::new();
        if committed.safe.end > end.working {
            let what = format!("safe up to {}, beyond {}", committed.safe.end, end.working);
            violations.push(Violation::new(self.stream.heap.header(), what));
        }
        self.check_list(end, &mut violations);
        let blocks = self.stream.segments.blocks(self.stream.medium());
        violations.extend(self.stream.heap.check(blocks.into_iter())?);
        self.stream.heap.verify()?;
        Ok(violations)
    }

    fn check_list(&self, end: &End, violations: &mut Vec<Violation>) {
        let medium = self.stream.medium();
        let reading = self.variant.read(medium);
        let mut seen = HashSet::new();
        let mut at = self.stream.head();
        loop {
            let of = V::next(&reading, medium, at);
            if of == Position::NONE {
                break;
            }
            let element = match self.stream.element(at, of, V::SHAPE) {
                Ok((element, _)) => element,
                Err(error) => {
                    violations.push(Violation::new(at.offset, error.to_string()));
                    return;
                }
            };
            let wrong = if of >= end.working {
                Some(format!("a link leads to {of}; elements lie before {}", end.working))
            } else if medium.load(element.offset + V::SHAPE.len) & KIND_MASK != ELEMENT {
                Some(format!("no element begins at {of}"))
            } else if !seen.insert(of) {
                Some(format!("the element at {of} is in the list twice"))
            } else {
                None
            };
            if let Some(what) = wrong {
                violations.push(Violation::new(at.offset + NEXT, what));
                return;
            }
            at = element;
        }
        if (seen.len() as u64, at.of) != (end.count, end.tail.of) {
            let what = format!(
                "the list has {} elements up to {}, and should have {} up to {}",
                seen.len(),
                at.of,
                end.count,
                end.tail.of
            );
            violations.push(Violation::new(at.offset + NEXT, what));
        }
    }
}
