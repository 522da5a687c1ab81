//! The provider contract first, then tests of this provider's specifics.

use super::*;
use crate::provider::conformance::{Outcome, Subject, run};
use crate::spec::check_settings;

fn opened(folder: &std::path::Path) -> Box<dyn Provider> {
    let (events, _inbox) = crate::event::Bus::new();
    let context = Context {
        data_dir: folder.join("data"),
        cache_dir: folder.join("cache"),
        runtime_dir: folder.join("run"),
        clusters_dir: folder.join("clusters"),
        user_environment: crate::provider::UserEnvironment::default(),
        events,
    };
    FACTORY.open(&serde_json::json!({}), &context).unwrap()
}

#[tokio::test]
async fn it_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let provider = opened(folder.path());
    let results = run(&Subject::new(provider.as_ref()).unwrap(), &mut |_| {}).await;
    let failed: Vec<_> = results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(!folder.path().join("data").exists(), "something is left behind");
}

#[test]
fn a_wrong_setting_names_its_key() {
    let errors = check_settings(&FACTORY, &serde_json::json!({ "regoin": "x" }), &[serde_json::json!({ "size": 3 })]);
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["regoin", "hosts[0].size"]);
}
