//! The pods of a cluster, and why one does not run.

use std::collections::BTreeMap;

use kube::api::ListParams;
use serde_json::Value;

use super::Kubernetes;
use super::client::{KubeContext, call, values};
use super::names::{GUARD_CONTAINER, PODS, RAY_CLUSTER, RAY_GROUP, RAY_TYPE};
use crate::error::Result;
use crate::provider::platform::{Consequences, Member};
use crate::util::human;

#[derive(Debug, Clone)]
pub(super) struct Pod {
    /// The object, as JSON.
    object: Value,
}

impl Kubernetes {
    /// The pods of a RayCluster: the head first, then by group and name.
    pub(super) async fn pods(&self, place: &KubeContext, cluster: &str) -> Result<Vec<Pod>> {
        let api = place.core_objects("Pod");
        let params = ListParams::default().labels(&format!("{RAY_CLUSTER}={cluster}"));
        let list = call(&format!("list the pods of {cluster}"), || api.list(&params)).await?;
        let mut pods: Vec<Pod> = values(&list)?.into_iter().map(|object| Pod { object }).collect();
        pods.sort_by_cached_key(|pod| (!pod.is_head(), pod.group(), pod.name()));
        Ok(pods)
    }
}

/// How many pods of each group are ready.
pub(super) fn ready_by_group(pods: &[Pod]) -> BTreeMap<String, u64> {
    let mut ready = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_ready()) {
        *ready.entry(pod.group()).or_default() += 1;
    }
    ready
}

