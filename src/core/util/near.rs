//! Suggestions for misspelt names.

use strsim::osa_distance;

/// Finds the known name nearest to a misspelt one, if any is near enough.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (wrong.chars().count() / 3).max(1);
    known
        .into_iter()
        // Letters to insert, delete, replace or swap with their neighbour.
        .map(|name| (osa_distance(&wrong.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_intended_name() {
        let known = ["workers", "version", "head"];
        assert_eq!(nearest("wokers", known), Some("workers"));
        assert_eq!(nearest("haed", known), Some("head"));
        assert_eq!(nearest("colour", known), None);
    }
}
