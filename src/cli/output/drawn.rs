//! A line with colours of our own, which is the only way in which any get to a terminal.

use std::borrow::Borrow;
use std::fmt;

use crate::util::text::printable_line;

/// A line that was made of pieces, of which each is escaped: no piece brings colours or anything else that a terminal obeys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drawn(String);

impl Drawn {
    /// The same, with a piece of text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.push_str(&printable_line(text));
        self
    }

    /// The same, with a piece in a colour, by the number that terminals have for it.
    pub(crate) fn ink(mut self, colour: u8, text: &str) -> Self {
        self.0.push_str(&format!("\u{1b}[{colour}m{}\u{1b}[0m", printable_line(text)));
        self
    }

    /// The same, without blanks at its end.
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
