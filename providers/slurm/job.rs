//! The batch script. Pure.

use serde::Serialize;

use super::config::{GpuOption, Settings};
use super::names::job_tag;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Scope;
use crate::render::{Library, render};

/// The template of the batch script, and the program of the nodes.
const SCRIPT: &str = "templates/slurm-job/job.sh.tera";
const NODE: &str = "templates/slurm-job/node.py";

/// What the template is filled with.
#[derive(Serialize)]
struct View {
    /// The options of `sbatch`.
    directives: Vec<String>,
    /// The job's folder on shared storage.
    folder: String,
}

/// The options of `sbatch` for a job of so many nodes.
pub(super) fn directives(settings: &Settings, scope: &Scope, nodes: usize, folder: &str) -> Result<Vec<String>> {
    let tag = job_tag(scope).to_string();
    let mut lines = vec![
        format!("--job-name={tag}"),
        format!("--comment={tag}"),
        format!("--nodes={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--time={}", settings.minutes()),
        format!("--output={folder}/job.log"),
        "--open-mode=append".to_owned(),
    ];
    for (option, value) in [
        ("account", &settings.account),
        ("partition", &settings.partition),
        ("qos", &settings.qos),
        ("constraint", &settings.constraint),
        ("reservation", &settings.reservation),
    ] {
        lines.extend(value.as_ref().map(|value| format!("--{option}={value}")));
    }
    if settings.exclusive {
        lines.push("--exclusive".to_owned());
    }
    lines.extend(settings.cpus.map(|cpus| format!("--cpus-per-task={cpus}")));
    let memory = settings.memory().map_err(|why| Error::new(ErrorKind::Spec, "read `provider.memory`").because(why))?;
    lines.extend(memory.map(|memory| format!("--mem={memory}")));
    lines.extend(settings.gpus.as_ref().map(|gpus| match settings.gpu_option {
        GpuOption::GpusPerNode => format!("--gpus-per-node={}", gpus.text()),
        GpuOption::Gres => format!("--gres=gpu:{}", gpus.text()),
        GpuOption::GpusPerTask => format!("--gpus-per-task={}", gpus.text()),
    }));
    // A job that is started again without anybody to use it costs an allocation.
    if !settings.sbatch.iter().any(|line| line == "--requeue") {
        lines.push("--no-requeue".to_owned());
    }
    lines.extend(settings.sbatch.iter().cloned());
    Ok(lines)
}

/// The batch script.
pub(super) fn script(
    library: &Library,
    settings: &Settings,
    scope: &Scope,
    nodes: usize,
    folder: &str,
) -> Result<String> {
    let view = View { directives: directives(settings, scope, nodes, folder)?, folder: folder.to_owned() };
    render(SCRIPT, &text(library, SCRIPT)?, &view)
}

pub(super) fn node_program(library: &Library) -> Result<String> {
    text(library, NODE)
}

fn text(library: &Library, name: &str) -> Result<String> {
    let (bytes, _) = library.read(name)?;
    String::from_utf8(bytes).doing(ErrorKind::Spec, || format!("read `{name}` as UTF-8"))
}
