//! Files of a package that hide modules: Ray puts its folder before Python's own modules and before Ray.

/// The modules of Python that a worker of Ray imports at its start, without those that Python has loaded before it looks
/// at any folder. Observed in a worker of ray 2.60.0 on Python 3.11; a test on a real cluster compares.
const OF_PYTHON: &[&str] = &[
    "__future__",
    "argparse",
    "array",
    "ast",
    "asyncio",
    "base64",
    "bdb",
    "binascii",
    "bisect",
    "bz2",
    "calendar",
    "cmd",
    "code",
    "codeop",
    "collections",
    "concurrent",
    "contextlib",
    "contextvars",
    "copy",
    "copyreg",
    "csv",
    "ctypes",
    "dataclasses",
    "datetime",
    "decimal",
    "dis",
    "email",
    "encodings",
    "enum",
    "fcntl",
    "fnmatch",
    "fractions",
    "functools",
    "gettext",
    "glob",
    "grp",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "http",
    "inspect",
    "ipaddress",
    "json",
    "keyword",
    "linecache",
    "locale",
    "logging",
    "lzma",
    "math",
    "mimetypes",
    "mmap",
    "multiprocessing",
    "numbers",
    "opcode",
    "operator",
    "pathlib",
    "pdb",
    "pickle",
    "platform",
    "pprint",
    "queue",
    "quopri",
    "random",
    "re",
    "reprlib",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shlex",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "string",
    "stringprep",
    "struct",
    "subprocess",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "token",
    "tokenize",
    "traceback",
    "tracemalloc",
    "types",
    "typing",
    "unicodedata",
    "urllib",
    "uuid",
    "warnings",
    "weakref",
    "zipfile",
    "zlib",
];
/// Ray, and the packages that a worker of it imports at its start; observed likewise.
const OF_RAY: &[&str] = &[
    "attr",
    "attrs",
    "certifi",
    "charset_normalizer",
    "colorama",
    "filelock",
    "google",
    "idna",
    "jsonschema",
    "jsonschema_specifications",
    "msgpack",
    "packaging",
    "psutil",
    "ray",
    "referencing",
    "requests",
    "rpds",
    "typing_extensions",
    "urllib3",
    "uvloop",
    "yaml",
];

/// Whether the file of this name in a package is a module that hides one of those, or its `__init__.py`.
///
/// A folder without `__init__.py` hides nothing: Python prefers a whole package that comes later.
pub(super) fn hides_module(name: &str) -> bool {
    let module = match name.split_once('/') {
        Some((folder, "__init__.py")) => folder,
        Some(_) => return false,
        None => match name.split_once('.') {
            Some((module, "py")) => module,
            // `random.cpython-311-x86_64-linux-gnu.so`
            Some((module, ending)) if ending == "so" || ending.ends_with(".so") => module,
            _ => return false,
        },
    };
    OF_PYTHON.binary_search(&module).is_ok() || OF_RAY.binary_search(&module).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_module_a_package_and_an_extension_hide_what_workers_import() {
        for name in ["random.py", "queue.py", "ray/__init__.py", "yaml/__init__.py", "struct.cpython-311-x86_64.so"] {
            assert!(hides_module(name), "{name}");
        }
        for name in ["train.py", "random.txt", "lib/random.py", "ray/data.py", "random", "test/__init__.py", "sys.py"] {
            assert!(!hides_module(name), "{name}");
        }
    }

    #[test]
    fn the_lists_are_sorted_and_those_of_python_are_modules_of_python() {
        assert!(OF_PYTHON.is_sorted() && OF_RAY.is_sorted());
        let program = "import sys\nfor name in sys.argv[1:]:\n  if name not in sys.stdlib_module_names: print(name)";
        let output = Command::new("python3").arg("-c").arg(program).args(OF_PYTHON).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    }
}
