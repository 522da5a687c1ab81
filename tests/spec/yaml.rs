//! The supported subset of YAML, and its limits.

use std::time::{Duration, Instant};

use super::{read, refuses};

#[test]
fn anchors_are_refused() {
    refuses(
        "name: demo\nray: &r {}\n",
        r"
  cluster.yaml:2:6: ray: anchors (`&name`) are not supported in a spec
     2 | ray: &r {}
       |      ^^^^
  write the value itself wherever it is needed
",
    );
}

#[test]
fn aliases_are_refused() {
    refuses(
        "name: demo\nray: *r\n",
        r"
  cluster.yaml:2:6: aliases (`*name`) are not supported in a spec
     2 | ray: *r
       |      ^
  write the value itself wherever it is needed
",
    );
}

#[test]
fn tags_are_refused() {
    refuses(
        "name: demo\nray:\n  version: !!str 2\n",
        r"
  cluster.yaml:3:12: ray.version: tags (`!name`) are not supported in a spec
     3 |   version: !!str 2
       |            ^^^^^^^
  write the value itself wherever it is needed
",
    );
}

#[test]
fn merge_keys_are_refused() {
    refuses(
        "name: demo\nray:\n  <<: {version: 2.60.0}\n",
        r"
  cluster.yaml:3:3: ray: merge keys (`<<`) are not supported in a spec
     3 |   <<: {version: 2.60.0}
       |   ^^
  write the value itself wherever it is needed
",
    );
}

#[test]
fn a_second_document_is_refused() {
    refuses(
        "name: demo\n---\nname: other\n",
        r"
  cluster.yaml:2:1: a second document begins here
     2 | ---
       | ^^^
  a file describes one cluster: put the other one in its own file
",
    );
}

