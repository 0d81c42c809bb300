//! Generates the messages of the services that filters call and of what they write, from the protocol definitions that the configuration's
//! schema is made of. No `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;
use prost_types::FileDescriptorSet;
use protox::Compiler;

/// The services, and traces. What they import comes along.
const FILES: [&str; 6] = [
    "envoy/data/tap/v3/wrapper.proto",
    "envoy/service/accesslog/v3/als.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/ext_proc/v3/external_processor.proto",
    "envoy/service/metrics/v3/metrics_service.proto",
    "envoy/service/ratelimit/v3/rls.proto",
];

/// What stands in these folders only annotates other definitions.
const LEFT_OUT: [&str; 4] = ["envoy/annotations/", "udpa/annotations/", "validate/", "xds/annotations/"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../config/envoy-proto/proto");
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut compiler = Compiler::new([root])?;
    compiler.include_imports(true);
    compiler.open_files(FILES)?;
    // By way of bytes: options that extend the language are dropped, and nobody here needs them.
    let mut set = FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    set.file.retain(|file| !LEFT_OUT.iter().any(|folder| file.name().starts_with(folder)));
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::create_dir_all(&out)?;
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).disable_comments(["."]).include_file("messages.rs").compile_fds(set)?;
    Ok(())
}
