use secrecy::SecretString;
use serde_json::Value;

use super::*;
use crate::name::Scope;
use crate::playbook::Facts;
use crate::render::Library;
use crate::secret::Secrets;
use crate::state::Pages;

fn spec(more: &str) -> Spec {
    serde_yaml::from_str(&format!("name: demo\nprovider: ssh\nruntime: native\ngpu: declared\n{more}")).unwrap()
}

fn scope() -> Scope {
    Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() }
}

fn host(index: usize, address: &str, boot: &str) -> HostInput {
    let key = Key::host(index);
    let tag = scope().tag(&key).to_string();
    let facts = Facts { boot_id: boot.to_owned(), cpus: 4, memory: 8 << 30, ..Facts::default() };
    let ports = NativeRuntime.choose_ports(&BTreeSet::new());
    let folders = NativeRuntime.folders_of(&tag);
    HostInput { key, tag, facts, address: address.to_owned(), ports, folders }
}

fn prepared(spec: &Spec, hosts: &[HostInput]) -> Result<Stage> {
    let others = if hosts.len() > 1 { Others::Known } else { Others::None };
    let library = Library::default();
    let nodes = nodes(spec, hosts);
    NativeRuntime.preparation(&PrepareRequest {
        spec,
        nodes: &nodes,
        hosts,
        others,
        host: &hosts[0],
        library: &library,
    })
}

fn nodes(spec: &Spec, hosts: &[HostInput]) -> Vec<NodeSpec> {
    let machine = |host: &HostInput| crate::plan::Machine { cpus: host.facts.cpus, memory: host.facts.memory, gpus: 0 };
    let machines: Vec<_> = hosts.iter().map(|host| (host.key.clone(), machine(host))).collect();
    crate::plan::desired(spec, &machines).unwrap()
}

fn deployed(spec: &Spec, hosts: &[HostInput], at: usize) -> (Deployment, Value) {
    let nodes = nodes(spec, hosts);
    let secrets = Secrets { ray_token: SecretString::from("THE-TOKEN"), ..Secrets::placeholders() };
    let (pages, library) = (Pages::new(), Library::default());
    let scope = scope();
    let request = DeployRequest {
        spec,
        scope: &scope,
        nodes: &nodes,
        hosts,
        pages: &pages,
        secrets: &secrets,
        library: &library,
    };
    let deployment = NativeRuntime.deployment(&request, &hosts[at].key).unwrap();
    let file = deployment.stage.files.iter().find(|file| file.path == "nodes.json").unwrap();
    let json = serde_json::from_slice(&file.bytes).unwrap();
    (deployment, json)
}

#[test]
fn several_machines_are_refused_and_several_hosts_of_one_are_not() {
    let two = spec("hosts: [{node: a}, {node: b}]");
    assert!(prepared(&two, &[host(0, LOOPBACK, "x"), host(1, LOOPBACK, "x")]).is_ok());
    for wrong in [host(1, "10.0.0.2", "x"), host(1, LOOPBACK, "y")] {
        let error = prepared(&two, &[host(0, LOOPBACK, "x"), wrong]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.hints().iter().any(|hint| hint.contains("runtime: docker")), "{error}");
    }
    // A single host may be anywhere.
    assert!(prepared(&spec(""), &[host(0, "10.0.0.2", "x")]).is_ok());
}

#[test]
fn playbooks_of_the_other_runtime_are_refused() {
    let one = [host(0, LOOPBACK, "x")];
    let error = prepared(&spec("playbooks: {docker: {source: docker}}"), &one).unwrap_err();
    assert!(error.to_string().contains("playbooks.docker"), "{error}");
    assert!(prepared(&spec("playbooks: {ray-native: {disk_needed_mib: '10'}}"), &one).is_ok());
    assert!(prepared(&spec("playbooks: {ray-native: {ray_version: '1'}}"), &one).is_err());
}

#[test]
fn nodes_of_several_hosts_share_no_port_and_the_token_is_in_one_file_alone() {
    let two = spec("hosts: [{node: a}, {node: b}]\nray: {workers: {count: 4, gpus: 1}}");
    let hosts = [host(0, LOOPBACK, "x"), host(1, LOOPBACK, "x")];
    let mut seen = BTreeSet::new();
    for at in 0..2 {
        let (deployment, json) = deployed(&two, &hosts, at);
        for node in json["nodes"].as_array().unwrap() {
            assert_eq!(node["environment"]["GPUCL_HOST"], hosts[at].tag.as_str());
            let argv: Vec<&str> = node["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
            for (flag, port) in argv.iter().zip(&argv[1..]).filter(|(flag, _)| flag.ends_with("-port")) {
                assert!(seen.insert((*port).to_owned()), "{flag} {port} is another's too");
            }
            let address = argv.iter().position(|word| *word == "--node-ip-address").unwrap();
            assert_eq!(argv[address + 1], LOOPBACK);
        }
        let with_token: Vec<&str> = deployment
            .stage
            .files
            .iter()
            .filter(|file| String::from_utf8_lossy(&file.bytes).contains("THE-TOKEN"))
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(with_token, ["secrets/ray_token"]);
        assert!(!deployment.checks.contains("THE-TOKEN"));
    }
    assert!(seen.len() > 20);
}

/// `down -c a` must not see what `a-b` runs.
#[test]
fn a_cluster_whose_name_begins_alike_is_another() {
    let folders = HostFolders { claim: "claim.json".to_owned(), ..HostFolders::at("/nowhere".to_owned()) };
    let tag = |cluster: &str, key: &str| format!("gpucl-dcba4321-{cluster}-{key}");
    let start = |cluster: &str| {
        let mut command = std::process::Command::new("sleep");
        command.arg("60").env("GPUCL_TAG", tag(cluster, "worker0")).spawn().unwrap()
    };
    let mut children = [start("a"), start("a-b"), start("ab")];
    let script = format!("{}ours\n", header(&tag("a", "host0"), &folders));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", children[0].id()));
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_a_node_is_started_with_makes_its_digest() {
    let hosts = [host(0, LOOPBACK, "x")];
    let digest = |more: &str, key: &str| {
        let (_, json) = deployed(&spec(more), &hosts, 0);
        let nodes = json["nodes"].as_array().unwrap().clone();
        nodes.iter().find(|node| node["key"] == key).map(|node| node["digest"].clone()).unwrap()
    };
    let (one, two) = ("ray: {workers: {count: 1, cpus: 1}}", "ray: {workers: {count: 1, cpus: 2}}");
    assert_eq!(digest(one, "head"), digest(two, "head"));
    assert_ne!(digest(one, "worker0"), digest(two, "worker0"));
}
