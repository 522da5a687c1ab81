//! Every piece of a spec in documents, READMEs and examples is read by the real reader, and planned as far as that
//! takes no host.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{documents, read, root};
use crate::support::TestEnv;
use crate::{chameleon, lambda};

/// A piece of YAML that is meant as a spec, or as a part of one.
#[derive(Debug, Clone)]
struct Piece {
    place: String,
    text: String,
}

/// A spec made whole, and the provider that it is for.
#[derive(Debug)]
struct Whole {
    provider: String,
    spec: Value,
}

#[test]
fn every_spec_that_is_shown_is_read_and_planned() {
    let pieces = pieces();
    assert!(pieces.len() > 40, "{}", pieces.len());
    // Each provider's own are among them.
    for provider in ["local", "ssh", "chameleon", "lambda", "slurm", "kubernetes"] {
        let of_it = pieces.iter().filter(|piece| whole(piece).is_ok_and(|whole| whole.provider == provider));
        assert!(of_it.count() >= 2, "{provider}");
    }
    let places = Places::new();
    let wrong: Vec<String> = pieces.iter().filter_map(|piece| places.wrong(piece)).collect();
    assert!(wrong.is_empty(), "{} of {} pieces cannot be used:\n{}", wrong.len(), pieces.len(), wrong.join("\n"));
    // What these ask of their readers is known, and none of the first examples asks anything.
    let asked = places.asked.borrow().iter().map(|line| format!("{line}\n")).collect::<String>();
    let first =
        |line: &str| line.strip_prefix("examples/").is_some_and(|rest| !rest.split(' ').next().unwrap().contains('/'));
    assert_eq!(asked.lines().filter(|line| first(line)).collect::<Vec<_>>(), Vec::<&str>::new());
    let path = root().join("tests/docs/asks.txt");
    if std::env::var_os("GPUCL_WRITE").is_some() {
        std::fs::write(&path, &asked).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        asked,
        "GPUCL_WRITE=1 writes tests/docs/asks.txt anew"
    );
}

/// The test above finds a wrong key.
#[test]
fn a_wrong_key_in_a_document_is_found() {
    let places = Places::new();
    for (text, says) in [
        ("```yaml\nservices:\n  prometheus: {retentoin: 30d}\n```\n", "retentoin"),
        ("    name: x\n    worker: 3\n", "worker"),
        ("As `playbooks: {base: {apt_miror: http://mirror.example.org/ubuntu}}` says.\n", "apt_miror"),
        ("```yaml\nprovider: {name: lambda, regoins: [us-east-1]}\nhosts: [{type: gpu_1x_a10}]\n```\n", "regoins"),
        (
            "```yaml\nname: x\nruntime: docker\nprovider: ssh\nhosts: [{node: a}]\nservices: {jupyter: {workspace: work}}\n```\n",
            "workspace",
        ),
    ] {
        let found = in_markdown("docs/x.md", text);
        assert_eq!(found.len(), 1, "{text}");
        let problem = places.wrong(&found[0]).unwrap_or_else(|| panic!("it was taken: {text}"));
        assert!(problem.contains(says), "{problem}");
    }
    for text in
        ["As `services: {prometheus: false}` and `images: {jupyter: …}` say.\n", "```yaml\ncompose: [mine.yaml]\n```\n"]
    {
        for piece in in_markdown("docs/x.md", text) {
            assert_eq!(places.wrong(&piece), None);
        }
    }
}

