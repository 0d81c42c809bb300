//! The tests of a new module: those of every language greet, and refuse, in the same way.

/// The text of its `plugin_test.lua`, with `NAME` for the plugin's. `plugin` is the module's path where it does not lie beside the
/// test, and `greeting`, in Lua, what it greets with.
pub fn module_test(plugin: Option<&str>, greeting: &str) -> String {
    let named = plugin.map(|path| format!("test.plugin(\"{path}\")\n")).unwrap_or_default();
    include_str!("template/plugin_test.lua").replace("PLUGIN\n", &named).replace("GREETING", greeting)
}

#[cfg(test)]
mod tests {
    use super::module_test;

    #[test]
    fn a_module_beside_its_test_is_not_named() {
        assert!(
            module_test(None, "\"ahoy\"").starts_with(
                "-- Run by: postrider plugin test\nlocal test = require(\"postrider.test\")\n\ntest.case("
            )
        );
        let named = module_test(Some("target/a.wasm"), "\"ahoy\"");
        assert!(
            named.contains("\ntest.plugin(\"target/a.wasm\")\n\n") && named.contains("[\"x-greeting\"], \"ahoy\")")
        );
    }
}
