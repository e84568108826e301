//! The guest's first file system: an init script, programs with their libraries, and kernel
//! modules.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::{Kernel, read_module};
use crate::program::Program;
use crate::scenario::Scenario;

/// Programs of every guest, besides busybox.
const PROGRAMS: [Program; 3] = [
    Program::debian("ndctl", "ndctl"),
    Program::debian("mkfs.ext4", "e2fsprogs"),
    Program::debian("fsck.ext4", "e2fsprogs"),
];

/// Modules for persistent memory, its file system, the port to the host, and a disk.
const MODULES: [&str; 8] = [
    "libnvdimm",
    "nfit",
    "nd_pmem",
    "crc32c_generic?",
    "ext4",
    "virtio_pci?",
    "virtio_console?",
    "virtio_blk?",
];

/// Directories of programs that are not in the `PATH` of an ordinary user.
const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Further needs of some guests: programs and kernel modules.
#[derive(Default)]
pub(crate) struct Needs {
    programs: Vec<&'static Program>,
    modules: Vec<&'static str>,
}

impl Needs {
    pub(crate) fn add(&mut self, programs: &'static [Program], modules: &[&'static str]) {
        self.programs.extend(programs);
        self.modules.extend(modules);
    }

    /// The combined needs of the scenarios.
    pub(crate) fn of(scenarios: &[&dyn Scenario]) -> Needs {
        let mut needs = Needs::default();
        scenarios.iter().for_each(|scenario| needs.add(scenario.programs(), scenario.modules()));
        needs
    }
}

/// Writes the archive to `path`.
pub(crate) fn write(path: &Path, kernel: &Kernel, needs: &Needs) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut image = Image {
        archive: Archive::new(BufWriter::new(file)),
        scratch: path.with_extension("stripped"),
        written: BTreeSet::new(),
    };
    for directory in ["proc", "sys", "dev", "tmp", "run", "lib", "mnt"] {
        image.archive.directory(directory)?;
    }
    image.archive.link("lib64", "lib")?;
    image.archive.file("init", include_bytes!("init.sh"))?;
    let busybox = find("busybox", "busybox-static")?;
    if libraries(&busybox)?.is_empty() {
        image.copy("bin/busybox", &busybox)?;
    } else {
        bail!(
            "{} needs shared libraries, and the guest's first program cannot; install Debian's \
             busybox-static in its place",
            busybox.display()
        );
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    image.program("remanent-rig", &own)?;
    let mut modules = MODULES.to_vec();
    modules.extend(&needs.modules);
    for program in PROGRAMS.iter().chain(needs.programs.iter().copied()) {
        image.add(program, &own)?;
    }
    for (index, module) in kernel.modules(&modules)?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let name = name.split_once(".ko").map_or(&*name, |(name, _)| name).to_owned();
        image.archive.file(&format!("modules/{index:02}-{name}.ko"), &read_module(module)?)?;
    }
    image.archive.finish()?;
    Ok(())
}

struct Image {
    archive: Archive<BufWriter<File>>,
    /// A temporary file between a program and the archive.
    scratch: PathBuf,
    written: BTreeSet<String>,
}

impl Image {
    fn add(&mut self, program: &Program, own: &Path) -> Result<()> {
        match *program {
            Program::Debian { name, package } => self.program(name, &find(name, package)?),
            Program::Plugin { file, package } => {
                let path = find_plugin(file, package)?;
                self.copy(&format!("lib/{file}"), &path)?;
                self.libraries_of(&path)
            }
            Program::Ours { name, build } => {
                let path = own.with_file_name(name);
                if !path.is_file() {
                    bail!(
                        "{} is missing; build it in the same profile as this program: cargo build {build} \
                         -p remanent-rig",
                        path.display()
                    );
                }
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.program(&name, &path)
            }
        }
    }

    fn program(&mut self, name: &str, path: &Path) -> Result<()> {
        self.copy(&format!("bin/{name}"), path)?;
        self.libraries_of(path)
    }

    fn libraries_of(&mut self, path: &Path) -> Result<()> {
        for library in libraries(path)? {
            let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.copy(&format!("lib/{name}"), &library)?;
        }
        Ok(())
    }

    /// Copies a file without its debug information, because the guest unpacks the archive at each
    /// boot.
    fn copy(&mut self, name: &str, source: &Path) -> Result<()> {
        if !self.written.insert(name.to_owned()) {
            return Ok(());
        }
        let stripped = Command::new("strip")
            .arg("-o")
            .arg(&self.scratch)
            .arg(source)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        let from = if stripped { &self.scratch } else { source };
        let content =
            fs::read(from).with_context(|| format!("cannot read {}", source.display()))?;
        self.archive.file(name, &content)?;
        if stripped {
            fs::remove_file(&self.scratch)?;
        }
        Ok(())
    }
}

/// Path of a program of this system.
pub(crate) fn find(name: &str, package: &str) -> Result<PathBuf> {
    let listed = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&listed).chain(DIRECTORIES.map(PathBuf::from)).collect();
    match directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!("{name} is missing: install Debian's {package}, for example with ci/test"),
    }
}

/// Path of a plugin of this system's nbdkit.
fn find_plugin(file: &str, package: &str) -> Result<PathBuf> {
    const DIRECTORIES: [&str; 3] = [
        "/usr/lib/x86_64-linux-gnu/nbdkit/plugins",
        "/usr/lib64/nbdkit/plugins",
        "/usr/lib/nbdkit/plugins",
    ];
    match DIRECTORIES
        .map(|directory| Path::new(directory).join(file))
        .into_iter()
        .find(|p| p.is_file())
    {
        Some(path) => Ok(path),
        None => bail!("{file} is missing: install Debian's {package}, for example with ci/test"),
    }
}

/// The shared libraries of a program, and its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().with_context(|| {
        format!("cannot run ldd, to find the libraries of {}", program.display())
    })?;
    // ldd fails for a static program, and prints the message on one stream or the other, so only
    // its output counts.
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("not found") {
        bail!("libraries of {} are missing:\n{}", program.display(), text.trim_end());
    }
    Ok(parse_ldd(&text))
}

/// Parses `NAME => PATH (ADDRESS)` for a library, `PATH (ADDRESS)` for the loader.
fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6e)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f6f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse_ldd(text), expected.map(PathBuf::from));
        assert!(parse_ldd("\tstatically linked\n").is_empty());
        assert!(parse_ldd("\tnot a dynamic executable\n").is_empty());
    }
}
