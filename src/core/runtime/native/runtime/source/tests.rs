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
