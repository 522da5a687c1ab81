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

#[cfg(test)]
mod tests {
    use super::*;

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
