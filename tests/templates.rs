//! The templates: each case is rendered and compared with the files beside it.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpucl::name::{Key, Scope};
use gpucl::plan::{Machine, desired};
use gpucl::playbook::Facts;
use gpucl::render::Library;
use gpucl::runtime::compose::{
    DeployRequest, Deployment, HostFolders, HostInput, clean_script, deployments, inspect_script, pages, peer_ports,
    stop_script,
};
use gpucl::secret::Secrets;
use gpucl::spec::Spec;
use gpucl::state::{HostPorts, Pages};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/ray-compose/tests")
}

struct Case {
    spec: Spec,
    hosts: Vec<HostInput>,
    deployments: Vec<Deployment>,
}

fn case(name: &str) -> serde_json::Value {
    let text = fs_err::read_to_string(cases().join(name).join("case.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn render(name: &str) -> Case {
    rendered(&case(name))
}

fn rendered(case: &serde_json::Value) -> Case {
    let spec: Spec = serde_json::from_value(case["spec"].clone()).unwrap();
    let facts: Vec<Facts> = serde_json::from_value(case["hosts"].clone()).unwrap();
    let scope = Scope { owner: "abcd1234".parse().unwrap(), cluster: spec.name.clone() };
    let machines: Vec<(Key, Machine)> =
        facts.iter().enumerate().map(|(index, facts)| (Key::host(index), Machine::of(facts, spec.runtime))).collect();
    let nodes = desired(&spec, &machines).unwrap();
    let hosts: Vec<HostInput> = facts
        .into_iter()
        .enumerate()
        .map(|(index, facts)| HostInput {
            key: Key::host(index),
            tag: scope.tag(&Key::host(index)).to_string(),
            facts,
            address: format!("10.0.0.{}", index + 11),
            ports: HostPorts::choose(&spec, &HostPorts::default(), &BTreeSet::new()),
            folders: HostFolders::default(),
            site: gpucl::provider::Site::default(),
        })
        .collect();
    let deployments = deployments(&DeployRequest {
        spec: &spec,
        scope: &scope,
        nodes: &nodes,
        hosts: &hosts,
        pages: &Pages::from([("grafana".to_owned(), 23_000)]),
        secrets: &Secrets::placeholders(),
        library: &Library::default(),
    })
    .unwrap();
    Case { spec, hosts, deployments }
}

/// All texts that are delivered to or run on a host, by path; secrets and Python are not compared.
fn texts(deployment: &Deployment) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let files = deployment
        .stage
        .files
        .iter()
        .filter(|file| ["compose/", "targets/"].iter().any(|at| file.path.starts_with(at)));
    let mut texts: BTreeMap<String, String> = files.map(|file| (file.path.clone(), text(&file.bytes))).collect();
    let start = deployment.stage.steps.iter().find(|step| step.name == "start the containers").unwrap();
    let variables = deployment.stage.variables.iter().chain(&start.variables);
    let variables: String = variables.map(|(name, value)| format!("{name}={value}\n")).collect();
    let steps: String = deployment.stage.steps.iter().map(|step| format!("{}\n", step.name)).collect();
    texts.insert("stage.txt".to_owned(), format!("{variables}\n{steps}"));
    texts
}

#[test]
fn templates_render_to_the_files_beside_them() {
    let mut wrong = Vec::new();
    for entry in fs_err::read_dir(cases()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for deployment in &render(&name).deployments {
            for (path, text) in texts(deployment) {
                let path = cases().join(&name).join(deployment.host.as_str()).join(path);
                if std::env::var_os("GPUCL_WRITE").is_some() {
                    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                    fs_err::write(&path, &text).unwrap();
                }
                if fs_err::read_to_string(&path).unwrap_or_default() != text {
                    wrong.push(path.display().to_string());
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "rendered otherwise; look, and then GPUCL_WRITE=1 cargo test templates:\n{}",
        wrong.join("\n")
    );
}

fn project(deployment: &Deployment) -> serde_json::Value {
    let file = deployment.stage.files.iter().find(|file| file.path == "compose/compose.yaml").unwrap();
    serde_yaml::from_slice(&file.bytes).unwrap()
}

#[test]
fn every_published_port_is_on_the_loopback() {
    for name in ["nvidia-two-gpus", "amd-two-gpus", "two-hosts"] {
        for deployment in &render(name).deployments {
            let project = project(deployment);
            for (service, of) in project["services"].as_object().unwrap() {
                for port in of["ports"].as_array().into_iter().flatten() {
                    assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name} {service} {port}");
                }
            }
        }
    }
}

#[test]
fn no_container_has_a_capability_beyond_the_spec() {
    let of = |project: &serde_json::Value| project["services"].as_object().unwrap().clone();
    for name in ["nvidia-two-gpus", "amd-two-gpus", "nvidia-old-engine", "two-hosts"] {
        for deployment in &render(name).deployments {
            for (service, of) in of(&project(deployment)) {
                assert_eq!(of["cap_drop"], serde_json::json!(["ALL"]), "{name} {service}");
                assert_eq!(of["security_opt"], serde_json::json!(["no-new-privileges:true"]), "{name} {service}");
                let given = match (name, service.as_str()) {
                    ("amd-two-gpus", "jupyter") => serde_json::json!(["CHOWN", "FOWNER"]),
                    ("amd-two-gpus", "grafana") => serde_json::json!(["NET_RAW"]),
                    ("amd-two-gpus", "head" | "worker0" | "worker1") => serde_json::json!(["SYS_PTRACE"]),
                    _ => serde_json::Value::Null,
                };
                assert_eq!(of["cap_add"], given, "{name} {service}");
            }
        }
    }
}

/// The passwords of services are read by a container in which no job runs.
#[test]
fn no_container_of_jobs_is_given_the_password_of_a_service() {
    for name in ["nvidia-two-gpus", "two-hosts"] {
        let checks = &render(name).deployments[0].checks;
        let line = |word: &str| checks.lines().find(|line| line.contains(word)).unwrap().to_owned();
        assert!(line("probe.py services").starts_with("apart services head "), "{}", line("probe.py services"));
        assert!(line("probe.py services").contains("'prometheus_headers grafana_password jupyter_token'"));
        let inside: Vec<&str> = checks.lines().filter(|line| line.starts_with("in_container '")).collect();
        assert!(
            inside.len() >= 3 && inside.iter().all(|line| line.ends_with("</dev/null &") && !line.contains("grafana"))
        );
    }
}

#[test]
fn each_worker_has_its_own_gpu_and_the_head_has_none() {
    let of = |deployment: &Deployment, service: &str| project(deployment)["services"][service].clone();
    let nvidia = render("nvidia-two-gpus");
    let deployment = &nvidia.deployments[0];
    assert_eq!(of(deployment, "worker0")["devices"][0], "nvidia.com/gpu=GPU-00000000-0000-0000-0000-000000000001");
    assert_eq!(of(deployment, "worker1")["devices"][0], "nvidia.com/gpu=GPU-00000000-0000-0000-0000-000000000002");
    assert!(of(deployment, "head")["devices"].is_null());
    assert_eq!(of(deployment, "head")["environment"]["NVIDIA_VISIBLE_DEVICES"], "void");
    let amd = render("amd-two-gpus");
    assert_eq!(of(&amd.deployments[0], "worker1")["devices"], serde_json::json!(["/dev/kfd", "/dev/dri/renderD129"]));
    assert_eq!(of(&amd.deployments[0], "worker1")["group_add"], serde_json::json!(["993", "44"]));
    let old = render("nvidia-old-engine");
    let asked = &of(&old.deployments[0], "worker0")["deploy"]["resources"]["reservations"]["devices"][0];
    assert_eq!(asked["device_ids"], serde_json::json!(["GPU-00000000-0000-0000-0000-000000000001"]));
}

#[test]
fn no_secret_is_in_a_project_a_variable_or_a_script() {
    for name in ["nvidia-two-gpus", "two-hosts"] {
        let case = render(name);
        for deployment in &case.deployments {
            let texts: String = texts(deployment).into_values().collect();
            for text in [&texts, &deployment.checks] {
                assert!(!text.contains("of the cluster; created by up"), "{name}: a secret outside of its file");
            }
            let secrets = deployment.stage.files.iter().filter(|file| file.path.starts_with("secrets/"));
            assert!(secrets.clone().count() >= 2);
            assert!(secrets.into_iter().all(|file| file.mode == 0o444));
        }
    }
}

#[test]
fn workers_of_other_hosts_get_no_credentials_of_services() {
    let case = render("two-hosts");
    let names: Vec<&str> =
        case.deployments[1].stage.files.iter().filter_map(|file| file.path.strip_prefix("secrets/")).collect();
    assert_eq!(names, ["ray_token", "aws_credentials"]);
    let ports = |index: usize| {
        peer_ports(&case.hosts[index].ports, &case.deployments[index].nodes, index == 0, case.hosts.len())
    };
    assert!(ports(0).contains(&(9000, 9000)) && !ports(1).contains(&(9000, 9000)));
    assert_eq!(ports(1)[0].0, 11_000);
    assert!(peer_ports(&case.hosts[0].ports, &case.deployments[0].nodes, true, 1).is_empty());
    assert!(case.deployments[1].checks.contains("gpu"));
    assert!(!case.deployments[1].checks.contains("probe.py cluster"));
}

#[test]
fn a_host_without_nodes_gets_no_credentials_at_all() {
    let mut case = case("two-hosts");
    case["spec"]["ray"] = serde_json::json!({"workers": {"count": 0}});
    let names = |deployment: &Deployment| -> Vec<String> {
        let files = deployment.stage.files.iter();
        files.filter_map(|file| file.path.strip_prefix("secrets/")).map(str::to_owned).collect()
    };
    let deployments = rendered(&case).deployments;
    assert!(names(&deployments[0]).contains(&"aws_credentials".to_owned()));
    assert_eq!(names(&deployments[1]), Vec::<String>::new());
}

/// Jupyter runs as user 1000 in a folder of that user; a fake `stat` reports the owner.
#[test]
fn a_workspace_that_is_not_jupyters_own_is_refused_before_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let case = render("amd-two-gpus");
    let steps = &case.deployments[0].stage.steps;
    let at = |name: &str| steps.iter().position(|step| step.name == name).unwrap();
    let step = &steps[at("check Jupyter's workspace")];
    assert!(at("check Jupyter's workspace") < at("start the containers"));
    assert_eq!(step.variables["workspace"], "/home/ubuntu/work");
    let hint = step.hint.clone().unwrap();
    assert!(
        hint.contains("gpucl exec --host host-0 --root -- install -d -o 1000 -g 1000 '/home/ubuntu/work'"),
        "{hint}"
    );

    let folder = tempfile::tempdir().unwrap();
    let (workspace, stat) = (folder.path().join("a work's"), folder.path().join("stat"));
    let run = |owner: &str, text: &str| {
        fs_err::write(&stat, format!("#!/bin/sh\necho {owner}\n")).unwrap();
        fs_err::set_permissions(&stat, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", text]).env("PATH", path).env("workspace", &workspace).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let unless = step.unless.clone().unwrap();
    let refused = |owner: &str, says: &str| {
        let (passed, printed) = run(owner, &step.run);
        assert!(!passed && printed.contains(says), "{printed}");
        assert!(step.errors.iter().any(|known| known.matches(&printed)), "{printed}");
        assert!(!run(owner, &unless).0);
    };
    refused("1000", "there is no folder");
    fs_err::create_dir(&workspace).unwrap();
    assert!(run("1000", &step.run).0 && run("1000", &unless).0);
    refused("0", "belongs to user 0");
    fs_err::create_dir(workspace.join(".ssh")).unwrap();
    refused("1000", "is somebody's home");
}

#[test]
fn a_mount_that_is_missing_or_reached_through_a_link_is_refused() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path().canonicalize().unwrap();
    let folder = here.join("it's data");
    let mut case = case("amd-two-gpus");
    case["spec"]["mounts"] = serde_json::json!([{"host": folder, "at": "/srv/data"}]);
    let deployments = rendered(&case).deployments;
    let steps = &deployments[0].stage.steps;
    let at = |name: &str| steps.iter().position(|step| step.name == name).unwrap();
    let step = &steps[at("check the mounts")];
    assert!(at("check the mounts") < at("start the containers"));
    let run = |text: &str| {
        let output = std::process::Command::new("sh").args(["-c", text]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let refused = |says: &str| {
        let (passed, printed) = run(&step.run);
        assert!(!passed && printed.contains(says), "{printed}");
        assert!(step.errors.iter().any(|known| known.matches(&printed)), "{printed}");
        assert!(!run(step.unless.as_ref().unwrap()).0);
    };
    refused(&format!("mounts: host-0 has no {}", folder.display()));
    std::os::unix::fs::symlink("/etc", &folder).unwrap();
    refused("is reached through a link on host-0; its own path is /etc");
    fs_err::remove_file(&folder).unwrap();
    fs_err::create_dir(&folder).unwrap();
    assert!(run(&step.run).0 && run(step.unless.as_ref().unwrap()).0);
}

/// Jobs and notebooks share the data folder, and nothing else of the host's folder can be written.
#[test]
fn nodes_and_jupyter_have_the_data_folder_and_the_mounts() {
    let case = render("amd-two-gpus");
    let project = project(&case.deployments[0]);
    for service in ["head", "worker0", "worker1", "jupyter"] {
        let of = &project["services"][service];
        assert_eq!(of["environment"]["GPUCL_DATA"], "/data", "{service}");
        let has = |mount: serde_json::Value| of["volumes"].as_array().unwrap().contains(&mount);
        assert!(has(serde_json::json!({"type": "bind", "source": "../data", "target": "/data"})), "{service}");
        assert!(has(serde_json::json!({"type": "volume", "source": "models", "target": "/models"})), "{service}");
        assert!(
            has(serde_json::json!({
                "type": "bind", "source": "/srv/it's data", "target": "/srv/data", "read_only": true,
                "bind": {"create_host_path": false},
            })),
            "{service}"
        );
    }
    assert_eq!(project["volumes"]["models"]["labels"]["gpucl.tag"], case.hosts[0].tag);
    let notes = case.spec.mount_notes();
    assert_eq!(notes, ["jobs and notebooks can read /srv/it's data of every host, at /srv/data"]);
}

/// A job's client of the cluster's own store (boto3, requests) would ask the proxy for it.
#[test]
fn the_clusters_own_servers_are_reached_past_a_proxy_of_the_spec() {
    for (name, own) in [("nvidia-two-gpus", "objectstore"), ("two-hosts", "10.0.0.11")] {
        let mut case = case(name);
        case["spec"]["environment"]["https_proxy"] = "http://proxy.example.org:3128".into();
        for deployment in &rendered(&case).deployments {
            let project = project(deployment);
            let services = project["services"].as_object().unwrap();
            let with_proxy = services.iter().filter(|(_, of)| !of["environment"]["https_proxy"].is_null());
            let mut seen = 0;
            for (service, of) in with_proxy {
                for list in ["no_proxy", "NO_PROXY"] {
                    let exceptions = of["environment"][list].as_str().unwrap_or_default();
                    assert!(exceptions.split(',').any(|one| one == own), "{name} {service}: {exceptions}");
                }
                seen += 1;
            }
            assert!(seen > 0, "{name}");
        }
    }
}

#[test]
fn pages_name_their_credential() {
    let case = render("nvidia-two-gpus");
    let pages = pages(&case.spec, &Key::host(0), &case.hosts[0].ports);
    let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
    assert_eq!(names, ["dashboard", "grafana", "prometheus", "object-store", "jupyter"]);
    assert_eq!(pages[1].user.as_deref(), Some("admin"));
    assert_eq!(pages[3].user_secret.as_deref(), Some("object_store_user"));
}

/// The client joins while workers start, where the checks afterwards can show what came of it: on a single host.
#[test]
fn the_client_joins_while_containers_start_on_a_single_host_only() {
    let joins = |name: &str| {
        let case = render(name);
        let steps = case.deployments[0].stage.steps.clone();
        let wait = steps.iter().find(|step| step.name == "wait until all containers are healthy").unwrap();
        (wait.run.contains("probe.py client "), steps.iter().any(|step| step.run.contains("same_stage=1")))
    };
    assert_eq!(joins("nvidia-two-gpus"), (true, true));
    assert_eq!(joins("two-hosts"), (false, false));
}

#[test]
fn scripts_are_valid_in_a_plain_shell() {
    let case = render("nvidia-two-gpus");
    let tag = &case.hosts[0].tag;
    let whole = gpucl::runtime::compose::CleanOptions { ends_cluster: true, keep_data: true, purge: true };
    let of_host = gpucl::runtime::compose::CleanOptions { ends_cluster: false, ..whole };
    assert!(stop_script(tag).contains("\nends_cluster=1\n") && clean_script(tag, whole).contains("\nends_cluster=1\n"));
    assert!(clean_script(tag, of_host).contains("\nends_cluster=\n"), "the cluster goes on without this host");
    let scripts = [case.deployments[0].checks.clone(), inspect_script(tag), stop_script(tag), clean_script(tag, whole)];
    let steps = case.deployments[0].stage.steps.iter().flat_map(|step| [Some(step.run.clone()), step.unless.clone()]);
    for script in scripts.into_iter().chain(steps.flatten()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script.sh");
        fs_err::write(&path, &script).unwrap();
        assert!(std::process::Command::new("sh").arg("-n").arg(&path).status().unwrap().success(), "{script}");
    }
}

/// Ray's own schema, read by Ray's own Python.
#[test]
#[ignore = "testbed"]
fn the_file_for_ray_up_fits_rays_schema() {
    let env = crate::support::TestEnv::with_shared_ray();
    env.write(
        "cluster.yaml",
        "name: r\nprovider: ssh\nruntime: docker\nhosts: [{node: a.example.org, user: cc}, {node: b.example.org}]\n",
    );
    env.run(&["render", "--as", "ray-cluster-yaml", "--to", "out"]).exits(0);
    let script = "import json, sys, yaml, jsonschema, ray.autoscaler, pathlib\n\
                  schema = json.loads((pathlib.Path(ray.autoscaler.__file__).parent / 'ray-schema.json').read_text())\n\
                  jsonschema.validate(yaml.safe_load(open(sys.argv[1])), schema)\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/gpucl/environments");
    let found = || {
        let entries = fs_err::read_dir(&folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join("bin/python")).find(|python| python.is_file())
    };
    let python = found().unwrap_or_else(|| {
        // The first cluster of all makes the environment.
        let _turn = crate::support::turn();
        env.write("local.yaml", "name: r\nray: {workers: {count: 0}}\n");
        env.run(&["up", "local.yaml"]).exits(0);
        env.run(&["down", "--yes", "-c", "r"]).exits(0);
        found().unwrap()
    });
    let run =
        std::process::Command::new(python).args(["-c", script]).arg(env.work().join("out/ray-cluster.yaml")).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
