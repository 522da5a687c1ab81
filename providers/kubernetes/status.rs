//! How far a RayCluster has come, by what it says of itself and by its pods.

use std::collections::BTreeMap;

use serde_json::Value;

/// The label that names a queue of Kueue, and the annotation of a RayCluster with labels that gpucl itself has stopped.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const STOPPED: &str = "gpucl.dev/stopped";

/// How far a RayCluster has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its state as KubeRay writes it: `ready`, `suspended`, `failed`, or empty.
    state: String,
    /// No pod is wanted.
    suspend: bool,
    /// The queue of Kueue that has not let it run yet.
    queued: Option<String>,
    /// KubeRay has seen the last change.
    is_current: bool,
    /// Its head is ready.
    has_head: bool,
    /// The workers that are ready, of those that are wanted.
    workers: (u64, u64),
    /// Why it has not come further, in KubeRay's words.
    reason: String,
}

impl Standing {
    /// What the object says, with the number of ready pods of each group: the object's own count is the sum of all groups,
    /// and it lags behind for a moment after a pod is gone.
    pub(super) fn of(cluster: &Value, ready: &BTreeMap<String, u64>) -> Self {
        let status = &cluster["status"];
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let of = |group: &str| ready.get(group).copied().unwrap_or_default();
        let mut workers = (0, 0);
        for group in cluster["spec"]["workerGroupSpecs"].as_array().into_iter().flatten() {
            let wanted = number(&group["replicas"]).max(number(&group["minReplicas"]));
            workers.0 += of(group["groupName"].as_str().unwrap_or_default()).min(wanted);
            workers.1 += wanted;
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut bad = conditions.filter(|one| one["status"] == "False").filter_map(|one| one["message"].as_str());
        let reason = status["reason"].as_str().filter(|reason| !reason.is_empty());
        let suspended = cluster["spec"]["suspend"] == true;
        // Kueue suspends what waits in its queue; gpucl's own `stop` says so.
        let queued = cluster["metadata"]["labels"][QUEUE].as_str().filter(|_| suspended);
        let queued = queued.filter(|_| cluster["metadata"]["annotations"][STOPPED].is_null()).map(str::to_owned);
        Self {
            state: status["state"].as_str().unwrap_or_default().to_owned(),
            suspend: suspended && queued.is_none(),
            queued,
            is_current: number(&status["observedGeneration"]) >= number(&cluster["metadata"]["generation"]),
            has_head: of("head") > 0,
            workers,
            reason: reason.or_else(|| bad.next_back()).unwrap_or_default().trim().to_owned(),
        }
    }

    /// Whether what is wanted is there.
    pub(super) fn is_as_wanted(&self) -> bool {
        match self.suspend {
            true => self.is_current && self.state == "suspended",
            // The state stays `ready` while workers are missing.
            false => self.is_current && self.state == "ready" && self.has_head && self.workers.0 >= self.workers.1,
        }
    }

    /// In one line.
    pub(super) fn describe(&self) -> String {
        let state = if self.state.is_empty() { "starting" } else { &self.state };
        let (ready, wanted) = self.workers;
        if let Some(queue) = &self.queued {
            return format!("it waits in Kueue's queue `{queue}`, which has not let it run");
        }
        match (self.suspend, self.state.as_str()) {
            (true, _) => "it is being stopped".to_owned(),
            (false, "ready") if !self.has_head => {
                format!("its head is not ready; {ready} of {wanted} workers are ready")
            }
            (false, "ready") => format!("{ready} of {wanted} workers are ready"),
            (false, _) => format!("it is {state}; {ready} of {wanted} workers are ready"),
        }
    }

    /// Why it has not come further, in KubeRay's words; empty if it does not say.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

/// The finalizers of an object that is being deleted, without those of Kubernetes' own garbage collection.
pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.filter(|name| *name != "foregroundDeletion").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As KubeRay 1.6.2 wrote them.
    #[test]
    fn a_cluster_is_as_wanted_only_with_all_its_workers_and_its_last_change() {
        let cluster = |state: &str, seen: u64, suspend: bool| {
            json!({
                "metadata": { "generation": 3 },
                "spec": {
                    "suspend": suspend,
                    "workerGroupSpecs": [
                        { "groupName": "gpu", "replicas": 2, "minReplicas": 2 },
                        { "groupName": "cpu", "minReplicas": 0 },
                    ],
                },
                // Still the old count, as just after a pod is gone.
                "status": { "state": state, "readyWorkerReplicas": 2, "observedGeneration": seen },
            })
        };
        let standing = |cluster: Value, pods: [(&str, u64); 3]| {
            Standing::of(&cluster, &pods.map(|(group, ready)| (group.to_owned(), ready)).into())
        };
        let all = [("head", 1), ("gpu", 2), ("cpu", 0)];
        let as_wanted = |cluster: Value| standing(cluster, all).is_as_wanted();
        assert!(as_wanted(cluster("ready", 3, false)));
        assert!(!as_wanted(cluster("ready", 2, false)), "the last change was not seen");
        assert!(!as_wanted(cluster("", 0, false)));
        assert!(as_wanted(cluster("suspended", 3, true)));
        assert!(!as_wanted(cluster("ready", 3, true)));
        // The state stays `ready` without a worker or the head, and a worker of another group does not replace it.
        for missing in [
            [("head", 1), ("gpu", 1), ("cpu", 0)],
            [("head", 1), ("gpu", 1), ("cpu", 1)],
            [("head", 0), ("gpu", 2), ("cpu", 0)],
        ] {
            assert!(!standing(cluster("ready", 3, false), missing).is_as_wanted(), "{missing:?}");
        }
        let one = standing(cluster("ready", 3, false), [("head", 1), ("gpu", 1), ("cpu", 1)]);
        assert_eq!(one.describe(), "1 of 2 workers are ready");
        let headless = standing(cluster("ready", 3, false), [("head", 0), ("gpu", 2), ("cpu", 0)]);
        assert_eq!(headless.describe(), "its head is not ready; 2 of 2 workers are ready");
    }

    #[test]
    fn a_cluster_that_waits_in_a_queue_is_not_as_wanted() {
        let cluster = |annotations: Value| {
            json!({
                "metadata": { "generation": 1, "labels": { QUEUE: "team-a" }, "annotations": annotations },
                "spec": { "suspend": true, "workerGroupSpecs": [{ "groupName": "gpu", "replicas": 1 }] },
                "status": { "state": "suspended", "observedGeneration": 1 },
            })
        };
        let waits = Standing::of(&cluster(json!({ "other": "x" })), &BTreeMap::new());
        assert!(!waits.is_as_wanted());
        assert_eq!(waits.describe(), "it waits in Kueue's queue `team-a`, which has not let it run");
        assert!(Standing::of(&cluster(json!({ STOPPED: "true" })), &BTreeMap::new()).is_as_wanted());
    }
}
