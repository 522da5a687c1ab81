//! Offers of all providers in one table, the way to log in, prices and places.

use std::io::Write as _;
use std::process::Stdio;

use gpucl::sandbox::lambda::{Config, User};

use super::site::{Site, spec_into};
use crate::chameleon::site::Site as Chameleon;

#[test]
fn one_table_lists_all_providers_and_failures() {
    let chameleon = Chameleon::stand_in();
    let site = Site::prompt();
    let mut both = chameleon.user(gpucl::sandbox::chameleon::User::Alice);
    both.set("LAMBDA_API_KEY", &site.sandbox.key(User::Alice));
    both.set("LAMBDA_API_URL", &site.sandbox.base_url());
    both.set("GPUCL_LAMBDA_PACE", super::site::PACE);
    let table = both.run(&["offers", "--gpu", "a100"]).exits(0);
    let table =
        table.prints("PROVIDER").prints("chameleon  liqid01").prints("gpu_8x_a100").prints("15.92 USD").prints(" SU");
    assert!(!table.stdout.contains("a10 "), "{}", table.stdout);
    let rows = both.run(&["--output", "json", "offers", "--gpu", "a100", "--max-price", "16"]).exits(0).json();
    let of = |provider: &str| rows.iter().filter(|row| row["provider"] == provider).count();
    assert!(of("lambda") > 0 && of("chameleon") > 0, "{rows:?}");
    assert!(rows.iter().all(|row| row["price_per_hour"]["amount"].as_f64().is_none_or(|price| price <= 16.0)));
    let free: Vec<bool> = rows.iter().map(|row| row["closed"].is_null()).collect();
    assert!(free.is_sorted_by(|a, b| a >= b), "what is free comes first: {free:?}");

    both.set("LAMBDA_API_KEY", "secret_wrong");
    let table =
        both.run(&["offers", "--gpu", "a100"]).exits(0).prints("liqid01").prints("failed: list the instance types");
    table.says("hint: make a key at");
    let rows = both.run(&["--output", "json", "offers"]).exits(0).json();
    assert!(rows.iter().any(|row| row["type"] == "offers_failed" && row["provider"] == "lambda"), "{rows:?}");
}

#[test]
fn offers_are_narrowed_by_gpu_count_price_and_region() {
    let site = Site::prompt();
    let names = |arguments: &[&str]| -> Vec<String> {
        let rows = site.run(&[&["--output", "json", "offers"], arguments].concat()).exits(0).json();
        rows.iter().map(|row| format!("{} {}", row["name"].as_str().unwrap(), row["place"].as_str().unwrap())).collect()
    };
    assert_eq!(names(&["--gpu", "h100", "--count", "8"]), ["gpu_8x_h100_sxm5 us-south-2"]);
    assert_eq!(names(&["--region", "us-west-1"]), ["gpu_1x_a10 us-west-1", "gpu_1x_h100_pcie us-west-1"]);
    assert_eq!(names(&["--max-price", "1.30", "--gpus", "1"])[0], "gpu_1x_a10 us-east-1");
    // Sold-out types are shown only on request.
    assert_eq!(names(&["--type", "gpu_1x_b200_sxm6"]), ["gpu_1x_b200_sxm6 no region"]);
    assert!(!names(&[]).iter().any(|name| name.contains("b200") || name.contains("cpu_")));
    site.run(&["offers", "--gpu", "mi300"]).exits(6).says("no host matches the filters");
}

