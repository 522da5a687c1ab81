//! The token is enforced: a request without it and one with a wrong one are refused.

use secrecy::SecretString;

use super::subject::Subject;
use crate::event::CheckOutcome;
use crate::ray::{Client, TokenChoice};

/// A path that Ray's dashboard answers only with the token.
const DASHBOARD_PATH: &str = "/api/version";
/// A path that a node's dashboard agent answers only with the token.
const AGENT_PATH: &str = "/api/jobs/";

/// Asks the dashboard and each node's dashboard agent, each without a token and with a wrong one.
pub(super) async fn run(subject: &Subject<'_>) -> Vec<CheckOutcome> {
    let mut outcomes = vec![one(subject, "dashboard", &subject.client, DASHBOARD_PATH, true).await];
    for node in subject.nodes {
        let Some(ports) = subject.ports(&node.key) else { continue };
        let client = Client::new(format!("http://127.0.0.1:{}", ports.agent_http()), SecretString::from(String::new()));
        outcomes.push(one(subject, &node.key.display_name(), &client, AGENT_PATH, false).await);
    }
    outcomes
}

async fn one(subject: &Subject<'_>, target: &str, client: &Client, path: &str, with_right: bool) -> CheckOutcome {
    let none = client.probe(path, TokenChoice::None).await;
    let wrong = client.probe(path, TokenChoice::Wrong).await;
    let right = if with_right { Some(client.probe(path, TokenChoice::Right).await) } else { None };
    let refused = matches!(none, Ok(401 | 403)) && matches!(wrong, Ok(401 | 403));
    let let_in = right.as_ref().is_none_or(|right| matches!(right, Ok(200)));
    let word = |answer: &crate::error::Result<u16>| match answer {
        Ok(code) => code.to_string(),
        Err(error) => error.causes().first().cloned().unwrap_or_else(|| error.doing().to_owned()),
    };
    let mut saw = format!("without: {}, wrong: {}", word(&none), word(&wrong));
    if let Some(right) = &right {
        saw.push_str(&format!(", right: {}", word(right)));
    }
    let outcome = if refused && let_in { CheckOutcome::Passed } else { CheckOutcome::Failed };
    subject.tell("token enforced", target, outcome, saw)
}
