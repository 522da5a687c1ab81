//! Tera, configured so that an undefined variable is an error and nothing is escaped automatically.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tera::{Context, Tera};

use crate::error::{Doing as _, ErrorKind, Result};

/// Renders a template's text. The error for an undefined variable names the defined ones.
///
/// Three filters are added: `{{ value | quote }}` makes the value one word of a shell program, `{{ value | word }}` one
/// value of a compose file, and `{{ value | json }}` makes any value JSON, which is YAML too.
pub fn render(name: &str, text: &str, variables: &impl serde::Serialize) -> Result<String> {
    let doing = || format!("render {name}");
    let context = Context::from_serialize(variables).doing(ErrorKind::Spec, doing)?;
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&'static str>::new());
    tera.register_filter("quote", |value: &str, _: tera::Kwargs, _: &tera::State<'_>| quote(value));
    tera.register_filter("word", |value: &str, _: tera::Kwargs, _: &tera::State<'_>| word(value));
    tera.register_filter("json", |value: tera::Value, _: tera::Kwargs, _: &tera::State<'_>| json(&value));
    tera.add_raw_template(name, text).doing(ErrorKind::Spec, doing)?;
    tera.render(name, &context).doing(ErrorKind::Spec, doing)
}

/// Quotes a text as one word for a POSIX shell.
pub fn quote(text: &str) -> String {
    crate::util::text::quoted(text)
}

/// Quotes a path on a host as one word for a shell: a leading `~/` is the executing user's home, the rest is literal.
pub fn quote_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quote(rest)),
        None => quote(path),
    }
}

/// The lines of a program for a POSIX shell that write files below a folder that is there, however large they are.
pub fn write_files(folder: &str, files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut script = String::new();
    for (name, bytes) in files {
        let _ = writeln!(script, "base64 -d >{folder}/{} <<'GPUCL_FILE' || exit 1", quote(name));
        for line in bytes.chunks(57) {
            STANDARD.encode_string(line, &mut script);
            script.push('\n');
        }
        script.push_str("GPUCL_FILE\n");
    }
    script
}

/// Quotes a text as one value of a compose file, with each `$` doubled, which else begins a variable.
fn word(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string().replace('$', "$$")
}

fn json(value: &tera::Value) -> tera::TeraResult<String> {
    serde_json::to_string(value).map_err(|error| tera::Error::message(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn variables_are_filled_in_and_undefined_ones_refused() {
        let variables = BTreeMap::from([("image", "a && b <c> \"q\"")]);
        assert_eq!(render("x.yaml", "{{ image }}", &variables).unwrap(), "a && b <c> \"q\"");
        assert_eq!(render("x.sh", "{{ image | quote }}", &variables).unwrap(), "'a && b <c> \"q\"'");
        let error = render("x.yaml", "{{ imgae }}", &variables).unwrap_err().to_string();
        assert!(error.contains("imgae") && error.contains("image"), "{error}");
    }

    #[test]
    fn a_quote_cannot_leave_its_word() {
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
    }
}
