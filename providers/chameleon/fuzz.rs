//! Fuzzes the calendar with arbitrary site data: rows, offers, slots, refusals.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::Who;
use super::cloud::{Calendar, offer};
use super::leases::{tag_of, title};
use super::policy::Policy;
use super::slots::plan;
use crate::provider::{EndAsk, HostFilter, LeaseAsk, StartAsk};
use gpucl_fuzz::{Target, demand};

fn site() -> Value {
    json!({
        "hosts": [
            {"id": "1", "hypervisor_hostname": "u-1", "node_name": "liqid01", "node_type": "compute_liqid", "gpu.gpu": "True",
             "gpu.gpu_count": "1", "gpu.gpu_model": "A100", "gpu.gpu_vendor": "NVIDIA", "su_factor": "4.0", "architecture.smt_size": "64",
             "main_memory.humanized_ram_size": "256 GiB", "authorized_projects": "CHI-1, CHI-2", "reservable": "True"},
            {"id": 2, "hypervisor_hostname": "u-2", "node_name": "c03-04", "main_memory.ram_size": 1_000_000, "disabled": false},
        ],
        "allocations": [
            {"resource_id": "1", "reservations": [
                {"id": "r1", "lease_id": "l1", "start_date": "2026-11-21T20:00:00.000000", "end_date": "2026-11-22T02:00:00.000000"},
                {"id": "r2", "lease_id": "l2", "start_date": "2026-11-22 04:00:00", "end_date": "2026-11-25 04:00:00",
                 "extras": {"user_name": "bob"}}]},
            {"resource_id": 2, "reservations": []},
        ],
        "leases": [
            {"id": "l1", "name": "mine gpucl-abcd1234-demo-lease", "user_id": "u", "start_date": "2026-11-21T20:00:00.000000",
             "end_date": "2026-11-22T02:00:00.000000", "status": "ACTIVE", "reservations": [{"id": "r1", "resource_type": "physical:host",
             "resource_properties": "[\"=\", \"$node_name\", \"liqid01\"]"}]},
        ],
        "ask": {"hours": 3, "count": 1, "node": "liqid01"},
    })
}

#[test]
fn fuzz_calendars() {
    let words = [
        "liqid01",
        "2026-11-22T01:00:00.000000",
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59",
        "True",
        "CHI-1",
        "1e15",
    ];
    Target::of_json("calendar", &[site()]).with_words(&words).with_inputs(300, 30).run(|input| {
        let Ok(value) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
        let part = |key: &str| value.get(key).cloned().unwrap_or_default();
        let (Ok(hosts), Ok(allocations), Ok(leases)) = (
            serde_json::from_value(part("hosts")),
            serde_json::from_value(part("allocations")),
            serde_json::from_value(part("leases")),
        ) else {
            return Ok(());
        };
        let who = Who {
            user_id: "u".to_owned(),
            user_name: "ada".to_owned(),
            project_id: "p".to_owned(),
            project_name: "CHI-1".to_owned(),
            restricted: Some(false),
            roles: Vec::new(),
        };
        let calendar = Calendar::of("CHI@TACC", &who, hosts, allocations, leases);
        let now: Timestamp = "2026-11-21T20:10:00Z".parse().map_err(|_| "no time")?;
        let zone = TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").map_err(|error| error.to_string())?;
        for row in &calendar.rows {
            let offer = offer(row, now, &zone);
            serde_json::to_string(&(row, &offer.free)).map_err(|error| error.to_string())?;
            let _ = calendar.selector(&row.name);
        }
        for lease in &calendar.leases {
            let _ = (
                tag_of(lease),
                title(lease).len(),
                calendar.hosts_of(lease),
                calendar.reservation_of(lease, "liqid01"),
            );
        }
        let asked = part("ask");
        let hours = asked["hours"].as_i64().unwrap_or(3).clamp(1, 10_000);
        let ask = LeaseAsk {
            hosts: HostFilter {
                nodes: asked["node"].as_str().map(str::to_owned).into_iter().collect(),
                ..HostFilter::default()
            },
            count: asked["count"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1).clamp(1, 100),
            start: StartAsk::Next,
            end: EndAsk::After(SignedDuration::from_hours(hours)),
            name: None,
            shorten: hours % 2 == 0,
        };
        let policy = Policy::default();
        match plan(&calendar.rows, &ask, &policy, now, &zone) {
            Ok(slot) => demand(slot.start < slot.end && !slot.hosts.is_empty(), || format!("a slot {slot:?}")),
            Err(none) => {
                let error = none.error("reserve hosts", &ask, &policy, &zone);
                demand(!error.causes().is_empty(), || "refused without a cause".to_owned())
            }
        }
    });
}
