//! Besides `compose_text.rs`, the only file that uses the YAML crates.
//!
//! The text is read twice. The first pass uses the parser's events: it records positions, finds what the second drops
//! silently (duplicate keys), and refuses what a spec does not need and what could make reading expensive: anchors,
//! aliases, merge keys, tags, several documents, deep nesting. The second pass deserializes into the types.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::node::{Key, Mark, Node, NodeKind, meaning, shortened};
use super::place::{Problem, item, join};

/// The maximum size of a spec, in bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// The maximum nesting of lists and maps.
const MOST_DEPTH: usize = 32;
/// The maximum number of keys and values in a spec.
const MOST_NODES: usize = 20_000;

/// Reads the text; `None` if it is empty. Also returns the problems that did not prevent reading.
pub(super) fn read(text: &str) -> Result<(Option<Node>, Vec<Problem>), Box<Problem>> {
    if let Some(problem) = half_line_break(text) {
        return Err(problem.into());
    }
    let mut reader = Reader { parser: Parser::new_from_str(text), nodes: 0, problems: Vec::new() };
    let root = reader.document()?;
    Ok((root.filter(|node| !node.is_null()), reader.problems))
}

/// Deserializes the text with the YAML crate alone.
pub(super) fn deserialize<T: DeserializeOwned>(text: &str) -> Result<T, Box<Problem>> {
    serde_yaml::from_str(text).map_err(|error| {
        let message = error.to_string();
        Box::new(match error.location() {
            Some(place) => {
                let suffix = format!(" at line {} column {}", place.line(), place.column());
                let mark = Mark { line: place.line(), column: place.column(), length: 0 };
                Problem::at(mark, "", message.strip_suffix(&suffix).unwrap_or(&message))
            }
            None => Problem::new("", message),
        })
    })
}

/// The text as JSON, read with the YAML crate alone.
pub(super) fn plain(text: &str) -> Result<Value, Box<Problem>> {
    deserialize(text)
}

/// The first character that only some YAML parsers take as a line break.
pub(super) fn half_line_break(text: &str) -> Option<Problem> {
    let at = text.find(['\u{85}', '\u{2028}', '\u{2029}'])?;
    let before = &text[..at];
    let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
    let mark = Mark { line: before.matches('\n').count() + 1, column, length: 1 };
    let letter = text[at..].chars().next().map_or(0, u32::from);
    let message = format!("the character U+{letter:04X} is a line break for only some YAML parsers");
    Some(Problem::at(mark, "", message).note("remove it; in double quotes, `\\n` is a line break"))
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Mark), Box<Problem>> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, mark(&span))),
            Some(Err(error)) => {
                let place = error.marker();
                let mark = Mark { line: place.line(), column: place.col() + 1, length: 0 };
                Err(syntax(mark, error.info()).into())
            }
            None => Ok((Event::StreamEnd, Mark { line: 1, column: 1, length: 0 })),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Box<Problem>> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Problem::at(at, "", "a second document begins here")
                        .note("a file describes one cluster: put the other one in its own file")
                        .into());
                }
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, at, "", 0)?),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, at: Mark, path: &str, depth: usize) -> Result<Node, Box<Problem>> {
        self.count(at, path)?;
        refuse_what_is_not_plain(&event, at, path)?;
        if depth >= MOST_DEPTH && !matches!(event, Event::Scalar(..)) {
            return Err(too_deep(at).into());
        }
        let kind = match event {
            Event::Scalar(text, style, ..) => {
                let value = if style == ScalarStyle::Plain { meaning(&text) } else { Value::String(text.to_string()) };
                NodeKind::Scalar { text: text.into_owned(), value }
            }
            Event::SequenceStart(..) => NodeKind::List(self.list(path, depth)?),
            Event::MappingStart(..) => NodeKind::Map(self.map(path, depth)?),
            _ => return Err(Problem::at(at, path, "is not a value").into()),
        };
        Ok(Node { at, kind })
    }

    fn list(&mut self, path: &str, depth: usize) -> Result<Vec<Node>, Box<Problem>> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, &item(path, items.len()), depth + 1)?),
            }
        }
    }

    fn map(&mut self, path: &str, depth: usize) -> Result<Vec<(Key, Node)>, Box<Problem>> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        // A hash map, so that a large map does not take quadratic time.
        let mut lines = std::collections::HashMap::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            self.count(at, path)?;
            refuse_what_is_not_plain(&event, at, path)?;
            let Event::Scalar(text, style, ..) = event else {
                return Err(Problem::at(at, path, "a key is a list or a map; it must be plain text").into());
            };
            if text == "<<" && style == ScalarStyle::Plain {
                return Err(refused(at, path, "merge keys (`<<`)").into());
            }
            let key = Key { text: text.into_owned(), at };
            let below = join(path, &key.text);
            let (event, at) = self.next()?;
            let node = self.node(event, at, &below, depth + 1)?;
            match lines.get(&key.text) {
                Some(line) => self
                    .problems
                    .push(Problem::at(key.at, &below, "duplicate key").note(format!("first given in line {line}"))),
                None => {
                    lines.insert(key.text.clone(), key.at.line);
                    entries.push((key, node));
                }
            }
        }
    }

    fn count(&mut self, at: Mark, path: &str) -> Result<(), Box<Problem>> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            let message = format!("more than {MOST_NODES} keys and values before this one: too many for a spec");
            return Err(Problem::at(at, path, message).into());
        }
        Ok(())
    }
}

