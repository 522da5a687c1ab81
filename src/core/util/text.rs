//! Makes untrusted text safe to show in a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal may obey the character, or it changes the direction of text.
///
/// These are the control characters of ASCII except newline and tab, those of Latin-1, which begin the same sequences
/// in one byte, and the overrides of text direction.
pub fn is_control(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

/// The text with all control characters escaped: `\x1b`, `\u{202e}`. Line ends are kept; `\r\n` becomes `\n`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\r' if rest.peek().is_none_or(|next| *next == '\n') => {}
            letter if is_control(letter) => escape_into(&mut shown, letter),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// The text as a single line: newlines and tabs are escaped as well.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    if text.contains(['\n', '\t']) { Cow::Owned(text.replace('\n', r"\n").replace('\t', r"\t")) } else { text }
}

fn escape_into(shown: &mut String, letter: char) {
    let code = u32::from(letter);
    // Writing to a string cannot fail.
    let _ = match letter {
        '\r' => write!(shown, r"\r"),
        _ if code < 0x100 => write!(shown, r"\x{code:02x}"),
        _ => write!(shown, r"\u{{{code:x}}}"),
    };
}

/// Quotes a text as one word for a POSIX shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// JSON with all control characters escaped, also those beyond ASCII, which JSON allows. They can only occur within
/// its strings.
pub fn json(text: String) -> String {
    if !text.contains(is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_control(letter) {
            let _ = write!(shown, r"\u{:04x}", u32::from(letter));
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Makes a program's output safe for a terminal, piece by piece: removes colours, shows a progress bar that overwrites
/// its line as separate lines, and escapes all other control characters.
#[derive(Debug, Default)]
pub struct Plainer {
    /// The end of the last piece that may continue in the next: an escape sequence, or a line end.
    held: String,
}

/// The maximum length of a colour sequence, in bytes.
const LONGEST_COLOUR: usize = 32;

impl Plainer {
    /// The text to show for the next piece.
    pub fn piece(&mut self, piece: &str) -> String {
        let text = std::mem::take(&mut self.held) + piece;
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            match letter {
                '\u{1b}' => match colour(after) {
                    Colour::Whole(length) => {
                        rest = &after[length..];
                        continue;
                    }
                    Colour::Begun => {
                        rest.clone_into(&mut self.held);
                        return shown;
                    }
                    Colour::None => escape_into(&mut shown, letter),
                },
                '\r' if after.is_empty() => {
                    rest.clone_into(&mut self.held);
                    return shown;
                }
                '\r' if after.starts_with(['\r', '\n']) => {}
                '\r' => shown.push('\n'),
                letter if is_control(letter) => escape_into(&mut shown, letter),
                letter => shown.push(letter),
            }
            rest = after;
        }
        shown
    }

    /// The text still to be shown at the end of the output.
    pub fn end(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if held == "\r" { String::new() } else { printable(&held).into_owned() }
    }
}

enum Colour {
    /// A colour sequence, with its length in bytes after the escape character.
    Whole(usize),
    /// It may be the beginning of one.
    Begun,
    None,
}

fn colour(after: &str) -> Colour {
    let Some(rest) = after.strip_prefix('[') else {
        return if after.is_empty() { Colour::Begun } else { Colour::None };
    };
    let is_parameter = |letter: char| letter.is_ascii_digit() || matches!(letter, ';' | ':');
    match rest.find(|letter| !is_parameter(letter)) {
        Some(at) if at < LONGEST_COLOUR && rest[at..].starts_with('m') => Colour::Whole(1 + at + 1),
        None if rest.len() < LONGEST_COLOUR => Colour::Begun,
        _ => Colour::None,
    }
}

/// The text as one line of at most 300 characters, without a full stop at the end.
pub fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("\u{1b}]52;c;eA==\u{7}"), r"\x1b]52;c;eA==\x07");
        assert_eq!(printable("a\u{9b}2J\u{7f}\0"), r"a\x9b2J\x7f\x00");
        assert_eq!(printable("\u{202e}txt.exe\u{2066}"), r"\u{202e}txt.exe\u{2066}");
        assert_eq!(printable("one\rtwo\r\nthree\tfour\r"), "one\\rtwo\nthree\tfour");
        assert!(matches!(printable("Grüße, 世界 🚀\n\tب"), Cow::Borrowed(_)));
        assert_eq!(printable_line("a\nb\tc\u{8}"), r"a\nb\tc\x08");
        // Escaping is idempotent.
        assert_eq!(printable(&printable("\u{1b}\u{85}\u{2067}")), printable("\u{1b}\u{85}\u{2067}"));
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = "a\u{1b}\u{7f}\u{9b}2J\u{202e}\u{2069}\n\t\"\\ü世";
        let shown = json(serde_json::to_string(text).unwrap());
        assert_eq!(shown, r#""a\u001b\u007f\u009b2J\u202e\u2069\n\t\"\\ü世""#);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    #[test]
    fn a_log_is_shown_without_colours_and_with_other_control_characters_escaped() {
        let whole = "\u{1b}[36m(train pid=7)\u{1b}[0m 10%\r20%\r\ndone \u{1b}]0;x\u{7}\u{1b}[2J\u{1b}[38;2;1;2;3mx\n";
        let shown = "(train pid=7) 10%\n20%\ndone \\x1b]0;x\\x07\\x1b[2Jx\n";
        assert_eq!(Plainer::default().piece(whole), shown);
        // At every cut.
        for cut in whole.char_indices().map(|(at, _)| at) {
            let mut plainer = Plainer::default();
            let pieces = plainer.piece(&whole[..cut]) + &plainer.piece(&whole[cut..]) + &plainer.end();
            assert_eq!(pieces, shown, "cut at {cut}");
        }
        let mut plainer = Plainer::default();
        assert_eq!(plainer.piece("a\u{1b}[3"), "a");
        assert_eq!(plainer.end(), r"\x1b[3");
        let long = format!("\u{1b}[{}", "1;".repeat(100_000));
        assert_eq!(plainer.piece(&long).len(), long.len() + 3, "nothing is held back forever");
    }

    #[test]
    fn a_services_message_becomes_one_short_line() {
        assert_eq!(shortened(" Not\n enough  hosts. "), "Not enough hosts");
        assert_eq!(shortened(&"ä".repeat(400)), format!("{}…", "ä".repeat(300)));
    }
}
