//! A script and how it is to be run, as its configuration says: the same on every worker.

use std::path::PathBuf;

use postrider_filter_api::WatchedFile;

/// Whose objects a script expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Dialect {
    /// `envoy.filters.http.lua`
    Envoy,
    /// Rider v1 and v2.
    Rider,
}

/// What of Lua's libraries a script may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Sandbox {
    /// Everything.
    Full,
    /// Nothing that ends the process, starts others, writes files or loads foreign machine code.
    #[default]
    Standard,
    /// Nothing outside the script but the clock.
    Strict,
}

/// Which files define Rider's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Sdk {
    /// Ours.
    #[default]
    BuiltIn,
    /// Ours, which hand out copies of route configurations: for plugins that change what they get.
    BuiltInCopying,
    /// Those that `require` finds on the disk.
    Filesystem,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Program {
    pub(crate) dialect: Dialect,
    /// As errors name it.
    pub(crate) name: String,
    pub(crate) source: Vec<u8>,
    pub(crate) sandbox: Sandbox,
    pub(crate) sdk: Sdk,
    /// Put in front of Lua's own.
    pub(crate) package_path: String,
    pub(crate) package_cpath: String,
    /// An edit of the request's head makes the route be looked up again.
    pub(crate) clears_route_cache: bool,
    /// Where `filelog` writes.
    pub(crate) log_file: Option<PathBuf>,
    /// Files that it required when it was tried out, as they were: with others it is another program.
    pub(crate) required: Vec<WatchedFile>,
}

impl Sandbox {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sandbox::Full => "full",
            Sandbox::Standard => "standard",
            Sandbox::Strict => "strict",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Sandbox> {
        [Sandbox::Full, Sandbox::Standard, Sandbox::Strict].into_iter().find(|known| known.name() == name)
    }
}
