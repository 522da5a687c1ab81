//! Joins arguments into the command line that Ray passes to a shell.

/// Joins arguments so that a POSIX shell parses exactly these.
pub fn shell_line<S: AsRef<str>>(arguments: &[S]) -> String {
    arguments.iter().map(|argument| quoted(argument.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Quotes a text as one word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    // `=` stays bare: `-- SEED=1 python train.py` sets a variable, as in any shell.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    crate::util::text::quoted(word)
}
