//! `gpucl plan`.

use crate::cli::app::App;
use crate::cli::consent::Consent;
use crate::cli::exit_code;
use crate::cli::spec_args::SpecArgs;
use crate::cluster::{self, Planned};
use crate::engine::Cancel;
use crate::event::Bus;

/// The arguments of `plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let loaded = args.spec.load(app)?;
    let consent = Consent::of(app, &args.spec, &loaded)?;
    consent.show(app, &loaded, &args.spec.spec);
    if consent.holds_up_plan() {
        if !app.json() {
            app.ui.data("the plan itself is made once that is accepted: --accept, here too");
        }
        return Ok(exit_code::DONE);
    }
    let (events, inbox) = Bus::new();
    let (_handle, cancel) = Cancel::new();
    let settings = app.settings_to_inspect(events, cancel)?;
    let planned = cluster::plan(&settings, &loaded, consent.may_look_up()).await;
    app.report_warnings(inbox);
    let Planned { plan, applications, affected_paths, notes } = planned?;
    let price = plan.price();
    if app.json() {
        app.ui.json(&serde_json::json!({
            "v": 1, "type": "plan", "cluster": loaded.spec.name, "operations": plan.operations, "text": plan.to_string(),
            "applications": applications, "affected_paths": affected_paths, "notes": notes, "price": price,
        }));
    } else if plan.is_empty() && applications.is_empty() {
        app.ui.data("nothing to change");
    } else {
        if !plan.is_empty() {
            app.ui.data(plan.to_string().trim_end_matches('\n'));
        }
        applications.iter().for_each(|what| app.ui.data(what));
        if !price.is_none() {
            app.ui.data(format_args!("costs {price}"));
        }
        notes.iter().for_each(|note| app.ui.data(format_args!("note: {note}")));
        for host in &affected_paths {
            app.ui.data(format_args!("may change on {}; what already exists and works is kept:", host.host));
            host.affected_paths.iter().for_each(|path| app.ui.data(format_args!("  {path}")));
        }
    }
    Ok(exit_code::DONE)
}
