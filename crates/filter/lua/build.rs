//! Lets this crate's own tests find what `abi/exported` exports, as the binary does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg=-Wl,--export-dynamic-symbol=envoy_http_lua_ffi_*");
}
