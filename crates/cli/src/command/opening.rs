//! Opening pools with the right durability, and with the right map for the entries.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use remanent::pmem::{self, Emulated, Error, Mapped, Medium, Options, Pool};
use remanent::{Backing, Durability, Emulation};
use remanent_server::store::{Form, has_two_maps};

/// The guarantee of `serve --durability` for acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// They survive the death of the process.
    Process,
    /// They survive the loss of power.
    Power,
    /// They survive once they are safe, which happens within a bound.
    Batched,
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "process" => Ok(Promise::Process),
            "power" => Ok(Promise::Power),
            "batched" => Ok(Promise::Batched),
            _ => Err(format!("durability is `process`, `power` or `batched`, not `{text}`")),
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::Process => "process",
            Promise::Power => "power",
            Promise::Batched => "batched",
        })
    }
}

impl Promise {
    fn form(self) -> Form {
        match self {
            Promise::Process | Promise::Power => Form::ExtendibleMap,
            Promise::Batched => Form::BatchMap,
        }
    }
}

/// A pool that is ready to be served.
pub(crate) struct Opened<M: Medium> {
    pub(crate) pool: Pool<M>,
    /// The map for the pool's entries, existing or to be created.
    pub(crate) form: Form,
    /// Whether the pool was closed properly.
    pub(crate) was_clean: bool,
}

/// Opens a pool, or creates it. Without a promise, the pool keeps its durability.
pub(crate) fn open(
    options: &Options,
    path: &Path,
    asked: Option<Promise>,
    emulation: Emulation,
) -> anyhow::Result<Opened<Mapped>> {
    let opened = match asked {
        None => open_as_made(options, path),
        Some(asked) => open_for(options, path, asked, emulation).map(with_end),
    };
    let (pool, was_clean) = match opened {
        Err(error) if is_missing(&error) => with_end(options.open_or_create(path)?),
        Err(error @ Error::Unsupported { .. }) if asked == Some(Promise::Batched) => {
            return Err(error).context(BATCHED_NEEDS_POWER);
        }
        opened => opened?,
    };
    let form = agreed_form(&pool, path, asked)?;
    let is_safe = pool.guarantee().durability == Durability::Power || emulation != Emulation::None;
    if form.is_batched() && !is_safe {
        bail!(
            "{} keeps its entries in a map of type {form} and lies in memory; {BATCHED_NEEDS_POWER}; if it was made \
             with --emulate, serve it with that",
            path.display()
        );
    }
    Ok(Opened { pool, form, was_clean })
}

const BATCHED_NEEDS_POWER: &str = "--durability batched is for pools that can survive the loss of \
    power: in memory nothing is lost when the process dies, and everything when the power does; leave it \
    out, or choose a pool on a disk or on persistent memory with --pool";

fn open_for(
    options: &Options,
    path: &Path,
    asked: Promise,
    emulation: Emulation,
) -> pmem::Result<Pool> {
    let durability = match asked {
        Promise::Process => Durability::Process,
        // Emulated memory only models memory that survives the loss of power.
        Promise::Batched if emulation != Emulation::None => Durability::Process,
        Promise::Power | Promise::Batched => Durability::Power,
    };
    options.clone().durability(durability).open_or_create(path)
}

/// Opens an existing pool with the durability that it was created with. Also returns whether it was
/// closed properly.
pub(crate) fn open_as_made(options: &Options, path: &Path) -> pmem::Result<(Pool, bool)> {
    let (pool, was_clean) = with_end(options.clone().durability(Durability::Process).open(path)?);
    let info = pool.info()?;
    let can_be_safe =
        info.guarantee.emulation == Emulation::None && info.guarantee.backing != Backing::Memory;
    let is_batched = Form::of(&pool)?.is_some_and(Form::is_batched);
    let made = if is_batched && can_be_safe { Durability::Power } else { info.created_durability };
    if made == pool.guarantee().durability {
        return Ok((pool, was_clean));
    }
    // Serving the pool with less than it was created for would be a silent loss.
    drop(pool);
    Ok((options.clone().durability(made).open(path)?, was_clean))
}

/// A pool, and whether it was closed properly.
fn with_end(pool: Pool) -> (Pool, bool) {
    let was_clean = pool.was_clean();
    (pool, was_clean)
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Opens or creates a pool on memory with the latency of another technology.
pub(crate) fn open_emulated(
    options: &Options,
    path: &Path,
    asked: Option<Promise>,
) -> anyhow::Result<Opened<Emulated>> {
    let durability = match asked {
        Some(Promise::Power) => Durability::Power,
        _ => Durability::Process,
    };
    let options = options.clone().durability(durability);
    let pool = match options.open_emulated(path) {
        Err(error) if is_missing(&error) => options.create_emulated(path)?,
        opened => opened?,
    };
    let form = agreed_form(&pool, path, asked)?;
    Ok(Opened { form, was_clean: pool.was_clean(), pool })
}

/// The map that the pool has, or that it will get. Refuses a promise that does not fit the existing
/// map.
fn agreed_form<M: Medium>(
    pool: &Pool<M>,
    path: &Path,
    asked: Option<Promise>,
) -> anyhow::Result<Form> {
    if has_two_maps(pool)? {
        bail!(
            "{} has entries in two maps, because an older version has served it since a newer one; \
             serving one would lose entries of the other; serve a copy of the pool from before that; if the \
             older version has stored nothing, `remanent pool convert` removes its map",
            path.display()
        );
    }
    let Some(found) = Form::of(pool)? else {
        return Ok(asked.map_or(Form::ExtendibleMap, Promise::form));
    };
    if let Some(asked) = asked.filter(|asked| asked.form().is_batched() != found.is_batched()) {
        let (path, wanted) = (path.display(), asked.form());
        let serves = match found {
            Form::ExtendibleMap | Form::HashMap => {
                "with every write durable before it is acknowledged"
            }
            Form::BatchMap => "batched",
        };
        bail!(
            "{path} keeps its entries in a map of type {found}, and --durability {asked} needs a \
             {wanted}; leave out --durability to serve it {serves}, or choose another pool with --pool and copy the \
             entries there"
        );
    }
    Ok(found)
}
