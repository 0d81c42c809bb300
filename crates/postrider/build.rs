//! Plugins that bring their own copy of the Rider SDK look its functions up in the executable, and modules in machine code
//! look Lua's up there: those, and no others, are exported from it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbols in ["envoy_http_lua_ffi_*", "lua_*", "luaL_*"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbols}");
    }
}
