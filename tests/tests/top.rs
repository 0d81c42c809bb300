//! `postrider top`, where the configuration says nothing of statistics.

use postrider_tests::kit::proxy;
use postrider_tests::postrider_only;
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};

fn usual() -> Site {
    site::with([])
        .routes(json!([
            {"name": "cart", "match": {"prefix": "/cart"}, "route": {"cluster": "origin"}},
            {"match": {"prefix": "/moved"}, "redirect": {"path_redirect": "/cart"}},
            {"match": {"prefix": "/none"}, "route": {"cluster": "none"}},
            site::rest(),
        ]))
        .cluster("none", &[], json!({}))
        .start()
}

fn watched(site: &Site) -> Vec<(String, u64)> {
    let stats = site.proxy.stats();
    let names = stats.0.keys().filter_map(|name| name.strip_prefix("watched.route."));
    names.map(|name| (name.to_owned(), stats.value(&format!("watched.route.{name}")))).filter(|it| it.1 > 0).collect()
}

#[test]
fn routes_count_while_somebody_watches_and_no_longer() {
    if !postrider_only() {
        return;
    }
    let site = usual();
    site.get("/cart", "");
    assert_eq!(watched(&site), []);
    assert_eq!(site.proxy.admin_post("/routes/watch?seconds=600").status, 200);
    // An order comes to the workers on its own way.
    postrider_tests::kit::wait_until("routes that count", || {
        site.get("/cart", "");
        !watched(&site).is_empty()
    });
    site.proxy.admin_post("/reset_counters");
    for path in ["/cart", "/cart/x", "/moved", "/none", "/"] {
        site.get(path, "");
    }
    let wanted = [
        ("all.1.rq_total", 1),
        ("all.2.rq_5xx", 1),
        ("all.2.rq_total", 1),
        ("all.3.rq_total", 1),
        ("cart.rq_total", 2),
    ];
    assert_eq!(watched(&site), wanted.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!(site.proxy.admin_post("/routes/watch?seconds=0").status, 400);

    // Nobody looks any more.
    site.proxy.admin_post("/routes/watch?seconds=1");
    let total = || site.stat("watched.route.cart.rq_total");
    postrider_tests::kit::wait_until("routes that count no more", || {
        let before = total();
        site.get("/cart", "");
        site.get("/cart", "");
        total() == before
    });
}

#[test]
fn top_shows_the_routes_of_a_usual_configuration() {
    if !postrider_only() {
        return;
    }
    let site = usual();
    let admin = site.proxy.admin_address().to_string();
    let watch =
        std::thread::spawn(move || proxy::run(&["top", "--json", "--once", "--interval", "3s", "--admin", &admin]));
    while !watch.is_finished() {
        site.get("/cart", "");
        site.get("/none", "");
    }
    let top: Value = serde_json::from_str(&watch.join().unwrap().stdout).unwrap();
    let route = |name: &str| top["routes"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert!(route("cart")["requests_per_second"].as_f64().unwrap() > 0.0, "{top}");
    assert_eq!(route("cart")["errors_per_second"], 0.0);
    assert!(route("all.2")["errors_per_second"].as_f64().unwrap() > 0.0, "{top}");
}