fn pieces() -> Vec<Piece> {
    let mut pieces = Vec::new();
    for path in documents() {
        let place = path.strip_prefix(root()).unwrap().display().to_string();
        if place != "CHANGELOG.md" {
            pieces.extend(in_markdown(&place, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    let mut folders = vec!["examples".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".yaml") && !is_runtime_environment(&read(&name)) {
                pieces.push(Piece { text: read(&name), place: name });
            }
        }
    }
    // What is said twice of one provider is planned once.
    let mut met = std::collections::BTreeSet::new();
    pieces.retain(|piece| met.insert((provider_of(&piece.place), piece.text.clone())));
    pieces
}

/// A runtime environment of a job, which lies beside the job's program.
fn is_runtime_environment(text: &str) -> bool {
    ["pip:", "uv:", "env_vars:"].iter().any(|key| text.lines().any(|line| line.starts_with(key)))
}

/// The names that a spec begins with.
fn keys() -> Vec<String> {
    gpucl::spec::schema(gpucl::providers::all()).unwrap()["properties"].as_object().unwrap().keys().cloned().collect()
}

/// Blocks that are fenced as YAML, indented blocks that begin with a key of a spec or of a provider, and such texts
/// within a line.
fn in_markdown(place: &str, text: &str) -> Vec<Piece> {
    let keys = keys();
    let settings = settings_of(&provider_of(place));
    let is_key = |line: &str| {
        line.split_once(':').is_some_and(|(key, rest)| {
            (rest.is_empty() || rest.starts_with(' '))
                && (keys.iter().any(|known| known == key) || settings.iter().any(|known| known == key))
        })
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut fence, mut block): (Option<String>, Option<usize>) = (None, None);
    for (number, line) in (1..).zip(text.lines()) {
        let new = || Piece { place: format!("{place}:{number}"), text: String::new() };
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            (fence, block) = (if fence.is_some() { None } else { Some(kind.trim().to_owned()) }, None);
            if fence.as_deref() == Some("yaml") {
                pieces.push(new());
                block = Some(0);
            }
        } else if fence.is_some() {
            if block.is_some() {
                let piece = pieces.last_mut().unwrap();
                piece.text.push_str(&format!("{line}\n"));
            }
        } else if let Some(code) = line.strip_prefix("    ") {
            if block.is_none() && is_key(code) {
                pieces.push(new());
                block = Some(4);
            } else if block.is_none() {
                block = Some(usize::MAX);
            }
            if block == Some(4) {
                pieces.last_mut().unwrap().text.push_str(&format!("{code}\n"));
            }
        } else if !line.is_empty() {
            block = None;
            let spans = line.split('`').skip(1).step_by(2).filter(|span| {
                span.split_once(':').is_some_and(|(key, rest)| {
                    rest.starts_with(' ') && rest.len() > 1 && keys.iter().any(|known| known == key)
                })
            });
            // `A | B` is a choice and no YAML.
            pieces.extend(
                spans
                    .filter(|span| !span.contains(" | ") && !span.contains('<'))
                    .map(|span| Piece { text: format!("{span}\n"), ..new() }),
            );
        }
    }
    pieces
}

/// The provider that a document is about.
fn provider_of(place: &str) -> String {
    let about =
        ["chameleon", "lambda", "slurm", "kubernetes", "ssh", "local"].into_iter().find(|name| place.contains(name));
    about.unwrap_or("ssh").to_owned()
}

/// The keys that a provider has of its own.
fn settings_of(provider: &str) -> Vec<String> {
    let schema = gpucl::providers::find(provider).unwrap().settings_schema();
    let properties = schema.as_value()["properties"].as_object().cloned().unwrap_or_default();
    properties.keys().cloned().collect()
}

/// Makes a spec of a piece of one: it is given a name, a provider, hosts and a runtime where it says nothing of them.
fn whole(piece: &Piece) -> Result<Whole, String> {
    let value: Value = serde_yaml::from_str(&piece.text).map_err(|error| error.to_string())?;
    let Value::Object(mut spec) = value else { return Err("it is no map of keys".to_owned()) };
    let is_whole = spec.contains_key("name");
    let about = provider_of(&piece.place);
    // What only the provider knows stands under `provider:`.
    let known = keys();
    let own: Vec<String> =
        settings_of(&about).into_iter().filter(|key| !known.contains(key) && spec.contains_key(key)).collect();
    let mut settings = Map::new();
    for key in own {
        settings.extend(spec.remove(&key).map(|value| (key, value)));
    }
    let is_of_one = !settings.is_empty();
    let provider = match (spec.get("provider"), is_whole) {
        (Some(Value::String(name)), _) => name.clone(),
        (Some(of), _) => of["name"].as_str().unwrap_or_default().to_owned(),
        (None, true) => "local".to_owned(),
        (None, false) => about,
    };
    if !is_whole {
        spec.insert("name".to_owned(), json!("shown"));
        if is_of_one || !spec.contains_key("provider") {
            settings.insert("name".to_owned(), json!(provider));
            spec.insert("provider".to_owned(), Value::Object(settings));
        }
        if provider != "local" && !spec.contains_key("runtime") {
            spec.insert(
                "runtime".to_owned(),
                json!(if ["slurm", "kubernetes"].contains(&provider.as_str()) { "native" } else { "docker" }),
            );
        }
        let types = spec["provider"].get("types").is_some();
        let hosts = match provider.as_str() {
            "chameleon" => json!([{ "node": "liqid01" }]),
            "lambda" if types => json!([{}]),
            "lambda" => json!([{ "type": "gpu_1x_a10" }]),
            "local" | "slurm" | "kubernetes" => json!([{}]),
            _ => json!([{ "node": "host.example.org" }]),
        };
        if provider == "slurm" && spec["provider"].is_object() {
            spec["provider"].as_object_mut().unwrap().entry("host").or_insert_with(|| json!("login"));
        }
        // Settings of groups are of groups that the spec has.
        if provider == "kubernetes" && !spec.contains_key("ray") {
            let groups = spec["provider"]["groups"].as_object().cloned().unwrap_or_default();
            let workers: Vec<Value> = groups.keys().map(|name| json!({ "name": name, "count": 1 })).collect();
            if !workers.is_empty() {
                spec.insert("ray".to_owned(), json!({ "workers": workers }));
            }
        }
        if provider == "chameleon" {
            let settings = spec.entry("provider").or_insert_with(|| json!({}));
            if settings.get("hours").is_none()
                && settings.get("lease").is_none()
                && settings.get("until").is_none()
                && settings.is_object()
            {
                settings["hours"] = json!(3);
            }
        }
        spec.entry("hosts").or_insert(hosts);
    }
    Ok(Whole { provider, spec: Value::Object(spec) })
}

/// Where specs are planned: stand-ins of the clouds, and a home for the rest.
struct Places {
    here: TestEnv,
    chameleon: chameleon::site::Site,
    lambda: lambda::site::Site,
    /// What the pieces ask of their readers, as it was seen.
    asked: RefCell<BTreeSet<String>>,
}

impl Places {
    fn new() -> Self {
        let config = gpucl::sandbox::chameleon::Config { region: "CHI@TACC".to_owned(), ..Default::default() };
        let lambda = lambda::site::Site::prompt();
        // What the documents call their own is there.
        lambda.sandbox.add_file_system("datasets", "us-east-1");
        Self { here: TestEnv::new(), chameleon: chameleon::site::Site::with(config), lambda, asked: RefCell::default() }
    }

    /// What is wrong with a piece; nothing when it can be used.
    fn wrong(&self, piece: &Piece) -> Option<String> {
        let mut problem = None;
        // What is left out stands for an address, or for an image.
        for stand_in in ["https://example.org/x", "example.org/x:1", "x"] {
            let of = |text: &str| {
                text.replace(", …}", "}").replace(", ...}", "}").replace('…', stand_in).replace("...", stand_in)
            };
            let filled = Piece { text: of(&piece.text), ..piece.clone() };
            match whole(&filled).and_then(|whole| self.plan(&filled, &whole)) {
                Ok(()) => return None,
                Err(why) => problem = problem.or(Some(format!("{}: {why}\n{}", piece.place, piece.text))),
            }
            if filled.text == piece.text {
                break;
            }
        }
        problem
    }

    fn plan(&self, piece: &Piece, Whole { provider, spec }: &Whole) -> Result<(), String> {
        let is_whole = piece.text.contains("name:") && piece.text.lines().any(|line| line.starts_with("name:"));
        let text = if is_whole { piece.text.clone() } else { serde_yaml::to_string(spec).unwrap() };
        let env = match provider.as_str() {
            "chameleon" => &self.chameleon.env,
            "lambda" => &self.lambda.env,
            _ => &self.here,
        };
        let path = env.write("cluster.yaml", &text);
        beside(env, spec);
        if let Ok(loaded) = gpucl::spec::load(&path, gpucl::spec::Allowed::default(), &gpucl::providers::find) {
            let home = gpucl::spec::Home { home: &env.home(), folder: &env.work(), allowed: &[] };
            let asks = gpucl::spec::asks(&loaded, home, &gpucl::providers::find).map_err(|error| error.to_string())?;
            let file = piece.place.split(':').next().unwrap_or_default();
            let work = env.work().display().to_string();
            let line = |ask: &gpucl::spec::Ask| {
                format!("{file} ({provider}): {}: {}", ask.class.heading(), ask.what.replace(&work, "."))
            };
            self.asked.borrow_mut().extend(asks.iter().map(line));
        }
        // To plan at a cloud takes a second, and a piece of one line says nothing that only a plan would refuse.
        let is_piece = piece.text.lines().count() == 1;
        if provider == "local" || (!["ssh", "slurm", "kubernetes"].contains(&provider.as_str()) && !is_piece) {
            gpucl::spec::load(&path, gpucl::spec::Allowed::default(), &gpucl::providers::find)
                .map_err(|error| format!("{error} {:?}", error.shown_snippet()))?;
            let plan = env.run(&["plan"]);
            // A stand-in may have none of it now: then it was understood all the same.
            return match plan.code {
                Some(0 | 8) => Ok(()),
                _ => Err(plan.stderr),
            };
        }
        // A plan needs the hosts or a login machine, and those of a document do not exist: what would be sent is computed
        // without them.
        let to = env.root().join("rendered").display().to_string();
        let render = env.run(&["render", "--to", &to]);
        if render.code == Some(0) { Ok(()) } else { Err(render.stderr) }
    }
}

/// The files that a spec names.
fn beside(env: &TestEnv, spec: &Value) {
    let mut files = BTreeMap::new();
    for path in spec["compose"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        files.insert(path.to_owned(), "services: {mine: {image: 'example.org/mine:1'}}\n".to_owned());
    }
    for path in spec["files"].as_array().into_iter().flatten().filter_map(|file| file["path"].as_str()) {
        files.insert(format!("{path}/train.py"), "print('here')\n".to_owned());
    }
    for path in spec["serve"].as_array().into_iter().flatten().filter_map(|one| one["working_dir"].as_str()) {
        files.insert(format!("{path}/app.py"), "food = None\n".to_owned());
    }
    for external in [&spec["services"]["object_store"]["external"], &spec["end"]["store"]] {
        let Some(path) = external["credentials_file"].as_str() else { continue };
        let profile = external["profile"].as_str().unwrap_or("default");
        let keys = "aws_access_key_id = A\naws_secret_access_key = B\n";
        files.insert(path.to_owned(), format!("[{profile}]\n{keys}"));
    }
    if let Some(path) = spec["services"]["mlflow"]["external"]["credentials_file"].as_str() {
        files.insert(path.to_owned(), "[mlflow]\nmlflow_tracking_token = A\n".to_owned());
    }
    if let Some(path) = spec["notify"]["webhook"]["file"].as_str() {
        files.insert(path.to_owned(), "https://hooks.example.org/services/x\n".to_owned());
    }
    for (path, text) in files.into_iter().filter(|(path, _)| !Path::new(path).is_absolute()) {
        let path = env.write(&path, &text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}
