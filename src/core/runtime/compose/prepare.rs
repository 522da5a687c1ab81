//! The stage that prepares a host for a project: playbooks chosen by the host's facts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::build;
use super::images::Build;
use super::{closed_table, containers_name, firewall_table, home_of};
use crate::error::{Error, ErrorKind, Result};
use crate::playbook::{self, Facts, Stage};
use crate::render::Library;
use crate::spec::Spec;
use crate::util::near;

/// The playbooks whose variables a spec may set, in the order in which they run.
pub(super) const PLAYBOOKS: [&str; 6] = ["base", "docker", "nvidia", "amd", "images", "firewall"];
/// A playbook: its name in a spec, its file's name, and the variables set by gpucl.
type Part = (&'static str, &'static str, Vec<(&'static str, String)>);

/// What a host accepts from the cluster's other hosts, if already known.
#[derive(Debug, Clone, Copy)]
pub enum Peers<'a> {
    /// There are no other hosts.
    None,
    /// Known only once all of them exist: [`firewall_stage`] sets it then.
    Later,
    /// Known now.
    Known {
        /// The addresses of the others.
        addresses: &'a [String],
        /// The ports to open to them and to nobody else, such as `6379` and `20000-20999`.
        ports: &'a [String],
    },
}

/// How long the stage that confirms the firewall may take.
const CONFIRM_LIMIT: Duration = Duration::from_secs(60);
const UNDO: &str = include_str!("undo.sh");

/// The stage `prepare` of a host: packages, engine, driver, toolkit, images, firewall.
///
/// Ports opened to known peers stay open for a minute unless [`confirm_steps`] confirms them. Images are pulled while the
/// driver is installed, and then those are built that nobody publishes.
pub fn preparation(
    spec: &Spec,
    facts: &Facts,
    tag: &str,
    peers: Peers<'_>,
    images: &[String],
    builds: &[Build],
    library: &Library,
) -> Result<Stage> {
    known(spec)?;
    let images: Vec<String> = unique(images);
    if let Some(odd) = images.iter().find(|image| image.is_empty() || image.contains(char::is_whitespace)) {
        return Err(Error::new(ErrorKind::Spec, "prepare a host for the docker runtime")
            .because(format!("`{odd}` is not an image name")));
    }
    let images = ("images", images.join(" "));
    let mut parts: Vec<Part> = vec![("base", "base", vec![]), ("docker", "docker", vec![])];
    if !images.1.is_empty() {
        parts.push(("images", "images-begin", vec![images.clone()]));
    }
    parts.extend([("nvidia", "nvidia", vec![]), ("amd", "amd", vec![])]);
    if !images.1.is_empty() {
        parts.push(("images", "images", vec![images]));
    }
    // Last, since its rules are reverted after a minute unless confirmed.
    let mut rules = vec![closed(tag, peers)];
    if let Peers::Known { addresses, ports } = peers {
        rules.push(firewall(tag, addresses, ports));
    }
    let limit = spec.timeouts.prepare.0;
    let mut stages = Vec::new();
    for part in parts {
        stages.extend(stage_of("prepare", spec, facts, part, library)?);
    }
    stages.extend(build::stage(spec, tag, builds));
    for part in rules {
        stages.extend(stage_of("prepare", spec, facts, part, library)?);
    }
    Ok(Stage::join("prepare", stages, limit))
}

/// The stage `firewall` of a host whose peers are known: opens these ports to these addresses and to nobody else, for a
/// minute unless [`confirm_steps`] confirms it.
pub fn firewall_stage(
    spec: &Spec,
    facts: &Facts,
    tag: &str,
    addresses: &[String],
    ports: &[String],
    library: &Library,
) -> Result<Stage> {
    let stages = stage_of("firewall", spec, facts, firewall(tag, addresses, ports), library)?;
    Ok(Stage::join("firewall", stages.into_iter().collect(), spec.timeouts.prepare.0))
}

/// The playbook that closes the host, before anything is published. A spec cannot set its variables.
fn closed(tag: &str, peers: Peers<'_>) -> Part {
    let name = containers_name(tag);
    let (bridge, group) = if matches!(peers, Peers::None) { (name, String::new()) } else { (String::new(), name) };
    ("", "closed", vec![("table", closed_table(tag)), ("bridge", bridge), ("group", group)])
}

fn firewall(tag: &str, addresses: &[String], ports: &[String]) -> Part {
    let ours = vec![("table", firewall_table(tag)), ("ports", ports.join(",")), ("peers", addresses.join(" "))];
    ("firewall", "firewall", ours)
}

/// The stage of one playbook; `None` when it does not apply to the host.
fn stage_of(
    stage: &str,
    spec: &Spec,
    facts: &Facts,
    (name, file, ours): Part,
    library: &Library,
) -> Result<Option<Stage>> {
    let playbook = playbook::load(library, file)?;
    if !playbook.when.holds(facts) {
        return Ok(None);
    }
    let mut variables = spec.playbooks.get(name).cloned().unwrap_or_default();
    for (key, value) in ours {
        if variables.insert(key.to_owned(), value).is_some() {
            return Err(Error::new(ErrorKind::Spec, format!("read `playbooks.{name}`"))
                .because(format!("gpucl sets its variable `{key}` itself")));
        }
    }
    playbook.stage(stage, &variables, spec.timeouts.prepare.0).map(Some)
}

/// The stage that confirms the firewall of this host's tag. It must run within a minute, over a connection opened after
/// the firewall was set.
pub fn confirm_steps(tag: &str, library: &Library) -> Result<Stage> {
    let variables = BTreeMap::from([("table".to_owned(), firewall_table(tag))]);
    playbook::load(library, "firewall-confirm")?.stage("confirm", &variables, CONFIRM_LIMIT)
}

/// The idempotent script that reverts what the playbooks changed on the host of this tag, from their records; it runs
/// before the host's folder is removed. Settings, units and firewall rules are always reverted; packages, their lists
/// and keys only with `purge`.
///
/// Prints lines `::removed WHAT`, `::kept WHAT` and `::left WHAT`.
pub fn undo_script(tag: &str, purge: bool) -> String {
    let home = home_of(tag);
    let purge = if purge { "yes" } else { "no" };
    format!("(\nhome={}\npurge={purge}\n{UNDO})\n", crate::render::quote(&home))
}

/// Rejects variables of an unknown playbook.
fn known(spec: &Spec) -> Result<()> {
    let Some(odd) = spec.playbooks.keys().find(|name| !PLAYBOOKS.contains(&name.as_str())) else {
        return Ok(());
    };
    let error = Error::new(ErrorKind::Spec, format!("read `playbooks.{odd}`"))
        .because(format!("the runtime `docker` has no playbook `{odd}`; it has {}", PLAYBOOKS.join(", ")));
    Err(match near::nearest(odd, PLAYBOOKS) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    })
}

