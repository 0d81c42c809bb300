//! The same plugins in every runtime: their answers, their faults, large bodies, and changes under load.

/// A test of each of these functions for every runtime: `function::runtime`.
macro_rules! in_every_runtime {
    ($($check:ident)*) => { $(
        mod $check {
            use postrider_tests::runtimes::Runtime;

            fn run(runtime: Runtime) {
                if postrider_tests::postrider_only() && Runtime::all().contains(&runtime) {
                    super::$check(runtime);
                }
            }

            #[test]
            fn rider() {
                run(Runtime::Rider);
            }

            #[test]
            fn envoy_lua() {
                run(Runtime::EnvoyLua);
            }

            #[test]
            fn wasm_c() {
                run(Runtime::Wasm("c"));
            }

            #[test]
            fn wasm_go() {
                run(Runtime::Wasm("go"));
            }

            #[test]
            fn wasm_rust() {
                run(Runtime::Wasm("rust"));
            }

            #[test]
            fn wasm_assemblyscript() {
                run(Runtime::Wasm("assemblyscript"));
            }

            #[test]
            fn go() {
                run(Runtime::Go);
            }

            #[test]
            fn isolated_go() {
                run(Runtime::IsolatedGo);
            }

            #[test]
            fn native_c() {
                run(Runtime::NativeC);
            }

            #[test]
            fn native_rust() {
                run(Runtime::NativeRust);
            }
        }
    )* };
}

mod answers;
mod bodies;
mod faults;
mod updates;
