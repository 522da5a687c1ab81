//! Every `gpucl …` line of documents, help texts, hints, templates and shell programs is one that the program's own
//! parser takes.

use std::path::{Path, PathBuf};

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{documents, root};

/// A command line, as somebody would paste it, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    place: String,
    text: String,
}

/// What follows `gpucl` where it is the name of the program in a sentence, and no command.
const IN_SENTENCES: &[&str] = &[
    "made", "sent", "keeps", "knows", "can", "has", "is", "and", "itself", "relies", "works", "takes", "sets", "does",
    "spec", "testbed",
];

#[test]
fn every_command_in_the_documents_is_valid() {
    let mut lines = Vec::new();
    for path in documents() {
        // Generated help is checked separately, and the changelog mentions former commands.
        if !path.ends_with("docs/reference/cli.md") && !path.ends_with("CHANGELOG.md") {
            lines.extend(in_markdown(&shown(&path), &std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(lines.len() > 150, "{}", lines.len());
    none(&lines);
}

#[test]
fn every_command_in_hints_and_comments_is_valid() {
    let mut lines = Vec::new();
    for path in files(&["src", "providers", "sandbox"], &["rs"]) {
        lines.extend(in_rust(&shown(&path), &std::fs::read_to_string(&path).unwrap()));
    }
    assert!(lines.len() > 150, "{}", lines.len());
    none(&lines);
}

#[test]
fn every_command_in_help_texts_is_valid() {
    let mut lines = Vec::new();
    let mut commands = vec![gpucl::cli::command()];
    while let Some(command) = commands.pop() {
        let own = [command.get_about(), command.get_long_about()].into_iter().flatten().map(ToString::to_string);
        let of_arguments = command
            .get_arguments()
            .flat_map(|argument| [argument.get_help(), argument.get_long_help()])
            .flatten()
            .map(ToString::to_string);
        let place = format!("the help of {}", command.get_name());
        for text in own.chain(of_arguments) {
            lines.extend(text.lines().flat_map(|line| in_text(&place, line)));
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(lines.len() >= 5, "{lines:?}");
    none(&lines);
}

#[test]
fn every_command_in_templates_playbooks_and_scripts_is_valid() {
    let mut lines = Vec::new();
    let kinds = ["sh", "yaml", "yml", "tera", "py", ""];
    for path in
        files(&["src", "providers", "playbooks", "templates", "examples", "testbed", "packaging", "justfile"], &kinds)
    {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            lines.extend(in_text(&format!("{}:{number}", shown(&path)), line));
        }
    }
    assert!(lines.len() > 15, "{}", lines.len());
    none(&lines);
}

/// The tests above find wrong commands in every place.
#[test]
fn a_wrong_command_is_found_wherever_it_stands() {
    let mut parser = parser();
    let mut wrong = |lines: Vec<Line>| lines.iter().filter_map(|line| wrong(line, &mut parser)).collect::<Vec<_>>();
    let markdown = "Do `gpucl up --wait-capcity 6h`, or\n\n    FOO=1 gpucl lease --nod liqid01 --hours 3   # so long\n\n\
                    ```console\n$ eval \"$(gpucl environ)\"\nready: gpucl is up\n```\n\
                    As `gpucl up FILE`, `gpucl lease --node NAME --hours N`, `gpucl logs [NODE]` and `gpucl job submit -- python …` are right.\n";
    let found = wrong(in_markdown("x.md", markdown));
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].contains("x.md:1") && found[1].contains("x.md:3") && found[2].contains("x.md:6"), "{found:#?}");
    let rust = "/// As `gpucl template ejct NAME`.\nfn x() { hint(format!(\"look: gpucl exec {name} -- nvidia-smi\")); \
                // gpucl nonsense\n hint(\"gpucl logs -c {0}; gpucl verfy -c {0}   # again\"); \
                hint(\"gpucl lease show {}{}\"); say(\"what gpucl does\"); let c = '\"'; hint(r\"gpucl gc --ys\"); }";
    let found = wrong(in_rust("x.rs", rust));
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(wrong(in_text("x.tera", "# made by gpucl: `gpucl template eject ray-compose` to change it")).len(), 0);
    assert_eq!(wrong(in_text("x.yaml", "hint: \"gpucl exec --root docker -- ps\"")).len(), 1);
}

fn parser() -> Command {
    let mut parser = gpucl::cli::command();
    parser.build();
    parser
}

#[track_caller]
fn none(lines: &[Line]) {
    let mut parser = parser();
    let wrong: Vec<String> = lines.iter().filter_map(|line| wrong(line, &mut parser)).collect();
    assert!(wrong.is_empty(), "{} of {} lines cannot be given:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The files of these kinds below these folders.
fn files(folders: &[&str], kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        } else if kinds.contains(&path.extension().and_then(|end| end.to_str()).unwrap_or_default()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// In code: blocks that are fenced or indented, and pieces within a line.
fn in_markdown(place: &str, text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{place}:{number}");
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.trim()) };
        } else if let Some(kind) = fence {
            // Of what a terminal shows only what was typed is a command.
            match (kind, line.strip_prefix("$ ")) {
                ("console", Some(typed)) => lines.extend(in_text(&place, typed)),
                ("console", None) => lines.extend(spans(line).iter().flat_map(|span| in_text(&place, span))),
                _ => lines.extend(in_text(&place, line)),
            }
        } else if line.starts_with("    ") && !line.trim_start().starts_with(['-', '*', '|']) {
            lines.extend(in_text(&place, line));
        } else {
            lines.extend(spans(line).iter().flat_map(|span| in_text(&place, span)));
        }
    }
    lines
}

/// In texts, and in comments between backticks.
fn in_rust(place: &str, text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let bytes = text.as_bytes();
    let (mut at, mut number) = (0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let (length, literal) = if rest.starts_with("//") {
            let comment = rest.lines().next().unwrap_or_default();
            lines.extend(spans(comment).iter().flat_map(|span| in_text(&format!("{place}:{number}"), span)));
            (comment.len(), None)
        } else if let Some(character) = character(rest) {
            (character, None)
        } else {
            literal(rest).map_or((1, None), |(length, literal)| (length, Some(literal)))
        };
        for part in literal.iter().flat_map(|literal| literal.lines()) {
            lines.extend(in_text(&format!("{place}:{number}"), part));
        }
        let mut end = at + length.max(1);
        while !text.is_char_boundary(end) {
            end += 1;
        }
        number += text[at..end].matches('\n').count();
        at = end;
    }
    lines
}

/// The length of a character literal: a quote in it opens no text.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    let length = if first == '\\' { inside[1..].find('\'')? + 1 } else { first.len_utf8() };
    inside[length..].starts_with('\'').then_some(length + 2)
}

/// A text literal: its length in the source, and what it holds.
fn literal(rest: &str) -> Option<(usize, String)> {
    if let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let inside = raw[hashes..].strip_prefix('"')?;
        let end = inside.find(&format!("\"{}", "#".repeat(hashes)))?;
        return Some((1 + hashes + 1 + end + 1 + hashes, inside[..end].to_owned()));
    }
    let inside = rest.strip_prefix('"')?;
    let mut said = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((at + 2, said)),
            '\\' => match letters.next()?.1 {
                'n' => said.push('\n'),
                '\n' => {
                    let more = letters.as_str();
                    for _ in 0..more.chars().take_while(|letter| letter.is_whitespace()).count() {
                        letters.next();
                    }
                }
                other => said.push(other),
            },
            other => said.push(other),
        }
    }
    None
}

