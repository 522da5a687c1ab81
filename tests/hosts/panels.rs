//! Ray's dashboards of Serve, as Grafana has them: the real Prometheus takes the query of each panel, and answers those
//! of an application that serves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::testbed::TestHost;
use crate::support::{TestEnv, until_or};

/// Panels that show something of any application. The others are of errors, gRPC, GPUs and several models in one.
const ANSWERED: [&str; 12] = [
    "QPS per application",
    "P50 latency per application",
    "P99 latency per application",
    "Replicas per deployment",
    "QPS per deployment",
    "P99 latency per deployment",
    "Queue size per deployment",
    "Ongoing HTTP Requests",
    "Controller Control Loop Duration",
    "QPS per replica",
    "P99 latency per replica",
    "Running requests per replica",
];

/// The panels of a dashboard: their titles and queries, for all applications of all clusters.
fn panels(part: &Value, title: &str, into: &mut Vec<(String, String)>) {
    match part {
        Value::Array(parts) => parts.iter().for_each(|part| panels(part, title, into)),
        Value::Object(parts) => {
            let title = parts.get("title").and_then(Value::as_str).unwrap_or(title);
            if let Some(query) = parts.get("expr").and_then(Value::as_str) {
                let names = ["Application", "Deployment", "Replica", "Route", "HTTP_Route", "gRPC_Method", "Cluster"];
                let all = |query: String, name: &&str| query.replace(&format!("\"${name}\""), "\".*\"");
                into.push((title.to_owned(), names.iter().fold(query.to_owned(), all)));
            }
            parts.values().for_each(|part| panels(part, title, into));
        }
        _ => {}
    }
}

/// Asks for all panels of Serve's dashboards on this host, where an application has just answered.
pub(crate) fn of_serve_are_answered(env: &TestEnv, host: &TestHost) {
    let password = env.home().join(".local/state/gpucl/clusters/one/secrets/prometheus_password");
    let password = std::fs::read_to_string(password).unwrap();
    let mut all = Vec::new();
    for file in ["serve_grafana_dashboard.json", "serve_deployment_grafana_dashboard.json"] {
        let dashboard = serde_json::from_str(&host.sh(&format!("cat /var/lib/gpucl/*/dashboards/{file}"))).unwrap();
        panels(&dashboard, "", &mut all);
    }
    assert!(all.len() >= 50, "{all:?}");
    let lines: Vec<String> = all.iter().map(|(_, query)| query.replace('\n', " ")).collect();
    let program = format!(
        "while IFS= read -r query; do curl -s -m 20 -u 'gpucl:{}' --data-urlencode \"query=$query\" \
         http://127.0.0.1:9090/api/v1/query; echo; done <<'END'\n{}\nEND",
        password.trim(),
        lines.join("\n")
    );
    let shown = || {
        let answers = host.sh(&program);
        let mut shown = BTreeSet::new();
        for ((title, query), answer) in all.iter().zip(answers.lines()) {
            let answer: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{query}: {answer}"));
            assert_eq!(answer["status"], "success", "{title}: {query}: {answer}");
            if answer["data"]["result"].as_array().is_some_and(|found| !found.is_empty()) {
                shown.insert(title.clone());
            }
        }
        shown
    };
    let are_shown = || {
        let shown = shown();
        ANSWERED.iter().all(|title| shown.contains(*title)).then_some(shown)
    };
    let shown = until_or("panels of Serve show metrics", 90, are_shown, || format!("only {:?}", shown()));
    println!("Prometheus takes {} queries of Serve's panels; these panels show something: {shown:?}", all.len());
}