#[test]
fn a_list_at_the_top_is_refused() {
    refuses(
        "- name: demo\n",
        r"
  cluster.yaml:1:1: is a list, must be a map of keys
     1 | - name: demo
       | ^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_text_at_the_top_is_refused() {
    refuses(
        "demo\n",
        r"
  cluster.yaml:1:1: is the text `demo`, must be a map of keys
     1 | demo
       | ^^^^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn an_empty_file_is_refused() {
    refuses(
        "",
        r"
  cluster.yaml:1:1: is empty
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_file_of_comments_is_refused() {
    refuses(
        "# later\n",
        r"
  cluster.yaml:1:1: is empty
     1 | # later
       | ^
  the smallest spec is one line: `name: demo`
",
    );
}

#[test]
fn a_tab_is_reported_as_a_tab() {
    refuses(
        "name: demo\nray:\n\tversion: 2.60.0\n",
        r"
  cluster.yaml:3:2: is not valid YAML: tabs disallowed within this context (block indentation)
     3 |  version: 2.60.0
       |  ^
  indent with spaces: YAML does not allow tabs there
",
    );
}

#[test]
fn an_unclosed_bracket_is_refused() {
    refuses(
        "name: demo\nhosts: [{}\n",
        r"
  cluster.yaml:3:1: is not valid YAML: while parsing a flow sequence, expected ',' or ']'
  the file ends here
",
    );
}

#[test]
fn a_key_that_is_a_list_is_refused() {
    refuses(
        "name: demo\n? [a, b]\n: 1\n",
        r"
  cluster.yaml:2:3: a key is a list or a map; it must be plain text
     2 | ? [a, b]
       |   ^
",
    );
}

#[test]
fn a_carriage_return_ends_a_line() {
    refuses(
        "name: demo\r\nray:\r\n  wokers: {}\r\n",
        r"
  cluster.yaml:3:3: ray.wokers: unknown key
     3 |   wokers: {}
       |   ^^^^^^
  did you mean `workers`?
",
    );
}

#[test]
fn a_byte_order_mark_moves_nothing() {
    refuses(
        "\u{feff}naem: demo\n",
        r"
  cluster.yaml:1:1: naem: unknown key
     1 | naem: demo
       | ^^^^
  did you mean `name`?
",
    );
}

#[test]
fn wide_letters_are_counted_as_letters() {
    refuses(
        "name: demo\nenvironment: {\u{c4}\u{d6}: '\u{65e5}\u{672c}', B: 1}\n",
        r#"
  cluster.yaml:2:15: environment."ÄÖ": is not a variable name: use letters, digits and `_`
     2 | environment: {ÄÖ: '日本', B: 1}
       |               ^^

  cluster.yaml:2:28: environment.B: is the number 1, must be text
     2 | environment: {ÄÖ: '日本', B: 1}
       |                            ^
  in quotes it is text: "1"
"#,
    );
}

#[test]
fn a_line_break_of_only_some_parsers_is_refused() {
    refuses(
        "name: demo\nenvironment:\n  A: one\u{2028}two\n",
        r"
  cluster.yaml:3:9: the character U+2028 is a line break for only some YAML parsers
     3 |   A: one two
       |         ^
  remove it; in double quotes, `\n` is a line break
",
    );
}

#[test]
fn yaml_that_two_parsers_read_differently_is_refused() {
    refuses(
        "name: demo\nhosts:\n  - node: .inf\n",
        r"
  cluster.yaml:3:11: hosts[0].node: is ambiguous YAML
     3 |   - node: .inf
       |           ^^^^
  put the value in quotes, on one line
",
    );
}

#[test]
fn control_characters_reach_no_terminal() {
    refuses(
        "name: demo\nenvironment:\n  A-\u{1b}[31m: x\n",
        r#"
  cluster.yaml:3:3: environment."A-\u{1b}[31m": is not a variable name: use letters, digits and `_`
     3 |   A- [31m: x
       |   ^^^^^^^
"#,
    );
}

#[test]
fn a_long_line_is_cut() {
    refuses(
        "name: demo\nenvironment: {LONG: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', SHORT: 1}\n",
        r#"
  cluster.yaml:2:232: environment.SHORT: is the number 1, must be text
     2 | … xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', SHORT: 1}
       |                                                          ^
  in quotes it is text: "1"
"#,
    );
}

/// Reads a text that is made to be expensive, and returns what was said of it.
#[track_caller]
fn quickly_refused(text: &str) -> String {
    let begin = Instant::now();
    let Err(error) = read(text) else { unreachable!("it was read: {text}") };
    let took = begin.elapsed();
    // Milliseconds in truth; the limit is for a busy machine.
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    error.shown_snippet().unwrap_or_default().to_owned()
}

#[test]
fn an_alias_bomb_is_refused_quickly() {
    let mut bomb = "name: demo\nhosts:\n  - &l0 {node: a}\n".to_owned();
    for level in 1..30 {
        bomb.push_str(&format!("  - &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(", ")));
    }
    let shown = quickly_refused(&bomb);
    assert!(
        shown.starts_with("  cluster.yaml:3:5: hosts[0]: anchors (`&name`) are not supported in a spec"),
        "{shown}"
    );
}

#[test]
fn deep_nesting_is_refused_quickly() {
    let block: String = (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth.min(90)))).collect();
    for text in [
        format!("hosts: {}{}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("hosts: {}", "[".repeat(10_000)),
        format!("hosts: {}", "{a: ".repeat(10_000)),
        format!("hosts:\n{}a", "- ".repeat(10_000)),
        block,
    ] {
        let shown = quickly_refused(&text);
        assert!(shown.contains("are nested more than 32 deep"), "{shown}");
    }
}

#[test]
fn a_flood_is_refused_quickly() {
    let many: String = (0..60_000).map(|number| format!("k{number}: 1\n")).collect();
    let shown = quickly_refused(&many);
    assert!(shown.contains("more than 20000 keys and values before this one: too many for a spec"), "{shown}");
    let shown = quickly_refused(&"#".repeat((1 << 20) + 1));
    assert!(shown.contains("is larger than 1 MiB"), "{shown}");
    for piece in ["[", "{", "? ", "- ", "\"", "a: ", "&a ", "!", "%", "|\n", "'", "\n", "\t", " ", "a\n", "#\n"] {
        quickly_refused(&piece.repeat((1 << 18) / piece.len()));
    }
}