fn unique(names: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: &str = "close the host's own network to others";

    fn spec(more: &str) -> Spec {
        serde_yaml::from_str(&format!("name: demo\nruntime: docker\n{more}")).unwrap()
    }

    fn facts(gpu: &str) -> Facts {
        let json = format!(
            r#"{{"os":"ubuntu","gpus":[{{"pci":"0000:c6:00.0","vendor":"{gpu}","device_id":"0x20b0","driver":null,"name":null,"uuid":null}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn made(spec: &Spec, facts: &Facts, peers: &[&str]) -> Result<Stage> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (peers, ports) = (words(peers), words(&["6379", "20000-20999"]));
        let images = words(&["a/ray:1", "b/x:2", "a/ray:1"]);
        let peers = match peers.is_empty() {
            true => Peers::None,
            false => Peers::Known { addresses: &peers, ports: &ports },
        };
        preparation(spec, facts, "gpucl-abcdefgh-demo-host0", peers, &images, &[], &Library::default())
    }

    fn place(stage: &Stage, step: &str) -> Option<usize> {
        stage.steps.iter().position(|have| have.name == step)
    }

    #[test]
    fn playbooks_come_in_order_and_only_those_that_apply() {
        let stage = made(&spec(""), &facts("nvidia"), &["10.0.0.2"]).unwrap();
        let order = [
            "wait for cloud-init",
            "install the engine",
            "start to pull the images",
            "install the NVIDIA driver",
            "wait for the images",
            CLOSE,
            "open the ports to the other hosts only",
            "resume automatic upgrades",
        ];
        let places: Vec<usize> = order.iter().map(|step| place(&stage, step).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(places.last(), Some(&(stage.steps.len() - 1)));
        assert_eq!(place(&stage, "load the AMD driver"), None);
        let begin = &stage.steps[places[2]];
        assert_eq!(begin.variables["images"], "a/ray:1 b/x:2");
        // One copy of the files that several playbooks share.
        let mut files: Vec<&str> = stage.files.iter().map(|file| file.path.as_str()).collect();
        files.sort_unstable();
        assert_eq!(files, ["lib/apt.sh", "lib/engine.sh", "lib/nvidia.sh"]);
        let stage = made(&spec(""), &facts("amd"), &[]).unwrap();
        assert!(place(&stage, "load the AMD driver").is_some());
        assert_eq!(place(&stage, "install the NVIDIA driver"), None);
        // Also on a single host, before anything is published there.
        let closed = &stage.steps[place(&stage, CLOSE).unwrap()];
        assert_eq!(closed.variables["table"], closed_table("gpucl-abcdefgh-demo-host0"));
        assert_eq!((closed.variables["bridge"].len(), closed.variables["group"].as_str()), (15, ""));
    }

    #[test]
    fn settings_are_passed_to_their_playbook_and_unknown_ones_are_refused() {
        let given = spec("playbooks: {docker: {registry_mirror: 'http://m:5000'}, nvidia: {branch: '570'}}");
        let stage = made(&given, &facts("nvidia"), &[]).unwrap();
        let step = |name: &str| &stage.steps[place(&stage, name).unwrap()];
        assert_eq!(step("configure the engine").variables["registry_mirror"], "http://m:5000");
        assert_eq!(step("install the NVIDIA driver").variables["branch"], "570");
        let refused = |more: &str| made(&spec(more), &facts("nvidia"), &[]).unwrap_err();
        let error = refused("playbooks: {doker: {}}");
        assert_eq!(error.hints(), ["did you mean `docker`?"]);
        let error = refused("playbooks: {docker: {registry_miror: x}}");
        assert_eq!(error.hints(), ["did you mean `registry_mirror`?"]);
        assert!(refused("playbooks: {images: {images: x}}").to_string().contains("gpucl sets its variable"));
    }

    #[test]
    fn the_firewall_is_confirmed_by_the_table_that_it_set() {
        let tag = "gpucl-abcdefgh-demo-host0";
        let stage = made(&spec(""), &facts("amd"), &["10.0.0.2"]).unwrap();
        let firewall = &stage.steps[place(&stage, "open the ports to the other hosts only").unwrap()];
        assert_eq!(firewall.variables["table"], firewall_table(tag));
        assert_eq!(firewall.variables["ports"], "6379,20000-20999");
        let confirm = confirm_steps(tag, &Library::default()).unwrap();
        assert_eq!((confirm.name.as_str(), &confirm.variables["table"]), ("confirm", &firewall_table(tag)));
        // When opened later, the same steps form their own stage; the tool is already installed then.
        let (peers, ports) = (["10.0.0.2".to_owned()], ["6379".to_owned(), "20000-20999".to_owned()]);
        let opened = firewall_stage(&spec(""), &facts("amd"), tag, &peers, &ports, &Library::default()).unwrap();
        let set = &opened.steps[place(&opened, "open the ports to the other hosts only").unwrap()];
        assert_eq!((opened.name.as_str(), &set.variables), ("firewall", &firewall.variables));
        let later =
            preparation(&spec(""), &facts("amd"), tag, Peers::Later, &["a/ray:1".to_owned()], &[], &Library::default())
                .unwrap();
        let closed = &later.steps[place(&later, CLOSE).unwrap()];
        assert_eq!((closed.variables["bridge"].as_str(), closed.variables["group"].len()), ("", 15));
        assert_eq!(place(&later, "open the ports to the other hosts only"), None);
        assert_ne!(firewall_table("gpucl-abcdefgh-a-host0"), firewall_table("gpucl-abcdefgh-a-b-host0"));
    }
}
