//! Code that is loaded looks functions up in the executable: plugins that bring their own copy of the Rider SDK that SDK's,
//! Lua modules in machine code Lua's, native modules those of their interface, Go libraries those of Envoy's Go SDK. Those, and
//! no others, are exported from it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbols in ["envoy_http_lua_ffi_*", "lua_*", "luaL_*", "envoy_dynamic_module_callback_*", "envoyGo*"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbols}");
    }
}
