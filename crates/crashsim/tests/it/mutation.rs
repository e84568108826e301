//! Mutation of flushes and fences.

use std::sync::Arc;

use remanent_crashsim::{Fate, Outcome, Rng, Sim, Site, SiteKind, Sources, Subject, mutate};
use remanent_pmem::Medium;

use super::log::{Log, SOUND, config};

#[test]
fn every_mutant_of_a_sound_log_is_killed() {
    let report = mutate(&SOUND, &config(), &Sources::new());
    let mutation = report.mutation.as_ref().unwrap();
    assert_eq!((mutation.mutants.len(), mutation.killed()), (6, 6), "{report}");
    let flushes = mutation.mutants.iter().filter(|mutant| mutant.site.kind == SiteKind::Flush);
    assert_eq!(flushes.count(), 3, "{report}");
}

#[test]
fn a_broken_log_is_not_mutated() {
    let report = mutate(&Log { flush_count: false, ..SOUND }, &config(), &Sources::new());
    assert!(!report.is_clean() && report.mutation.is_none(), "{report}");
}

/// A word that is persisted more often than necessary.
struct Anxious;

impl Subject for Anxious {
    type Op = u64;
    type Ret = ();
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, value: &u64) {
        medium.store(0, *value);
        medium.flush(0, 8);
        // Redundant: twice is not
        // safer than once.
        medium.flush(0, 8);
        medium.fence();
        medium.fence();
    }

    fn model(&self, state: &mut u64, value: &u64) {
        *state = *value;
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        Ok(medium.load(0))
    }

    fn op(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(1000)
    }
}

#[test]
fn a_reason_may_be_of_one_kind_alone() {
    let text = "// Redundant fence: another one follows.\nmedium.persist(0, 8);\n\
                // Redundant: none needs it.\nmedium.persist(8, 8);\nmedium.persist(16, 8);\n";
    let sources = Sources::new().file("a.rs", text);
    let reason = |line, kind| sources.reason(&Site { file: "src/a.rs", line, column: 8, kind });
    assert_eq!(reason(2, SiteKind::Fence).as_deref(), Some("another one follows."));
    assert_eq!(reason(2, SiteKind::Flush), None);
    assert_eq!(reason(4, SiteKind::Flush).as_deref(), Some("none needs it."));
    assert_eq!(reason(5, SiteKind::Fence), None);
}

#[test]
fn survivors_are_redundant_or_explained() {
    let sources = Sources::new().file("it/mutation.rs", include_str!("mutation.rs"));
    let mut mutation = mutate(&Anxious, &config(), &sources).mutation.unwrap();
    let reasons: Vec<_> = mutation
        .mutants
        .iter()
        .filter_map(|mutant| match &mutant.fate {
            Fate::Explained { reason } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["twice is not safer than once."], "{mutation}");
    // The other flush of the pair is redundant as well, and so are both fences.
    assert_eq!((mutation.mutants.len(), mutation.survivors().count()), (4, 3), "{mutation}");

    let mut killed = mutation.clone();
    killed.mutants[0].fate = Fate::Explained { reason: "another test kills it".to_owned() };
    mutation.merge(killed);
    assert_eq!(mutation.survivors().count(), 2, "{mutation}");
}
