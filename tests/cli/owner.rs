//! `gpucl owner`: an owner that belongs to another machine creates and deletes nothing here.

use gpucl::sandbox::lambda::{Config, Sandbox, User};

use crate::support::TestEnv;

const FOREIGN: &str = "abcd1234\ngpucl-owner 2 machine=0123456789abcdef state=otherstate\n";

fn with_a_copy() -> (TestEnv, std::path::PathBuf) {
    let env = TestEnv::new();
    let file = env.home().join(".config/gpucl/owner");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, FOREIGN).unwrap();
    (env, file)
}

#[test]
fn a_copied_owner_changes_nothing_and_names_both_ways_out() {
    let (mut env, file) = with_a_copy();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sandbox = runtime.block_on(Sandbox::start(Config::prompt())).unwrap();
    env.set("LAMBDA_API_KEY", &sandbox.key(User::Alice));
    env.set("LAMBDA_API_URL", &sandbox.base_url());
    env.set("GPUCL_LAMBDA_PACE", "0.001");
    // Resources of the owner's real machine, which `gc` would take for leftovers of a crash.
    runtime.block_on(async {
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
        let body = serde_json::json!({"name": "gpucl-abcd1234-theirs-key0"});
        let request = client.post(format!("{}/api/v1/ssh-keys", sandbox.base_url())).json(&body);
        let answer = request.bearer_auth(sandbox.key(User::Alice)).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    });
    let has_key = || sandbox.snapshot().ssh_keys.iter().any(|key| key.name == "gpucl-abcd1234-theirs-key0");
    let spec = env.work().join("cluster.yaml");
    std::fs::write(&spec, "name: demo\nprovider: local\n").unwrap();
    let spec = spec.to_str().unwrap();
    for arguments in [
        &["up", "--yes", spec][..],
        &["down", "--yes", "-c", "theirs"],
        &["gc", "--yes", "--provider", "lambda"],
        &["owner", "show"],
    ] {
        let refused = env.run(arguments);
        assert_ne!(refused.code, Some(0), "{arguments:?}");
        let _ = refused.says("belongs to another machine").says("gpucl owner new").says("gpucl owner move");
    }
    assert!(has_key(), "what is the other machine's was deleted");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), FOREIGN, "the file was changed");
    // Read-only commands are not refused.
    let _ = env.run(&["list"]).exits(0);
    let _ = env.run(&["plan", spec]).exits(0);
    // With its own owner this machine has no resources, so nothing is deleted.
    let _ = env.run(&["owner", "new"]).exits(0).prints("is the owner on this machine from now on");
    let _ = env.run(&["gc", "--yes", "--provider", "lambda"]).exits(0).prints("nothing to delete");
    assert!(has_key());
    // Declaring the other machine gone takes its resources over.
    std::fs::write(&file, FOREIGN).unwrap();
    let _ = env.run(&["owner", "move"]).exits(0).prints("abcd1234 belongs to this machine from now on");
    let _ = env.run(&["owner", "show"]).exits(0);
    let _ = env.run(&["gc", "--yes", "--provider", "lambda"]).exits(0).prints("deleted 1 resource");
    assert!(!has_key());
}
