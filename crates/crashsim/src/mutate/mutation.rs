//! Results of mutation.

use std::fmt;

use serde::Serialize;

use crate::report::violation::Broken;
use crate::sim::trace::Site;

/// The fate of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The exploration noticed that the site was missing.
    Killed {
        /// The first violation.
        broken: Broken,
        /// The seed of the run with that violation.
        seed: u64,
        /// What was found.
        what: String,
    },
    /// No exploration noticed it, and the source explains why: `// Redundant: reason`.
    Explained {
        /// The reason.
        reason: String,
    },
    /// No exploration noticed it.
    Survived,
}

/// The structure without one of its flushes, fences or syncs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// The site that was left out.
    pub site: Site,
    /// Its fate.
    pub fate: Fate,
}

/// The fates of all mutants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mutation {
    /// Mutants, ordered by site.
    pub mutants: Vec<Mutant>,
}

impl Mutation {
    /// Number of killed mutants.
    pub fn killed(&self) -> usize {
        self.mutants.iter().filter(|mutant| matches!(mutant.fate, Fate::Killed { .. })).count()
    }

    /// Mutants that no exploration noticed and no comment explains.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.mutants.iter().filter(|mutant| mutant.fate == Fate::Survived)
    }

    /// Adds the results of another subject or configuration. A mutant is killed if any of them
    /// kills it.
    pub fn merge(&mut self, other: Mutation) {
        for mutant in other.mutants {
            match self.mutants.iter_mut().find(|known| known.site == mutant.site) {
                None => self.mutants.push(mutant),
                Some(known) if rank(&mutant.fate) < rank(&known.fate) => *known = mutant,
                Some(_) => {}
            }
        }
        self.mutants.sort_by_key(|mutant| mutant.site);
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, killed) = (self.mutants.len(), self.killed());
        let survivors = self.survivors().count();
        let explained = all - killed - survivors;
        write!(f, "{all} mutants: {killed} killed, {explained} explained, {survivors} survived")?;
        for Mutant { site, fate } in &self.mutants {
            match fate {
                Fate::Killed { broken, seed, .. } => {
                    write!(f, "\n  killed    {site} ({broken:?}, seed {seed})")?;
                }
                Fate::Explained { reason } => write!(f, "\n  explained {site}: {reason}")?,
                Fate::Survived => write!(f, "\n  SURVIVED  {site}")?,
            }
        }
        Ok(())
    }
}

fn rank(fate: &Fate) -> u8 {
    match fate {
        Fate::Killed { .. } => 0,
        Fate::Explained { .. } => 1,
        Fate::Survived => 2,
    }
}
