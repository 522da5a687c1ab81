//! `status` of a cluster on a platform.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::world::ObjectWorld;
use crate::cluster::pods::short;
use crate::cluster::report::{NodeReport, StatusReport};
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::name::Scope;
use crate::provider::platform::Member;
use crate::ray::Access;
use crate::spec::Spec;
use crate::state::{ClusterState, Store};

/// Timeout of the inspection.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Completes a report from the state alone.
pub(super) fn known(state: &ClusterState, mut report: StatusReport) -> StatusReport {
    report.phase = match state.platform() {
        Some(platform) if platform.stopped => "stopped",
        Some(_) if state.ready_since.is_some() => "ready",
        _ => "unfinished",
    };
    report.ready_since = state.ready_since.filter(|_| report.phase == "ready");
    report
}

/// Completes a report by a look at the nodes.
pub(super) async fn inspect(
    settings: &Settings,
    spec: &Spec,
    store: &Store,
    mut report: StatusReport,
) -> Result<StatusReport> {
    let world = ObjectWorld::open(settings, spec)?;
    let scope = settings.scope(&spec.name);
    match tokio::time::timeout(INSPECTION_TIMEOUT, world.pods.members()).await {
        Ok(Ok(members)) => {
            report.nodes = members.iter().map(|member| node(&scope, member)).collect();
            let wanted: u32 =
                store.state().platform().map_or(0, |platform| platform.groups.iter().map(|group| group.min).sum());
            let ready = members.iter().filter(|member| member.ready).count();
            if report.phase == "ready" && ready < wanted as usize {
                report.phase = if ready == 0 { "stopped" } else { "partly" };
            }
        }
        _ => report.silent_hosts.push(spec.provider.name().to_owned()),
    }
    Ok(report)
}

fn node(scope: &Scope, member: &Member) -> NodeReport {
    let age = member.since.map(|since| Timestamp::now().duration_since(since).as_secs());
    NodeReport {
        name: short(scope, member),
        group: (!member.is_head).then(|| member.group.clone()),
        host: member.machine.clone(),
        running: member.ready,
        stopped_by_hand: false,
        pid: None,
        age_seconds: age.and_then(|age| u64::try_from(age).ok()),
        ended: (!member.ready).then(|| member.detail.clone()),
        last_end: None,
    }
}

/// The addresses of a running cluster while `gpucl dashboard` forwards them; `None` if none runs.
pub(super) fn access(state: &ClusterState, folder: &Path) -> Option<Access> {
    let platform = state.platform().filter(|platform| !platform.stopped)?;
    let at = |name: &str| platform.pages.get(name).map(|port| format!("127.0.0.1:{port}"));
    Some(Access {
        dashboard_url: format!("http://{}", at("dashboard")?),
        // The GCS is reachable from the cluster's nodes only, not from here.
        gcs_address: String::new(),
        token_path: crate::secret::ray_token_path(folder),
        environment: None,
        data: None,
        client_address: format!("ray://{}", at("client")?),
    })
}
