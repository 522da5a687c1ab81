//! The playbooks of the runtime with the modules and wheels of a site that is played by files: real shells, Python and
//! pip, no network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Result;
use crate::event::Bus;
use crate::host::{LocalHost, StageFile};
use crate::playbook::{self, Stage, StageReport};
use crate::render::Library;
use crate::runtime::native::NativeRuntime;
use crate::runtime::project::{CleanOptions, HostFolders, ProjectRuntime as _};

/// `module load` of a site: each module is a file with shell code.
const MODULE: &str = r#"module() {
    [ -r "$MODULESHOME/files/$2" ] || { echo "Sorry, this site has no $2" >&2; return 1; }
    . "$MODULESHOME/files/$2"
}
"#;

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    /// A host with these wheels in pip's configuration, and with modules.
    fn new(wheels: &[&str]) -> Self {
        let place = Self { root: tempfile::Builder::new().prefix("gpucl-test-site-").tempdir().unwrap() };
        place.make_wheels("wheels", wheels);
        let put = |name: &str, text: &str| {
            let path = place.at(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        put("pip.conf", &format!("[global]\nfind-links = {}\n", place.at("wheels").display()));
        put("modules/init/sh", MODULE);
        let python = place.at("from-module").display().to_string();
        put("modules/files/arrow/1", &format!("PYTHONPATH='{python}'; SAID=\"it's here\"; export PYTHONPATH SAID\n"));
        put("from-module/pyarrow.py", "");
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn make_wheels(&self, folder: &str, wheels: &[&str]) {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", include_str!("tests/wheels.py")]).arg(self.at(folder)).args(wheels);
        assert!(command.status().unwrap().success());
    }

    fn host(&self) -> LocalHost {
        let set = [
            ("MODULESHOME", self.at("modules")),
            ("PIP_CONFIG_FILE", self.at("pip.conf")),
            ("HOME", self.root.path().to_owned()),
        ];
        // Of this machine's environment only where its programs are.
        let variables = [("PATH".into(), option_env!("PATH").unwrap_or("/usr/bin:/bin").into())].into_iter();
        let set = set.map(|(name, value)| (name.into(), value.into_os_string()));
        LocalHost::new("here", self.at("it's home"), variables.chain(set)).unwrap()
    }

    fn stage(&self, name: &str, given: &[(&str, &str)]) -> Stage {
        let playbook = playbook::load(&Library::default(), name).unwrap();
        let given = given.iter().filter(|(name, _)| playbook.variables.contains_key(*name));
        let variables: BTreeMap<_, _> = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        playbook.stage("prepare", &variables, Duration::from_secs(120)).unwrap()
    }

    /// Makes the environment, and with `setup` one of that: a requirement and a command.
    async fn prepare(&self, given: &[(&str, &str)], setup: Option<(&str, &str)>) -> Result<StageReport> {
        let environments = self.at("environments").display().to_string();
        let usual =
            [("ray_version", "2.60.0"), ("environments", &environments), ("extras", ""), ("disk_needed_mib", "1")];
        let all: Vec<_> = usual.iter().chain(given).copied().chain([("tag", "t"), ("setup", "s1")]).collect();
        let mut stages = vec![self.stage("ray-native", &all)];
        if let Some((requirement, command)) = setup {
            let mut stage = self.stage("setup-native", &all);
            for (path, text) in [("setup/requirements.txt", requirement), ("setup/commands.sh", command)] {
                let bytes = format!("{text}\n").into_bytes();
                stage.files.push(StageFile { path: path.to_owned(), mode: 0o600, bytes });
            }
            stages.push(stage);
        }
        let stage = Stage::join("prepare", stages, Duration::from_secs(120));
        let (bus, _inbox) = Bus::new();
        playbook::run_stage(&self.host(), &stage, &bus, std::future::pending()).await
    }

    /// The environments that are there.
    fn environments(&self) -> Vec<PathBuf> {
        let entries = fs_err::read_dir(self.at("environments")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join("bin").is_dir()).collect()
    }
}

#[tokio::test]
async fn an_environment_is_made_from_a_site_s_wheels_with_its_modules() {
    let place = Place::new(&["ray=2.60.0+site:lib;default", "ray=2.61.0", "lib=1", "more=2:pyarrow;none"]);
    let given = [("packages", "site"), ("modules", "arrow/1")];
    let setup = Some(("more", "set -e\npython -c 'import more, pyarrow'"));
    let report = place.prepare(&given, setup).await.unwrap();
    let made = Path::new(&report.values["ray_env"]);
    let name = made.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("ray-2.60.0-py3.") && name.ends_with("-setup-s1"), "{name}");
    assert_eq!(name.matches('-').count(), 5, "the name says that modules and wheels are others: {name}");
    assert!(made.join("bin/ray").exists() && made.join("bin/more").exists());
    assert_eq!(format!("{}-setup-s1", report.values["modules_for"]), report.values["ray_env"]);
    // What programs find that start later.
    let script = ". \"$0\"; echo \"$SAID\" \"$PYTHONPATH\"";
    let output = std::process::Command::new("sh").args(["-c", script]).arg(place.at("it's home/modules.sh")).output();
    let expected = format!("it's here {}\n", place.at("from-module").display());
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), expected);
    assert!(place.prepare(&given, setup).await.unwrap().skipped_as_unchanged);

    // Another source is another environment; the first stays.
    let wheels = place.at("wheels").display().to_string();
    let other = place.prepare(&[("packages", &wheels)], None).await.unwrap();
    assert!(!report.values["ray_env"].starts_with(&other.values["ray_env"]), "{:?}", other.values);
    assert_ne!(other.values["modules_for"], other.values["ray_env"], "the modules' variables are of another one");
    assert_eq!(place.environments().len(), 3);
}

