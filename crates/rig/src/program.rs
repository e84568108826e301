//! Programs that the guest gets from this system or from the build.

/// A file that the guest is to have.
pub(crate) enum Program {
    /// A program of Debian's.
    Debian { name: &'static str, package: &'static str },
    /// A plugin of nbdkit's, which is to lie among the libraries.
    Plugin { file: &'static str, package: &'static str },
    /// A program of this workspace, from the directory of this one, and what makes cargo build it.
    Ours { name: &'static str, build: &'static str },
}

impl Program {
    /// What is under test.
    pub(crate) const REMANENT: Program =
        Program::Ours { name: "remanent", build: "-p remanent-cli" };

    pub(crate) const fn debian(name: &'static str, package: &'static str) -> Program {
        Program::Debian { name, package }
    }
}
