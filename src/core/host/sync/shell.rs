//! The shell programs of a sync. Names are quoted as bytes: a name need not be text.

use super::batch::ByFolder;

/// How much text of names one command may have; a system allows 128 KiB at least.
const NAMES: usize = 64 << 10;

/// A shell program, assembled of assignments and parts.
#[derive(Debug, Clone)]
pub(super) struct Program(Vec<u8>);

impl Program {
    /// Begins with the text that enters the folder.
    pub(super) fn new(enter: &str) -> Self {
        Self(enter.as_bytes().to_vec())
    }

    /// Sets a variable.
    pub(super) fn set(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.0.extend(name.bytes());
        self.0.push(b'=');
        quote_into(&mut self.0, value.as_ref());
        self.0.push(b'\n');
        self
    }

    /// Adds a part of its text.
    pub(super) fn with(mut self, part: impl AsRef<[u8]>) -> Self {
        self.0.extend_from_slice(part.as_ref());
        self.0.push(b'\n');
        self
    }

    /// The whole text.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

fn quote_into(text: &mut Vec<u8>, word: &[u8]) {
    text.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => text.extend_from_slice(br"'\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
}

/// Moves what has been unpacked in `$new` to its folders.
pub(super) fn moves(groups: &ByFolder) -> Vec<u8> {
    commands(groups, "mv -f -t . --", |text, folder, name| {
        text.extend_from_slice(b" \"$new\"/");
        let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
        quote_into(text, &path);
    })
}

/// Removes names, with everything in them.
pub(super) fn removals(groups: &ByFolder) -> Vec<u8> {
    commands(groups, "rm -rf --", |text, _, name| {
        text.push(b' ');
        quote_into(text, &[b"./", name].concat());
    })
}

/// Sets permissions.
pub(super) fn modes(mode: u32, groups: &ByFolder) -> Vec<u8> {
    commands(groups, &format!("chmod {mode:o} --"), |text, _, name| {
        text.push(b' ');
        quote_into(text, &[b"./", name].concat());
    })
}

/// A command for the names in each folder, and for no more names than fit.
fn commands(groups: &ByFolder, command: &str, word: impl Fn(&mut Vec<u8>, &[u8], &[u8])) -> Vec<u8> {
    let mut text = Vec::new();
    for (folder, names) in groups {
        text.extend_from_slice(b"go ");
        quote_into(&mut text, folder);
        let mut length = usize::MAX;
        for name in names {
            if length > NAMES {
                text.push(b'\n');
                text.extend_from_slice(command.as_bytes());
                length = 0;
            }
            let before = text.len();
            word(&mut text, folder, name);
            length += text.len() - before;
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_grouped_by_their_folder() {
        let groups = ByFolder::from([
            (Vec::new(), vec![b"it's\n\xff".to_vec(), b"-x".to_vec()]),
            (b"a b".to_vec(), vec![b"$(y)".to_vec()]),
        ]);
        let expected = b"go ''\nrm -rf -- './it'\\''s\n\xff' './-x'\ngo 'a b'\nrm -rf -- './$(y)'\n";
        assert_eq!(removals(&groups), expected);
        assert!(moves(&groups).ends_with(b"go 'a b'\nmv -f -t . -- \"$new\"/'a b/$(y)'\n"));
        assert!(modes(0o755, &groups).starts_with(b"go ''\nchmod 755 -- "));
        let many = ByFolder::from([(Vec::new(), vec![vec![b'n'; 200]; 1000])]);
        let text = String::from_utf8(removals(&many)).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("rm ")).count(), 4);
        assert!(text.lines().all(|line| line.len() < 100_000));
    }
}
