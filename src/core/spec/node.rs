//! A YAML document as a tree with the position of every key and value.

use serde_json::{Number, Value};

/// A span within one line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The line, from 1.
    pub(super) line: usize,
    /// The column, from 1, in characters.
    pub(super) column: usize,
    /// The length in characters; 0 for a position between two characters, or a span over several lines.
    pub(super) length: usize,
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: Mark,
    pub(super) kind: NodeKind,
}

/// The kind of a value.
#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    /// Anything that is neither list nor map.
    Scalar {
        /// The text as written, without quotes.
        text: String,
        /// The value of the text.
        value: Value,
    },
    List(Vec<Node>),
    /// A map, in the order of the file, without the second of two equal keys.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) at: Mark,
}

impl Node {
    /// The node as JSON, without positions.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar { value, .. } => value.clone(),
            NodeKind::List(items) => items.iter().map(Self::to_json).collect(),
            NodeKind::Map(entries) => entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect(),
        }
    }

    /// The value, if it is neither list nor map.
    pub(super) fn scalar(&self) -> Option<&Value> {
        match &self.kind {
            NodeKind::Scalar { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Whether it is an empty scalar.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Scalar { value: Value::Null, .. })
    }

    /// A description for error messages.
    pub(super) fn what(&self) -> String {
        match &self.kind {
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => "a map of keys".to_owned(),
            NodeKind::Scalar { value: Value::Null, .. } => "empty".to_owned(),
            NodeKind::Scalar { text, value: Value::Number(_) } => format!("the number {text}"),
            NodeKind::Scalar { text, value: Value::Bool(_) } => format!("the boolean {text}"),
            NodeKind::Scalar { text, .. } => format!("the text `{}`", shortened(text)),
        }
    }
}

/// The text, cut to 60 characters.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let begin: String = text.chars().take(MOST).collect();
    if text.chars().count() > MOST { format!("{begin}…") } else { begin }
}

/// The value of an unquoted scalar.
///
/// It must agree with the YAML crate; [`super::load`] compares the two, so that a difference is an error and not
/// silent.
pub(super) fn meaning(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let (radix, rest) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    // 007 is text.
    if radix == 10 && rest.len() > 1 && rest.starts_with('0') && rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if !rest.starts_with(['+', '-']) {
        if negative {
            if let Ok(whole) = i64::from_str_radix(&format!("-{rest}"), radix) {
                return Some(whole.into());
            }
        } else if let Ok(whole) = u64::from_str_radix(rest, radix) {
            return Some(whole.into());
        }
    }
    let float: f64 = digits.parse().ok()?;
    // YAML reads `inf` and `nan` as text; JSON has no numbers for `.inf` and `.nan`.
    Number::from_f64(if negative { -float } else { float })
}
