//! TATP's transactions in PostgreSQL, by its own load generator.
//!
//! `pgbench` sends prepared statements over a socket, one after the other, as a client of a server
//! does. So these figures have what other contenders do without: a process switch each way, for
//! each statement.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use remanent_engine::{TableSpec, Type, Value};
use remanent_tatp::{Kind, Population, tables};
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::cleanup::{Guarded, Scratch};

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The account that the package makes: the server refuses to be root.
const ACCOUNT: &str = "postgres";
/// Bytes that the path of a socket can have, without the names that are added here.
const PARENT_LEN_MAX: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a socket of its own, with TATP's tables.
pub(super) struct Postgres {
    server: Guarded,
    scratch: Scratch,
    programs: PathBuf,
    subscribers: u32,
}

/// Directory of the newest version's programs; reports on stderr if there is none.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let of = |path: PathBuf| Some((path.file_name()?.to_str()?.parse::<u32>().ok()?, path));
    let newest = versions.filter_map(|version| of(version.path())).max()?.1.join("bin");
    ["initdb", "postgres", "psql", "pgbench", "pg_isready"]
        .iter()
        .all(|program| newest.join(program).exists())
        .then_some(newest)
}

/// Executes a program that must succeed, and returns what it has written.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot execute {program:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program:?}: {told}");
    Ok(String::from_utf8(output.stdout)?)
}

/// User and group of the account, if this process is root.
fn account() -> Result<Option<(u32, u32)>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    let id = |which| -> Result<u32> {
        Ok(output(Command::new("id").args([which, ACCOUNT]))?.trim().parse()?)
    };
    Ok(Some((id("-u")?, id("-g")?)))
}

/// Whether every account reaches a directory, and a socket in it has a short enough path.
fn is_for_everybody(directory: &Path) -> bool {
    let is_open = |of: &Path| fs::metadata(of).is_ok_and(|of| of.permissions().mode() & 1 != 0);
    directory.as_os_str().len() <= PARENT_LEN_MAX && directory.ancestors().all(is_open)
}

