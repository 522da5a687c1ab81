use super::*;
use crate::provider::{Booking, GpuOffer};

pub(super) fn rows(number: usize) -> Vec<CalendarRow> {
    let now: Timestamp = "2026-11-21T20:10:00Z".parse().unwrap();
    let hours = |hours: i64| when::later(now, SignedDuration::from_hours(hours));
    let holders = ["alice-demo", "cs101-lab", "bob", "research-nights"];
    (0..number)
        .map(|index| {
            let step = i64::try_from(index).unwrap();
            let mut bookings = Vec::new();
            let mut from = step * 7 % 31 - 9;
            while from < 200 && index % 6 != 5 {
                let to = from + 3 + (step * 5 + from.abs()) % 29;
                bookings.push(Booking {
                    start: hours(from),
                    end: when::earlier(hours(to), SignedDuration::from_mins(10)),
                    lease: None,
                    holder: (index % 4 != 3)
                        .then(|| holders[(index + usize::try_from(from.abs()).unwrap()) % 4].to_owned()),
                    ours: (step + from).rem_euclid(7) == 2,
                });
                from = to + (step * 3 + from.abs()) % 24;
            }
            CalendarRow {
                name: format!("liqid{:02}", index + 1),
                id: index.to_string(),
                place: "CHI@TACC".to_owned(),
                kind: "compute_liqid".to_owned(),
                cpus: 64,
                memory: 256 << 30,
                gpus: vec![GpuOffer {
                    model: "NVIDIA A100 PCIe 40GB".to_owned(),
                    count: 1 + u32::try_from(index % 2).unwrap(),
                }],
                gpus_from: None,
                price_per_hour: "4 SU".to_owned(),
                closed: (index == 6).then(|| "in repair".to_owned()),
                bookings,
            }
        })
        .collect()
}

fn chart(rows: &[CalendarRow], width: usize, days: i64, blocks: bool) -> String {
    let chart = Chart {
        rows: rows.iter().collect(),
        now: "2026-11-21T20:10:00Z".parse().unwrap(),
        days,
        zone: TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap(),
        style: Style { width, blocks, colour: false },
    };
    chart.lines().join("\n")
}

#[test]
#[ignore = "to look at"]
fn look() {
    let mut all = String::new();
    for number in [1, 8, 40] {
        for width in [60, 80, 120, 200] {
            all += &format!("---- {number} rows, width {width}\n{}\n\n", chart(&rows(number), width, 7, true));
        }
    }
    all += &format!("---- ascii, 2 days\n{}\n", chart(&rows(8), 120, 2, false));
    all += &format!("---- 1 day\n{}\n", chart(&rows(8), 100, 1, true));
    all += &format!("---- 14 days\n{}\n", chart(&rows(8), 80, 14, true));
    fs_err::write("/tmp/slots-gantt.txt", all).unwrap();
}
