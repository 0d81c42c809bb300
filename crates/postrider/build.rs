//! Plugins that bring their own copy of the Rider SDK look its functions up in the executable: those, and no others, are
//! exported from it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=envoy_http_lua_ffi_*");
}
