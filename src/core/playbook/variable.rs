//! A variable of a playbook: its default, and the values that it can have.

use serde::{Deserialize, Deserializer};

/// A variable as written in a playbook: a default alone, or a map with its form.
///
/// One without a default is set by gpucl.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variable {
    /// The value where none is given.
    pub default: Option<String>,
    form: Form,
    may_be_empty: bool,
}

/// What the values of a variable look like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Text,
    /// Digits only: the shell compares it.
    Number,
    /// `SCHEME://…` in one word.
    Url,
    /// A word that begins with a digit: `1.20.0-1`.
    Version,
    OneOf(Vec<String>),
}

/// The names of forms in a playbook.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormName {
    Text,
    Number,
    Url,
    Version,
}

/// The map of a variable.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    default: Option<String>,
    is: Option<FormName>,
    one_of: Option<Vec<String>>,
    #[serde(default)]
    may_be_empty: bool,
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Default(Option<String>),
            Whole(serde_yaml::Mapping),
        }
        let written = match Either::deserialize(from)? {
            Either::Default(default) => Written { default, is: None, one_of: None, may_be_empty: false },
            // By itself, so that an unknown key is named.
            Either::Whole(map) => {
                Written::deserialize(serde_yaml::Value::Mapping(map)).map_err(serde::de::Error::custom)?
            }
        };
        let form = match (written.is, written.one_of) {
            (Some(_), Some(_)) => return Err(serde::de::Error::custom("a variable has either `is` or `one_of`")),
            (_, Some(words)) => Form::OneOf(words),
            (Some(FormName::Number), None) => Form::Number,
            (Some(FormName::Url), None) => Form::Url,
            (Some(FormName::Version), None) => Form::Version,
            (Some(FormName::Text) | None, None) => Form::Text,
        };
        // What is empty by default may be empty, and what gpucl sets is what it sets.
        let may_be_empty = written.may_be_empty || written.default.as_deref().is_none_or(str::is_empty);
        let variable = Self { default: written.default, form, may_be_empty };
        match variable.default.as_deref().and_then(|default| variable.wrong(default)) {
            Some(why) => Err(serde::de::Error::custom(format!("the default of a variable {why}"))),
            None => Ok(variable),
        }
    }
}

impl Variable {
    /// What is wrong with a value, as it follows the variable's name: `is empty, must be a number`.
    pub fn wrong(&self, value: &str) -> Option<String> {
        let is_right = match (&self.form, value.trim()) {
            (_, "") if self.may_be_empty => true,
            (_, "") => false,
            (Form::Text, _) => true,
            (Form::Number, value) => value.len() <= 9 && value.bytes().all(|byte| byte.is_ascii_digit()),
            (Form::Url, value) => {
                let is_scheme = |scheme: &str| {
                    let more = |letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter);
                    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.chars().all(more)
                };
                let odd = |letter: char| letter.is_whitespace() || "'\"`\\".contains(letter);
                let parts = value.split_once("://");
                parts.is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty() && !rest.contains(odd))
            }
            (Form::Version, value) => {
                let more = |letter: char| letter.is_ascii_alphanumeric() || ".+:~-".contains(letter);
                value.starts_with(|letter: char| letter.is_ascii_digit()) && value.chars().all(more)
            }
            (Form::OneOf(words), value) => words.iter().any(|word| word == value),
        };
        // The shell is given the value as it is.
        if is_right && (value.trim() == value || self.form == Form::Text) {
            return None;
        }
        let is = if value.trim().is_empty() { "is empty".to_owned() } else { format!("is `{value}`") };
        Some(format!("{is}, must be {}", self.describe()))
    }

    /// The form in words: `a number`, `one of ask, yes, no`.
    fn describe(&self) -> String {
        match &self.form {
            Form::Text => "a text".to_owned(),
            Form::Number => "a number".to_owned(),
            Form::Url => "a URL, such as http://mirror.example.org:5000".to_owned(),
            Form::Version => "a version, such as 1.20.0-1".to_owned(),
            Form::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(yaml: &str) -> Variable {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn each_form_takes_its_own_values() {
        for (yaml, right, wrong) in [
            ("'580'", &["570", " a b "][..], &["", " "][..]),
            ("''", &["", "x"], &[]),
            ("~", &["", "x"], &[]),
            ("{default: 'a,b', may_be_empty: true}", &["", "c"], &[]),
            ("{default: '23', is: number}", &["0", "28"], &["", "23.0", "x", "-1", " 23", "99999999999"]),
            (
                "{default: '', is: url}",
                &["", "http://m:5000", "https://m/$(ARCH)"],
                &["m:5000", "http://", "http://a b", "1://x"],
            ),
            ("{default: 1.20.0-1, is: version}", &["1.0", "2:1.0~rc1+b"], &["", "latest", "1 2"]),
            ("{default: ask, one_of: [ask, 'yes', 'no']}", &["yes", "no"], &["", "true", "Yes"]),
        ] {
            let variable = variable(yaml);
            for value in right {
                assert_eq!(variable.wrong(value), None, "{yaml} {value:?}");
            }
            for value in wrong {
                assert!(variable.wrong(value).is_some(), "{yaml} {value:?}");
            }
        }
        let ask = variable("{default: ask, one_of: [ask, 'yes']}");
        assert_eq!(ask.wrong("maybe").as_deref(), Some("is `maybe`, must be one of ask, yes"));
        assert_eq!(ask.wrong("").as_deref(), Some("is empty, must be one of ask, yes"));
    }

    #[test]
    fn a_mistake_in_a_form_is_named() {
        for (yaml, says) in [
            ("{default: x, iz: number}", "iz"),
            ("{default: x, is: numeral}", "numeral"),
            ("{default: x, is: number}", "is `x`, must be a number"),
            ("{default: x, is: text, one_of: [x]}", "either"),
        ] {
            let error = serde_yaml::from_str::<Variable>(yaml).unwrap_err().to_string();
            assert!(error.contains(says), "{yaml}: {error}");
        }
    }
}
