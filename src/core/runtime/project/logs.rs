//! The logs of a project.

use crate::render::quote;

/// The end of every log script: shows the chosen logs.
const SHOW: &str = include_str!("logs.sh");

/// Which logs to print.
#[derive(Debug, Clone, Default)]
pub struct LogRequest {
    /// One container, by its key or its service name without hyphens; all when `None`.
    pub container: Option<String>,
    /// Only this many lines from the end of each log.
    pub tail: Option<usize>,
    /// Keep printing new lines until the reader is gone.
    pub follow: bool,
}

impl LogRequest {
    /// A script that prints logs: `choose` sets `chosen` to the wanted logs, and defines `show` for one of them.
    pub(crate) fn script(&self, header: &str, choose: &str) -> String {
        let want = quote(self.container.as_deref().unwrap_or_default());
        let follow = if self.follow { "1" } else { "" };
        format!("{header}want={want}\nfollow={follow}\n{choose}{SHOW}")
    }
}

/// A line printed by [`super::ProjectRuntime::logs_script`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// The key of an existing container.
    Known(&'a str),
    /// A line of a container's log: the key and the line.
    Line(&'a str, &'a str),
}

/// Parses a line printed by [`super::ProjectRuntime::logs_script`]; `None` for any other line.
pub fn log_line(line: &str) -> Option<LogLine<'_>> {
    if let Some(key) = line.strip_prefix("::known ") {
        return Some(LogLine::Known(key));
    }
    let rest = line.strip_prefix("::log ")?;
    let (key, text) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(LogLine::Line(key, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_container() {
        assert_eq!(log_line("::log worker0 a  b"), Some(LogLine::Line("worker0", "a  b")));
        assert_eq!(log_line("::log head "), Some(LogLine::Line("head", "")));
        assert_eq!(log_line("::known head"), Some(LogLine::Known("head")));
        assert_eq!(log_line("::here"), None);
    }
}
