//! The server: acknowledged writes of strings and sorted sets survive every cut, and the pool is
//! consistent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value as Json;

use super::entries::{Entries, Key, Members, Mix, Source, Value, Write, count_kept, number};
use super::{Load, Opened, Scenario, Storage, in_threads};
use crate::guest::Guest;
use crate::guest::process::{output, run, said};
use crate::guest::resp::{Answer, Client};
use crate::message::{Lost, Past};
use crate::program::Program;
use crate::random::Random;

/// The scenario, and the control that must fail.
pub(crate) const HONEST: Server = Server {
    name: "server",
    about: "remanent serve on a DAX pool: no acknowledged SET, DEL, APPEND, INCR, ZADD, ZREM is lost",
    is_honest: true,
    mix: Mix::Small,
    storage: Storage::Memory,
    durability: "power",
};
pub(crate) const TOO_EARLY: Server = Server {
    name: "server-too-early",
    about: "control, must fail: as server, but writes count as acknowledged before they are sent",
    is_honest: false,
    ..HONEST
};

/// Pools that grow and shrink, on both kinds of storage, and the control that must fail.
pub(crate) const SPACE: Server = Server {
    name: "space",
    about: "remanent serve on new DAX pools that grow, give storage back and use it again: as server",
    mix: Mix::Space,
    ..HONEST
};
pub(crate) const SPACE_ON_DISK: Server = Server {
    name: "space-on-disk",
    about: "the same on ext4 on a disk whose write cache is lost with the power",
    storage: Storage::Disk,
    ..SPACE
};
pub(crate) const SPACE_UNSYNCED: Server = Server {
    name: "space-unsynced",
    about: "control, must fail: as space-on-disk, but in pools of durability process",
    durability: "process",
    ..SPACE_ON_DISK
};

/// See `HONEST`.
pub(crate) struct Server {
    name: &'static str,
    about: &'static str,
    /// Whether a write is acknowledged after the server's answer, and not before it is sent.
    is_honest: bool,
    mix: Mix,
    storage: Storage,
    durability: &'static str,
}

const WRITERS: usize = 4;
/// Maximal number of requests in one write to the socket.
const PIPELINE_MAX: u64 = 24;
/// How early a dishonest acknowledgement is: earlier than the cut's delay, so that every cut must
/// find a loss.
const LEAD: Duration = Duration::from_millis(200);
/// Far more than all keys hold at any time.
const POOL_SIZE: &str = "192M";
/// Number of rounds with the same pool of long values; each new pool grows from the smallest size.
const ROUNDS_OF_A_POOL: u64 = 3;

impl Scenario for Server {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    fn acks(&self) -> Range<u64> {
        match self.mix {
            Mix::Small if self.is_honest => 100..4_000,
            Mix::Small => 50..300,
            Mix::Space => 20..500,
        }
    }

    fn programs(&self) -> &'static [Program] {
        &[Program::REMANENT]
    }

    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened> {
        let place = self.pool(guest, past.round());
        let path = place.to_str().context("the pool's path is not UTF-8")?;
        let mut facts = BTreeMap::new();
        // The round before may have ended while it created its pool.
        let is_missing = self.mix == Mix::Space
            && !place.exists()
            && past.acknowledged.iter().all(|count| *count == 0);
        if guest.is_first() || is_missing {
            self.create_pool(path)?;
        }
        // In every other round the checker recovers the pool, in the others the server does.
        if past.round().is_multiple_of(2) {
            check_pool(path)?;
        }
        let server = self.start(path, &mut facts)?;
        let (kept, entries) = self.check(guest, past, &server)?;
        // The content must be read from the pool again, and not from the server's own memory.
        drop(server);
        check_pool(path)?;
        self.check_backing(path, &mut facts)?;
        let server = self.start(path, &mut BTreeMap::new())?;
        Ok(Opened {
            kept,
            facts,
            load: Box::new(Writers { server, entries, scenario: Server { ..*self } }),
        })
    }
}

impl Server {
    /// The pool of a round.
    fn pool(&self, guest: &Guest, round: u64) -> PathBuf {
        let name = match self.mix {
            Mix::Small => "server.pool".to_owned(),
            Mix::Space => format!("space-{}.pool", self.first_round(round)),
        };
        guest.directory().join(name)
    }

    /// The first of the rounds that share this round's pool.
    fn first_round(&self, round: u64) -> u64 {
        match self.mix {
            Mix::Small => 0,
            Mix::Space => round - round % ROUNDS_OF_A_POOL,
        }
    }

    fn create_pool(&self, path: &str) -> Result<()> {
        let size = ["--size", POOL_SIZE, "--durability", self.durability];
        run("remanent", &[&["pool", "create", path][..], &size].concat()).map(drop)
    }

    fn start(&self, path: &str, facts: &mut BTreeMap<String, f64>) -> Result<Process> {
        Process::start(path, self.durability, facts)
    }

