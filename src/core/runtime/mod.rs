//! How Ray runs on hosts: how nodes are started, observed and ended.

pub mod compose;
pub mod data;
pub mod native;
pub mod project;

use crate::error::Result;
use crate::playbook;
use crate::provider::Runtime;
use crate::render::Library;
use crate::spec::Spec;
use project::ProjectRuntime;

/// The values under `playbooks:` that their playbooks cannot use: the path of each, and what is wrong with it. Playbooks
/// and variables that do not exist are refused when a host is prepared.
///
/// # Errors
/// If a playbook cannot be read.
pub fn wrong_settings(spec: &Spec, library: &Library) -> Result<Vec<(String, String)>> {
    let known = of(spec.runtime).playbooks();
    let mut wrong = Vec::new();
    for (name, given) in spec.playbooks.iter().filter(|(name, _)| known.contains(&name.as_str())) {
        let playbook = playbook::load(library, name)?;
        for (variable, value) in given {
            if let Some(why) = playbook.wrong(variable, value) {
                wrong.push((format!("playbooks.{name}.{variable}"), why));
            }
        }
    }
    Ok(wrong)
}

/// The implementation for a runtime.
pub fn of(runtime: Runtime) -> &'static dyn ProjectRuntime {
    match runtime {
        Runtime::Docker => &compose::Compose,
        Runtime::Native => &native::NativeRuntime,
    }
}
