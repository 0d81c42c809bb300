//! Compiles the vendored protocol definitions into an archive and two small indexes:
//!
//! - `descriptors.bin`: the serialised descriptor of each file, compressed by itself, one behind the other;
//! - `files.txt`: per file a line `offset packed-length length dependency…`, dependencies as line numbers from 0;
//! - `types.txt`: per message a line `full.name file`, in byte order, so that a lookup is a binary search.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto};
use protox::Compiler;

/// More gains little on files of a few kilobytes.
const COMPRESSION_LEVEL: i32 = 15;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let archive = Archive::of(compile(&root)?)?;
    fs::write(out.join("descriptors.bin"), archive.bytes)?;
    fs::write(out.join("files.txt"), archive.files)?;
    fs::write(out.join("types.txt"), archive.types)?;
    Ok(())
}

/// All files by name, serialised. The raw bytes keep option extensions, which decoded descriptors would drop.
///
/// The compiler resolves a relative type name over every file that it has seen, where the language says "over the
/// imports": files that fail beside unrelated ones are tried again in a compiler of their own, until none is left.
fn compile(root: &Path) -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let mut pending = Vec::new();
    collect(root, &mut pending)?;
    pending.sort();
    let mut files = BTreeMap::new();
    while !pending.is_empty() {
        let mut compiler = Compiler::new([root])?;
        compiler.include_imports(true);
        let mut failed = Vec::new();
        let before = pending.len();
        pending.retain(|path| match compiler.open_file(path.strip_prefix(root).unwrap_or(path)) {
            Ok(_) => false,
            Err(error) => {
                failed.push(format!("{error:?}"));
                true
            }
        });
        if pending.len() == before {
            return Err(failed.join("\n").into());
        }
        for file in split(&compiler.encode_file_descriptor_set())? {
            files.entry(FileDescriptorProto::decode(file.as_slice())?.name().to_owned()).or_insert(file);
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

/// The elements of a serialised FileDescriptorSet, whose only field is `repeated FileDescriptorProto file = 1`.
fn split(mut set: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut files = Vec::new();
    while !set.is_empty() {
        let (tag, _) = prost::encoding::decode_key(&mut set)?;
        let length = usize::try_from(prost::encoding::decode_varint(&mut set)?)?;
        let Some((file, rest)) = set.split_at_checked(length).filter(|_| tag == 1) else {
            return Err("not a file descriptor set".into());
        };
        files.push(file.to_vec());
        set = rest;
    }
    Ok(files)
}

struct Archive {
    bytes: Vec<u8>,
    files: String,
    types: String,
}

impl Archive {
    fn of(all: BTreeMap<String, Vec<u8>>) -> Result<Archive, Box<dyn Error>> {
        let numbers: BTreeMap<&str, usize> = all.keys().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
        let mut bytes = Vec::new();
        let mut files = String::new();
        let mut types = BTreeMap::new();
        for (number, file) in all.values().enumerate() {
            let descriptor = FileDescriptorProto::decode(file.as_slice())?;
            let packed = zstd::bulk::compress(file, COMPRESSION_LEVEL)?;
            write!(files, "{} {} {}", bytes.len(), packed.len(), file.len())?;
            for dependency in &descriptor.dependency {
                write!(files, " {}", numbers.get(dependency.as_str()).ok_or("an import is not in the set")?)?;
            }
            files.push('\n');
            bytes.extend_from_slice(&packed);
            for message in &descriptor.message_type {
                name(descriptor.package(), message, number, &mut types);
            }
        }
        let types = types.iter().fold(String::new(), |text, (name, file)| text + &format!("{name} {file}\n"));
        Ok(Archive { bytes, files, types })
    }
}

fn name(scope: &str, message: &DescriptorProto, file: usize, types: &mut BTreeMap<String, usize>) {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    let full = if scope.is_empty() { message.name().to_owned() } else { format!("{scope}.{}", message.name()) };
    for nested in &message.nested_type {
        name(&full, nested, file, types);
    }
    types.insert(full, file);
}