impl Pod {
    pub(super) fn name(&self) -> String {
        self.object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn id(&self) -> String {
        self.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    fn label(&self, name: &str) -> &str {
        self.object["metadata"]["labels"][name].as_str().unwrap_or_default()
    }

    pub(super) fn is_head(&self) -> bool {
        self.label(RAY_TYPE) == "head"
    }

    /// The name of its group; `head` for the head.
    pub(super) fn group(&self) -> String {
        if self.is_head() { "head".to_owned() } else { self.label(RAY_GROUP).to_owned() }
    }

    fn is_going(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    /// Whether it was made from an earlier template of its group than the cluster has now.
    pub(super) fn is_stale(&self, cluster: &Value) -> bool {
        let group = match self.is_head() {
            true => Some(&cluster["spec"]["headGroupSpec"]),
            false => {
                let mut groups = cluster["spec"]["workerGroupSpecs"].as_array().into_iter().flatten();
                groups.find(|group| group["groupName"] == self.group().as_str())
            }
        };
        // The pods of a group that is gone are KubeRay's to remove.
        let wanted = group.and_then(|group| group["template"]["metadata"]["labels"][PODS].as_str());
        !self.is_going() && wanted.is_some_and(|wanted| wanted != self.label(PODS))
    }

    fn statuses(&self) -> impl Iterator<Item = &Value> {
        let status = &self.object["status"];
        let of = |field: &str| status[field].as_array().into_iter().flatten();
        // The autoscaler beside the head ends until the GCS answers, and is started again: that is not the head's trouble, nor
        // is the guard's.
        let all = of("initContainerStatuses").chain(of("containerStatuses"));
        all.filter(|container| container["name"] != AUTOSCALER && container["name"] != GUARD_CONTAINER)
    }

    fn is_ready(&self) -> bool {
        let mut conditions = self.object["status"]["conditions"].as_array().into_iter().flatten();
        !self.is_going() && conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    /// Whether its machine is silent: Kubernetes then takes back that the pod is ready, and what the machine said last of
    /// its containers stays.
    fn is_cut_off(&self) -> bool {
        let conditions = || self.object["status"]["conditions"].as_array().into_iter().flatten();
        let is = |kind: &str, status: &str| conditions().any(|one| one["type"] == kind && one["status"] == status);
        is("ContainersReady", "True") && is("Ready", "False")
    }

    fn restarts(&self) -> u32 {
        let counts = self.statuses().filter_map(|status| status["restartCount"].as_u64());
        counts.max().and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
    }

    /// The pod as a member of its cluster.
    pub(super) fn member(&self) -> Member {
        let ready = self.is_ready();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Member {
            name: self.name(),
            group: self.group(),
            is_head: self.is_head(),
            address: self.object["status"]["podIP"].as_str().map(str::to_owned),
            ready,
            detail: if ready { String::new() } else { self.trouble().text },
            machine: text(&self.object["spec"]["nodeName"]),
            since: self.object["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse().ok()),
            restarts: self.restarts(),
        }
    }

    /// Why it is not ready.
    pub(super) fn trouble(&self) -> Trouble {
        let passing = |text: &str| Trouble { text: text.to_owned(), lasts: false, hint: None };
        if self.is_going() {
            return passing("it is being deleted");
        }
        if self.is_cut_off() {
            let machine = self.object["spec"]["nodeName"].as_str().unwrap_or("its machine");
            return passing(&format!(
                "its machine {machine} does not answer; Kubernetes replaces the pod after minutes"
            ));
        }
        let conditions = self.object["status"]["conditions"].as_array().into_iter().flatten();
        for condition in conditions {
            if condition["type"] == "PodScheduled" && condition["status"] == "False" {
                return unschedulable(condition["message"].as_str().unwrap_or_default());
            }
        }
        for status in self.statuses() {
            let of = |state: &str, field: &str| {
                let value = &status[state];
                ["waiting", "terminated"].iter().find_map(|kind| value[kind][field].as_str()).unwrap_or_default()
            };
            let last = of("lastState", "reason");
            let (reason, message) = (of("state", "reason"), of("state", "message"));
            let crashed = self.restarts() >= CRASHES;
            match (reason, last) {
                ("OOMKilled", _) | (_, "OOMKilled") => {
                    return Trouble {
                        text: "it was killed: it used more memory than its limit (OOMKilled)".to_owned(),
                        lasts: crashed,
                        hint: Some("give it more `memory:`".to_owned()),
                    };
                }
                ("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull", _) => {
                    return Trouble {
                        text: format!("its image cannot be pulled ({reason}): {message}"),
                        lasts: true,
                        hint: Some(
                            "check `image:`, and `image_pull_secrets:` where the registry asks for a login".to_owned(),
                        ),
                    };
                }
                ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError", _) => {
                    return Trouble { text: format!("{reason}: {message}"), lasts: true, hint: None };
                }
                ("CrashLoopBackOff" | "Error", _) => {
                    // Its last words, which are the end of its log.
                    let said = [&status["state"], &status["lastState"]]
                        .into_iter()
                        .find_map(|state| state["terminated"]["message"].as_str()?.trim().lines().last());
                    let said = said.unwrap_or(last);
                    // What prepares a node says why it failed, and fails again.
                    let is_ours = said.starts_with("setup: ") || said.starts_with("data: ");
                    return Trouble {
                        text: format!("its program ended and is started again: {said}"),
                        lasts: crashed || is_ours,
                        hint: Some("its log: gpucl logs --previous".to_owned()),
                    };
                }
                ("" | "PodInitializing" | "ContainerCreating" | "Completed", _) => {}
                (other, _) => return passing(&format!("{other}: {message}")),
            }
        }
        match self.object["status"]["phase"].as_str() {
            Some("Pending") => passing("it is being created"),
            Some("Running") => passing("it runs, and Ray in it does not answer yet"),
            Some(phase) => passing(&format!("it is {phase}")),
            None => passing("it is new"),
        }
    }
}

/// What a change to this RayCluster does to its pods, in words.
pub(super) fn consequences(cluster: &Value, pods: &[Pod]) -> Consequences {
    if cluster["spec"]["suspend"] == true {
        let line = format!("{} are deleted: the cluster is stopped", human::count(pods.len(), "pod"));
        return Consequences { lines: vec![line], restarts_head: false };
    }
    let (mut lines, mut restarts_head) = (Vec::new(), false);
    let mut groups: Vec<String> = Vec::new();
    for pod in pods.iter().filter(|pod| pod.is_stale(cluster)) {
        if pod.is_head() {
            restarts_head = true;
            lines.push(format!("the head is made again ({}), and with it every job and every worker", pod.name()));
        } else if !groups.contains(&pod.group()) {
            groups.push(pod.group());
        }
    }
    let count = |group: &String| pods.iter().filter(|pod| pod.group() == *group).count();
    lines.extend(groups.iter().map(|group| {
        format!("{} of the group {group} are made again, and what runs on them", human::count(count(group), "worker"))
    }));
    Consequences { lines, restarts_head }
}

/// The container that KubeRay puts beside the head where Ray's autoscaler is on.
const AUTOSCALER: &str = "autoscaler";
/// How often a program may be started again before its pod counts as broken.
const CRASHES: u32 = 3;

/// Why a pod is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// In one line.
    pub(super) text: String,
    /// Waiting alone does not help.
    pub(super) lasts: bool,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

/// The scheduler's sentence: `0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint
/// {pool: gpu}. preemption: …`.
fn unschedulable(message: &str) -> Trouble {
    let main = message.split(" preemption:").next().unwrap_or_default();
    // Of resource claims, which these pods do not have.
    let main = main.split(" no new claims to deallocate").next().unwrap_or_default().trim().trim_end_matches('.');
    let taint = main.split("untolerated taint {").nth(1).and_then(|rest| rest.split('}').next());
    let hint = match taint {
        Some(taint) => {
            let (key, value) = taint.split_once(':').map_or((taint, ""), |(key, value)| (key.trim(), value.trim()));
            Some(tolerating(key, value))
        }
        None if main.contains("unbound immediate PersistentVolumeClaims") => {
            Some("kubectl get persistentvolumeclaims   # the claim has no storage yet".to_owned())
        }
        None if main.contains("Insufficient") => {
            Some("what machines have, and what is free: gpucl offers --provider kubernetes".to_owned())
        }
        None if main.contains("didn't match Pod's node affinity/selector") => {
            Some("kubectl get nodes --show-labels   # none has the labels of `node_selector:`".to_owned())
        }
        None => None,
    };
    Trouble { text: format!("no machine takes it: {main}"), lasts: false, hint }
}

/// What to paste so that a pod tolerates a taint.
pub(super) fn tolerating(key: &str, value: &str) -> String {
    let rest = match value {
        "" => "operator: Exists".to_owned(),
        value => format!("operator: Equal, value: {value}"),
    };
    format!("to run there all the same: `tolerations: [{{key: {key}, {rest}}}]`")
}

impl Trouble {
    /// Whether no machine takes the pod for taints that the scheduler does not name, as Kubernetes 1.34 does.
    pub(super) fn is_of_unnamed_taints(&self) -> bool {
        self.hint.is_none() && self.text.contains("untolerated taint")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Pod {
        Pod { object: json!({ "metadata": { "name": "x" }, "status": status }) }
    }

    #[test]
    fn the_schedulers_sentence_becomes_one_line_and_something_to_paste() {
        let of = |message: &str| {
            let condition = json!({ "type": "PodScheduled", "status": "False", "message": message });
            pod(json!({ "conditions": [condition] })).trouble()
        };
        let gpus = of(
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        );
        assert_eq!(gpus.text, "no machine takes it: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu");
        assert!(!gpus.lasts && gpus.hint.unwrap().contains("gpucl offers"));
        let taint = of(
            "0/1 nodes are available: 1 node(s) had untolerated taint {nodepool: gpu-platform}. preemption: not helpful",
        );
        assert!(taint.hint.unwrap().contains("{key: nodepool, operator: Equal, value: gpu-platform}"));
        let bare = of("0/1 nodes are available: 1 node(s) had untolerated taint {dedicated}.");
        assert!(bare.hint.unwrap().contains("{key: dedicated, operator: Exists}"));
        assert!(
            of("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
                .hint
                .unwrap()
                .contains("claim")
        );
    }

    #[test]
    fn what_lasts_is_not_waited_for() {
        let waiting = |reason: &str, restarts: u64| {
            let state = json!({ "waiting": { "reason": reason, "message": "why" } });
            pod(json!({ "containerStatuses": [{ "state": state, "restartCount": restarts }] })).trouble()
        };
        assert!(waiting("ImagePullBackOff", 0).lasts);
        assert!(waiting("CreateContainerConfigError", 0).lasts);
        assert!(!waiting("CrashLoopBackOff", 1).lasts && waiting("CrashLoopBackOff", 3).lasts);
        assert!(!waiting("ContainerCreating", 0).lasts);
        let last = json!({ "terminated": { "reason": "OOMKilled" } });
        let running =
            json!({ "containerStatuses": [{ "state": { "running": {} }, "lastState": last, "restartCount": 1 }] });
        assert!(pod(running).trouble().text.contains("memory"));
    }
}
