//! The logs of what runs on a host.

use crate::render::quote;

/// Shows what a runtime chose.
const SHOW: &str = include_str!("logs.sh");

/// What of the logs is asked for.
#[derive(Debug, Clone, Default)]
pub struct LogRequest {
    /// One container, by its key or its service's name without hyphens; all when absent.
    pub container: Option<String>,
    /// Only so many lines from the end of each.
    pub tail: Option<usize>,
    /// Go on with what comes, until nobody listens any more.
    pub follow: bool,
}

impl LogRequest {
    /// A script that prints logs: `choose` puts what is wanted into `chosen`, and defines how to `show` each.
    pub(crate) fn script(&self, header: &str, choose: &str) -> String {
        let want = quote(self.container.as_deref().unwrap_or_default());
        let follow = if self.follow { "1" } else { "" };
        format!("{header}want={want}\nfollow={follow}\n{choose}{SHOW}")
    }
}

/// What [`super::ProjectRuntime::logs_script`] prints, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// A container that is there: its key.
    Known(&'a str),
    /// A line of a container's log: its key, and the line.
    Line(&'a str, &'a str),
}

/// Reads a line that [`super::ProjectRuntime::logs_script`] printed; `None` when it is nothing of it.
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