fn mark(span: &Span) -> Mark {
    let (start, end) = (span.start, span.end);
    let length = if start.line() == end.line() { end.col().saturating_sub(start.col()) } else { 0 };
    Mark { line: start.line(), column: start.col() + 1, length }
}

fn syntax(at: Mark, info: &str) -> Problem {
    if info.contains("unknown anchor") {
        return refused(at, "", "aliases (`*name`)");
    }
    // The scanner reads ahead, so it may reach its own limit before the reader reaches ours.
    if info.contains("recursion limit") {
        return too_deep(at);
    }
    Problem::at(at, "", format!("is not valid YAML: {}", shortened(info)))
}

fn too_deep(at: Mark) -> Problem {
    Problem::at(at, "", format!("lists and maps are nested more than {MOST_DEPTH} deep"))
}

fn refused(at: Mark, path: &str, what: &str) -> Problem {
    Problem::at(at, path, format!("{what} are not supported in a spec"))
        .note("write the value itself wherever it is needed")
}

fn refuse_what_is_not_plain(event: &Event<'_>, at: Mark, path: &str) -> Result<(), Box<Problem>> {
    let (anchor, tag) = match event {
        Event::Alias(_) => return Err(refused(at, path, "aliases (`*name`)").into()),
        Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
            (*anchor, tag)
        }
        _ => return Ok(()),
    };
    if anchor > 0 {
        return Err(refused(at, path, "anchors (`&name`)").into());
    }
    if tag.is_some() {
        return Err(refused(at, path, "tags (`!name`)").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn scalars_are_read_as_by_the_yaml_crate() {
        for text in [
            "~",
            "null",
            "NULL",
            "nil",
            "true",
            "True",
            "TRUE",
            "tRUE",
            "yes",
            "no",
            "on",
            "0",
            "-0",
            "+5",
            "-5",
            "007",
            "-007",
            "00",
            "0.5",
            ".5",
            "5.",
            "1e3",
            "1e999",
            "-1.5",
            "+1.5",
            "0x1F",
            "-0x1F",
            "0o17",
            "0b11",
            "0b12",
            "0x",
            "1_000",
            "2.60",
            "2.60.0",
            "inf",
            "nan",
            "infinity",
            "18446744073709551615",
            "-9223372036854775808",
            "12:30",
            "2026-01-02",
            "+",
            "a b",
        ] {
            assert_eq!(plain(text).unwrap(), meaning(text), "{text}");
        }
    }

    #[test]
    fn an_error_found_only_by_the_types_has_its_position_too() {
        let problem = deserialize::<Spec>("name: demo\nray:\n  wokers: 1\n").unwrap_err();
        let mark = problem.mark.unwrap();
        assert_eq!((mark.line, mark.column), (3, 3));
        assert!(problem.message.starts_with("ray: unknown field `wokers`"), "{}", problem.message);
        assert!(!problem.message.contains("at line"), "{}", problem.message);
    }
}
