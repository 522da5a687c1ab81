//! Why a job waits, read from a small server of our own that answers as Ray's HTTP API was recorded to answer.

#![expect(clippy::unwrap_used, reason = "what a test stands on may fail it")]

use gpucl::ray::{Client, Wanting, reason};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn rows(rows: &Value) -> Value {
    json!({"result": true, "msg": "", "data": {"result": {"total": 1, "result": rows}}})
}

fn node(id: &str, resources: &Value) -> Value {
    json!({"node_id": id, "node_ip": "192.0.2.2", "is_head_node": id == "head", "state": "ALIVE",
        "resources_total": resources, "labels": {"gpucl.dev/node": id}, "start_time_ms": 1})
}

fn job(status: &str) -> Value {
    json!({"type": "SUBMISSION", "submission_id": "j", "job_id": "03000000", "status": status, "entrypoint": "x",
        "runtime_env": {"env_vars": {"KEY": "hush"}}, "driver_node_id": "worker-0"})
}

/// The body for a request's first line.
fn answer(line: &str) -> Option<Value> {
    let asked = |path: &str| line.starts_with(&format!("GET {path}"));
    let body = if asked("/api/jobs/waits ") {
        job("PENDING")
    } else if asked("/api/jobs/dies ") || asked("/api/jobs/d ") {
        json!({"type": "SUBMISSION", "submission_id": "d", "status": "PENDING", "entrypoint": "x",
            "runtime_env": {"working_dir": "gcs://_ray_pkg_aa.zip"}})
    } else if asked("/api/v0/logs/file?node_id=head&filename=raylet.err&") {
        json!(
            "Traceback (most recent call last):\n  File \"/e/default_worker.py\", line 8, in <module>\n    import ray\n\
            ImportError: cannot import name 'Random' from 'random' (/r/working_dir_files/_ray_pkg_aa/random.py)\n"
        )
    } else if asked("/api/jobs/runs ") {
        job("RUNNING")
    } else if asked("/api/v0/nodes?") {
        let nodes = [node("head", &json!({"CPU": 2.0})), node("worker-0", &json!({"CPU": 1.0, "GPU": 1.0}))];
        rows(&json!(nodes))
    } else if line.contains("&filter_keys=name&filter_predicates=%3D&filter_values=_ray_internal_job_actor_j ") {
        rows(&json!([{"class_name": "JobSupervisor", "state": "PENDING_CREATION", "required_resources": {"GPU": 1.0},
            "label_selector": {}}]))
    } else if asked("/api/v0/actors?") {
        rows(&json!([{"class_name": "InGroup", "required_resources": {"GPU_group_0_aa": 1.0}}]))
    } else if asked("/api/v0/placement_groups?")
        && line.contains("creator_job_id&filter_predicates=%3D&filter_values=03000000&")
    {
        rows(
            &json!([{"state": "PENDING", "bundles": [{"unit_resources": {"GPU": 1.0}}, {"unit_resources": {"GPU": 1.0}}]}]),
        )
    } else if asked("/api/v0/tasks?") {
        rows(&json!([{"func_or_class_name": "f", "required_resources": {"CPU": 1.0}}]))
    } else if asked("/api/cluster_status ") {
        json!({"result": true, "data": {"autoscalingStatus": null, "clusterStatus": {"loadMetricsReport":
            {"usageByNode": {"worker-0": {"CPU": [0.0, 1.0], "GPU": [1.0, 1.0], "gpuclWorker": [0.0, 1.0]}}}}}})
    } else {
        return None;
    };
    Some(body)
}

async fn stand_in() -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            let head = String::from_utf8(bytes).unwrap();
            let (status, body) = match answer(head.lines().next().unwrap()) {
                Some(Value::String(text)) => ("200 OK", text),
                Some(body) => ("200 OK", body.to_string()),
                None => ("404 Not Found", format!("no answer for {head}")),
            };
            let text =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    Client::new(base, "the-token".to_owned().into())
}

#[tokio::test]
async fn a_waiting_job_is_explained_from_what_ray_says() {
    let ray = stand_in().await;
    let job = ray.job("waits").await.unwrap();
    assert_eq!(job.environment, ["env_vars"]);
    assert!(!format!("{job:?}{}", serde_json::to_string(&job).unwrap()).contains("hush"));
    let situation = ray.situation(&job).await.unwrap();
    assert_eq!(situation.nodes[1].name(), "worker-0");
    assert_eq!(reason(&job, &situation).as_deref(), Some("the command waits for 1 GPU: what the nodes have is in use"));
}

#[tokio::test]
async fn a_running_job_is_explained_by_what_it_asks_for_in_vain() {
    let ray = stand_in().await;
    let job = ray.job("runs").await.unwrap();
    let situation = ray.situation(&job).await.unwrap();
    let by: Vec<&Wanting> = situation.demands.iter().map(|demand| &demand.by).collect();
    assert_eq!(by, [&Wanting::Group, &Wanting::Task("f".to_owned())]);
    assert_eq!(
        reason(&job, &situation).as_deref(),
        Some("a placement group asks for 2 GPUs in all; the cluster has 1")
    );
}

#[tokio::test]
async fn processes_that_end_at_their_start_are_explained_by_their_own_error() {
    let ray = stand_in().await;
    let job = ray.job("dies").await.unwrap();
    let situation = ray.situation(&job).await.unwrap();
    let error = "ImportError: cannot import name 'Random' from 'random' (random.py)";
    assert_eq!(
        reason(&job, &situation).unwrap(),
        format!("its processes end at their start, and Ray tries again: {error}")
    );
}
