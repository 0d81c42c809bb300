//! The filters.

use crate::scene::Scene;
use serde_json::json;

pub fn scenes() -> Vec<Scene> {
    vec![Scene::filtered("no-filter", vec![], json!([])).get("/")]
}
