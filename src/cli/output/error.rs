//! Formatting of errors.

use crate::cli::exit_code;
use crate::cli::global::Format;
use crate::error::{Error, LeftBehind};

/// Prints an error and returns its exit code.
pub(crate) fn print_error(error: &Error, format: Format) -> u8 {
    let code = exit_code::of(error.kind());
    let value = (format == Format::Json).then(|| {
        let mut value = serde_json::json!({ "v": 1, "type": "error", "exit_code": code });
        if let (Some(line), Ok(serde_json::Value::Object(error))) = (value.as_object_mut(), serde_json::to_value(error))
        {
            line.extend(error);
        }
        value
    });
    super::ui::error(value.as_ref(), &text(error));
    code
}

/// The text of an error.
pub(crate) fn text(error: &Error) -> String {
    let mut text = format!("error: failed to {}\n", error.doing());
    if let Some(snippet) = error.shown_snippet() {
        text.push_str(snippet.trim_end());
        text.push('\n');
    }
    let causes = error.causes();
    match causes {
        [] => {}
        [cause] => text.push_str(&format!("Caused by: {}\n", indent(cause))),
        _ => {
            text.push_str("Caused by:\n");
            for (number, cause) in causes.iter().enumerate() {
                text.push_str(&format!("  {}: {}\n", number + 1, indent(cause)));
            }
        }
    }
    match error.left_behind() {
        LeftBehind::Clear => {}
        LeftBehind::Remaining(ids) => text.push_str(&format!("left behind: {}\n", ids.join(", "))),
        LeftBehind::Unknown => {
            text.push_str("left behind: unknown; `gpucl status` and `gpucl down` ask the provider\n");
        }
    }
    for hint in error.hints() {
        text.push_str(&format!("hint: {}\n", indent(hint)));
    }
    text
}

fn indent(text: &str) -> String {
    text.trim_end().replace('\n', "\n      ")
}
