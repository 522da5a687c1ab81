//! The host's firewall, with real nftables in its own network namespace: rollback, and isolation of containers.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gpucl::playbook;
use gpucl::render::Library;
use gpucl::runtime::compose;
use gpucl::spec::Spec;

use super::support::{Home, ShellHost, run};

const TAG: &str = "gpucl-testtest-rules-host0";

/// A network namespace; a machine's systemd does not see what is begun in it.
struct Network {
    name: String,
}

impl Network {
    fn new(name: &str) -> Self {
        let name = format!("gpucl-test-{name}-{}", std::process::id());
        let there = Command::new("nft").arg("--version").output();
        assert!(there.is_ok_and(|output| output.status.success()), "this test needs the package nftables");
        assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success(), "this test needs root");
        let network = Self { name };
        network.sh("ip link set lo up");
        network
    }

    fn words(&self) -> Vec<String> {
        let inside = "[ ! -d /run/systemd/system ] || mount -t tmpfs none /run/systemd; exec sh \"$@\"";
        let words =
            ["nsenter", &format!("--net=/run/netns/{}", self.name), "unshare", "--mount", "sh", "-c", inside, "sh"];
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn host(&self, home: &Home) -> ShellHost {
        let mut words = self.words();
        words.push("-s".to_owned());
        ShellHost::new(home, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn try_sh(&self, text: &str) -> Output {
        let words = self.words();
        Command::new(&words[0]).args(&words[1..]).args(["-c", text]).output().unwrap()
    }

    fn sh(&self, text: &str) -> String {
        let output = self.try_sh(text);
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Opens the ports to this peer; rolled back after `seconds` without a confirmation.
async fn open_to(host: &ShellHost, peer: &str, seconds: u32) {
    let text = format!("name: demo\nruntime: docker\nplaybooks: {{firewall: {{revert_after: '{seconds}'}}}}\n");
    let spec: Spec = serde_yaml::from_str(&text).unwrap();
    let facts = serde_json::from_str(r#"{"os":"ubuntu"}"#).unwrap();
    let (peers, ports) = ([peer.to_owned()], ["6379".to_owned()]);
    let stage = compose::firewall_stage(&spec, &facts, TAG, &peers, &ports, &Library::default()).unwrap();
    run(host, &stage).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn unconfirmed_rules_are_rolled_back() {
    let (home, network) = (Home::new(), Network::new("rules"));
    let host = network.host(&home);
    let rules = || network.sh("nft list ruleset");
    let confirm = compose::confirm_steps(TAG, &Library::default()).unwrap();
    open_to(&host, "10.9.9.1", 30).await;
    run(&host, &confirm).await.unwrap();
    let former = rules();
    assert!(former.contains("10.9.9.1") && former.contains("6379 drop"), "{former}");

    open_to(&host, "10.9.9.2", 2).await;
    assert!(home.read("firewall/peers").contains("10.9.9.2"), "it was asked for");
    let begun = Instant::now();
    while rules() != former || home.read("firewall/reverted").is_empty() {
        assert!(rules().contains("6379 drop"), "there is a moment without rules: {}", rules());
        assert!(begun.elapsed() < Duration::from_secs(10), "what came back is not what was: {}", rules());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Too late: what runs is not what was asked for.
    let error = run(&host, &confirm).await.unwrap_err().to_string();
    assert!(error.contains("were reverted"), "{error}");
    assert_eq!(rules(), former);

    open_to(&host, "10.9.9.2", 30).await;
    let attempt = home.read("firewall/pending");
    run(&host, &confirm).await.unwrap();
    // What would take them back comes too late, in its turn.
    let folder = home.path().join("firewall");
    let folder = folder.display();
    let table = compose::firewall_table(TAG);
    network.sh(&format!("sh \"{folder}/revert.sh\" \"{folder}\" {table} {}", attempt.trim()));
    assert!(rules().contains("10.9.9.2"), "what was confirmed stays");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "testbed"]
async fn only_the_host_reaches_the_metadata_service_not_its_containers() {
    let (home, network) = (Home::new(), Network::new("metadata"));
    let mut host = network.host(&home);
    // Whatever this machine's engine does, it is one that makes the groups itself.
    let tools = tempfile::tempdir().unwrap();
    let engine = tools.path().join("docker");
    fs_err::write(&engine, "#!/bin/sh\necho cgroupfs\n").unwrap();
    assert!(Command::new("chmod").arg("755").arg(&engine).status().unwrap().success());
    host.path = format!("{}:{}", tools.path().display(), host.path);
    let group = format!("gpucltest{}", std::process::id() % 1_000_000);
    let variables = [("table", compose::closed_table(TAG)), ("group", group.clone())];
    let variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let playbook = playbook::load(&Library::default(), "closed").unwrap();
    let stage = playbook.stage("prepare", &variables, Duration::from_secs(60)).unwrap();
    let report = run(&host, &stage).await.unwrap();
    assert_eq!(report.values["metadata"], "closed");
    // Rules that somebody flushed are set again, and those that are there are left alone.
    network.sh("nft flush ruleset");
    assert!(!run(&host, &stage).await.unwrap().skipped_as_unchanged);
    assert!(run(&host, &stage).await.unwrap().skipped_as_unchanged);

    let fetch = "import urllib.request as u; print(u.urlopen('http://169.254.169.254/', timeout=5).status)";
    let tree = network.sh("sed -n 's/^[^ ]* \\([^ ]*\\) cgroup2 .*/\\1/p' /proc/mounts | head -n 1");
    let folder = format!("{}/{group}", tree.trim());
    let said = network.sh(&format!(
        "ip addr add 169.254.169.254/32 dev lo; cd {}; python3 -m http.server 80 --bind 169.254.169.254 >/dev/null 2>&1 & server=$!\n\
         for i in 1 2 3 4 5 6 7 8 9 10; do host=$(python3 -c \"{fetch}\" 2>/dev/null) && break; sleep 0.5; done\n\
         container=$(sh -c 'echo $$ >{folder}/cgroup.procs; exec python3 -c \"$1\"' sh \"{fetch}\" 2>&1 | tail -n 1)\n\
         kill $server; echo \"host $host; container $container\"",
        tools.path().display()
    ));
    let _ = fs_err::remove_dir(&folder);
    assert!(said.starts_with("host 200; container urllib.error.URLError"), "{said}");
}
