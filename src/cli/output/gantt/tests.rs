use super::*;
use crate::money::HourlyPrice;
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
                    count: Some(1 + u32::try_from(index % 2).unwrap()),
                }],
                gpus_from: None,
                price_per_hour: HourlyPrice::service_units(4.0),
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

/// The exact lines on an 80-column terminal.
#[test]
fn eight_hosts_in_eighty_columns() {
    let expected = "\
CHI@TACC, times in CST, UTC-6; now Sat 21 Nov 14:10 = 20:10 UTC; a cell is 3 h
                 now Sun 22  Mon 23  Tue 24  Wed 25  Thu 26  Fri 27
NAME     FREE    12  00  12  00  12  00  12  00  12  00  12  00  12  00
liqid01  in 3 h  █▌··▐alic▌··┊▐res█··┊··████·┊····▐bob█▒▒▒▒bob▒▒▒▒···┊·▐█
liqid02  in 8 h  ███▌┊██bob██┊····▒research▒·▐█▌····▐cs101-l▌┊··▐▌···┊···
liqid03  now     ··▐resea▌···█alic█··┊··▐█bob███▐resea█·████▐██bob██▌┊···
liqid04  now     ····▐█████████▌·····┊▐███████▐█████·┊·····▐█████████┊···
liqid05  now     ····┊··▒res▒┊▐█·███▌┊··█··▐cs1▌·····▐res█···┊···▐alice-█
liqid06  now     ····┊·······┊·······┊·······┊·······┊·······┊·······┊···
liqid07  closed  x▐█▌xxxxxx█xxxxxxx▐research▌xxxxxxx▐█bob██▌█cs1█▒cs101-▒
liqid08  now     ···▒yours▒·▐████··█▐█▌·▐█████▌·····▐████████┊▒▒yours▒▒▒·
··· free   ███ taken   ▒▒▒ yours   xxx cannot be reserved";
    assert_eq!(chart(&rows(8), 80, 7, true), expected, "\n{}", chart(&rows(8), 80, 7, true));
}

#[test]
fn plain_letters_where_there_are_no_blocks() {
    let expected = "\
CHI@TACC, times in CST, UTC-6; now Sat 21 Nov 14:10 = 20:10 UTC; a cell is 4 h
                 v  22    23    24    25    26    27    28
NAME     FREE
liqid01  in 3 h  #..[###..:[##].:.[##.:...###]==bob===..:.#
liqid02  in 8 h  ##]:#bob#:...=resea=.[]...[cs101]:.[...:..
liqid03  now     ..####...#ali].:.[bob##.#res][##[#bob#]:..
... free   ### taken   === yours";
    assert_eq!(chart(&rows(3), 60, 7, false), expected, "\n{}", chart(&rows(3), 60, 7, false));
}

#[test]
fn it_fits_whatever_the_width() {
    for number in [1, 8, 40] {
        let rows = rows(number);
        for width in [60, 80, 100, 120, 137, 200, 240] {
            for days in [1, 2, 7, 14, 30] {
                let text = chart(&rows, width, days, true);
                let widest = text.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width, "{widest} in {width} for {days} days:\n{text}");
                let bars = text.lines().filter(|line| line.starts_with("liqid")).count();
                assert_eq!(bars, number);
            }
        }
    }
    // The headline is the only line that a narrow terminal may wrap.
    assert!(chart(&rows(1), 60, 7, true).lines().next().unwrap().len() <= 90);
}

#[test]
fn a_change_of_the_clocks_is_shown_and_moves_no_booking() {
    let zone = TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap();
    let now: Timestamp = "2026-10-31T15:00:00Z".parse().unwrap();
    let mut rows = rows(1);
    let (start, end) = ("2026-11-02T06:00:00Z".parse().unwrap(), "2026-11-03T06:00:00Z".parse().unwrap());
    rows[0].bookings = vec![Booking { start, end, lease: None, holder: None, ours: false }];
    let style = Style { width: 130, blocks: false, colour: false };
    let chart = Chart { rows: rows.iter().collect(), now, days: 4, zone, style };
    let lines = chart.lines();
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert!(lines[0].ends_with("; the clocks change within this time"), "{lines:#?}");
    // The second of November in local time, from midnight to midnight.
    let begin = lines[1].find("Mon 2 Nov").unwrap();
    let bar = lines[3].find('#').unwrap();
    assert_eq!(begin, bar, "{lines:#?}");
}

#[test]
fn only_the_bars_are_coloured() {
    let rows = rows(8);
    let now = "2026-11-21T20:10:00Z".parse().unwrap();
    let with = |colour| {
        let style = Style { width: 80, blocks: true, colour };
        Chart { rows: rows.iter().collect(), now, days: 7, zone: TimeZone::UTC, style }.lines().join("\n")
    };
    let mut stripped = String::new();
    let mut in_code = false;
    for letter in with(true).chars() {
        match letter {
            '\u{1b}' => in_code = true,
            'm' if in_code => in_code = false,
            letter if !in_code => stripped.push(letter),
            _ => {}
        }
    }
    assert_eq!(stripped, with(false));
}

#[test]
fn free_time_skips_gaps_that_nobody_can_use() {
    let mut row = rows(1).remove(0);
    let at = |text: &str| -> Timestamp { format!("2026-11-21T{text}:00Z").parse().unwrap() };
    let taken = |start, end| Booking { start: at(start), end: at(end), lease: None, holder: None, ours: false };
    row.bookings = vec![taken("12:00", "14:50"), taken("09:00", "11:50"), taken("18:00", "20:00")];
    assert_eq!(free_from(&row, at("10:00")), (at("14:50"), Some(at("18:00"))));
    assert_eq!(free_from(&row, at("15:00")), (at("15:00"), Some(at("18:00"))));
    assert_eq!(free_from(&row, at("19:00")), (at("20:00"), None));
}
