//! `gpucl render`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::app::App;
use crate::cli::command_error::nothing_written;
use crate::cli::consent::Consent;
use crate::cli::exit_code;
use crate::cli::spec_args::SpecArgs;
use crate::cluster;
use crate::engine::Cancel;
use crate::error::{Doing as _, ErrorKind};
use crate::event::Bus;
use crate::util::folder::{Existing, Goal};

/// The arguments of `render`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// The folder to write into; default: ./rendered/ and the cluster's name
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Write another format instead of what `up` deploys
    #[arg(long = "as", value_enum, value_name = "FORM")]
    form: Option<Form>,
}

/// The other formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// The cluster file of Ray's own `ray up`, for machines with SSH
    RayClusterYaml,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let loaded = args.spec.load(app)?;
    let consent = Consent::of(app, &args.spec, &loaded)?;
    if consent.contacts() {
        let file = args.spec.spec.display();
        return Err(consent.refusal(format!("render {file}"), &format!("gpucl render {file} --accept DIGEST")).into());
    }
    // What is rendered is only looked at.
    app.use_own_files(true);
    let (events, inbox) = Bus::new();
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(events, cancel)?;
    let files = match args.form {
        Some(Form::RayClusterYaml) => cluster::ray_cluster_yaml(&settings, &loaded),
        None => cluster::render(&settings, &loaded).await,
    };
    app.report_warnings(inbox);
    let files = files?;
    let goal = match &args.to {
        Some(folder) => Goal::named(folder),
        None => Goal::chosen(Path::new(""), &Path::new("rendered").join(loaded.spec.name.as_str())),
    };
    let doing = || format!("write to {}", goal.path().display());
    let folder = goal.open(files.iter().map(|file| file.path.as_path()), Existing::Replaced);
    let folder = folder.doing(ErrorKind::State, doing).map_err(nothing_written)?;
    for file in &files {
        folder.write(&file.path, &file.bytes).doing(ErrorKind::State, doing)?;
        let path = folder.path().join(&file.path);
        if app.json() {
            app.ui.json(&serde_json::json!({ "v": 1, "type": "file", "path": path }));
        } else {
            app.ui.data(path.display());
        }
    }
    Ok(exit_code::DONE)
}
