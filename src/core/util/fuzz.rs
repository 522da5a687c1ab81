//! Fuzzing of untrusted text on its way to a terminal and to a shell.

use std::cell::RefCell;
use std::process::{Command, Stdio};

use super::text::{Plainer, is_control, json, printable, printable_line, quoted};
use gpucl_fuzz::{Target, demand};

const SEEDS: [&str; 5] = [
    "1x A10 (24 GB PCIe)",
    "\u{1b}[36m(train pid=7)\u{1b}[0m 10%|██        |\r20%|████      |\r\ndone",
    "E: Unable to locate package nvidia-driver-570\n",
    "it's \"quoted\" and $HOME `id`",
    "شكرا \u{202e}abc\u{202c} שלום",
];

fn no_control(text: &str) -> Result<(), String> {
    demand(!text.contains(is_control), || format!("a control character came out: {text:?}"))
}

#[test]
fn fuzz_terminal_text() {
    Target::of_text("terminal", &SEEDS).with_inputs(1500, 250).run(|input| {
        let text = String::from_utf8_lossy(input);
        let shown = printable(&text);
        no_control(&shown)?;
        demand(printable(&shown) == shown, || "escaping twice differs from escaping once".to_owned())?;
        let line = printable_line(&text);
        no_control(&line)?;
        demand(!line.contains(['\n', '\t']), || "a line of several lines".to_owned())?;
        let as_json = json(serde_json::to_string(&*text).unwrap_or_default());
        no_control(&as_json)?;
        demand(serde_json::from_str::<String>(&as_json).is_ok_and(|read| read == *text), || "other JSON".to_owned())?;
        // A log in pieces gives the same output as the whole.
        let whole = {
            let mut plainer = Plainer::default();
            plainer.piece(&text) + &plainer.end()
        };
        no_control(&whole)?;
        let mut plainer = Plainer::default();
        let mut pieces = String::new();
        let cut = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2).unwrap_or(0);
        for piece in [&text[..cut], &text[cut..]] {
            pieces += &plainer.piece(piece);
        }
        pieces += &plainer.end();
        demand(pieces == whole, || format!("cut at {cut} it is {pieces:?}, whole it is {whole:?}"))?;
        demand(whole.len() <= text.len() * 8, || "it became long".to_owned())
    });
}

/// How a POSIX shell reads a quoted word; `None` if it is not exactly one word.
fn read_as_word(quoted: &str) -> Option<String> {
    let mut word = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next() {
            None => return Some(word),
            Some('\'') => loop {
                match rest.next()? {
                    '\'' => break,
                    letter => word.push(letter),
                }
            },
            Some('\\') => word.push(rest.next()?),
            Some(letter) if letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter) => word.push(letter),
            Some(_) => return None,
        }
    }
}

/// The number of words per shell process.
const BATCH: usize = 400;

#[test]
fn fuzz_shell_words() {
    let batch: RefCell<Vec<String>> = RefCell::default();
    Target::of_text("shell", &["it's", "a b", "-rf", "$(id)", "", "'", "\\", "a\nb", "*", "~"])
        .with_inputs(2000, 160)
        .run(|input| {
            let text = String::from_utf8_lossy(input).replace('\0', "");
            for word in [quoted(&text), crate::render::quote(&text), crate::ray::shell_line(&[&text])] {
                demand(read_as_word(&word).as_ref() == Some(&text), || format!("{text:?} became {word}"))?;
            }
            let mut batch = batch.borrow_mut();
            batch.push(text);
            if batch.len() < BATCH { Ok(()) } else { ask_a_shell(&std::mem::take(&mut *batch)) }
        });
    ask_a_shell(&batch.take()).unwrap();
}

/// Checks all of these with a real shell.
fn ask_a_shell(texts: &[String]) -> Result<(), String> {
    use std::io::Write as _;
    let words: String =
        texts.iter().map(|text| format!("printf '%s\\0' {}\n", crate::ray::shell_line(&[text]))).collect();
    let mut shell = Command::new("sh");
    shell.arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = shell.spawn().map_err(|error| error.to_string())?;
    let mut input = shell.stdin.take().ok_or("no input")?;
    let feed = std::thread::spawn(move || input.write_all(words.as_bytes()));
    let output = shell.wait_with_output().map_err(|error| error.to_string())?;
    let _ = feed.join();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen: Vec<&str> = seen.split_terminator('\0').collect();
    match texts.iter().zip(&seen).find(|(text, seen)| text != *seen) {
        Some((text, seen)) => Err(format!("the shell read {text:?} as {seen:?}")),
        None => demand(seen.len() == texts.len(), || format!("{} words became {}", texts.len(), seen.len())),
    }
}
