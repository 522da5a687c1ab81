//! What a run keeps of its cluster, and who decides that.

use clap::ValueEnum;

use crate::cli::app::App;
use crate::cli::signals::Ends;
use crate::error::ErrorKind;
use crate::name::ClusterName;

/// How often a question is asked again after an answer that is none.
const TRIES: usize = 3;

/// What is kept when a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keep {
    /// Nothing: the cluster is taken down
    Nothing,
    /// The hosts, prepared as they are; Ray ends
    Hosts,
    /// The whole cluster
    All,
}

impl Keep {
    /// Its name, as on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Hosts => "hosts",
            Self::All => "all",
        }
    }
}

/// How the work on a cluster ended, as far as that decides what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The job ended, however.
    Done,
    /// There was no job: `up` or the submission failed.
    NoJob,
    /// Ctrl-C, or the end of the terminal.
    Interrupted,
    /// The job could not be followed to its end, or its outputs could not be fetched.
    Lost,
}

impl Outcome {
    /// The outcome of work that failed with this kind of error.
    pub(super) fn of(error: ErrorKind, has_job: bool) -> Self {
        match (error, has_job) {
            (ErrorKind::Cancelled, _) => Self::Interrupted,
            (_, true) => Self::Lost,
            (_, false) => Self::NoJob,
        }
    }
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// This is kept.
    Keep(Keep),
    /// The person at the terminal; Enter means this.
    Ask(Keep),
}

/// Decides what is kept. `keep` is what the command line says; `asks`, whether there is somebody to ask.
pub(super) fn decide(outcome: Outcome, keep: Keep, asks: bool) -> Decision {
    match outcome {
        Outcome::Interrupted | Outcome::Lost if asks => Decision::Ask(keep),
        _ => Decision::Keep(keep),
    }
}

/// Whether a run that failed may end what there is: not where another command works on it, nor where the run was refused
/// before it changed a cluster that existed.
pub(super) fn may_end(error: ErrorKind, existed: bool) -> bool {
    match error {
        ErrorKind::Locked => false,
        ErrorKind::Usage | ErrorKind::Spec | ErrorKind::Unsupported => !existed,
        _ => true,
    }
}

/// What an answer means; `None` if it means nothing.
fn answered(text: &str, default: Keep) -> Option<Keep> {
    match text.trim().to_lowercase().as_str() {
        "" => Some(default),
        "n" | "nothing" => Some(Keep::Nothing),
        "h" | "hosts" => Some(Keep::Hosts),
        "a" | "all" => Some(Keep::All),
        _ => None,
    }
}

/// Asks at the terminal what to keep. Another Ctrl-C, the end of the input and unknown answers mean `default`.
pub(super) async fn ask(app: &App, name: &ClusterName, ends: &mut Ends, default: Keep) -> Keep {
    let question = format!("keep what of {name}? nothing, hosts or all [{}] ", default.name());
    for _ in 0..TRIES {
        let (ui, question) = (app.ui, question.clone());
        let typed = ends.unless(tokio::task::spawn_blocking(move || ui.ask(&question))).await;
        let Some(Ok(text)) = typed else {
            app.ui.error_line("");
            return default;
        };
        if let Some(keep) = answered(&text, default) {
            return keep;
        }
    }
    default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_decides_unless_somebody_can_be_asked() {
        use Decision::{Ask, Keep as Is};
        for keep in [Keep::Nothing, Keep::Hosts, Keep::All] {
            for (outcome, with_terminal) in [
                (Outcome::Done, Is(keep)),
                (Outcome::NoJob, Is(keep)),
                (Outcome::Interrupted, Ask(keep)),
                (Outcome::Lost, Ask(keep)),
            ] {
                assert_eq!(decide(outcome, keep, true), with_terminal, "{outcome:?}");
                assert_eq!(decide(outcome, keep, false), Is(keep), "{outcome:?}");
            }
        }
    }

    #[test]
    fn ctrl_c_is_an_interruption_in_every_stage() {
        for (kind, has_job, outcome) in [
            (ErrorKind::Cancelled, false, Outcome::Interrupted),
            (ErrorKind::Cancelled, true, Outcome::Interrupted),
            (ErrorKind::Capacity, false, Outcome::NoJob),
            (ErrorKind::Ray, false, Outcome::NoJob),
            (ErrorKind::Ray, true, Outcome::Lost),
        ] {
            assert_eq!(Outcome::of(kind, has_job), outcome, "{kind:?}, {has_job}");
        }
    }

    #[test]
    fn a_cluster_is_not_ended_by_a_run_that_did_not_touch_it() {
        for (kind, existed, may) in [
            (ErrorKind::Locked, false, false),
            (ErrorKind::Locked, true, false),
            (ErrorKind::Usage, true, false),
            (ErrorKind::Spec, true, false),
            (ErrorKind::Unsupported, true, false),
            (ErrorKind::Usage, false, true),
            (ErrorKind::Provider, true, true),
            (ErrorKind::Cancelled, false, true),
        ] {
            assert_eq!(may_end(kind, existed), may, "{kind:?}, {existed}");
        }
    }

    #[test]
    fn an_answer_is_a_word_or_its_first_letter() {
        for (text, keep) in [
            ("", Some(Keep::Hosts)),
            ("\n", Some(Keep::Hosts)),
            ("n\n", Some(Keep::Nothing)),
            (" Nothing ", Some(Keep::Nothing)),
            ("h", Some(Keep::Hosts)),
            ("ALL\n", Some(Keep::All)),
            ("a", Some(Keep::All)),
            ("y", None),
            ("no", None),
        ] {
            assert_eq!(answered(text, Keep::Hosts), keep, "{text:?}");
        }
    }

    #[test]
    fn what_is_kept_has_one_name() {
        for keep in Keep::value_variants() {
            assert_eq!(keep.to_possible_value().unwrap().get_name(), keep.name());
        }
    }
}
