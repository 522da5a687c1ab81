//! Environment variables that a process can be started with.

/// How long a variable may be, in bytes, with its name, the `=` and an end of one byte: Linux starts no process with a
/// longer one (`MAX_ARG_STRLEN` in `execve(2)`: 32 pages).
pub const LONGEST: usize = 128 << 10;

/// What is wrong with a variable, as a phrase that follows its name.
pub fn fault(name: &str, value: &str) -> Option<String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Some("is not the name of a variable: it is empty, or has a `=`".to_owned());
    }
    if value.contains('\0') {
        return Some("has a byte of value 0, which ends a variable".to_owned());
    }
    let length = name.len() + value.len() + 2;
    (length > LONGEST).then(|| {
        let most = LONGEST >> 10;
        format!("has {} KiB; the system starts no process with a variable of more than {most} KiB", length >> 10)
    })
}

/// The name of a variable that every shell and program can read.
///
/// # Errors
/// What is wrong with it.
pub fn name(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if begins && text.len() <= 128 && text.chars().all(is_letter) {
        return Ok(text.to_owned());
    }
    Err("a name has letters, digits and `_`, and begins with no digit".to_owned())
}

/// Reads `NAME` or `NAME=VARIABLE`: the name of a stored secret, and the variable that it becomes.
///
/// # Errors
/// As for [`name`].
pub fn secret(text: &str) -> Result<(String, String), String> {
    let (stored, variable) = text.split_once('=').unwrap_or((text, text));
    Ok((name(stored)?, name(variable)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_a_name_and_may_become_another_variable() {
        for text in ["HF_TOKEN", "_x", "a1"] {
            assert_eq!(secret(text), Ok((text.to_owned(), text.to_owned())));
        }
        assert_eq!(secret("HF_TOKEN=TOKEN"), Ok(("HF_TOKEN".to_owned(), "TOKEN".to_owned())));
        for text in ["", "1a", "a-b", "a b", "\u{e9}", "A=", "=A", "A=1", "A=B=C"] {
            assert!(secret(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_process_cannot_be_started_with_is_said() {
        for (name, value) in [("A", ""), ("a.b", "x=y\n\u{fc}"), ("A", &*"x".repeat(LONGEST - 3))] {
            assert_eq!(fault(name, value), None, "{name}");
        }
        let started = |length: usize| std::process::Command::new("true").env("A", "x".repeat(length)).status();
        assert!(started(LONGEST - 3).is_ok() && started(LONGEST - 2).is_err());
        for (name, value, says) in [
            ("", "x", "is not the name"),
            ("A=B", "x", "is not the name"),
            ("A", "x\0", "a byte of value 0"),
            ("A", &*"x".repeat(LONGEST - 2), "has 128 KiB"),
        ] {
            assert!(fault(name, value).unwrap().contains(says), "{name}");
        }
    }
}
