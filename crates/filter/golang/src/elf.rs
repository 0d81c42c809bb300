//! What a shared library says of itself before it is loaded: its symbols, and what Go wrote into it about its build.

use std::fmt;

/// A library's file, looked at but not loaded.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    pub(crate) exported: Vec<String>,
    /// What it expects to find in the process.
    pub(crate) undefined: Vec<String>,
    /// The version of Go that built it.
    pub(crate) go: Option<String>,
    /// Lines of build information: `dep\tmodule\tversion\tsum`, and the like.
    pub(crate) modules: Vec<String>,
}

/// Why a file is no library that could be loaded here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotALibrary {
    NotElf,
    /// Built for another processor or word size.
    OtherMachine,
    Broken,
}

impl fmt::Display for NotALibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotALibrary::NotElf => "it is no shared library (ELF)",
            NotALibrary::OtherMachine => "it is a library for another kind of machine",
            NotALibrary::Broken => "the library is cut off or broken",
        })
    }
}

const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const DYNAMIC_SYMBOLS: u32 = 11;
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
/// Where the texts of build information begin when they stand in place.
const BUILD_INFO_TEXTS: usize = 32;
/// In the flags of build information: the texts stand in place, as since Go 1.18.
const INLINE: u8 = 2;
/// Go puts so many bytes around the list of modules.
const SENTINEL: usize = 16;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

/// Reads a library's file.
///
/// # Errors
/// It is none.
pub(crate) fn inspect(file: &[u8]) -> Result<Inspected, NotALibrary> {
    if !file.starts_with(b"\x7fELF") {
        return Err(NotALibrary::NotElf);
    }
    if file.get(4..6) != Some(&[2, 1]) || u16_at(file, 18) != Some(MACHINE) {
        return Err(NotALibrary::OtherMachine);
    }
    read(file).ok_or(NotALibrary::Broken)
}

struct Section<'f> {
    kind: u32,
    link: usize,
    bytes: &'f [u8],
}

fn read(file: &[u8]) -> Option<Inspected> {
    let start = usize_at(file, 40)?;
    let count = usize::from(u16_at(file, 60)?);
    let sections: Vec<Section<'_>> = (0..count)
        .map(|index| section(file, start.checked_add(index.checked_mul(SECTION_HEADER)?)?))
        .collect::<Option<_>>()?;
    let mut inspected = Inspected::default();
    for found in &sections {
        if found.kind == DYNAMIC_SYMBOLS {
            let names = sections.get(found.link)?.bytes;
            symbols(found.bytes, names, &mut inspected)?;
        } else if found.bytes.starts_with(BUILD_INFO) {
            build_info(found.bytes, &mut inspected);
        }
    }
    Some(inspected)
}

fn section(file: &[u8], at: usize) -> Option<Section<'_>> {
    let header = file.get(at..at.checked_add(SECTION_HEADER)?)?;
    let kind = u32_at(header, 4)?;
    let (start, len) = (usize_at(header, 24)?, usize_at(header, 32)?);
    /// Takes no place in the file.
    const EMPTY: u32 = 8;
    let bytes = if kind == EMPTY { &[][..] } else { file.get(start..start.checked_add(len)?)? };
    Some(Section { kind, link: usize::try_from(u32_at(header, 40)?).ok()?, bytes })
}

fn symbols(table: &[u8], names: &[u8], inspected: &mut Inspected) -> Option<()> {
    for symbol in table.chunks_exact(SYMBOL) {
        let name = names.get(usize::try_from(u32_at(symbol, 0)?).ok()?..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        if name.is_empty() {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        match u16_at(symbol, 6)? {
            0 => inspected.undefined.push(name),
            _ => inspected.exported.push(name),
        }
    }
    Some(())
}

fn build_info(section: &[u8], inspected: &mut Inspected) -> Option<()> {
    if section.get(15)? & INLINE == 0 {
        return None;
    }
    let (go, rest) = text(section.get(BUILD_INFO_TEXTS..)?)?;
    inspected.go = Some(String::from_utf8_lossy(go).into_owned());
    let (modules, _) = text(rest)?;
    let modules = modules.get(SENTINEL..modules.len().checked_sub(SENTINEL)?)?;
    inspected.modules = String::from_utf8_lossy(modules).lines().map(str::to_owned).collect();
    Some(())
}

/// A text behind its length, and what follows it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0_usize;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        len |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes.get(index + 1..)?.split_at_checked(len);
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_told_from_what_is() {
        assert_eq!(inspect(b"#!/bin/sh").unwrap_err(), NotALibrary::NotElf);
        assert_eq!(inspect(b"\x7fELF\x01\x01").unwrap_err(), NotALibrary::OtherMachine);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let inspected = inspect(&own).unwrap();
        assert!(inspected.undefined.iter().any(|name| name.starts_with("malloc") || name.starts_with("write")));
        assert!(inspected.go.is_none() && inspected.modules.is_empty());
        for cut in [64, own.len() / 2, own.len() - 1] {
            assert_eq!(inspect(&own[..cut]).unwrap_err(), NotALibrary::Broken, "{cut}");
        }
    }

    #[test]
    fn build_information_is_read_where_it_stands_in_place() {
        let lines = b"path\tcommand-line-arguments\ndep\tgithub.com/envoyproxy/envoy\tv1.33.2\th1:x=\n";
        let mut section = BUILD_INFO.to_vec();
        section.extend([8, INLINE]);
        section.resize(BUILD_INFO_TEXTS, 0);
        section.extend([8]);
        section.extend(b"go1.26.8");
        section.extend([u8::try_from((lines.len() + 2 * SENTINEL) & 0x7f).unwrap() | 0x80]);
        section.extend([u8::try_from((lines.len() + 2 * SENTINEL) >> 7).unwrap()]);
        section.extend([1; SENTINEL]);
        section.extend(lines);
        section.extend([2; SENTINEL]);
        let mut inspected = Inspected::default();
        build_info(&section, &mut inspected).unwrap();
        assert_eq!(inspected.go.as_deref(), Some("go1.26.8"));
        assert_eq!(inspected.modules[1], "dep\tgithub.com/envoyproxy/envoy\tv1.33.2\th1:x=");
        assert!(build_info(&section[..BUILD_INFO_TEXTS + 3], &mut Inspected::default()).is_none());
    }
}