    /// A pool must lie on the storage that the scenario is about, or a cut would show nothing.
    fn check_backing(&self, path: &str, facts: &mut BTreeMap<String, f64>) -> Result<()> {
        let backing = match self.storage {
            Storage::Memory => "dax",
            Storage::Disk => "file",
        };
        if self.mix == Mix::Small || self.durability == "process" {
            return if self.durability == "power" { check_backing(path, backing) } else { Ok(()) };
        }
        let info = pool_info(path, backing)?;
        for (fact, field) in [("pool_mib", "size_bytes"), ("pool_backed_mib", "physical_bytes")] {
            let bytes = info[field].as_f64().with_context(|| format!("the pool has no {field}"))?;
            facts.insert(fact.to_owned(), bytes / 1_048_576.0);
        }
        Ok(())
    }

    /// In the first of its rounds, creates a new pool in place of the old ones; in the others
    /// creates a disk in the old one, where other structures have been.
    fn renew(&self, guest: &Guest, round: u64) -> Result<()> {
        let place = self.pool(guest, round);
        let path = place.to_str().context("the pool's path is not UTF-8")?;
        if round > self.first_round(round) {
            let name = format!("disk-{round}");
            let target = ["disk", "create", path, "--name", &name, "--size", "256K"];
            return run("remanent", &target).map(drop);
        }
        if place.exists() {
            return Ok(());
        }
        for entry in std::fs::read_dir(guest.directory())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("space-") {
                std::fs::remove_file(&path)?;
            }
        }
        self.create_pool(path)
    }
}

/// A pool must lie on mapped persistent memory or on a disk, or a cut would show nothing.
pub(super) fn check_backing(path: &str, backing: &str) -> Result<()> {
    pool_info(path, backing).map(drop)
}

fn pool_info(path: &str, backing: &str) -> Result<Json> {
    let text = run("remanent", &["pool", "info", path, "--json"])?;
    let info: Json = serde_json::from_str(&text).context("pool info prints no JSON")?;
    for (field, expected) in [("backing", backing), ("durability", "power")] {
        if info[field] != expected {
            bail!("the pool's {field} is {}, expected {expected:?}", info[field]);
        }
    }
    Ok(info)
}

/// An inconsistent pool after a cut is a loss.
pub(super) fn check_pool(path: &str) -> Result<()> {
    let output = output("remanent", &["pool", "check", path])?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    Err(Lost(vec![format!("remanent pool check: {}", said(&output))]).into())
}

impl Server {
    fn source(&self, seed: u64, round: u64, writer: usize) -> Source {
        Source { mix: self.mix, seed, round, writer }
    }

    /// Compares the server's content with what was acknowledged.
    fn check(
        &self,
        guest: &Guest,
        past: &Past,
        server: &Process,
    ) -> Result<(Vec<u64>, Vec<Entries>)> {
        let mut found = fetch(&mut server.connect()?)?;
        let (mut kept, mut entries, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        for writer in 0..WRITERS {
            let mut expected = self.replay(guest.seed(), past, writer);
            let infix = format!(":{writer}:").into_bytes();
            let is_own = |key: &Key| key.windows(infix.len()).any(|window| window == infix);
            let own: Entries = found.extract_if(.., |key, _| is_own(key)).collect();
            let source = self.source(guest.seed(), past.round(), writer);
            match past.acknowledged.get(writer) {
                Some(acknowledged) => {
                    match count_kept(source, *acknowledged, &mut expected, &own) {
                        Ok(count) => kept.push(count),
                        Err(lines) => losses.extend(lines),
                    }
                }
                None if own.is_empty() => {}
                None => losses
                    .push(format!("writer {writer} wrote nothing, and has {} keys", own.len())),
            }
            entries.push(expected);
        }
        if !found.is_empty() {
            let keys: Vec<_> = found.keys().map(|key| key.escape_ascii().to_string()).collect();
            losses.push(format!("keys that nobody wrote: {}", keys.join(", ")));
        }
        if losses.is_empty() { Ok((kept, entries)) } else { Err(Lost(losses).into()) }
    }

    /// A writer's entries after the checked rounds, in the present pool.
    fn replay(&self, seed: u64, past: &Past, writer: usize) -> Entries {
        let mut entries = Entries::new();
        let first = self.first_round(past.round());
        for (round, kept) in (0..).zip(&past.kept).filter(|(round, _)| *round >= first) {
            let source = self.source(seed, round, writer);
            for number in 0..kept.get(writer).copied().unwrap_or(0) {
                Write::numbered(source, number).apply(&mut entries);
            }
        }
        entries
    }
}

/// The complete content of the server.
fn fetch(client: &mut Client) -> Result<Entries> {
    let keys = client.call(&["KEYS", "*"])?.strings()?;
    let count = client.call(&["DBSIZE"])?;
    if count != Answer::Integer(keys.len() as i64) {
        return Err(lost(format!("{} keys are listed, and DBSIZE is {count:?}", keys.len())));
    }
    let mut entries = Entries::new();
    for key in keys {
        let value = match client.call(&[b"TYPE", &key[..]])? {
            Answer::Simple(name) if name == "zset" => Value::Set(fetch_set(client, &key)?),
            _ => match client.call(&[b"GET", &key[..]])? {
                Answer::Bulk(value) => Value::Text(value),
                answer => {
                    return Err(lost(format!(
                        "{} is listed, and it is {answer:?}",
                        key.escape_ascii()
                    )));
                }
            },
        };
        entries.insert(key, value);
    }
    Ok(entries)
}

/// A sorted set, read in its order and by member; the two must agree.
fn fetch_set(client: &mut Client, key: &[u8]) -> Result<Members> {
    let name = key.escape_ascii();
    let words = client.call(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])?.strings()?;
    let mut set = Members::new();
    let mut ordered = Vec::new();
    for pair in words.chunks_exact(2) {
        let score = number(&pair[1]).with_context(|| format!("{name} has a score {pair:?}"))?;
        set.insert(pair[0].clone(), score);
        ordered.push((score, pair[0].clone()));
    }
    if !ordered.is_sorted() || set.len() != ordered.len() {
        return Err(lost(format!("{name} is not in order, or has a member twice")));
    }
    if client.call(&[b"ZCARD", key])? != Answer::Integer(set.len() as i64) {
        return Err(lost(format!("{name} has {} members, and ZCARD says otherwise", set.len())));
    }
    let mut request = vec![b"ZMSCORE".to_vec(), key.to_vec()];
    request.extend(set.keys().cloned());
    let scores = client.call(&request)?.strings()?;
    if !scores.iter().map(|score| number(score)).eq(set.values().map(|score| Some(*score))) {
        return Err(lost(format!("{name}: scores by member are not those by order")));
    }
    Ok(set)
}

