//! Lines with gpucl's own colours, the only colours that reach a terminal.

use std::borrow::Borrow;
use std::fmt;

use crate::util::text::printable_line;

/// A line made of escaped pieces: no piece can bring colours or other control sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drawn(String);

impl Drawn {
    /// Appends a piece of text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.push_str(&printable_line(text));
        self
    }

    /// Appends a piece in a colour, given by its SGR number.
    pub(crate) fn ink(mut self, colour: u8, text: &str) -> Self {
        self.0.push_str(&format!("\u{1b}[{colour}m{}\u{1b}[0m", printable_line(text)));
        self
    }

    /// Removes trailing blanks.
    pub(crate) fn trimmed(mut self) -> Self {
        self.0.truncate(self.0.trim_end().len());
        self
    }
}

impl Borrow<str> for Drawn {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Drawn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
