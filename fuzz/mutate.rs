//! From a seed to an input: a few changes, most of them small, some of them such as people who attack make.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{LONGEST, Target};

/// What kind of thing the inputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any bytes, in blocks such as those of an archive.
    Blocks,
    /// Text: always UTF-8.
    Text,
    /// JSON, of which values are changed more often than letters.
    Json,
}

/// What means something to terminals, shells, files, parsers and numbers.
const PIECES: &[&str] = &[
    "\u{1b}]52;c;eA==\u{7}",
    "\u{1b}[2J",
    "\u{1b}[31m",
    "\u{1b}",
    "\u{9b}2J",
    "\u{7f}",
    "\u{0}",
    "\u{202e}",
    "\u{2066}",
    "\u{85}",
    "\r",
    "\n",
    "\r\n",
    "\t",
    "\u{8}",
    "\u{feff}",
    "ü",
    "世界",
    "🚀",
    "e\u{301}",
    "'",
    "\"",
    "\\",
    "`id`",
    "$(id)",
    "${HOME}",
    "$x",
    ";",
    "&&",
    "|",
    "%h",
    "%%",
    "%s",
    "../",
    "/etc/passwd",
    "~/",
    "-",
    "--",
    "*",
    "#",
    ":",
    "=",
    ",",
    "{",
    "}",
    "[",
    "]",
    "{{",
    "}}",
    "{%",
    "&a",
    "*a",
    "!!",
    "|\n",
    ">\n",
    "---\n",
    "\n  - ",
    "\n    ",
    "0",
    "-1",
    "00",
    "1e999",
    "-0.0",
    "NaN",
    "0x7f",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "65536",
    "65535",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "-9999-01-01 00:00",
    "2026-02-30 25:61",
    "null",
    "true",
    "no",
    "::gpucl ",
    "ProxyCommand x",
];

/// The input of this number.
pub(super) fn input(target: &Target, kept: &[Vec<u8>], round: u64, number: u64) -> Vec<u8> {
    let name = target
        .name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut rng = Rng::with_seed(name ^ round.rotate_left(40) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let pick = |rng: &mut Rng| -> Vec<u8> {
        let all = target.seeds.len() + kept.len();
        match rng.usize(..all.max(1)) {
            at if at < target.seeds.len() => target.seeds[at].clone(),
            at => kept.get(at - target.seeds.len()).cloned().unwrap_or_default(),
        }
    };
    let mut made = pick(&mut rng);
    // Most inputs are nearly right: what is wrong altogether is refused at the door.
    let most = 1 << rng.usize(..5);
    let changes = 1 + rng.usize(..most);
    if target.form == Form::Json
        && rng.u8(..8) != 0
        && let Ok(mut value) = serde_json::from_slice::<Value>(&made)
    {
        for _ in 0..changes {
            change_value(&mut value, &mut rng, target);
        }
        made = value.to_string().into_bytes();
    } else {
        for _ in 0..changes {
            let other = if rng.u8(..16) == 0 { pick(&mut rng) } else { Vec::new() };
            change(&mut made, &other, &mut rng, target);
            made.truncate(LONGEST);
        }
    }
    made.truncate(LONGEST);
    if target.form == Form::Blocks { made } else { String::from_utf8_lossy(&made).into_owned().into_bytes() }
}

fn piece<'a>(rng: &mut Rng, target: &'a Target) -> &'a [u8] {
    if !target.words.is_empty() && rng.bool() {
        return target.words[rng.usize(..target.words.len())].as_bytes();
    }
    PIECES[rng.usize(..PIECES.len())].as_bytes()
}

/// A place in the text; `end` may be one.
fn place(bytes: &[u8], rng: &mut Rng) -> usize {
    rng.usize(..=bytes.len())
}

fn span(bytes: &[u8], rng: &mut Rng, most: usize) -> (usize, usize) {
    let from = place(bytes, rng);
    (from, (from + rng.usize(..=most)).min(bytes.len()))
}

fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng, target: &Target) {
    if !other.is_empty() {
        let (from, to) = span(other, rng, 512);
        let at = place(bytes, rng);
        bytes.splice(at..at, other[from..to].iter().copied());
        return;
    }
    if target.form == Form::Blocks && rng.bool() {
        return change_blocks(bytes, rng);
    }
    match rng.u8(..10) {
        0 if !bytes.is_empty() => {
            let at = rng.usize(..bytes.len());
            bytes[at] ^= 1 << rng.u8(..8);
        }
        1 if !bytes.is_empty() => {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        2 => {
            let (from, to) = span(bytes, rng, 32);
            bytes.drain(from..to);
        }
        3 => {
            let (from, to) = span(bytes, rng, 64);
            let copy = bytes[from..to].to_vec();
            let at = place(bytes, rng);
            bytes.splice(at..at, copy);
        }
        4 => bytes.truncate(place(bytes, rng)),
        // Many of one thing: depth, length, count.
        5 if rng.u8(..8) == 0 => {
            let many = piece(rng, target).repeat(1 << rng.u8(..11));
            let at = place(bytes, rng);
            bytes.splice(at..at, many);
        }
        // A number becomes another.
        6 => {
            let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
            if let Some(at) = (!digits.is_empty()).then(|| digits[rng.usize(..digits.len())]) {
                let to = bytes[at..]
                    .iter()
                    .position(|byte| !byte.is_ascii_digit())
                    .map_or(bytes.len(), |length| at + length);
                let numbers: &[&[u8]] =
                    &[b"0", b"-1", b"1e30", b"255", b"256", b"65536", b"4294967296", b"99999999999999999999"];
                bytes.splice(at..to, numbers[rng.usize(..numbers.len())].iter().copied());
            }
        }
        // A line goes, comes twice, or moves.
        7 => {
            let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if !lines.is_empty() {
                let line = lines.remove(rng.usize(..lines.len()));
                for _ in 0..rng.usize(..3) {
                    lines.insert(rng.usize(..=lines.len()), line.clone());
                }
            }
            *bytes = lines.concat();
        }
        8 => {
            let (from, to) = span(bytes, rng, 8);
            bytes.splice(from..to, piece(rng, target).iter().copied());
        }
        _ => {
            let at = place(bytes, rng);
            bytes.splice(at..at, piece(rng, target).iter().copied());
        }
    }
}

/// Blocks of 512 bytes go, come twice, or change places; what changed in the head of one is signed again.
fn change_blocks(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let mut blocks: Vec<Vec<u8>> = bytes.chunks(512).map(<[u8]>::to_vec).collect();
    if blocks.is_empty() {
        return;
    }
    let at = rng.usize(..blocks.len());
    match rng.u8(..8) {
        0 => drop(blocks.remove(at)),
        1 => blocks.insert(rng.usize(..=blocks.len()), blocks[at].clone()),
        2 => {
            let other = rng.usize(..blocks.len());
            blocks.swap(at, other);
        }
        3 => blocks[at].iter_mut().for_each(|byte| *byte = 0),
        kind if blocks[at].len() == 512 => {
            let block = &mut blocks[at];
            // Name, mode, size, kind, link.
            let (from, room) = [(0, 100), (100, 8), (124, 12), (156, 1), (157, 100)][usize::from(rng.u8(..5))];
            match kind {
                4 => {
                    let names: [&[u8]; 8] = [
                        b"../x\0",
                        b"/etc/x\0",
                        b"results/../../x\0",
                        b".bashrc\0",
                        b"results/l\0",
                        b"results\0",
                        b"./\0",
                        b"results/l/x\0",
                    ];
                    let name = names[rng.usize(..names.len())];
                    block[..name.len()].copy_from_slice(name);
                }
                5 => block[156] = b"0123456789LKxgSDMVN\0Z"[rng.usize(..21)],
                6 => {
                    let sizes: [&[u8]; 5] = [
                        b"77777777777\0",
                        b"00000000000\0",
                        b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
                        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                        b"00000001000\0",
                    ];
                    block[124..136].copy_from_slice(sizes[rng.usize(..5)]);
                }
                _ => block[from + rng.usize(..room)] = rng.u8(..),
            }
            sign(block);
        }
        _ => {}
    }
    *bytes = blocks.concat();
}

/// Writes the checksum of a header, without which nobody looks at the rest.
fn sign(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Changes one value somewhere in it.
fn change_value(value: &mut Value, rng: &mut Rng, target: &Target) {
    // Down to somewhere, most often to a leaf.
    let goes_down = rng.u8(..8) != 0;
    match value {
        Value::Object(map) if goes_down && !map.is_empty() => {
            let at = rng.usize(..map.len());
            if let Some((_, inner)) = map.iter_mut().nth(at) {
                return change_value(inner, rng, target);
            }
        }
        Value::Array(list) if goes_down && !list.is_empty() => {
            let at = rng.usize(..list.len());
            return change_value(&mut list[at], rng, target);
        }
        _ => {}
    }
    match (rng.u8(..6), &mut *value) {
        (0, Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(rng.usize(..map.len())).cloned().unwrap_or_default();
            map.remove(&key);
        }
        (1, Value::Object(map)) => {
            let key = String::from_utf8_lossy(piece(rng, target)).into_owned();
            let inner = any(rng, target, 0);
            map.insert(key, inner);
        }
        (0 | 1, Value::Array(list)) if !list.is_empty() => {
            let copy = list[rng.usize(..list.len())].clone();
            let times = if rng.u8(..32) == 0 { 200 } else { 1 };
            list.extend(std::iter::repeat_n(copy, times));
        }
        (0..=3, Value::String(text)) => {
            let mut bytes = text.clone().into_bytes();
            change(&mut bytes, &[], rng, target);
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        _ => *value = any(rng, target, 0),
    }
}

fn any(rng: &mut Rng, target: &Target, depth: usize) -> Value {
    match rng.u8(..10) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.u64(..)),
        4 => json!([0, 1, -1, 255, 65_536, i64::MAX][rng.usize(..6)]),
        5 => json!([0.5, -0.0, 1e300, f64::MIN_POSITIVE, 1e18][rng.usize(..5)]),
        6 if depth < 4 => Value::Array((0..rng.usize(..4)).map(|_| any(rng, target, depth + 1)).collect()),
        7 if depth < 4 => {
            let one =
                |rng: &mut Rng| (String::from_utf8_lossy(piece(rng, target)).into_owned(), any(rng, target, depth + 1));
            Value::Object((0..rng.usize(..4)).map(|_| one(rng)).collect())
        }
        _ => Value::String(String::from_utf8_lossy(piece(rng, target)).into_owned()),
    }
}
