//! Which of the SDK's interfaces a library speaks.
//!
//! | epoch | releases | beside what the one before has |
//! |---|---|---|
//! | E3 | 1.31 | one structure per direction of a stream |
//! | E4 | 1.32 | logs with headers, `OnStreamComplete` |
//! | E5 | 1.33 | `AddData`; route caches are cleared with an argument |
//! | E6 | 1.34 to 1.38 | `InjectData`, chosen hosts, secrets, facts about TLS |

use crate::elf::Inspected;

const MODULE: &str = "github.com/envoyproxy/envoy";

/// The releases whose libraries are taken, by their minor number.
const OLDEST: u32 = 31;

/// Functions of libraries that choose clusters, of those that filter connections, and of those that speak to hosts.
const OTHER_KINDS: [&str; 3] =
    ["envoyGoOnClusterSpecify", "envoyGoFilterOnDownstreamData", "envoyGoHttpTcpBridgeOnEncodeHeader"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Epoch {
    E3,
    E4,
    E5,
    E6,
}

/// The SDK in a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sdk {
    pub(crate) epoch: Epoch,
    /// As its build says; `None` when it does not.
    pub(crate) version: Option<String>,
}

impl Sdk {
    /// # Errors
    /// The library cannot be run, in words for whoever built it.
    pub(crate) fn of(inspected: &Inspected) -> Result<Sdk, String> {
        let version = version(&inspected.modules);
        let minor = version.as_deref().and_then(minor);
        match minor {
            Some(minor) if minor < OLDEST => Err(too_old(&format!("v1.{minor}"))),
            Some(minor) => Ok(Sdk { epoch: of_minor(minor), version }),
            // A replaced module has no number: what the library asks for tells as much.
            None => Ok(Sdk { epoch: by_symbols(inspected)?, version }),
        }
    }
}

fn of_minor(minor: u32) -> Epoch {
    match minor {
        ..=31 => Epoch::E3,
        32 => Epoch::E4,
        33 => Epoch::E5,
        _ => Epoch::E6,
    }
}

fn too_old(what: &str) -> String {
    format!(
        "it is built with Envoy's Go SDK {what}, whose interface is another one: rebuild it with \
         {MODULE} v1.{OLDEST}.0 or later"
    )
}

fn by_symbols(inspected: &Inspected) -> Result<Epoch, String> {
    let exports = |name: &str| inspected.exported.iter().any(|known| known == name);
    let asks = |name: &str| inspected.undefined.iter().any(|known| known == name);
    if !exports("envoyGoFilterOnHttpHeader") {
        // What has no filters of requests speaks an interface that is the same in all these releases.
        if OTHER_KINDS.into_iter().any(exports) {
            return Ok(Epoch::E6);
        }
        return Err(format!("it is no library of Envoy's Go filters: nothing of {MODULE} is in it"));
    }
    if !exports("envoyGoFilterCleanUp") {
        return Err(too_old("older than v1.31"));
    }
    Ok(if asks("envoyGoFilterHttpInjectData") || asks("envoyGoFilterHttpGetStringSecret") {
        Epoch::E6
    } else if asks("envoyGoFilterHttpAddData") {
        Epoch::E5
    } else if exports("envoyGoFilterOnHttpStreamComplete") {
        Epoch::E4
    } else {
        Epoch::E3
    })
}

/// The module's version; of one that was replaced, the version that took its place.
fn version(modules: &[String]) -> Option<String> {
    let mut lines = modules.iter().map(|line| line.split('\t').collect::<Vec<_>>());
    while let Some(line) = lines.next() {
        if let ["dep" | "mod", MODULE, version, ..] = line.as_slice() {
            return match lines.next().as_deref() {
                Some(["=>", _, replaced, ..]) => Some((*replaced).to_owned()),
                Some(["=>", ..]) => None,
                _ => Some((*version).to_owned()),
            };
        }
    }
    None
}

/// Of `v1.33.2`, 33. A version that was made up for an untagged commit tells nothing.
fn minor(version: &str) -> Option<u32> {
    let numbers = version.strip_prefix("v1.")?;
    if version.contains("-0.") {
        return None;
    }
    numbers.split(['.', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(line: &str, exported: &[&str], undefined: &[&str]) -> Inspected {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Inspected {
            exported: names(exported),
            undefined: names(undefined),
            go: None,
            modules: line.lines().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn the_release_tells_the_epoch() {
        let of = |version: &str| Sdk::of(&library(&format!("dep\t{MODULE}\t{version}\th1:="), &[], &[]));
        let epochs = [("v1.31.0", Epoch::E3), ("v1.32.4", Epoch::E4), ("v1.33.2", Epoch::E5), ("v1.38.1", Epoch::E6)];
        for (version, epoch) in epochs {
            assert_eq!(of(version).map(|sdk| sdk.epoch), Ok(epoch), "{version}");
        }
        assert!(of("v1.30.1").unwrap_err().contains("v1.30, whose interface is another one: rebuild it with"));
        assert!(of("v1.26.1").unwrap_err().contains("v1.31.0 or later"));
    }

    #[test]
    fn a_library_without_a_release_is_told_by_its_symbols() {
        let replaced = format!("dep\t{MODULE}\tv1.30.0\n=>\t../envoy\t(devel)\t");
        let header = ["envoyGoFilterOnHttpHeader", "envoyGoFilterCleanUp", "envoyGoFilterOnHttpStreamComplete"];
        let of = |exported: &[&str], undefined: &[&str]| Sdk::of(&library(&replaced, exported, undefined));
        assert_eq!(of(&header, &["envoyGoFilterHttpInjectData"]).unwrap().epoch, Epoch::E6);
        assert_eq!(of(&header, &["envoyGoFilterHttpAddData"]).unwrap().epoch, Epoch::E5);
        assert_eq!(of(&header, &[]).unwrap().epoch, Epoch::E4);
        assert_eq!(of(&header[..2], &[]).unwrap().epoch, Epoch::E3);
        assert!(of(&header[..1], &[]).unwrap_err().contains("older than v1.31"));
        assert_eq!(of(&["envoyGoOnClusterSpecify"], &[]).unwrap().epoch, Epoch::E6, "no filter of requests in it");
        assert!(of(&[], &[]).unwrap_err().contains("no library of Envoy's Go filters"));
    }

    #[test]
    fn a_replacement_that_has_a_release_counts_in_its_place() {
        let line = format!("dep\t{MODULE}\tv1.30.0\n=>\texample.org/envoy\tv1.33.0\th1:=");
        assert_eq!(Sdk::of(&library(&line, &[], &[])).unwrap().epoch, Epoch::E5);
    }
}