#[tokio::test]
async fn what_the_wheels_lack_is_named_and_leaves_no_environment() {
    let place =
        Place::new(&["ray=2.60.0:lib;default,trainer>=1;train", "ray=2.59.0", "ray=2.58.0:absent;default", "lib=1"]);
    place.make_wheels("empty", &[]);
    let empty = place.at("empty").display().to_string();
    type Given<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Given<'_>, &str, &str); 4] = [
        (&[("ray_version", "2.99.0")], "; they have 2.58.0, 2.59.0, 2.60.0", "ray: {version: …}"),
        (
            &[("extras", "train")],
            "the site's wheels have Ray 2.60.0, but its extras train cannot be had: they need a wheel of trainer that fits",
            "playbooks: {ray-native: {extras: \"\"}}",
        ),
        (
            &[("ray_version", "2.58.0")],
            "the site's wheels have no absent that fits, which Ray 2.58.0 needs",
            "avail_wheels absent",
        ),
        (
            &[("packages", "/nowhere/wheels")],
            "the folder of wheels is not on this host: /nowhere/wheels",
            "bring the wheels",
        ),
    ];
    for (given, says, hint) in cases {
        let given: Vec<_> = [("packages", "site")].iter().chain(given).copied().collect();
        let error = place.prepare(&given, None).await.unwrap_err();
        assert!(error.causes()[0].contains(says), "{error}");
        assert!(error.hints()[0].contains(hint), "{:?}", error.hints());
        assert_eq!(place.environments(), [] as [PathBuf; 0]);
    }
    // Without the site's wheels beside them.
    fs_err::write(place.at("pip.conf"), "").unwrap();
    let error = place.prepare(&[("packages", &empty)], None).await.unwrap_err();
    assert_eq!(error.causes()[0], format!("the wheels in {empty} have no Ray at all"));
    let error = place.prepare(&[("packages", "site")], None).await.unwrap_err();
    assert_eq!(error.causes()[0], "pip's configuration on this host names no wheels (find-links)");
}

#[tokio::test]
async fn a_module_that_cannot_be_loaded_is_named_with_the_words_of_the_site() {
    let place = Place::new(&[]);
    let error = place.prepare(&[("modules", "arrow/1 nosuch/2")], None).await.unwrap_err();
    assert_eq!(error.causes()[0], "the module nosuch/2 cannot be loaded on the host");
    assert!(error.causes()[1].contains("Sorry, this site has no nosuch/2"), "{error}");
    assert!(error.hints()[0].contains("module spider nosuch/2"), "{:?}", error.hints());
    assert!(!place.at("it's home/modules.sh").exists());
    assert!(!place.at("environments").exists(), "modules come first");
}

impl Place {
    /// An environment of the user's own beside others, with files that say that this Ray is in it.
    fn own_environment(&self, ray: Option<&str>) -> PathBuf {
        let own = self.at("envs/rayenv");
        let made = std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&own).status();
        assert!(made.unwrap().success());
        let library = fs_err::read_dir(own.join("lib")).unwrap().next().unwrap().unwrap().path().join("site-packages");
        if let Some(version) = ray {
            for module in ["ray.py", "grpc.py", "aiohttp.py"] {
                fs_err::write(library.join(module), "").unwrap();
            }
            let information = library.join(format!("ray-{version}.dist-info"));
            fs_err::create_dir_all(&information).unwrap();
            let text = format!("Metadata-Version: 2.1\nName: ray\nVersion: {version}\n");
            fs_err::write(information.join("METADATA"), text).unwrap();
        }
        // What would be removed if the folder were one of gpucl's environments.
        for beside in ["envs/caches", "envs/ray-2.60.0-py3.12-setup-mine/bin"] {
            fs_err::create_dir_all(self.at(beside)).unwrap();
        }
        own
    }

    /// Every path below a folder, with the time of its last change.
    fn tree(&self, name: &str) -> BTreeMap<PathBuf, std::time::SystemTime> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.at(name)];
        while let Some(path) = open.pop() {
            let data = fs_err::symlink_metadata(&path).unwrap();
            if data.is_dir() {
                open.extend(fs_err::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            found.insert(path, data.modified().unwrap());
        }
        found
    }
}

