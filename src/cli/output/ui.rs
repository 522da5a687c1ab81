//! The two streams, how much goes to them, and what of it a terminal may obey: nothing that others wrote.
//!
//! Nothing else in the program writes to them, so that no command can forget to escape what it was told by an API, a host or a file.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};

use super::Drawn;
use crate::cli::global::Format;
use crate::util::text::{self, Plainer, printable};

/// How things are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    format: Format,
    colour: bool,
    progress: bool,
    quiet: bool,
}

impl Ui {
    pub(crate) fn new(format: Format, colour: bool, progress: bool, quiet: bool) -> Self {
        Self { format, colour: colour && std::io::stderr().is_terminal(), progress, quiet }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Colours may be used on stderr.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Moving progress may be drawn on stderr.
    pub(crate) fn progress(&self) -> bool {
        self.progress && self.format == Format::Text && !self.quiet
    }

    /// Whoever reads what goes on reads the results too: both streams are on a terminal, and nothing is left out.
    pub(crate) fn shows_both(&self) -> bool {
        use std::io::IsTerminal as _;
        let text = self.format == Format::Text && !self.quiet;
        text && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Prints a line of data on stdout. A closed pipe is not an error.
    pub(crate) fn data(&self, line: impl std::fmt::Display) {
        out(&format!("{}\n", printable(&line.to_string())));
    }

    /// Prints a line with colours of our own on stdout.
    pub(crate) fn drawn(&self, line: &Drawn) {
        out(&format!("{line}\n"));
    }

    /// Prints text that is to be used as it is, such as a shell's settings, on stdout: to a file or a program it goes unchanged.
    pub(crate) fn verbatim(&self, text: &str) {
        if std::io::stdout().is_terminal() {
            out(&printable(text))
        } else {
            out(text)
        };
    }

    /// Prints one JSON value as a line on stdout.
    pub(crate) fn json(&self, value: &impl serde::Serialize) {
        self.read_json(value);
    }

    /// Prints one JSON value as a line on stdout; false when nobody reads it any more.
    pub(crate) fn read_json(&self, value: &impl serde::Serialize) -> bool {
        out(&(text::json(serde_json::to_string(value).unwrap_or_default()) + "\n"))
    }

    /// Prints a line about what goes on, on stderr.
    pub(crate) fn status(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            self.error_line(&line.to_string());
        }
    }

    /// Prints a line on stderr that is no matter of more or less.
    pub(crate) fn error_line(&self, line: &str) {
        err(&format!("{}\n", printable(line)));
    }

    /// What the programs of the user print, on its way to stdout and stderr.
    pub(crate) fn program(&self, raw: bool) -> Program {
        Program { raw, out: Plainer::default() }
    }

    /// There is somebody to ask.
    pub(crate) fn asks(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks, and hands back the answer.
    pub(crate) fn ask(&self, question: &str) -> String {
        self.question(question);
        let mut answer = String::new();
        let _ = std::io::stdin().read_line(&mut answer);
        answer
    }
}

impl Ui {
    /// Prints a question on stderr, without an end of line.
    pub(crate) fn question(&self, question: &str) {
        err(&printable(question));
    }
}

/// What a program of the user's own prints, on a host or in a job.
///
/// To a file or a program it goes as it is. To a terminal it goes so as well when the person said that the terminal is to have it;
/// else it is shown without its colours, and with all that the terminal could obey escaped.
pub(crate) struct Program {
    raw: bool,
    out: Plainer,
}

impl Program {
    /// Prints a piece of its output; false when nobody reads it any more.
    pub(crate) fn piece(&mut self, piece: &str) -> bool {
        if self.is_raw(std::io::stdout().is_terminal()) { out(piece) } else { out(&self.out.piece(piece)) }
    }

    /// Prints what is left of it.
    pub(crate) fn end(&mut self) {
        out(&self.out.end());
    }

    /// Prints a line of its output.
    pub(crate) fn line(&self, line: &str) {
        out(&(self.shown(line, std::io::stdout().is_terminal()) + "\n"));
    }

    /// Prints a line of its errors.
    pub(crate) fn error_line(&self, line: &str) {
        err(&(self.shown(line, std::io::stderr().is_terminal()) + "\n"));
    }

    fn is_raw(&self, is_terminal: bool) -> bool {
        self.raw || !is_terminal
    }

    fn shown<'a>(&self, line: &'a str, is_terminal: bool) -> Cow<'a, str> {
        if self.is_raw(is_terminal) {
            return Cow::Borrowed(line);
        }
        let mut plainer = Plainer::default();
        Cow::Owned(plainer.piece(line) + &plainer.end())
    }
}

/// Prints what an error comes to: as JSON on stdout where that was asked for, and as text on stderr.
pub(super) fn error(json: Option<&serde_json::Value>, as_text: &str) {
    if let Some(value) = json {
        out(&(text::json(value.to_string()) + "\n"));
    }
    err(&printable(as_text));
}

/// Writes to stdout at once; false when nobody reads it any more.
fn out(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let wrote = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    !matches!(wrote, Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn err(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_line_is_raw_to_a_terminal_only_when_it_was_asked_for() {
        let line = "\u{1b}[31mred\u{1b}[0m\u{1b}]52;c;eA==\u{7}";
        let ui = Ui::new(Format::Text, true, false, false);
        assert_eq!(ui.program(false).shown(line, true), r"red\x1b]52;c;eA==\x07");
        assert_eq!(ui.program(true).shown(line, true), line);
        assert_eq!(ui.program(false).shown(line, false), line);
    }
}