#[test]
fn a_login_is_checked_kept_used_and_forgotten() {
    let mut site = Site::prompt();
    site.env.set("LAMBDA_API_KEY", "");
    let key = site.sandbox.key(User::Alice);
    let log_in = |secret: &str| {
        let mut command = site.env.command(&["login", "lambda", "--secret-stdin"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{secret}").unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, output) = log_in("secret_wrong");
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("is refused") && !output.contains("secret_wrong"), "{output}");
    let (code, output) = log_in(&key);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("20 instances") && !output.contains(&key), "{output}");
    site.run(&["offers"]).exits(0).prints("gpu_1x_a10");
    site.run(&["login", "--list"]).exits(0).prints("lambda");
    let spec = site.spec(1, "");
    site.run(&["plan", &spec]).exits(0).prints("it uses the API key from the stored login");
    site.run(&["logout", "lambda"]).exits(0);
    site.run(&["offers", "--provider", "lambda"]).exits(2).says("there is no API key");
}

#[test]
fn the_plan_shows_price_and_place_and_creates_nothing() {
    let site = Site::prompt();
    let spec = site.spec(4, "regions: [us-west-1, us-east-1]");
    site.run(&["plan", &spec]).exits(0).prints("4 x gpu_1x_a10 in us-west-1: 5.16 USD an hour");
    assert_eq!(site.counts(), [0; 4]);
    assert!(site.sandbox.log().iter().all(|entry| entry.method == "GET"));
}

#[test]
fn wrong_price_limits_and_names_are_refused_before_anything_is_created() {
    let site = Site::prompt();
    for (host, provider, says) in [
        ("type: gpu_1x_a10", "max_price: 1", "the cheapest match, gpu_1x_a10, costs 1.29 USD an hour"),
        ("type: gpu_1x_a11", "", "Lambda has no type `gpu_1x_a11`"),
        ("gpus: { model: mi300 }", "", "no type has such GPUs"),
        ("type: gpu_1x_a10", "regions: [us-est-1]", "Lambda has no region `us-est-1`"),
    ] {
        let spec = spec_into(&site.env, 1, host, provider);
        site.run(&["up", "--yes", &spec]).exits(1).says(says);
    }
    assert_eq!(site.counts(), [0; 4]);
}

/// Unannounced, only two of the first choice are left. The third and the fourth host are of the second choice.
#[test]
fn capacity_gone_at_the_launch_leads_to_the_next_choice() {
    let none = Config::prompt().without_capacity();
    let config = none.with_capacity("gpu_1x_h100_pcie", "us-west-1", 2).with_capacity("gpu_1x_a10", "us-west-1", 4);
    let site = Site::with(config.with_capacity("gpu_1x_a10", "us-east-1", 4));
    let provider = "types: [gpu_1x_h100_pcie, gpu_1x_a10]";
    let spec = spec_into(&site.env, 4, "", provider);
    site.up_to_ssh(&spec).says("4 x gpu_1x_h100_pcie in us-west-1").says("the next choice is gpu_1x_a10");
    let ours = site.ours();
    let of = |kind: &str| ours.alive().filter(|one| one.instance_type == kind && one.region == "us-west-1").count();
    assert_eq!((of("gpu_1x_h100_pcie"), of("gpu_1x_a10")), (2, 2), "{ours:?}");
    assert_eq!(site.asked("POST", "/launch"), 5, "what was refused once is not asked for again by the next host");
    // They stay as they are: nothing is recreated.
    site.up_to_ssh(&spec);
    assert_eq!((site.asked("POST", "/launch"), site.counts()), (5, [4, 1, 0, 1]));
    site.down();
}

/// Firewall rules are regional: if the first region has no capacity at the launch, a new plan is made for the next one.
#[test]
fn a_region_without_capacity_at_the_launch_leads_to_the_next() {
    let none = Config::prompt().without_capacity();
    let site = Site::with(none.with_capacity("gpu_1x_a10", "us-west-1", 2).with_capacity("gpu_1x_a10", "us-east-1", 1));
    assert!(site.sandbox.vanish("gpu_1x_a10", "us-east-1"));
    let spec = site.spec(2, "regions: [us-east-1, us-west-1]");
    site.up_to_ssh(&spec).says("2 x gpu_1x_a10 in us-east-1").says("2 x gpu_1x_a10 in us-west-1");
    let ours = site.ours();
    assert!(ours.alive().all(|one| one.region == "us-west-1"), "{ours:?}");
    assert_eq!(site.counts(), [2, 1, 0, 1], "the rules of the first region are gone");
    site.down();
}

#[test]
fn the_second_choice_is_taken_when_the_first_is_gone() {
    let config = Config::prompt().without_capacity().with_capacity("gpu_1x_a10", "us-west-1", 1);
    let site = Site::with(config);
    let spec = spec_into(&site.env, 1, "", "types: [gpu_1x_h100_pcie, gpu_1x_a10]\nregions: [us-east-1, us-west-1]");
    site.up_to_ssh(&spec).says("1 x gpu_1x_a10 in us-west-1");
    site.down();
}
