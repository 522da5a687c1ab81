//! `status` of a cluster on a platform, by one look at its nodes.

use jiff::Timestamp;

use crate::cluster::machines::short;
use crate::cluster::report::{NodeReport, Phase, StatusReport};
use crate::name::Scope;
use crate::provider::platform::Member;
use crate::state::ClusterState;

/// Completes a report by the nodes that were found.
pub(super) fn with_members(scope: &Scope, known: &ClusterState, members: &[Member], report: &mut StatusReport) {
    report.nodes = members.iter().map(|member| node(scope, member)).collect();
    let wanted: u32 = known.platform().map_or(0, |platform| platform.groups.iter().map(|group| group.min).sum());
    let ready = members.iter().filter(|member| member.ready).count();
    if report.phase == Phase::Ready && ready < wanted as usize {
        report.phase = if ready == 0 { Phase::Stopped } else { Phase::Partly };
    }
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
