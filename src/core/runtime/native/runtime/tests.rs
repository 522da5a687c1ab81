use secrecy::SecretString;
use serde_json::Value;

use super::*;
use crate::name::Scope;
use crate::playbook::Facts;
use crate::provider::{Packages, Site};
use crate::render::Library;
use crate::runtime::project::Others;
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
    let ports = HostPorts::default();
    let folders = NativeRuntime.folders_of(&tag);
    HostInput { key, tag, facts, address: address.to_owned(), ports, folders, site: Site::default() }
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
        files: &[],
    })
}

fn nodes(spec: &Spec, hosts: &[HostInput]) -> Vec<NodeSpec> {
    let machine =
        |host: &HostInput| crate::plan::Machine { gpus: 0, ..crate::plan::Machine::of(&host.facts, spec.runtime) };
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

/// The nodes of one batch job, on the network of their site.
fn spread(addresses: [&str; 2]) -> [HostInput; 2] {
    let site = Site { open_network: true, ..Site::default() };
    let one = |at: usize| HostInput { site: site.clone(), ..host(at, addresses[at], ["x", "y"][at]) };
    [one(0), one(1)]
}

#[test]
fn only_a_spread_cluster_leaves_the_loopback_and_only_with_what_others_need() {
    let two = spec("hosts: [{}, {}]\nray: {workers: {per: host}}");
    let flag = |node: &Value, name: &str| {
        let argv: Vec<&str> = node["argv"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        argv.iter().position(|word| *word == name).map(|at| argv[at + 1].to_owned())
    };
    let hosts = spread(["10.0.0.1", "10.0.0.2"]);
    assert!(prepared(&two, &hosts).is_ok());
    let (_, first) = deployed(&two, &hosts, 0);
    let (_, second) = deployed(&two, &hosts, 1);
    let (head, worker) = (&first["nodes"][0], &second["nodes"][0]);
    assert_eq!(flag(head, "--gpucl-address").as_deref(), Some("10.0.0.1"));
    assert_eq!(flag(head, "--dashboard-host").as_deref(), Some(LOOPBACK));
    assert_eq!(flag(worker, "--gpucl-address").as_deref(), Some("10.0.0.2"));
    let gcs = flag(head, "--port").unwrap();
    assert_eq!(flag(worker, "--address"), Some(format!("10.0.0.1:{gcs}")));
    assert_eq!(worker["environment"]["RAY_AUTH_MODE"], "token");
    // Of the ports that other hosts need, the dashboard, Ray Client and the metrics are none.
    let open: Vec<(u64, u64)> = first["network"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| (range[0].as_u64().unwrap(), range[1].as_u64().unwrap()))
        .collect();
    let base: u64 = gcs.parse().unwrap();
    for (port, is_open) in [
        (base, true),
        (base + 1, false),
        (base + 2, false),
        (base + 3, false),
        (base + 4, true),
        (base + 9, false),
        (base + 10, false),
        (base + 12, true),
    ] {
        assert_eq!(open.iter().any(|(from, to)| (*from..=*to).contains(&port)), is_open, "{port} of {open:?}");
    }

    // One host of the same site stays on the loopback, and so do hosts that share a machine.
    let one = spec("ray: {workers: {per: host}}");
    for (spec, hosts) in [(&one, &hosts[..1]), (&two, &[host(0, LOOPBACK, "x"), host(1, LOOPBACK, "x")][..])] {
        let (_, json) = deployed(spec, hosts, 0);
        assert_eq!(flag(&json["nodes"][0], "--gpucl-address"), None);
        assert_eq!(flag(&json["nodes"][0], "--node-ip-address").as_deref(), Some(LOOPBACK));
        assert!(json["network"].is_null(), "{json}");
    }
    let closed = [host(0, "10.0.0.1", "x"), spread(["10.0.0.1", "10.0.0.2"])[1].clone()];
    assert!(prepared(&two, &closed).is_err(), "one of the sites does not open its network");
    let with_store = spec("hosts: [{}, {}]\nservices: {object_store: true}");
    let error = prepared(&with_store, &hosts).unwrap_err();
    assert!(error.to_string().contains("loopback of the head's host"), "{error}");
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
fn the_object_store_runs_beside_the_head_and_every_node_has_its_address() {
    let two = "hosts: [{node: a}, {node: b}]\nray: {workers: {count: 4, gpus: 1}}\nservices: {object_store: true}";
    let hosts = [host(0, LOOPBACK, "x"), host(1, LOOPBACK, "x")];
    let mut addresses = BTreeSet::new();
    for at in 0..2 {
        let (deployment, json) = deployed(&spec(two), &hosts, at);
        let nodes = json["nodes"].as_array().unwrap();
        let stores: Vec<&Value> = nodes.iter().filter(|node| node["role"] == "service").collect();
        assert_eq!(stores.len(), usize::from(at == 0));
        let files: BTreeSet<&str> = deployment.stage.files.iter().map(|file| file.path.as_str()).collect();
        for (file, is_there) in
            [("secrets/aws_credentials", true), ("secrets/store_key.pem", at == 0), ("store.py", at == 0)]
        {
            assert_eq!(files.contains(file), is_there, "{file} on host {at}");
        }
        for node in nodes.iter().filter(|node| node["role"] != "service") {
            addresses.insert(node["environment"]["AWS_ENDPOINT_URL"].as_str().unwrap().to_owned());
            assert!(!node.to_string().contains("secret key"), "{node}");
        }
        for store in stores {
            addresses.insert(format!("http://{LOOPBACK}:{}", store["answers"][0]));
            assert!(!store.to_string().contains("secret key"), "{store}");
        }
        // Only a script of the host with the head makes buckets.
        assert_eq!(deployment.stage.steps.iter().any(|step| step.name == "make the buckets"), at == 0);
    }
    assert_eq!(addresses.len(), 1);
    let (_, json) = deployed(&spec(""), &hosts[..1], 0);
    assert!(!json.to_string().contains("AWS_"), "without a store nothing points to one: {json}");
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

/// The folder of a host whose supervisor is this test, with one worker; returns the worker's process.
fn worker_of(home: &std::path::Path, tag: &Tag) -> std::process::Child {
    let ticks = |pid: u32| {
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().to_owned()
    };
    let child = std::process::Command::new("sleep").arg("60").env("GPUCL_TAG", tag.to_string()).spawn().unwrap();
    fs_err::create_dir_all(home.join("run")).unwrap();
    let write = |name: &str, pid: u32| {
        let line = format!("running {pid} {} 2026-11-25T00:00:00Z 0 - d\n", ticks(pid));
        fs_err::write(home.join("run").join(name), line).unwrap();
    };
    write("supervisor", std::process::id());
    write(tag.key.as_str(), child.id());
    child
}

fn run_by_hand(home: &std::path::Path, tag: &Tag, by_hand: ByHand) -> String {
    let folders = HostFolders::at(home.display().to_string());
    let host = Tag { key: Key::host(0), ..tag.clone() };
    let script = NativeRuntime.worker_script(&host.to_string(), &folders, tag, by_hand).replace("limit=120", "limit=1");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn killing_a_worker_ends_its_processes_and_no_others() {
    let home = tempfile::tempdir().unwrap();
    let tag = |text: &str| format!("gpucl-dcba4321-{text}").parse::<Tag>().unwrap();
    let (one, ten, other) = (tag("k-worker1"), tag("k-worker10"), tag("k-b-worker1"));
    let folders = [home.path().join("h"), home.path().join("i"), home.path().join("j")];
    let mut children: Vec<_> =
        folders.iter().zip([&one, &ten, &other]).map(|(folder, tag)| worker_of(folder, tag)).collect();
    let mut victim = children.remove(0);
    // Whoever started it takes note of its end.
    let ended = std::thread::spawn(move || victim.wait().unwrap().success());
    assert_eq!(run_by_hand(&folders[0], &one, ByHand::Kill), "::worker killed\n");
    assert!(!ended.join().unwrap());
    assert!(children.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "others live");
    assert_eq!(run_by_hand(&folders[0], &one, ByHand::Kill), "it does not run: it is ended\n");
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_worker_is_not_stopped_without_a_supervisor_or_in_time_and_that_is_said() {
    let home = tempfile::tempdir().unwrap();
    let tag: Tag = "gpucl-dcba4321-s-worker0".parse().unwrap();
    let mut child = worker_of(home.path(), &tag);
    // Here the supervisor does nothing.
    assert_eq!(run_by_hand(home.path(), &tag, ByHand::Stop), "it is running after 1 s\n");
    assert!(home.path().join("run/.stopped-worker0").exists(), "what is wanted is on the host");
    fs_err::remove_file(home.path().join("run/supervisor")).unwrap();
    for by_hand in [ByHand::Stop, ByHand::Start, ByHand::Kill] {
        assert_eq!(run_by_hand(home.path(), &tag, by_hand), "the supervisor of this host does not run\n");
    }
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What was asked of a host before a site could have modules and wheels. A change of the playbooks or of a node's start
/// changes these digests, and then every host is prepared again or its nodes are started again: on purpose only.
#[test]
fn a_host_of_a_plain_site_runs_what_it_always_ran() {
    let one = [host(0, LOOPBACK, "x")];
    let fixed = "ray: {version: 2.60.0, workers: {count: 1, cpus: 1}}";
    let plain = prepared(&spec(fixed), &one).unwrap();
    let setup = prepared(&spec(&format!("{fixed}\nsetup: {{pip: [einops]}}")), &one).unwrap();
    let (deployment, json) = deployed(&spec(fixed), &one, 0);
    let nodes: Vec<&str> =
        json["nodes"].as_array().unwrap().iter().filter_map(|node| node["digest"].as_str()).collect();
    assert_eq!([plain.digest(), setup.digest()], ["6c54794e56947e73", "9700e5de48cecc5c"]);
    assert_eq!(nodes, ["251924d944d38d6c", "0b7ed2d6be86bcda"]);
    for step in plain.steps.iter().chain(&setup.steps).chain(&deployment.stage.steps) {
        assert!(!step.run.contains("modules.sh") && !step.run.contains("no-index"), "{}", step.run);
    }
}

fn at_a_site() -> HostInput {
    let modules = vec!["StdEnv/2023".to_owned(), "arrow".to_owned()];
    HostInput { site: Site { modules, packages: Packages::Site, ..Site::default() }, ..host(0, LOOPBACK, "x") }
}

#[test]
fn modules_are_loaded_before_python_is_looked_for_and_packages_come_from_wheels() {
    let stage = prepared(&spec("setup: {pip: [einops]}"), &[at_a_site()]).unwrap();
    let files: Vec<&str> = stage.files.iter().map(|file| file.path.as_str()).collect();
    assert!(files.contains(&"lib/modules.sh") && files.contains(&"lib/wheels.sh"), "{files:?}");
    assert!(!files.contains(&"lib/uv.sh"), "uv asks the network: {files:?}");
    assert_eq!(stage.steps[0].name, "load the environment modules");
    assert_eq!(stage.steps[1].name, "find a suitable Python");
    for step in &stage.steps {
        let variable = |name: &str| step.variables.get(name).map(String::as_str);
        assert_eq!((variable("modules"), variable("packages")), (Some("StdEnv/2023 arrow"), Some("site")));
    }
    for name in ["find a suitable Python", "create the Ray environment", "install the packages of `setup`"] {
        let step = stage.steps.iter().find(|step| step.name == name).unwrap();
        assert!(step.run.starts_with(". ./modules.sh\n"), "{}", step.run);
    }
    // A folder of wheels without modules loads nothing.
    let mut folder = at_a_site();
    folder.site = Site { packages: Packages::Folder("/wheels".to_owned()), ..Site::default() };
    let stage = prepared(&spec(""), &[folder]).unwrap();
    assert_eq!(stage.steps[0].name, "find a suitable Python");
    assert!(stage.steps.iter().all(|step| !step.run.contains("modules.sh")));
    assert_eq!(stage.steps[0].variables["packages"], "/wheels");
}

#[test]
fn a_spec_has_the_last_word_on_modules_and_packages() {
    let own = |more: &str| Source::of(&spec(&format!("playbooks: {{ray-native: {{{more}}}}}")), &at_a_site().site);
    let source = |modules: &str, packages: &str| Source {
        modules: modules.to_owned(),
        packages: packages.to_owned(),
        ..Source::default()
    };
    assert_eq!(own(""), source("StdEnv/2023 arrow", "site"));
    assert_eq!(own("modules: ' gcc  python/3.12 '"), source("gcc python/3.12", "site"));
    assert_eq!(own("modules: '', packages: ''"), Source::default());
    assert_eq!(own("packages: /wheels"), source("StdEnv/2023 arrow", "/wheels"));
    for (wrong, says) in [
        ("packages: wheels", "`wheels` is neither `site` nor an absolute path"),
        ("modules: 'gcc; reboot'", "`gcc; reboot` is no list of modules"),
        ("modules: 'gcc --force'", "`gcc --force` is no list of modules"),
    ] {
        let spec = spec(&format!("playbooks: {{ray-native: {{{wrong}}}}}"));
        let error = prepared(&spec, &[at_a_site()]).unwrap_err();
        assert_eq!((error.kind(), error.causes()), (ErrorKind::Spec, &[says.to_owned()][..]));
    }
}

#[test]
fn nodes_checks_and_every_other_program_run_with_the_modules() {
    let (deployment, json) = deployed(&spec(""), &[at_a_site()], 0);
    let (_, plain) = deployed(&spec(""), &[host(0, LOOPBACK, "x")], 0);
    for (node, other) in json["nodes"].as_array().unwrap().iter().zip(plain["nodes"].as_array().unwrap()) {
        // The supervisor's is the modules'.
        assert!(node["environment"]["PATH"].is_null() && other["environment"]["PATH"].is_string(), "{node}");
        assert_ne!(node["digest"], other["digest"]);
    }
    for step in &deployment.stage.steps {
        assert!(step.run.contains(MODULES), "{}", step.name);
    }
    assert!(!deployment.checks.contains(" -I "), "an isolated program does not see what modules bring");
    let folders = HostFolders::at("/nowhere".to_owned());
    let tag: Tag = "gpucl-dcba4321-s-worker0".parse().unwrap();
    let scripts = [
        NativeRuntime.worker_script("gpucl-dcba4321-s-host0", &folders, &tag, ByHand::Start),
        NativeRuntime.stop_script("gpucl-dcba4321-s-host0", &folders),
        NativeRuntime.clean_script("gpucl-dcba4321-s-host0", &folders, CleanOptions::default()),
    ];
    assert!(scripts.iter().all(|script| script.contains(MODULES)));
    // What is stopped ends whole; by default, a host that is cleaned leaves a cluster that goes on.
    assert!(scripts[1].contains("\nends_cluster=1\n") && scripts[2].contains("\nends_cluster=\n"));
}

#[test]
fn variables_of_modules_are_taken_on_only_while_the_host_is_prepared_with_them() {
    let home = tempfile::tempdir().unwrap();
    let shell = |values: &str| {
        fs_err::create_dir_all(home.path().join("prepared")).unwrap();
        fs_err::write(home.path().join("prepared/prepare"), values).unwrap();
        let script = format!("set -eu\nhome='{}'\n{MODULES}echo \"${{FROM-none}} $PATH\"\n", home.path().display());
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", &script]).env("PATH", "/usr/bin:/bin").env_remove("FROM").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    fs_err::write(home.path().join("modules.sh"), "export FROM='a module'\nexport PATH='/m/bin:/usr/bin:/bin'\n")
        .unwrap();
    assert_eq!(shell("modules_for /e\nray_env /e\n"), "a module /e/bin:/m/bin:/usr/bin:/bin\n");
    assert_eq!(shell("ray_env /e-setup-1\nmodules_for /e\n"), "a module /e-setup-1/bin:/m/bin:/usr/bin:/bin\n");
    // Modules were taken out of the spec: values stay, and the environment is another.
    assert_eq!(shell("modules_for /e-1\nray_env /e\n"), "none /usr/bin:/bin\n");
    assert_eq!(shell("ray_env /e\n"), "none /usr/bin:/bin\n");
}

#[test]
fn purge_removes_every_environment_that_the_cluster_has_made() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let environments = ["ray-2.60.0-py3.12", "ray-2.60.0-py3.12-1"].map(|name| at("cache/environments").join(name));
    for environment in &environments {
        fs_err::create_dir_all(environment).unwrap();
        fs_err::write(environment.join(".complete"), "").unwrap();
    }
    let tag = "gpucl-dcba4321-p-host0";
    let home = at("own").join(tag);
    fs_err::create_dir_all(home.join("prepared")).unwrap();
    fs_err::write(home.join("prepared/prepare"), format!("ray_env {}\n", environments[1].display())).unwrap();
    let lines: String = environments.iter().map(|path| format!("environment {}\n", path.display())).collect();
    fs_err::write(home.join("installed"), lines).unwrap();
    let folders = HostFolders::at(home.display().to_string());
    let script = NativeRuntime.clean_script(tag, &folders, CleanOptions { purge: true, ..CleanOptions::default() });
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("::removed Ray environment ").count(), 2, "{text}");
    assert!(!text.contains("::kept") && text.ends_with("::clean\n"), "{text}");
    assert!(!at("cache").exists() && !at("own").exists(), "{text}");
}
