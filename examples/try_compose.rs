//! A throw-away trial.
use gpucl::plan::{Machine, desired};
use gpucl::runtime::compose::*;
use std::collections::{BTreeMap, BTreeSet};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (spec, out, uuids, data) = (&args[1], &args[2], &args[3], &args[4]);
    let kind = args.get(5).map(String::as_str).unwrap_or("nvidia");
    let text = std::fs::read_to_string(spec).unwrap(); let spec: gpucl::spec::Spec = serde_yaml::from_str(&text).unwrap();
    
    let mut facts = gpucl::playbook::Facts { cpus: 4, memory: 6 << 30, docker_engine: Some("29.1.3".into()), ..Default::default() };
    for (i, word) in uuids.split(',').filter(|w| !w.is_empty()).enumerate() {
        facts.gpus.push(gpucl::playbook::GpuFact {
            pci: if kind == "amd" { word.to_owned() } else { format!("0000:0{i}:00.0") },
            vendor: if kind == "amd" { gpucl::playbook::Vendor::Amd } else { gpucl::playbook::Vendor::Nvidia },
            device_id: "0x20b0".into(), driver: None, name: None,
            uuid: (kind != "amd").then(|| word.to_owned()), memory: None, mig: None,
            render: Some(format!("renderD{}", 128 + i)), unique_id: None,
        });
    }
    facts.groups = BTreeMap::from([("video".into(), 44), ("render".into(), 993)]);
    let scope = gpucl::name::Scope { owner: "abcd1234".parse().unwrap(), cluster: spec.name.clone() };
    let key = gpucl::name::Key::host(0);
    let machine = Machine { cpus: 4, memory: 6 << 30, gpus: facts.gpus.len() as u32 };
    let nodes = desired(&spec, &[(key.clone(), machine)]).unwrap();
    let tag = scope.tag(&key).to_string();
    let ports = HostPorts::choose(&BTreeSet::new());
    let hosts = [HostInput { key, tag: tag.clone(), facts, address: "10.0.0.1".into(), ports }];
    let secrets = gpucl::secret::ensure_secrets(std::path::Path::new(out)).unwrap();
    let library = gpucl::render::Library::new(vec![data.into()]);
    let pages = Pages::from([("grafana".to_owned(), 23000)]);
    let all = deployments(&DeployRequest { spec: &spec, scope: &scope, nodes: &nodes, hosts: &hosts, pages: &pages, secrets: &secrets, library: &library }).unwrap_or_else(|e| panic!("{e}"));
    let put = |name: &str, text: &str| std::fs::write(format!("{out}/{name}"), text).unwrap();
    put("deploy.sh", &gpucl::playbook::program_text(&home_of(&tag), &all[0].stage).unwrap());
    for f in &all[0].stage.files { if f.path.starts_with("compose/") { put(&f.path.replace('/', "_"), &String::from_utf8_lossy(&f.bytes)); } }
    put("checks.sh", &all[0].checks);
    put("look.sh", &look_script(&tag));
    put("stop.sh", &stop_script(&tag));
    put("clean.sh", &clean_script(&tag, CleanOptions::default()));
}
