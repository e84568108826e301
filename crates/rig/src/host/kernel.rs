//! The kernel to boot, and its modules.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

/// A kernel and the modules that match it.
pub(crate) struct Kernel {
    image: PathBuf,
    modules: PathBuf,
    /// For each module, by its path, the modules that it needs directly or indirectly.
    needs: BTreeMap<String, Vec<String>>,
}

impl Kernel {
    /// The newest kernel in `directory`, or in the usual places.
    pub(crate) fn find(directory: Option<&Path>) -> Result<Kernel> {
        let named = directory
            .map(Path::to_owned)
            .or_else(|| std::env::var_os("REMANENT_RIG_KERNEL").map(PathBuf::from));
        let places = match named {
            Some(place) => vec![place],
            None => vec![beside_this_program()?, PathBuf::from("/")],
        };
        for place in &places {
            if let Some(version) = newest_version(place) {
                return Kernel::open(place, &version);
            }
        }
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        bail!(
            "no kernel in {}: expected boot/vmlinuz-VERSION and lib/modules/VERSION/modules.dep; run \
             ci/test --rig-setup, which unpacks Debian's, or name a directory with --kernel or \
             REMANENT_RIG_KERNEL",
            places.join(" or ")
        );
    }

    fn open(place: &Path, version: &OsStr) -> Result<Kernel> {
        let modules = place.join("lib/modules").join(version);
        let list = modules.join("modules.dep");
        let text =
            fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let needs = text.lines().filter_map(|line| {
            let (module, needs) = line.split_once(':')?;
            Some((module.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
        });
        Ok(Kernel { image: image(place, version), needs: needs.collect(), modules })
    }

    /// Paths of the modules `names` and of all modules that they need, in loading order.
    ///
    /// A feature that is built into the kernel has no module. It is left out if its name in `names`
    /// ends with `?`.
    pub(crate) fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        for name in names {
            let (name, may_be_built_in) = match name.strip_suffix('?') {
                Some(name) => (name, true),
                None => (*name, false),
            };
            match self.needs.keys().find(|path| module_name(path) == name) {
                Some(path) => self.visit(path, &mut BTreeSet::new(), &mut order)?,
                None if may_be_built_in => {}
                None => bail!(
                    "the kernel of {} has no module {name}; expected a kernel as Debian configures it",
                    self.modules.display()
                ),
            }
        }
        Ok(order.into_iter().map(|path| self.modules.join(path)).collect())
    }

    /// Appends `path` behind the modules that it needs.
    fn visit(
        &self,
        path: &str,
        on_the_way: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<()> {
        if order.iter().any(|known| known == path) {
            return Ok(());
        }
        if !on_the_way.insert(path.to_owned()) {
            bail!("{} says that {path} needs itself", self.modules.join("modules.dep").display());
        }
        for need in self.needs.get(path).into_iter().flatten() {
            self.visit(need, on_the_way, order)?;
        }
        order.push(path.to_owned());
        Ok(())
    }

    /// Writes the file for QEMU to `directory`: the kernel, uncompressed if possible.
    ///
    /// In the emulated machine, decompression takes some three seconds of each boot. Here it takes
    /// half a second, once in a run.
    pub(crate) fn unpack(&self, directory: &Path) -> Result<PathBuf> {
        let bytes = fs::read(&self.image)
            .with_context(|| format!("cannot read {}", self.image.display()))?;
        let Some((program, payload)) = payload(&bytes) else { return Ok(self.image.clone()) };
        let (from, to) = (directory.join("vmlinux.packed"), directory.join("vmlinux"));
        fs::write(&from, payload).with_context(|| format!("cannot write {}", from.display()))?;
        // The bytes behind the payload make the program report an error at its end, which does not
        // matter.
        let _ = Command::new(program)
            .arg("-dc")
            .stdin(File::open(&from)?)
            .stdout(File::create(&to)?)
            .stderr(Stdio::null())
            .status();
        fs::remove_file(&from)?;
        let mut magic = [0; 4];
        let unpacked = File::open(&to).and_then(|mut file| {
            use std::io::Read;
            file.read_exact(&mut magic)
        });
        Ok(if unpacked.is_ok() && magic == *b"\x7fELF" { to } else { self.image.clone() })
    }
}

/// The uncompressed content of a module.
pub(crate) fn read_module(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(OsStr::to_str) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {program}, to unpack {}", path.display()))?;
    if !output.status.success() {
        bail!(
            "{program} -dc {}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

/// The name of a module by its path; a dash and an underscore are equivalent.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The directory of the build, where ci/test unpacks a kernel.
fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let target = program.ancestors().nth(2);
    Ok(target
        .ok_or_else(|| anyhow!("{} lies in no directory", program.display()))?
        .join("rig-kernel"))
}

fn image(place: &Path, version: &OsStr) -> PathBuf {
    let mut name = std::ffi::OsString::from("vmlinuz-");
    name.push(version);
    place.join("boot").join(name)
}

fn newest_version(place: &Path) -> Option<std::ffi::OsString> {
    let versions = fs::read_dir(place.join("lib/modules")).ok()?;
    versions
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|version| image(place, version).is_file())
        .filter(|version| place.join("lib/modules").join(version).join("modules.dep").is_file())
        .max_by_key(|version| numbers(version))
}

/// The numbers in a version, so that 6.10 comes after 6.9.
fn numbers(version: &OsStr) -> Vec<u64> {
    let text = version.to_string_lossy();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The compressed kernel inside a boot image, and the program that decompresses it.
///
/// After <https://www.kernel.org/doc/html/latest/arch/x86/boot.html>: `setup_sects` is at 0x1f1.
/// `payload_offset` is at 0x248 and counts from the protected-mode code; `payload_length` follows
/// it.
fn payload(image: &[u8]) -> Option<(&'static str, &[u8])> {
    let word = |at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize)
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let begin = (setup_sectors + 1) * 512 + word(0x248)?;
    let payload = image.get(begin..begin.checked_add(word(0x24c)?)?)?;
    // The last word is the uncompressed length, which belongs to no compression format.
    let payload = payload.get(..payload.len().checked_sub(4)?)?;
    let program = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0x1f, 0x8b, ..] => "gzip",
        _ => return None,
    };
    Some((program, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_what_they_need() {
        let directory = tempfile::tempdir().expect("a directory");
        let modules = directory.path().join("lib/modules/6.9.1");
        fs::create_dir_all(&modules).expect("created");
        fs::create_dir_all(directory.path().join("boot")).expect("created");
        fs::write(directory.path().join("boot/vmlinuz-6.9.1"), "").expect("written");
        let list = "fs/ext4.ko: lib/crc16.ko fs/jbd2.ko.xz\nlib/crc16.ko:\nfs/jbd2.ko.xz: lib/crc16.ko\n\
                    lib/self.ko: lib/self.ko\nnot a line\ndrivers/dm-log-writes.ko:\n";
        fs::write(modules.join("modules.dep"), list).expect("written");
        let kernel = Kernel::find(Some(directory.path())).expect("found");
        let paths = |names: &[&str]| kernel.modules(names);
        let expected =
            ["lib/crc16.ko", "fs/jbd2.ko.xz", "fs/ext4.ko"].map(|path| modules.join(path));
        assert_eq!(paths(&["ext4", "jbd2", "none?"]).expect("in order"), expected);
        assert_eq!(paths(&["dm_log_writes"]).expect("found").len(), 1);
        for names in [["none"], ["self"]] {
            assert!(paths(&names).is_err(), "{names:?}");
        }
        let empty = tempfile::tempdir().expect("a directory");
        assert!(Kernel::find(Some(empty.path())).is_err());
    }

    #[test]
    fn versions_are_compared_by_number() {
        let mut versions = ["6.10.0-3-amd64", "6.9.12-1-amd64", "6.10.0-21-amd64"];
        versions.sort_by_key(|version| numbers(OsStr::new(version)));
        assert_eq!(versions, ["6.9.12-1-amd64", "6.10.0-3-amd64", "6.10.0-21-amd64"]);
    }

    #[test]
    fn what_is_no_boot_image_has_no_payload() {
        for image in [&[][..], &[0; 4096], b"MZ"] {
            assert!(payload(image).is_none());
        }
        let mut image = vec![0xff; 4096];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        assert!(payload(&image).is_none(), "lengths beyond the image");
    }
}
