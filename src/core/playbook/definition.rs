//! A playbook's file, read strictly.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::facts::{Facts, Vendor};
use super::stage::{KnownError, Stage, Step};
use super::variable::Variable;
use crate::error::{Error, ErrorKind, Result};
use crate::host::StageFile;
use crate::render::{Library, Origin, render};
use crate::util::duration::SpecDuration;
use crate::util::near;

/// Ordered, idempotent steps that bring a host to a state.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Playbook {
    /// The name, the same as its file's.
    pub name: String,
    /// What it does, in one line.
    pub summary: String,
    /// The hosts it applies to.
    #[serde(default)]
    pub when: When,
    /// The variables, with their defaults and forms; one without a default is required.
    #[serde(default)]
    pub variables: BTreeMap<String, Variable>,
    /// Shell libraries from `playbooks/lib/` that its steps may source with `. ./lib/NAME.sh`. One that no step sources is
    /// not delivered.
    #[serde(default)]
    pub libraries: Vec<String>,
    /// The steps, in order.
    pub steps: Vec<StepDefinition>,
    #[serde(skip)]
    origin: String,
    #[serde(skip)]
    files: Vec<StageFile>,
}

/// The hosts that a playbook applies to: all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Software or hardware that the host has.
    pub has: Option<Has>,
    /// The distribution's id: `ubuntu`.
    pub os: Option<String>,
    /// The processor's architecture: `x86_64`.
    pub arch: Option<String>,
    /// A GPU of this vendor is on the bus.
    pub gpu: Option<Vendor>,
}

/// Software or hardware that a host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Has {
    /// Any Python.
    Python3,
    /// The `uv` command.
    Uv,
    /// The `docker` command.
    Docker,
    /// A GPU on the bus.
    Gpu,
}

/// A step as written in the playbook file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// The name shown to the user.
    pub name: String,
    /// Shell code; when it succeeds, the step is skipped.
    pub unless: Option<String>,
    /// The shell code to run; a step whose code renders to nothing is left out.
    pub run: String,
    /// A path; when it exists, the step is skipped.
    pub creates: Option<String>,
    /// The host must be rebooted afterwards.
    #[serde(default)]
    pub reboot: bool,
    /// Undoes a temporary change; it also runs when a step before it failed.
    #[serde(default)]
    pub finally: bool,
    /// How many times to retry it after a failure.
    #[serde(default)]
    pub retry: u32,
    /// How long it may take.
    pub timeout: Option<SpecDuration>,
    /// What it may change on the host, such as `package nftables` or `file /etc/docker/daemon.json`; one per line. A
    /// text that renders to nothing is left out.
    #[serde(default)]
    pub affected_paths: Vec<String>,
    /// What the user can do when it fails.
    pub hint: Option<String>,
    /// Known failures, recognized by their output.
    #[serde(default)]
    pub errors: Vec<KnownError>,
}

impl When {
    /// Whether all conditions hold on a host with these facts.
    pub fn holds(&self, facts: &Facts) -> bool {
        let has = match self.has {
            None => true,
            Some(Has::Python3) => facts.python.is_some(),
            Some(Has::Uv) => facts.uv.is_some(),
            Some(Has::Docker) => facts.docker.is_some(),
            Some(Has::Gpu) => !facts.gpus.is_empty(),
        };
        has && self.os.as_ref().is_none_or(|os| *os == facts.os)
            && self.arch.as_ref().is_none_or(|arch| *arch == facts.arch)
            && self.gpu.is_none_or(|vendor| facts.gpus.iter().any(|gpu| gpu.vendor == vendor))
    }
}

/// Reads the playbook with this name from the first folder of the library that has it.
pub fn load(library: &Library, name: &str) -> Result<Playbook> {
    let (text, origin) = library.read_text(&format!("playbooks/{name}.yaml"))?;
    let mut playbook = Playbook::parse(&text, &origin)?;
    if playbook.name != name {
        return Err(playbook.error().because(format!("its name is `{}`, but its file's is `{name}`", playbook.name)));
    }
    for part in &playbook.libraries {
        let (bytes, _) = library.read(&format!("playbooks/lib/{part}.sh"))?;
        playbook.files.push(StageFile { path: format!("lib/{part}.sh"), mode: 0o600, bytes });
    }
    Ok(playbook)
}

impl Playbook {
    /// Parses a playbook; unknown keys and wrong types are errors that name their line.
    pub fn parse(text: &str, origin: &Origin) -> Result<Self> {
        let mut playbook: Self = serde_yaml::from_str(text)
            .map_err(|error| Error::new(ErrorKind::Spec, format!("read the playbook {origin}")).because(error))?;
        playbook.origin = origin.to_string();
        if playbook.steps.is_empty() {
            return Err(playbook.error().because("it has no steps"));
        }
        Ok(playbook)
    }

    /// What is wrong with a value for a variable, as it follows the variable's name. Nothing is where the playbook has no
    /// such variable: [`Self::stage`] refuses it.
    pub fn wrong(&self, variable: &str, value: &str) -> Option<String> {
        self.variables.get(variable)?.wrong(value)
    }

