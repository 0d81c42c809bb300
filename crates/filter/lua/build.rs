//! Lets this crate's own tests find what the binary exports: the functions of `abi/exported`, and Lua's own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbols in ["envoy_http_lua_ffi_*", "lua_*", "luaL_*"] {
        println!("cargo:rustc-link-arg=-Wl,--export-dynamic-symbol={symbols}");
    }
}
