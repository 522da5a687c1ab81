//! The edge between the commands, which may fail with anything (`anyhow`), and the process, which reports an [`Error`].

use crate::error::{Error, ErrorKind};

/// The core's error in the chain, with the contexts above it as headlines; kind, hints and what is left behind stay as they are.
/// Without one, it is an internal error.
pub(super) fn error_of(error: &anyhow::Error) -> Error {
    let of_core = error.chain().position(|cause| cause.is::<Error>());
    let Some((at, core)) = of_core.and_then(|at| Some((at, error.chain().nth(at)?.downcast_ref::<Error>()?))) else {
        let mut chain = error.chain();
        let doing = chain.next().map(ToString::to_string).unwrap_or_default();
        return chain.fold(Error::new(ErrorKind::Internal, doing), Error::because);
    };
    let contexts: Vec<String> = error.chain().take(at).map(ToString::to_string).collect();
    contexts.into_iter().rev().fold(core.clone(), Error::while_doing)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::cli::exit_code;
    use crate::error::LeftBehind;

    /// A code, hints and what is left behind are what a script and a person go on with.
    #[test]
    fn exit_code_hints_and_what_is_left_survive() {
        for (kind, code) in [
            (ErrorKind::Usage, exit_code::USAGE),
            (ErrorKind::Spec, exit_code::USAGE),
            (ErrorKind::State, exit_code::FAILED),
            (ErrorKind::Locked, exit_code::LOCKED),
            (ErrorKind::Provider, exit_code::FAILED),
            (ErrorKind::Capacity, exit_code::NO_CAPACITY),
            (ErrorKind::Host, exit_code::FAILED),
            (ErrorKind::Ray, exit_code::FAILED),
            (ErrorKind::NotReady, exit_code::NOT_READY),
            (ErrorKind::LeftBehind, exit_code::LEFT_BEHIND),
            (ErrorKind::NotFound, exit_code::NOT_FOUND),
            (ErrorKind::Cancelled, exit_code::INTERRUPTED),
            (ErrorKind::Timeout, exit_code::TIMEOUT),
            (ErrorKind::Unsupported, exit_code::USAGE),
            (ErrorKind::Internal, exit_code::FAILED),
        ] {
            let left = LeftBehind::Remaining(vec!["i-1".to_owned()]);
            let core = Error::new(kind, "launch it").because("no").hint("gpucl gc").left(left).snippet("a: b");
            assert_eq!(error_of(&core.clone().into()), core);
            let above =
                anyhow::Result::<()>::Err(core.clone().into()).context("start the host").context("bring up demo");
            let error = error_of(&above.unwrap_err());
            assert_eq!(error, core.while_doing("start the host").while_doing("bring up demo"));
            assert_eq!(exit_code::of(error.kind()), code, "{kind:?}");
        }
    }

    #[test]
    fn what_is_not_of_the_core_is_an_internal_error_with_its_chain() {
        let cause = std::io::Error::other("no more files");
        let error = error_of(&anyhow::Error::from(cause).context("listen for Ctrl-C"));
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Internal, "listen for Ctrl-C: no more files")
        );
    }
}
