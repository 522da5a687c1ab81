//! What a sync leaves alone: patterns in the form of `.gitignore`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Error, ErrorKind, Result};

/// Patterns of what is neither sent nor deleted.
#[derive(Debug, Clone)]
pub struct Excludes(Gitignore);

impl Excludes {
    /// Excludes nothing.
    pub fn none() -> Self {
        Self(Gitignore::empty())
    }

    /// Reads patterns in the form of a line of `.gitignore`; a later one wins.
    ///
    /// # Errors
    /// When one is not such a pattern.
    pub fn new(patterns: &[String]) -> Result<Self> {
        let wrong = |pattern: &str, error: ignore::Error| {
            Error::new(ErrorKind::Usage, format!("read the pattern `{pattern}`")).because(error)
        };
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| wrong(pattern, error))?;
        }
        Ok(Self(builder.build().map_err(|error| wrong(&patterns.join(" "), error))?))
    }

    /// Whether a path below the top folder, or a folder that it is in, is excluded.
    pub(super) fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        !self.0.is_empty() && self.0.matched_path_or_any_parents(OsStr::from_bytes(path), is_folder).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_gitignore() {
        let patterns = ["*.pyc", "/build/", "!keep.pyc", "a b"].map(str::to_owned);
        let excludes = Excludes::new(&patterns).unwrap();
        for (path, is_folder, is_excluded) in [
            ("x.pyc", false, true),
            ("deep/x.pyc", false, true),
            ("deep/keep.pyc", false, false),
            ("build", true, true),
            ("build/x", false, true),
            ("deep/build/x", false, false),
            ("build", false, false),
            ("a b", false, true),
        ] {
            assert_eq!(excludes.matches(path.as_bytes(), is_folder), is_excluded, "{path}");
        }
        assert!(!Excludes::none().matches(b"x", false));
        assert!(Excludes::new(&["a[z-b]".to_owned()]).is_err());
    }
}