fn lost(what: String) -> anyhow::Error {
    Lost(vec![what]).into()
}

/// A server process; killed when dropped.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts a server on a free port, and waits until it answers.
    fn start(path: &str, durability: &str, facts: &mut BTreeMap<String, f64>) -> Result<Process> {
        let start = Instant::now();
        let mut child = Command::new("remanent")
            .args(["serve", "--listen", "127.0.0.1:0", "--pool", path, "--durability", durability])
            .args(["--threads", "2"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start remanent serve")?;
        let stdout = child.stdout.take().context("standard output is not piped")?;
        let mut greeting = String::new();
        BufReader::new(stdout).read_line(&mut greeting)?;
        let address = greeting
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(": ").next()?.parse().ok())
            .ok_or_else(|| anyhow!("remanent serve said {greeting:?}, which has no address"));
        // If the server refuses its pool, that may be a loss, too.
        let address = match address {
            Ok(address) => address,
            Err(error) => {
                let status = child.wait()?;
                return Err(lost(format!("{error:#}; it ended with {status}: see the console")));
            }
        };
        let server = Process { child, address };
        server.connect()?.call(&["PING"])?;
        facts.insert("first_answer_ms".to_owned(), start.elapsed().as_secs_f64() * 1e3);
        let opened = greeting.split("opened in ").nth(1).and_then(|rest| rest.split(' ').next());
        if let Some(opened) = opened.and_then(|text| text.parse().ok()) {
            facts.insert("opened_ms".to_owned(), opened);
        }
        Ok(server)
    }

    fn connect(&self) -> Result<Client> {
        Client::connect(self.address)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The writers' connections, each with the content of its keys.
struct Writers {
    server: Process,
    entries: Vec<Entries>,
    scenario: Server,
}

impl Load for Writers {
    fn run(self: Box<Self>, guest: &Guest, round: u64) -> Result<Infallible> {
        let Writers { mut server, mut entries, scenario } = *self;
        if scenario.mix == Mix::Space {
            drop(server);
            scenario.renew(guest, round)?;
            let place = scenario.pool(guest, round);
            let path = place.to_str().context("the pool's path is not UTF-8")?;
            server = scenario.start(path, &mut BTreeMap::new())?;
            if round == scenario.first_round(round) {
                entries.iter_mut().for_each(Entries::clear);
            }
        }
        in_threads(guest, entries, |writer, entries| {
            let source = scenario.source(guest.seed(), round, writer);
            scenario.write(guest, source, &mut server.connect()?, entries)
        })
    }
}

impl Server {
    /// Sends writes in pipelines, and checks every answer.
    fn write(
        &self,
        guest: &Guest,
        source: Source,
        client: &mut Client,
        mut entries: Entries,
    ) -> Result<Infallible> {
        let mut next = 0;
        loop {
            let first = next;
            // An independent sequence: how writes are sent must not affect what is written.
            let mut random = Random::of(&[!source.seed, source.round, source.writer as u64, first]);
            let writes: Vec<Write> = (0..=random.below(PIPELINE_MAX))
                .map(|index| Write::numbered(source, first + index))
                .collect();
            if !self.is_honest {
                guest.acknowledge(source.writer, first + writes.len() as u64);
                std::thread::sleep(LEAD);
            }
            client.send(&writes.iter().flat_map(Write::encode).collect::<Vec<u8>>())?;
            for write in writes {
                let (answer, due) = (client.receive()?, write.apply(&mut entries));
                if answer != due {
                    bail!("write {next}: the answer is {answer:?}, expected {due:?}");
                }
                next += 1;
                if self.is_honest {
                    guest.acknowledge(source.writer, next);
                }
            }
        }
    }
}
