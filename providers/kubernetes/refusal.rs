//! What the API server's refusals mean. Its own words are always quoted.

use kube::config::KubeconfigError;
use kube::core::Status as Answer;

use crate::error::{Error, ErrorKind, Status};

/// The Role that suffices, as a file of the documentation.
const ROLE: &str = "docs/guides/kubernetes-role.yaml";

/// The error for a call that failed.
pub(super) fn of_call(doing: &str, error: &kube::Error) -> Error {
    let failed = Error::new(ErrorKind::Provider, doing);
    match error {
        kube::Error::Api(answer) => of_answer(failed, answer),
        kube::Error::Auth(error) => failed.caused_by(error).hint(
            "log in again as your cluster's provider says; a kubeconfig with `exec:` needs that program on the PATH",
        ),
        kube::Error::Service(error) => {
            let text = chain(error.as_ref());
            let failed = failed.because(&text);
            // The words of `rustls` 0.23.
            let out_of_time =
                ["NotValidYet", "Expired", "not valid yet", "expired"].iter().any(|word| text.contains(word));
            match text.contains("certificate") || text.contains("UnknownIssuer") {
                true if out_of_time => failed.hint("is the clock of this machine right? date"),
                true => failed.hint("the certificate of the API server is not the one that the kubeconfig names"),
                false => failed
                    .status(Status::Temporary)
                    .hint("does the API server of this context answer? kubectl get namespaces"),
            }
        }
        kube::Error::HyperError(error) => failed.caused_by(error).status(Status::Temporary),
        kube::Error::ReadEvents(error) => failed.caused_by(error).status(Status::Temporary),
        other => failed.caused_by(other),
    }
}

/// The error for a kubeconfig that cannot be used.
pub(super) fn of_config(doing: &str, error: &KubeconfigError) -> Error {
    Error::new(ErrorKind::Spec, doing).caused_by(error)
}

fn of_answer(failed: Error, answer: &Answer) -> Error {
    let said = match answer.message.trim() {
        "" => format!("the API server answered with {} {}", answer.code, answer.reason),
        said => said.to_owned(),
    };
    let lower = said.to_lowercase();
    let failed = failed.because(said);
    match answer.code {
        401 => {
            failed.hint("your credentials are not accepted, or expired: log in again as your cluster's provider says")
        }
        403 if lower.contains("exceeded quota") => {
            failed.hint("kubectl describe resourcequota   # what the namespace may use, and what it uses")
        }
        403 if lower.contains("podsecurity") => failed.hint("the namespace does not admit such pods"),
        403 if lower.contains("unable to create new content in namespace") => {
            failed.hint("the namespace is being deleted")
        }
        403 => failed.hint(format!("somebody with rights must give you that one; the Role that suffices is in {ROLE}")),
        404 if lower.contains("namespaces") => failed.hint("kubectl create namespace NAME, or another `namespace:`"),
        404 => failed,
        409 if lower.contains("conflict") => {
            failed.hint("somebody else has changed it: kubectl get raycluster NAME -o yaml --show-managed-fields")
        }
        409 => failed,
        408 | 429 | 500 | 502..=504 => failed.status(Status::Temporary),
        _ => failed,
    }
}

/// Whether the API server refused a call for want of a right.
pub(super) fn is_forbidden(error: &Error) -> bool {
    error.causes().iter().any(|cause| cause.contains(" is forbidden: User "))
}

/// Whether the API server has no such kind of object, or none that this user may see.
pub(super) fn is_absent(error: &Error) -> bool {
    is_forbidden(error) || is_no_kind(error)
}

/// Whether the API server has no such kind of object.
pub(super) fn is_no_kind(error: &Error) -> bool {
    let words = ["page not found", "could not find", "404"];
    error.causes().iter().any(|cause| words.iter().any(|word| cause.contains(word)))
}

/// An error and its sources, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = error.source();
    }
    text
}
