//! The two streams, and how much goes to them.

use std::io::Write as _;

use crate::cli::args::Format;

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
        use std::io::IsTerminal as _;
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
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }

    /// Prints text on stdout as it is.
    pub(crate) fn raw(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }

    /// Prints one JSON value as a line on stdout.
    pub(crate) fn json(&self, value: &impl serde::Serialize) {
        self.data(serde_json::to_string(value).unwrap_or_default());
    }

    /// Prints a line about what goes on, on stderr.
    pub(crate) fn status(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    /// Prints a line of a command's own errors on stderr.
    pub(crate) fn error_line(&self, line: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    /// There is somebody to ask.
    pub(crate) fn asks(&self) -> bool {
        use std::io::IsTerminal as _;
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks, and hands back the answer.
    pub(crate) fn ask(&self, question: &str) -> String {
        let _ = std::io::stderr().lock().write_all(question.as_bytes());
        let mut answer = String::new();
        let _ = std::io::stdin().read_line(&mut answer);
        answer
    }
}
