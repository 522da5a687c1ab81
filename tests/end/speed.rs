//! How fast it saves, beside what else would copy: `just end-speed`.

use std::time::Instant;

use super::slot::{Slot, noise};

#[test]
#[ignore = "by hand: just end-speed"]
fn a_hundred_thousand_small_files_and_a_large_one() {
    let slot = Slot::new(&[("small", "HOME/copy"), ("small", "s3://bucket/small"), ("large", "s3://bucket/large")]);
    for number in 0..100_000_u32 {
        slot.write(&format!("small/{}/{number}", number / 1000), noise(1000, number));
    }
    slot.write("large/model.bin", noise(1 << 30, 1));
    let begun = Instant::now();
    let (code, state) = slot.save();
    assert_eq!(code, 0, "{state}");
    println!("all: {:?}", begun.elapsed());
    for one in state["saved"].as_array().unwrap() {
        println!(
            "{} to {}: {} files, {} bytes in {} s",
            one["from"], one["to"], one["files"], one["bytes"], one["seconds"]
        );
    }
    let begun = Instant::now();
    assert_eq!(slot.save().0, 0);
    println!("a look at what is saved: {:?}", begun.elapsed());
}
