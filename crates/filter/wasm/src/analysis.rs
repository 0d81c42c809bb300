//! What can be read off a module before it runs: its ABI, its callbacks, and which of those do nothing.

use std::collections::HashMap;

use wasmparser::{ExternalKind, Operator, Parser, Payload, TypeRef};

/// The ABI that a module speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Abi {
    V010,
    V020,
    V021,
}

/// What is known of a module.
#[derive(Debug, Clone)]
pub(crate) struct Analysis {
    pub(crate) abi: Abi,
    /// Its functions by their exported names, with what calling them comes to where that is certain.
    functions: HashMap<String, Option<Trivial>>,
    /// It imports a function that lets a stream go on.
    pub(crate) continues_streams: bool,
    /// It imports the function that names another stream.
    pub(crate) turns: bool,
    /// It imports the one that calls the proxy's own functions by their names.
    pub(crate) calls_foreign: bool,
}

/// A function that does nothing but return, and the number that it returns, 0 without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trivial(pub(crate) i32);

impl Analysis {
    /// # Errors
    /// It is no module, or none of these ABIs.
    pub(crate) fn of(code: &[u8]) -> Result<Analysis, String> {
        if !code.starts_with(b"\0asm") {
            return Err("no WebAssembly module: it does not begin with `\\0asm`, as each of them does".to_owned());
        }
        let mut exports = Vec::new();
        let mut bodies = Vec::new();
        let (mut imported, mut continues_streams, mut turns, mut calls_foreign) = (0u32, false, false, false);
        for payload in Parser::new(0).parse_all(code) {
            match payload.map_err(|error| format!("no WebAssembly module: {}", one_line(&error.to_string())))? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.map_err(|error| error.to_string())?;
                        imported += u32::from(matches!(import.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                        let continues = [
                            "proxy_continue_stream",
                            "proxy_continue_request",
                            "proxy_continue_response",
                            "proxy_resume_stream",
                        ];
                        continues_streams |= continues.contains(&import.name);
                        turns |= import.name == "proxy_set_effective_context";
                        calls_foreign |= import.name == "proxy_call_foreign_function";
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export.map_err(|error| error.to_string())?;
                        if matches!(export.kind, ExternalKind::Func | ExternalKind::FuncExact) {
                            exports.push((export.name.to_owned(), export.index));
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => bodies.push(trivial(&body)),
                _ => {}
            }
        }
        let body = |index: u32| bodies.get(index.checked_sub(imported)? as usize).copied().flatten();
        let functions: HashMap<_, _> = exports.into_iter().map(|(name, index)| (name, body(index))).collect();
        let abi = [
            (Abi::V021, "proxy_abi_version_0_2_1"),
            (Abi::V020, "proxy_abi_version_0_2_0"),
            (Abi::V010, "proxy_abi_version_0_1_0"),
        ];
        match abi.iter().find(|(_, name)| functions.contains_key(*name)) {
            Some((abi, _)) => Ok(Analysis { abi: *abi, functions, continues_streams, turns, calls_foreign }),
            None => {
                let other = functions.keys().find_map(|name| name.strip_prefix("proxy_abi_version_"));
                Err(match other {
                    Some(other) => format!(
                        "the module speaks version {} of the proxy-wasm ABI; 0.1.0, 0.2.0 and 0.2.1 are known here",
                        other.replace('_', ".")
                    ),
                    None => "the module names no version of the proxy-wasm ABI: it exports no function \
                             `proxy_abi_version_0_1_0`, `proxy_abi_version_0_2_0` or `proxy_abi_version_0_2_1`"
                        .to_owned(),
                })
            }
        }
    }

    pub(crate) fn exports(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// What calling it comes to, when that is certain.
    pub(crate) fn trivial(&self, name: &str) -> Option<Trivial> {
        self.functions.get(name).copied().flatten()
    }

    /// Whether it is there and may do something other than return `nothing`.
    pub(crate) fn acts(&self, name: &str, nothing: i32) -> bool {
        self.exports(name) && self.trivial(name).is_none_or(|trivial| trivial.0 != nothing)
    }
}

/// The parser shows bytes one below the other.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Looks whether a body only moves its own locals and returns a constant.
fn trivial(body: &wasmparser::FunctionBody<'_>) -> Option<Trivial> {
    /// Longer ones are not looked at: what does nothing is short.
    const MAX_OPERATORS: usize = 32;
    let mut stack: Vec<Option<i32>> = Vec::new();
    for operator in body.get_operators_reader().ok()?.into_iter().take(MAX_OPERATORS) {
        match operator.ok()? {
            Operator::Nop => {}
            Operator::I32Const { value } => stack.push(Some(value)),
            Operator::LocalGet { .. } => stack.push(None),
            Operator::LocalSet { .. } | Operator::Drop => {
                stack.pop()?;
            }
            Operator::LocalTee { .. } => {}
            Operator::Return | Operator::End => {
                return match stack.last() {
                    None => Some(Trivial(0)),
                    Some(value) => value.map(Trivial),
                };
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Analysis, String> {
        Analysis::of(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn the_abi_is_the_newest_that_is_named() {
        let both = r#"(module (func (export "proxy_abi_version_0_1_0")) (func (export "proxy_abi_version_0_2_1")))"#;
        assert_eq!(of(both).unwrap().abi, Abi::V021);
        assert!(of("(module)").unwrap_err().contains("names no version"));
        let other = of(r#"(module (func (export "proxy_abi_version_0_3_0")))"#).unwrap_err();
        assert!(other.contains("version 0.3.0"), "{other}");
        for code in [&b"text"[..], b"", b"\0asm\x07\0\0\0", b"\0asm\x01\0\0\0\x63\x01"] {
            let error = Analysis::of(code).unwrap_err();
            assert!(error.contains("no WebAssembly module") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn functions_that_do_nothing_are_known_by_what_they_return() {
        let analysis = of(r#"(module
            (import "env" "proxy_done" (func $done (result i32)))
            (func (export "proxy_abi_version_0_2_0"))
            (func (export "empty") (param i32))
            (func (export "one") (param i32 i32) (result i32) (i32.const 1))
            (func (export "returns") (param i32) (result i32) (local i32)
                (local.set 1 (local.get 0)) (return (i32.const 3)))
            (func (export "echoes") (param i32) (result i32) (local.get 0))
            (func (export "calls") (result i32) (call $done) drop (i32.const 0))
            (func (export "stores") (global.set $g (i32.const 1)))
            (global $g (mut i32) (i32.const 0)))"#)
        .unwrap();
        let known = |name| analysis.trivial(name).map(|trivial| trivial.0);
        assert_eq!([known("empty"), known("one"), known("returns")], [Some(0), Some(1), Some(3)]);
        assert_eq!([known("echoes"), known("calls"), known("stores"), known("absent")], [None; 4]);
        assert!(!analysis.acts("empty", 0) && !analysis.acts("one", 1) && !analysis.acts("absent", 0));
        assert!(analysis.acts("one", 0) && analysis.acts("calls", 0));
        assert!(!analysis.continues_streams);
    }
}