impl Postgres {
    /// Starts a server with its files in a new directory in `parent`, and loads the rows. `None` if
    /// the package is not installed.
    ///
    /// # Errors
    ///
    /// When the server does not start, or refuses a statement.
    pub(super) fn start(parent: &Path, population: &Population) -> Result<Option<Self>> {
        let Some(programs) = programs() else {
            eprintln!("PostgreSQL is not installed: no rows and no claims beside it");
            return Ok(None);
        };
        let account = account()?;
        let elsewhere = ["/dev/shm", "/tmp"].map(Path::new);
        let mut all = [parent].into_iter().chain(elsewhere);
        let parent = all.find(|parent| account.is_none() || is_for_everybody(parent));
        let parent = parent.context("the server's account reaches no directory")?;
        let scratch = Scratch::new(parent)?;
        let as_account = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some((user, group)) = account {
                command.uid(user).gid(group);
            }
            command
        };
        if let Some((user, group)) = account {
            chown(scratch.path(), Some(user), Some(group))?;
        }
        let data = scratch.path().join("data");
        let mut made = as_account("initdb");
        made.args(["--auth=trust", "--username=tatp", "--encoding=UTF8", "--locale=C"]);
        output(made.arg("--no-sync").arg("--pgdata").arg(&data).current_dir(scratch.path()))?;
        let log = File::create(scratch.path().join("log"))?;
        let mut server = as_account("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(scratch.path());
        // Commits are synchronous, as is the default. All rows fit the buffers. Nothing is done
        // while the other contenders are measured.
        let settings =
            ["listen_addresses=", "shared_buffers=2GB", "max_wal_size=8GB", "autovacuum=off"];
        for setting in settings {
            server.args(["-c", setting]);
        }
        server.current_dir(scratch.path()).stdin(Stdio::null());
        let server = server.stdout(log.try_clone()?).stderr(log).spawn()?;
        let server = Guarded::new(server);
        let subscribers = population.count();
        let mut postgres = Postgres { server, scratch, programs, subscribers };
        postgres.wait_until_ready()?;
        postgres.load(population)?;
        Ok(Some(postgres))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.client("pg_isready").arg("-q").status()?.success() {
            let is_waiting = !self.server.has_exited() && begin.elapsed() < PATIENCE;
            let log = || fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
            ensure!(is_waiting, "PostgreSQL does not start: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A program that connects to the server.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-h").arg(self.scratch.path()).args(["-U", "tatp"]);
        if program != "pgbench" {
            command.args(["-d", "postgres"]);
        }
        command
    }

    fn load(&self, population: &Population) -> Result<()> {
        let mut psql = self.client("psql");
        psql.args(["-q", "-v", "ON_ERROR_STOP=1"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = psql.spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let written = write_all(&mut BufWriter::new(input), population);
        let status = child.wait()?;
        written?;
        ensure!(status.success(), "psql has not loaded the tables: {status}");
        Ok(())
    }

    /// Bytes of all tables and indexes, for each subscriber.
    pub(super) fn bytes(&self) -> Result<f64> {
        let sql = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class \
                   WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace";
        let bytes = output(self.client("psql").args(["-At", "-c", sql]))?;
        Ok(bytes.trim().parse::<f64>()? / f64::from(self.subscribers))
    }

    /// Nanoseconds for each request of a kind.
    pub(super) fn kind_ns(&self, kind: Kind, seconds: u32) -> Result<f64> {
        Ok(1e9 / self.bench(&[(kind, 1)], 1, seconds)?)
    }

    /// Thousands of requests of the mix in a second, by so many clients.
    pub(super) fn mix_ktps(&self, clients: u32, seconds: u32) -> Result<f64> {
        Ok(self.bench(&Kind::ALL, clients, seconds)? / 1e3)
    }

    /// Requests in a second, of kinds by their weights.
    fn bench(&self, kinds: &[(Kind, u64)], clients: u32, seconds: u32) -> Result<f64> {
        let mut pgbench = self.client("pgbench");
        pgbench.args(["--no-vacuum", "--protocol=prepared"]);
        for (option, value) in [("-c", clients), ("-j", clients), ("-T", seconds)] {
            pgbench.arg(option).arg(value.to_string());
        }
        pgbench.arg("-D").arg(format!("n={}", self.subscribers)).args(["-D", "a=65535"]);
        for (kind, weight) in kinds {
            let path = self.scratch.path().join(kind.name());
            fs::write(&path, script(*kind))?;
            pgbench.arg("-f").arg(format!("{}@{weight}", path.display()));
        }
        let told = output(pgbench.arg("postgres"))?;
        let failed = "number of failed transactions: 0 ";
        ensure!(told.contains(failed), "pgbench: {told}");
        let tps = told.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split_whitespace().next());
        Ok(tps.with_context(|| format!("pgbench tells no tps: {told}"))?.parse()?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // By the signal for a fast end: killed, it leaves a segment of shared memory.
        if let Some(pid) = Pid::from_raw(self.server.pid() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
        let begin = Instant::now();
        while !self.server.has_exited() && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn create_statement(spec: &TableSpec) -> String {
    let columns = spec.columns().iter().map(|column| {
        let of_type = match column.of_type {
            Type::Text { .. } => "text",
            Type::U8 => "smallint",
            Type::U16 => "integer",
            _ if column.name == "s_id" => "integer",
            // Of 32 bits without a sign.
            _ => "bigint",
        };
        format!("{} {of_type} NOT NULL", column.name)
    });
    let columns: Vec<String> = columns.collect();
    format!("CREATE TABLE {} ({});", spec.name(), columns.join(", "))
}

/// Writes what makes the tables and fills them, as psql takes it.
fn write_all(psql: &mut impl Write, population: &Population) -> Result<()> {
    for spec in tables() {
        writeln!(psql, "{}\nCOPY {} FROM STDIN;", create_statement(&spec), spec.name())?;
        match spec.name() {
            "subscriber" => {
                for row in &population.subscribers {
                    row.with_values(|values| write_row(psql, values))?;
                }
            }
            "access_info" => {
                for row in &population.access_infos {
                    row.with_values(|values| write_row(psql, values))?;
                }
            }
            "special_facility" => {
                for row in &population.special_facilities {
                    row.with_values(|values| write_row(psql, values))?;
                }
            }
            _ => {
                for row in &population.call_forwardings {
                    row.with_values(|values| write_row(psql, values))?;
                }
            }
        }
        writeln!(psql, "\\.")?;
    }
    for (table, key) in [
        ("subscriber", "s_id"),
        ("access_info", "s_id, ai_type"),
        ("special_facility", "s_id, sf_type"),
        ("call_forwarding", "s_id, sf_type, start_time"),
    ] {
        writeln!(psql, "ALTER TABLE {table} ADD PRIMARY KEY ({key});")?;
    }
    writeln!(psql, "ALTER TABLE subscriber ADD UNIQUE (sub_nbr);\nVACUUM ANALYZE;\nCHECKPOINT;")?;
    Ok(psql.flush()?)
}

fn write_row(psql: &mut impl Write, values: &[Value<'_>]) -> Result<()> {
    for (index, value) in values.iter().enumerate() {
        let end = if index + 1 == values.len() { '\n' } else { '\t' };
        match value {
            Value::Text(text) => write!(psql, "{text}{end}")?,
            value => write!(psql, "{value}{end}")?,
        }
    }
    Ok(())
}

/// A request of a kind, in the language of pgbench.
fn script(kind: Kind) -> String {
    const S_ID: &str = r"\set s_id (random(0, :a) | random(1, :n)) % :n + 1";
    const SF_TYPE: &str = r"\set sf_type random(1, 4)";
    const START: &str = r"\set start 8 * random(0, 2)";
    const END: &str = r"\set end random(1, 24)";
    // With the number, as the request has it.
    const BY_NUMBER: &str = "sub_nbr = lpad(:s_id::text, 15, '0')";
    let find = format!("SELECT s_id FROM subscriber WHERE {BY_NUMBER} \\gset");
    let lines: Vec<String> = match kind {
        Kind::GetSubscriberData => vec!["SELECT * FROM subscriber WHERE s_id = :s_id;".into()],
        Kind::GetNewDestination => vec![
            SF_TYPE.into(),
            START.into(),
            END.into(),
            "SELECT cf.numberx FROM special_facility sf JOIN call_forwarding cf \
             ON cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type \
             WHERE sf.s_id = :s_id AND sf.sf_type = :sf_type AND sf.is_active = 1 \
             AND cf.start_time <= :start AND :end < cf.end_time;"
                .into(),
        ],
        Kind::GetAccessData => vec![
            r"\set ai_type random(1, 4)".into(),
            "SELECT data1, data2, data3, data4 FROM access_info \
             WHERE s_id = :s_id AND ai_type = :ai_type;"
                .into(),
        ],
        Kind::UpdateSubscriberData => vec![
            SF_TYPE.into(),
            r"\set bit random(0, 1)".into(),
            r"\set data random(0, 255)".into(),
            "BEGIN;".into(),
            "UPDATE subscriber SET bit_1 = :bit WHERE s_id = :s_id;".into(),
            "UPDATE special_facility SET data_a = :data WHERE s_id = :s_id AND sf_type = :sf_type;"
                .into(),
            // Also where there is no facility: a script cannot choose what is cheaper.
            "COMMIT;".into(),
        ],
        Kind::UpdateLocation => vec![
            r"\set location random(1, 4294967295)".into(),
            format!("UPDATE subscriber SET vlr_location = :location WHERE {BY_NUMBER};"),
        ],
        Kind::InsertCallForwarding => vec![
            SF_TYPE.into(),
            START.into(),
            END.into(),
            r"\set to random(1, :n)".into(),
            find,
            "SELECT sf_type FROM special_facility WHERE s_id = :s_id;".into(),
            "INSERT INTO call_forwarding SELECT s_id, sf_type, :start::smallint, :end::smallint, \
             lpad(:to::text, 15, '0') FROM special_facility \
             WHERE s_id = :s_id AND sf_type = :sf_type ON CONFLICT DO NOTHING;"
                .into(),
        ],
        Kind::DeleteCallForwarding => vec![
            SF_TYPE.into(),
            START.into(),
            find,
            "DELETE FROM call_forwarding \
             WHERE s_id = :s_id AND sf_type = :sf_type AND start_time = :start;"
                .into(),
        ],
    };
    format!("{S_ID}\n{}\n", lines.join("\n"))
}
