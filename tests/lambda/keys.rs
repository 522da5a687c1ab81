//! SSH keys, firewall rules, file systems: which are used, created, kept.

use gpucl::sandbox::lambda::Config;
use serde_json::Value;

use super::site::{Site, spec_into};

const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkT7HkT7HkT7HkT7HkT7HkT7HkT7HkT7HkT7HkT7Hk alice@laptop";

/// A key in `~/.ssh` of this home.
fn own_key(site: &Site) {
    let folder = site.env.home().join(".ssh");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("id_ed25519"), "a private key\n").unwrap();
    std::fs::write(folder.join("id_ed25519.pub"), format!("{PUBLIC}\n")).unwrap();
}

#[test]
fn a_created_key_is_private_from_the_start_and_deleted_with_the_cluster() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::prompt();
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec);
    let file = site.env.home().join(".local/state/gpucl/clusters/demo/secrets/ssh_login");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let seen = site.ours();
    assert_eq!(seen.instances[0].ssh_key_names, [seen.ssh_keys[0].name.clone()]);
    assert!(seen.instances[0].user_data.as_ref().unwrap().contains("ssh_keys:"), "the host key travels with it");
    site.up_to_ssh(&spec);
    assert_eq!(site.asked("POST", "/ssh-keys"), 1, "there is one key of one name");
    site.down();
}

#[test]
fn an_own_key_of_the_account_is_used_and_kept() {
    let site = Site::prompt();
    own_key(&site);
    // The account has it without the comment, beside one of another kind.
    site.sandbox.add_ssh_key("laptop", PUBLIC.rsplit_once(' ').unwrap().0);
    site.sandbox.add_ssh_key("other", "ssh-rsa AAAAB3NzaC1yc2E bob");
    let spec = site.spec(1, "");
    site.up_to_ssh(&spec).says("the account's key laptop");
    assert_eq!(site.ours().instances[0].ssh_key_names, ["laptop"]);
    assert_eq!(site.asked("POST", "/ssh-keys"), 0);
    site.down();
    assert_eq!(site.sandbox.snapshot().ssh_keys.iter().filter(|key| key.name == "laptop").count(), 1);
}

#[test]
fn a_key_that_is_named_must_be_one() {
    let site = Site::prompt();
    let spec = site.spec(1, "ssh_key: none");
    site.run(&["up", "--yes", &spec]).exits(1).says("the account has no SSH key of that name");
    site.sandbox.add_ssh_key("twice", "ssh-ed25519 AAAA1");
    site.sandbox.add_ssh_key("twice", "ssh-ed25519 AAAA2");
    let spec = site.spec(1, "ssh_key: twice");
    site.run(&["up", "--yes", &spec]).exits(1).says("several different keys of that name");
    assert_eq!(site.counts(), [0; 4]);
}

#[test]
fn several_hosts_have_their_own_rules_from_the_launch() {
    let site = Site::prompt();
    let spec = site.spec(3, "");
    site.up_to_ssh(&spec);
    let seen = site.ours();
    assert_eq!(seen.counts(), [3, 1, 0, 1]);
    let ruleset = &seen.rulesets[0];
    assert!(seen.instances.iter().all(|one| one.rulesets == [ruleset.id.clone()] && one.region == ruleset.region));
    let log = site.sandbox.log();
    let at = |path: &str| log.iter().position(|entry| entry.method == "POST" && entry.path.ends_with(path)).unwrap();
    assert!(at("/firewall-rulesets") < at("/launch"), "rules come before the first launch");
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let sources: Vec<String> = ruleset.rules.iter().map(|rule| text(rule, "source_network")).collect();
    for one in &seen.instances {
        let ip = one.ip.clone().unwrap();
        assert!(sources.contains(&format!("{ip}/32")), "{ip} is not among {sources:?}");
    }
    let world: Vec<&Value> = ruleset.rules.iter().filter(|rule| text(rule, "source_network") == "0.0.0.0/0").collect();
    assert_eq!(world.len(), 1);
    assert_eq!(world[0]["port_range"], serde_json::json!([22, 22]));
    site.down();
}

#[test]
fn a_region_without_firewall_rules_is_refused_for_several_hosts() {
    let site = Site::with(Config::prompt().with_capacity("gpu_1x_a10", "us-south-1", 4));
    let spec = site.spec(2, "regions: [us-south-1]");
    site.run(&["up", "--yes", &spec]).exits(1).says("us-south-1 has no firewall rules");
    assert_eq!(site.counts(), [0; 4]);
    let one = site.spec(1, "regions: [us-south-1]");
    site.up_to_ssh(&one);
    site.down();
}

#[test]
fn file_systems_are_attached_made_deleted_and_kept_as_the_spec_says() {
    let site = Site::prompt();
    site.sandbox.add_file_system("mine", "us-west-1");
    let spec = site.spec(
        1,
        "file_systems:\n- { name: mine }\n- { name: scratch, create: true }\n- { name: results, create: true, keep: true, mount: /data/out }",
    );
    // A file system that is billed after the cluster is one of the things that a reader is asked about.
    let _ = site.run(&["up", "--yes", &spec]).exits(2).says("is kept, and billed, after `down`");
    site.env.accept(&spec);
    // An existing one determines the region of all.
    site.up_to_ssh(&spec);
    let seen = site.sandbox.snapshot();
    let ours = site.ours();
    let host = ours.alive().next().unwrap();
    assert_eq!(host.region, "us-west-1");
    let mut at: Vec<&str> = host.mounts.iter().map(|(_, at)| at.as_str()).collect();
    at.sort_unstable();
    assert_eq!(at, ["/data/out", "/lambda/nfs/mine", "/lambda/nfs/scratch"]);
    assert_eq!(seen.file_systems.len(), 3);
    site.up_to_ssh(&spec);
    assert_eq!(site.asked("POST", "/filesystems"), 2);
    assert_eq!(site.asked("POST", "/launch"), 1, "a file system that is there changes nothing");
    site.run(&["down", "--yes", "-c", "demo"]).exits(0);
    let mut left: Vec<String> = site.sandbox.snapshot().file_systems.into_iter().map(|one| one.name).collect();
    left.sort();
    assert_eq!(left, ["mine", "results"]);
}

#[test]
fn a_file_system_in_another_region_is_reported() {
    let site = Site::prompt();
    site.sandbox.add_file_system("mine", "us-west-1");
    let spec = site.spec(1, "regions: [us-east-1]\nfile_systems: [{ name: mine }]");
    // Jobs could read and change it.
    let _ = site.run(&["up", "--yes", &spec]).exits(2).says("the file system mine of your account");
    site.env.accept(&spec);
    site.run(&["up", "--yes", &spec]).exits(1).says("the file system mine is in us-west-1");
    let spec = site.spec(1, "file_systems: [{ name: other }]");
    site.env.accept(&spec);
    site.run(&["up", "--yes", &spec]).exits(1).says("`create: true` creates it");
    assert_eq!(site.ours().counts()[0], 0);
}

#[test]
fn an_arm_cpu_is_reported_and_an_image_is_found() {
    let site = Site::prompt();
    let spec = spec_into(&site.env, 1, "type: gpu_1x_gh200", "");
    site.run(&["plan", &spec]).exits(0).prints("gpu_1x_gh200 has an arm64 processor");
    let spec = site.spec(1, "image: no-such-family");
    site.run(&["up", "--yes", &spec]).exits(1).says("lambda-stack-24-04");
    let spec = site.spec(1, "image: lambda-stack-22-04");
    site.up_to_ssh(&spec);
    assert_eq!(site.ours().instances[0].image, "lambda-stack-22-04");
    site.down();
}
