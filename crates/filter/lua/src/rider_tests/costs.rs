//! What SDK calls cost. Not tests: `cargo test --release -p postrider-filter-lua -- --ignored rider_costs --nocapture`

use std::time::Instant;

use super::{Trial, get, v1, v2};

/// Requests of one round, few enough for a slice of a busy machine; the best of the rounds counts.
const REQUESTS: u32 = 1_000;
const ROUNDS: usize = 300;

/// Names as the reference measurements make them: built in Lua, so that each is interned anew.
const SIMPLE: &str = "for i = 1, 10 do local x = get_header('test' .. i) end";
const NORMAL: &str = "for i = 1, 20 do set_header('test' .. i, 'value') end
    for i = 1, 10 do local x = get_header('test' .. i) end
    for i = 1, 20 do remove_header('test' .. i) end";

fn header(script: &str) -> String {
    format!(
        "local get_header, set_header, remove_header = envoy.req.get_header, envoy.req.set_header, envoy.req.remove_header
         local get_body = envoy.req.get_body
         {script}"
    )
}

fn best(trial: &mut Trial, mut once: impl FnMut(&mut Trial)) -> u128 {
    for _ in 0..2000 {
        once(trial);
    }
    let round = |trial: &mut Trial, once: &mut dyn FnMut(&mut Trial)| {
        let began = Instant::now();
        for _ in 0..REQUESTS {
            once(trial);
        }
        began.elapsed().as_nanos() / u128::from(REQUESTS)
    };
    (0..ROUNDS).map(|_| round(trial, &mut once)).min().unwrap_or_default()
}

fn trial(script: &str, fields: bool) -> Trial {
    let mut trial = Trial::rider(script);
    trial.restart(get(&[]));
    if fields {
        for i in 1..=20 {
            trial.stream.request.fields.append_name(format!("test{i}").as_bytes(), b"value").unwrap();
        }
    }
    trial
}

fn print(name: &str, script: &str, fields: bool, body: Option<&str>) {
    let mut trial = trial(script, fields);
    let pieces: Vec<&str> = body.into_iter().collect();
    let took = best(&mut trial, |trial| {
        trial.state = postrider_filter_api::State::default();
        if !fields {
            // Each request has a head of its own.
            trial.stream.request.fields.clear();
        }
        trial.stream.request_body.clear();
        trial.request(&pieces);
    });
    println!("{name}: {took} ns");
}

#[test]
#[ignore = "a measurement"]
fn rider_costs() {
    let body = "x".repeat(1024);
    for (version, make) in [("v2", v2 as fn(&[(&str, &str)]) -> String), ("v1", v1)] {
        let hook = if version == "v2" { "request_header" } else { "request" };
        let run = |script: &str| {
            make(&[(hook, "")])
                .replace("local h =", &format!("{} local h =", header("")))
                .replace(&format!("function h.on_{hook}() "), &format!("function h.on_{hook}() {script} "))
        };
        print(&format!("{version} entry"), &run(""), true, None);
        print(&format!("{version} simple: 10 get_header"), &run(SIMPLE), true, None);
        print(&format!("{version} simple on a head without fields"), &run(SIMPLE), false, None);
        print(
            &format!("{version} 10 get_header of constant names"),
            &run("for i = 1, 10 do local x = get_header('test1') end"),
            true,
            None,
        );
        print(&format!("{version} normal: 20 set, 10 get, 20 remove"), &run(NORMAL), false, None);
        let complex = match version {
            "v2" => run("").replace(
                "return h",
                &format!(
                    "function h.on_request_body() {NORMAL} for i = 1, 30 do local b = get_body() end end return h"
                ),
            ),
            _ => {
                run(&format!("{NORMAL} local b = get_body() for i = 1, 30 do local s = b:getBytes(0, b:length()) end"))
            }
        };
        print(&format!("{version} complex: normal and 30 get_body of 1 KiB"), &complex, false, Some(&body));
        let bodies = match version {
            "v2" => run("").replace(
                "return h",
                "function h.on_request_body() for i = 1, 100 do local b = get_body() end end return h",
            ),
            _ => run("local b = get_body() for i = 1, 100 do local s = b:getBytes(0, b:length()) end"),
        };
        print(&format!("{version} 100 get_body of 1 KiB"), &bodies, false, Some(&body));
    }
    for name in ["basic_auth", "basic_auth_jit", "basic_auth_plain"] {
        let config = serde_json::json!({ "user": "fooname", "password": "validpassword" });
        let mut trial = super::examples::example(name, config, serde_json::Value::Null);
        trial.restart(get(&[("authorization", "Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk")]));
        let took = best(&mut trial, |trial| {
            trial.state = postrider_filter_api::State::default();
            trial.request(&[]);
        });
        println!("example {name}: {took} ns");
    }
    // The map alone: what the same reads and edits cost without a script.
    let names: Vec<String> = (1..=20).map(|i| format!("test{i}")).collect();
    let mut fields = trial(&v2(&[]), true).0.stream.request.fields;
    let native = |name: &str, work: &mut dyn FnMut()| {
        let round = |work: &mut dyn FnMut()| {
            let began = Instant::now();
            for _ in 0..REQUESTS {
                work();
            }
            began.elapsed().as_nanos() / u128::from(REQUESTS)
        };
        println!("map alone, {name}: {} ns", (0..ROUNDS).map(|_| round(work)).min().unwrap_or_default());
    };
    native("10 get", &mut || {
        for name in names.iter().take(10) {
            std::hint::black_box(fields.get_all_name(name.as_bytes()).count());
        }
    });
    native("20 set, 10 get, 20 remove", &mut || {
        fields.clear();
        for name in &names {
            fields.set_name(name.as_bytes(), b"value").unwrap();
        }
        for name in names.iter().take(10) {
            std::hint::black_box(fields.get_all_name(name.as_bytes()).count());
        }
        for name in &names {
            fields.remove_name(name.as_bytes());
        }
    });
}
