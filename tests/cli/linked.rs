//! How the program is linked, by what its file says: `.cargo/config.toml` decides it.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

const PT_DYNAMIC: usize = 2;
const PT_GNU_RELRO: usize = 0x6474_e552;
const DT_RELACOUNT: usize = 0x6fff_fff9;
const DT_FLAGS_1: usize = 0x6fff_fffb;
const DF_1_NOW: usize = 1;
const DF_1_PIE: usize = 0x0800_0000;

#[test]
fn the_program_has_a_random_address_and_its_tables_are_read_only_and_small() {
    let file = std::fs::read(env!("CARGO_BIN_EXE_gpucl")).unwrap();
    let number =
        |at: usize, size: usize| file[at..at + size].iter().rev().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
    // The program headers: kind, offset and size of each.
    let headers: Vec<(usize, usize, usize)> = (0..number(56, 2))
        .map(|index| number(32, 8) + index * number(54, 2))
        .map(|at| (number(at, 4), number(at + 8, 8), number(at + 32, 8)))
        .collect();
    let (_, begin, size) = *headers.iter().find(|(kind, ..)| *kind == PT_DYNAMIC).unwrap();
    let dynamic = |tag: usize| {
        let at = (begin..begin + size).step_by(16).find(|at| number(*at, 8) == tag);
        number(at.unwrap_or_else(|| panic!("no entry {tag:#x}")) + 8, 8)
    };
    assert!(headers.iter().any(|(kind, ..)| *kind == PT_GNU_RELRO), "nothing is read-only after the start");
    let flags = dynamic(DT_FLAGS_1);
    assert_ne!(flags & DF_1_PIE, 0, "it is always at the same address");
    assert_ne!(flags & DF_1_NOW, 0, "its tables are filled in later, so they stay writable");
    // Each is a write at every start: with a pointer for each function that another crate calls, there were 226 000.
    let relocated = dynamic(DT_RELACOUNT);
    assert!(
        relocated < 130_000,
        "{relocated} pointers are relocated at each start; is RUSTFLAGS set, which replaces what .cargo/config.toml says?"
    );
}
