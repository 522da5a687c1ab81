//! `gpucl exec`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::cluster;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _, Stream};
use crate::ray::shell_line;

/// The arguments of `exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs a command on every host of the cluster, with Ray's environment; its exit code is the command's.
pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let target = Target::choose(app)?;
    let mut code = exit_code::DONE;
    for host in cluster::hosts(&app.paths, &target.known.state)? {
        let settings = target.access().map(|access| access.settings(app.variable("PATH"))).unwrap_or_default();
        let mut program = String::new();
        for (name, value) in settings {
            match value {
                Some(value) => program.push_str(&format!("export {name}={}\n", shell_line(&[value]))),
                None => program.push_str(&format!("unset {name}\n")),
            }
        }
        program.push_str(&format!("exec {}\n", shell_line(&args.command)));
        let name = host.name().to_owned();
        let mut on_line = |stream: Stream, line: &str| {
            match (app.json(), stream) {
            (true, _) => app.ui.json(&serde_json::json!({
                "v": 1, "type": "exec_line", "host": name, "stream": if stream == Stream::Out { "out" } else { "err" }, "line": line,
            })),
            (false, Stream::Out) => app.ui.data(line),
            (false, Stream::Err) => app.ui.error_line(line),
        }
        };
        match host.exec(&program, &mut on_line).await? {
            ExecEnd::Exited(0) => {}
            ExecEnd::Exited(status) => code = u8::try_from(status.clamp(1, 255)).unwrap_or(exit_code::FAILED),
            ExecEnd::Broken => {
                return Err(Error::new(ErrorKind::Host, format!("run the command on {}", host.name()))
                    .because("a signal ended it"));
            }
        }
    }
    Ok(code)
}
