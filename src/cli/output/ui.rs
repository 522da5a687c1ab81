//! stdout and stderr: verbosity, and escaping, so that a terminal obeys no control sequence that others wrote.
//!
//! Nothing else in the program writes to them, so no command can forget to escape text from an API, a host or a file.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};

use super::Drawn;
use crate::cli::global::Format;
use crate::host::Stream;
use crate::util::text::{self, Plainer, printable};

/// Moves the cursor to the top left and clears the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Output settings, and the functions that print.
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

    /// Whether colours may be used on stderr.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Whether moving progress may be drawn on stderr.
    pub(crate) fn progress(&self) -> bool {
        self.progress && self.format == Format::Text && !self.quiet
    }

    /// Whether progress and results appear on the same screen: both streams are terminals, and nothing is left out.
    pub(crate) fn shows_both(&self) -> bool {
        use std::io::IsTerminal as _;
        let text = self.format == Format::Text && !self.quiet;
        text && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Prints a line of data on stdout. A closed pipe is not an error.
    pub(crate) fn data(&self, line: impl std::fmt::Display) {
        out(&format!("{}\n", printable(&line.to_string())));
    }

    /// Prints text on stdout in place of what the terminal shows; to a file or pipe, it follows what was printed before.
    pub(crate) fn screen(&self, text: impl std::fmt::Display) {
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        out(&format!("{clear}{}\n", printable(&text.to_string())));
    }

    /// Prints a line with gpucl's own colours on stdout.
    pub(crate) fn drawn(&self, line: &Drawn) {
        out(&format!("{line}\n"));
    }

    /// Prints text such as shell settings on stdout; to a file or pipe it goes unchanged.
    pub(crate) fn verbatim(&self, text: &str) {
        if std::io::stdout().is_terminal() {
            out(&printable(text))
        } else {
            out(text)
        };
    }

    /// Passes on what the shell of another machine prints, as it is and as `ssh` does; false if the reader has closed it.
    pub(crate) fn terminal(&self, stream: Stream, bytes: &[u8]) -> bool {
        let written = match stream {
            Stream::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Err => std::io::stderr().lock().write_all(bytes),
        };
        written.is_ok()
    }

    /// Prints one JSON value as a line on stdout.
    pub(crate) fn json(&self, value: &impl serde::Serialize) {
        self.read_json(value);
    }

    /// Prints one JSON value as a line on stdout; false if the reader has closed it.
    pub(crate) fn read_json(&self, value: &impl serde::Serialize) -> bool {
        out(&(text::json(serde_json::to_string(value).unwrap_or_default()) + "\n"))
    }

    /// Prints a progress line on stderr, unless `--quiet` was given.
    pub(crate) fn status(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            self.error_line(&line.to_string());
        }
    }

    /// Prints a line on stderr, even with `--quiet`.
    pub(crate) fn error_line(&self, line: &str) {
        err(&format!("{}\n", printable(line)));
    }

    /// A printer for the output of the user's programs.
    pub(crate) fn program(&self, raw: bool) -> Program {
        Program { raw, out: Plainer::default() }
    }

    /// Whether questions can be asked: stdin and stderr are terminals.
    pub(crate) fn asks(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks a question; returns the line that was typed.
    pub(crate) fn ask(&self, question: &str) -> String {
        self.question(question);
        let mut answer = String::new();
        let _ = std::io::stdin().read_line(&mut answer);
        answer
    }
}

impl Ui {
    /// Prints a question on stderr, without a newline.
    pub(crate) fn question(&self, question: &str) {
        err(&printable(question));
    }
}

/// Prints the output of a program of the user, run on a host or in a job.
///
/// To a file or pipe, and to a terminal with `--raw`, it goes unchanged. Otherwise its colours are removed, and
/// everything else that a terminal would obey is escaped.
pub(crate) struct Program {
    raw: bool,
    out: Plainer,
}

impl Program {
    /// Prints a piece of its output; false if the reader has closed stdout.
    pub(crate) fn piece(&mut self, piece: &str) -> bool {
        if self.is_raw(std::io::stdout().is_terminal()) { out(piece) } else { out(&self.out.piece(piece)) }
    }

    /// Prints what is still buffered.
    pub(crate) fn end(&mut self) {
        out(&self.out.end());
    }

    /// Prints a line of its stdout.
    pub(crate) fn line(&self, line: &str) {
        out(&(self.shown(line, std::io::stdout().is_terminal()) + "\n"));
    }

    /// Prints a line of its stderr.
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

/// Prints an error: as text on stderr, and with `--output json` also as JSON on stdout.
pub(super) fn error(json: Option<&serde_json::Value>, as_text: &str) {
    if let Some(value) = json {
        out(&(text::json(value.to_string()) + "\n"));
    }
    err(&printable(as_text));
}

/// Writes to stdout and flushes; false if the reader has closed it.
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