/// What stands between backticks.
fn spans(line: &str) -> Vec<String> {
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The commands of one line of text: those that begin it, or stand behind what a command can stand behind.
fn in_text(place: &str, line: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for name in ["gpucl", "cargo run --"] {
        for (at, _) in line.match_indices(name) {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let Some(words) = after.strip_prefix(' ').filter(|words| !words.is_empty()) else { continue };
            if !begins_a_command(before) || words.starts_with(['=', '#']) {
                continue;
            }
            let text = up_to_its_end(words, before).trim();
            // The end of a sentence is none of a command, and a folder is: `cp head:x .`.
            let text =
                if text.ends_with(" .") { text } else { text.trim_end_matches(['.', ',', ':', '?', '!']) }.to_owned();
            let first = text.split([' ', ',']).next().unwrap_or_default();
            if !text.is_empty() && !IN_SENTENCES.contains(&first) && !is_placeholder(first) {
                lines.push(Line { place: place.to_owned(), text });
            }
        }
    }
    lines
}

/// Whether a command can begin behind this.
fn begins_a_command(before: &str) -> bool {
    let trimmed = before.trim_end();
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b == b'_' || b.is_ascii_uppercase()))
    };
    trimmed.is_empty()
        || before.ends_with(['`', '"', '\'', '('])
        || ["$", "|", "&&", ";", ":", "sudo", "#"]
            .iter()
            .any(|end| trimmed.ends_with(end) && before.len() > trimmed.len())
        || trimmed.split_whitespace().last().is_some_and(is_assignment)
}

