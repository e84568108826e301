//! Programs that the guest gets from this system or from the build.

/// A file for the guest.
pub(crate) enum Program {
    /// A program of Debian's.
    Debian { name: &'static str, package: &'static str },
    /// A plugin of nbdkit, which belongs among the libraries.
    Plugin { file: &'static str, package: &'static str },
    /// A program of this workspace, in the directory of the rig's own, and the cargo arguments that
    /// build it.
    Ours { name: &'static str, build: &'static str },
}

impl Program {
    /// The program under test.
    pub(crate) const REMANENT: Program =
        Program::Ours { name: "remanent", build: "-p remanent-cli" };

    pub(crate) const fn debian(name: &'static str, package: &'static str) -> Program {
        Program::Debian { name, package }
    }
}