    /// Fills in the variables and builds the stage with this name.
    pub fn stage(&self, name: &str, given: &BTreeMap<String, String>, timeout: Duration) -> Result<Stage> {
        if let Some(unknown) = given.keys().find(|key| !self.variables.contains_key(*key)) {
            let error = self.error().because(format!("it has no variable `{unknown}`"));
            return Err(match near::nearest(unknown, self.variables.keys().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            });
        }
        let mut variables = BTreeMap::new();
        for (key, variable) in &self.variables {
            let value = given.get(key).or(variable.default.as_ref());
            let value = value.ok_or_else(|| self.error().because(format!("its variable `{key}` has no value")))?;
            variables.insert(key.clone(), value.clone());
        }
        let mut steps = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let fill = |field: &str, text: &str| {
                render(&format!("{field} of step `{}` in {}", step.name, self.origin), text, &variables)
            };
            let fill_some =
                |field: &str, text: &Option<String>| text.as_deref().map(|text| fill(field, text)).transpose();
            let run = fill("run", &step.run)?;
            if run.trim().is_empty() {
                continue;
            }
            let mut affected_paths = Vec::new();
            for touched in &step.affected_paths {
                let text = fill("affected_paths", touched)?;
                affected_paths.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            }
            let mut errors = step.errors.clone();
            for known in &mut errors {
                known.says = fill("errors", &known.says)?;
                known.hint = fill_some("errors", &known.hint)?;
            }
            steps.push(Step {
                name: fill("name", &step.name)?,
                unless: fill_some("unless", &step.unless)?,
                run,
                creates: fill_some("creates", &step.creates)?,
                reboot: step.reboot,
                finally: step.finally,
                variables: BTreeMap::new(),
                retry: step.retry,
                timeout: step.timeout.map(|timeout| timeout.0),
                affected_paths,
                hint: fill_some("hint", &step.hint)?,
                errors,
            });
        }
        let is_read = |file: &StageFile| {
            let texts = steps.iter().flat_map(|step| step.unless.iter().chain([&step.run]));
            texts.into_iter().any(|text| text.contains(&format!("./{}", file.path)))
        };
        let files = self.files.iter().filter(|file| is_read(file)).cloned().collect();
        let stage = Stage { name: name.to_owned(), steps, files, variables, timeout, wants_facts: true };
        stage.check()?;
        Ok(stage)
    }

    fn error(&self) -> Error {
        Error::new(ErrorKind::Spec, format!("use the playbook {}", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin::BuiltIn("playbooks/test.yaml".to_owned())
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_name_and_line() {
        let text = "name: test\nsummary: x\nsteps:\n  - name: one\n    rum: echo\n";
        let error = Playbook::parse(text, &origin()).unwrap_err().to_string();
        assert!(error.contains("unknown field `rum`") && error.contains("line 5"), "{error}");
    }

    #[test]
    fn the_built_in_playbooks_know_their_values() {
        for (name, variable, right, wrong) in [
            ("base", "apt_wait", "60", "60s"),
            ("base", "http_proxy", "", "proxy:3128"),
            ("docker", "oldest", "28", ""),
            ("docker", "restart", "yes", "true"),
            ("nvidia", "branch", "570", ""),
            ("nvidia", "toolkit_repository", "http://m/$(ARCH)", ""),
            ("amd", "driver", "dkms", "rocm"),
            ("firewall", "revert_after", "30", ""),
            ("ray-native", "disk_needed_mib", "1", ""),
            ("ray-native", "files_needed", "1", "many"),
        ] {
            let playbook = load(&Library::default(), name).unwrap();
            assert_eq!(playbook.wrong(variable, right), None, "{name}.{variable}");
            assert!(playbook.wrong(variable, wrong).is_some(), "{name}.{variable}");
        }
        // No extras at all is a choice.
        assert_eq!(load(&Library::default(), "ray-native").unwrap().wrong("extras", ""), None);
    }

    #[test]
    fn variables_are_given_or_have_defaults_and_unknown_ones_are_refused() {
        let text = "name: test\nsummary: x\nvariables: {version: '1.0', folder: }\nsteps:\n\
                    \x20 - {name: 'get {{ version }}', run: 'echo \"$version\"', creates: '{{ folder }}/x'}\n";
        let playbook = Playbook::parse(text, &origin()).unwrap();
        let stage = |given: &[(&str, &str)]| {
            let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            playbook.stage("prepare", &given, Duration::from_secs(1))
        };
        let made = stage(&[("folder", "/x y")]).unwrap();
        assert_eq!((&*made.steps[0].name, made.steps[0].creates.as_deref()), ("get 1.0", Some("/x y/x")));
        assert!(stage(&[]).unwrap_err().to_string().contains("`folder` has no value"));
        assert_eq!(stage(&[("folders", "x")]).unwrap_err().hints(), ["did you mean `folder`?"]);
        // A step without code is none.
        let text_of = |run: &str| text.replace("run: 'echo \"$version\"'", &format!("run: '{run}'"));
        let playbook = Playbook::parse(&text_of("{% if folder %}echo{% endif %}"), &origin()).unwrap();
        let steps = |folder: &str| {
            let given = BTreeMap::from([("folder".to_owned(), folder.to_owned())]);
            playbook.stage("prepare", &given, Duration::from_secs(1)).unwrap().steps.len()
        };
        assert_eq!((steps("x"), steps("")), (1, 0));
        let wrong = Playbook::parse(&text.replace("{{ version }}", "{{ versoin }}"), &origin()).unwrap();
        let given = BTreeMap::from([("folder".to_owned(), "x".to_owned())]);
        assert!(wrong.stage("prepare", &given, Duration::from_secs(1)).unwrap_err().to_string().contains("versoin"));
    }
}