/// The words of a command: to the quote it stands in, to the next command, to a comment, or to a comma in a sentence.
fn up_to_its_end<'a>(words: &'a str, before: &str) -> &'a str {
    let mut quote = None;
    let inside = before.chars().last().filter(|letter| ['`', '"', '\'', '('].contains(letter));
    let closes = inside.map(|letter| if letter == '(' { ')' } else { letter });
    for (at, letter) in words.char_indices() {
        let rest = &words[at..];
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, _) if Some(letter) == closes => return &words[..at],
            (None, '"' | '\'') => quote = Some(letter),
            (None, '`' | ';' | '|' | ')') => return &words[..at],
            // The end of `<name>` is none of a redirection.
            (None, '>') if words[..at].matches('<').count() <= words[..at].matches('>').count() => return &words[..at],
            (None, ' ') if ["  ", " #", " &", " > ", " 2>", " < "].iter().any(|end| rest.starts_with(end)) => {
                return &words[..at];
            }
            (None, ',') if rest.starts_with(", ") => return &words[..at],
            _ => {}
        }
    }
    words
}

/// A word that stands for something: `NAME`, `<id>`, `{name}`, `…`.
fn is_placeholder(word: &str) -> bool {
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    let is_name = capitals >= 1 && !word.bytes().any(|byte| byte.is_ascii_lowercase());
    is_name || word.starts_with(['<', '{']) || ["…", "..."].contains(&word)
}

/// Why this command cannot be given; nothing when it can.
fn wrong(line: &Line, parser: &mut Command) -> Option<String> {
    let words = words(&line.text);
    let problem = |why: &str| Some(format!("{}: gpucl {}\n    {why}", line.place, line.text));
    if is_a_name(&words, parser) {
        return None;
    }
    if is_host_before_dashes(&words) {
        return problem("a host is named by --host");
    }
    let mut first = None;
    // A placeholder stands for a name, for a number, or for nothing.
    for stand_in in ["x", "1", ""] {
        match parse(&words, stand_in, parser) {
            Ok(()) => return None,
            Err(why) => first = first.or(Some(why)),
        }
    }
    first.and_then(|why| problem(&why))
}

/// It names a command, and is not one to be given: `gpucl job submit`.
fn is_a_name(words: &[String], parser: &Command) -> bool {
    let mut command = parser;
    words.iter().filter(|word| *word != "…").all(|word| match command.find_subcommand(word) {
        Some(found) => {
            command = found;
            true
        }
        None => false,
    })
}

/// The parser takes a host's name for a program's.
fn is_host_before_dashes(words: &[String]) -> bool {
    let at = words.iter().position(|word| word == "--");
    words.first().is_some_and(|word| word == "exec")
        && at.is_some_and(|at| {
            at > 1 && !words[at - 1].starts_with('-') && words[at - 2] != "--host" && words[at - 2] != "-c"
        })
}

fn parse(words: &[String], stand_in: &str, parser: &mut Command) -> Result<(), String> {
    let given = words.iter().map(|word| filled_in(word, stand_in)).filter(|word| !word.is_empty());
    let Err(error) = parser.try_get_matches_from_mut(std::iter::once("gpucl".to_owned()).chain(given)) else {
        return Ok(());
    };
    // Of a choice of words a placeholder is any.
    let is_stand_in = error.kind() == ErrorKind::InvalidValue
        && matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value == stand_in);
    if !error.use_stderr() || is_stand_in {
        return Ok(());
    }
    Err(error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A word with something in the place of what stands for something.
fn filled_in(word: &str, stand_in: &str) -> String {
    let word = word.trim_start_matches('[').trim_end_matches(']');
    let word = word.split('|').next().unwrap_or_default().replace("...", "…");
    let (mut text, mut rest) = (String::new(), word.as_str());
    while let Some(at) = rest.find(['<', '{', '$', '…']) {
        let begin = &rest[at..];
        let length = match begin.chars().next() {
            Some('<') => begin.find('>').map(|end| end + 1),
            Some('{') => begin.find('}').map(|end| end + 1),
            Some('$') => {
                Some(1 + begin[1..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count())
            }
            _ => Some('…'.len_utf8()),
        };
        let Some(length) = length else { break };
        text.push_str(&rest[..at]);
        // What stands right behind a word are more flags, where there are any: `gc{flags}`.
        if !text.ends_with(|letter: char| letter.is_ascii_alphanumeric()) {
            text.push_str(stand_in);
        }
        rest = &begin[length..];
    }
    text.push_str(rest);
    let is_name = text.chars().any(|letter| letter.is_ascii_uppercase())
        && text.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || "-_".contains(letter));
    if is_name { stand_in.to_owned() } else { text }
}

/// The words as a shell has them.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => (quote, is_word) = (Some(letter), true),
            (None, _) if letter.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            // `{0}` and `{name:?}` are one word, as is `<a name>`.
            (None, '<') => {
                word.push(letter);
                word.extend(std::iter::from_fn(|| letters.next_if(|letter| *letter != '>')));
                is_word = true;
            }
            _ => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}