#[tokio::test]
async fn an_environment_of_the_user_s_own_is_used_as_it_is() {
    let place = Place::new(&[]);
    let own = place.own_environment(Some("2.60.0+site"));
    let (before, path) = (place.tree("envs"), own.display().to_string());
    // A slash at its end does not matter, and modules are loaded as for any other.
    let given = [
        ("environments", &*format!("{path}/")),
        ("own_environments", "yes"),
        ("modules", "arrow/1"),
        ("disk_needed_mib", "999999999"),
    ];
    let report = place.prepare(&given, None).await.unwrap();
    let value = |name: &str| report.values.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!([value("ray_env"), value("ready_env"), value("modules_for")], [&*path; 3]);
    assert!(value("python").starts_with("3.1"), "{:?}", report.values);
    assert!(!value("environments").starts_with(&path), "the store would be put into it: {:?}", report.values);
    assert!(place.prepare(&given, None).await.unwrap().skipped_as_unchanged);

    let error = place.prepare(&given, Some(("more", "true"))).await.unwrap_err();
    let says = format!("setup: nothing is installed into {path}, which is an environment of your own");
    assert_eq!(error.causes()[0], says);
    assert!(error.hints()[0].starts_with("install what you need there yourself"), "{:?}", error.hints());

    let tag = "gpucl-dcba4321-p-host0";
    let folders = HostFolders::at(place.at("it's home").display().to_string());
    let options = CleanOptions { purge: true, ends_cluster: true, ..CleanOptions::default() };
    let script = NativeRuntime.clean_script(tag, &folders, options);
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("::clean\n") && !text.contains(&path), "{text}");
    assert!(!place.at("it's home").exists());
    assert_eq!(place.tree("envs"), before, "something was written there, or removed");
}

#[tokio::test]
async fn an_environment_without_the_spec_s_ray_is_refused_and_left_alone() {
    for (ray, says) in [
        (None, "has no Ray"),
        (Some("2.9.0"), "has Ray 2.9.0 instead of 2.60.0"),
        (Some("2.60.01"), "has Ray 2.60.01 instead of 2.60.0"),
    ] {
        let place = Place::new(&["ray=2.60.0"]);
        let own = place.own_environment(ray);
        let (before, path) = (place.tree("envs"), own.display().to_string());
        let error = place
            .prepare(&[("environments", &path), ("own_environments", "yes"), ("packages", "site")], None)
            .await
            .unwrap_err();
        assert_eq!(error.causes()[0], format!("the environment {path} {says}"));
        assert!(error.hints()[0].contains("python -m pip install 'ray[default]==2.60.0'"), "{:?}", error.hints());
        assert_eq!(place.tree("envs"), before);
    }

    let place = Place::new(&[]);
    let own = place.own_environment(Some("2.60.0"));
    let path = own.display().to_string();
    let library = fs_err::read_dir(own.join("lib")).unwrap().next().unwrap().unwrap().path().join("site-packages");
    fs_err::write(library.join("ray.py"), "import nothing_of_that_name").unwrap();
    let error = place.prepare(&[("environments", &path), ("own_environments", "yes")], None).await.unwrap_err();
    let says = "which does not start: ModuleNotFoundError: No module named 'nothing_of_that_name'";
    assert!(error.causes()[0].ends_with(says), "{error}");

    // As conda makes one whose Python was removed, and one with an old Python.
    fs_err::create_dir_all(place.at("conda/conda-meta")).unwrap();
    let conda = place.at("conda").display().to_string();
    let error = place.prepare(&[("environments", &conda), ("own_environments", "yes")], None).await.unwrap_err();
    assert_eq!(error.causes()[0], format!("the environment {conda} has no bin/python that starts"));
    let python = place.at("conda/bin/python");
    fs_err::create_dir_all(python.parent().unwrap()).unwrap();
    fs_err::write(&python, "#!/bin/sh\necho 3.9.18\n").unwrap();
    fs_err::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = place.prepare(&[("environments", &conda), ("own_environments", "yes")], None).await.unwrap_err();
    let says = format!("the environment {conda} has Python 3.9.18, and Ray 2.60.0 needs 3.10 to 3.13");
    assert_eq!(error.causes()[0], says);
    assert!(error.hints()[0].starts_with("name another environment"), "{:?}", error.hints());
}

/// A folder with environments in it is none.
#[tokio::test]
async fn a_folder_of_environments_is_none_itself() {
    let place = Place::new(&["ray=2.60.0:lib;default", "lib=1"]);
    let own = place.own_environment(Some("2.60.0"));
    let above = own.parent().unwrap().display().to_string();
    let report = place
        .prepare(&[("environments", &above), ("own_environments", "yes"), ("packages", "site")], None)
        .await
        .unwrap();
    assert!(report.values["ray_env"].starts_with(&format!("{above}/ray-2.60.0-py3.")), "{:?}", report.values);
    assert!(!report.values.contains_key("ready_env"));
}
