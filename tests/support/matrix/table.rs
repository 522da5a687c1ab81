//! Tables of rows: their selection, execution and results.

use std::time::Duration;

use serde_json::{Value, json};

use super::bug::Bug;
use super::row::{Call, Row};
use super::trouble::{THENS, Then, Trouble};

/// How long a row may take at a stand-in.
const LIMIT: Duration = Duration::from_secs(180);

/// How a row ended: with nothing, or with why it failed.
pub(crate) type Ended = Result<(), String>;

/// Every continuation of every fault of each call.
pub(crate) fn crossed(calls: &[Call], troubles: &[Trouble], thens: &[Then]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &call in calls {
        for &trouble in troubles {
            rows.extend(thens.iter().map(|&then| Row { call, trouble, then }));
        }
    }
    rows
}

/// Every fault of each call, with alternating continuations.
pub(crate) fn each_once(calls: &[Call], troubles: &[Trouble]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (offset, &call) in calls.iter().enumerate() {
        let thens = THENS.into_iter().cycle().skip(offset);
        rows.extend(troubles.iter().zip(thens).map(|(&trouble, then)| Row { call, trouble, then }));
    }
    rows
}

pub(crate) async fn within(limit: Duration, row: impl Future<Output = Ended>) -> Ended {
    let late = || Err(format!("it did not come to its end in {} s", limit.as_secs()));
    tokio::time::timeout(limit, row).await.unwrap_or_else(|_| late())
}

/// Runs rows, a limited number at the same time.
pub(crate) async fn side_by_side<F>(rows: Vec<Row>, at_once: usize, run: impl Fn(Row) -> F) -> Vec<(Row, Ended)>
where
    F: Future<Output = Ended> + Send + 'static,
{
    let mut running = tokio::task::JoinSet::new();
    let (mut rows, mut results) = (rows.into_iter(), Vec::new());
    loop {
        while running.len() < at_once
            && let Some(row) = rows.next()
        {
            let ended = within(LIMIT, run(row));
            running.spawn(async move { (row, ended.await) });
        }
        match running.join_next().await {
            Some(result) => results.push(result.unwrap()),
            None => return results,
        }
    }
}

fn failures(results: &[(Row, Ended)]) -> Vec<String> {
    let failed = results.iter().filter_map(|(row, ended)| Some((row, ended.as_ref().err()?)));
    failed.map(|(row, why)| format!("{row:?}: {why}")).collect()
}

/// For a table: what became of each call.
fn figures(results: &[(Row, Ended)], calls: &[Call]) -> Value {
    let mut figures = serde_json::Map::new();
    for &call in calls {
        let of_call: Vec<_> = results.iter().filter(|(row, _)| row.call == call).collect();
        if !of_call.is_empty() {
            let failed = of_call.iter().filter(|(_, ended)| ended.is_err()).count();
            figures.insert(format!("{call:?}"), json!({ "rows": of_call.len(), "failed": failed }));
        }
    }
    Value::Object(figures)
}

/// Prints the figures below a line, which gets the number of rows and of failures; panics if any row failed.
pub(crate) fn all_left_nothing(results: &[(Row, Ended)], calls: &[Call], line: impl FnOnce(usize, usize) -> String) {
    let failures = failures(results);
    println!("{}\n{}", line(results.len(), failures.len()), figures(results, calls));
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}

/// Each of these mistakes shows in its row by what it did.
pub(crate) async fn all_are_caught<F>(bugs: &[(Bug, Call, Trouble, &str)], run: impl Fn(Row, Bug) -> F)
where
    F: Future<Output = Ended> + Send + 'static,
{
    for &(bug, call, trouble, caught) in bugs {
        let results = side_by_side(vec![Row { call, trouble, then: Then::Down }], 1, |row| run(row, bug)).await;
        let failures = failures(&results);
        assert!(failures.iter().any(|why| why.contains(caught)), "{bug:?} was not caught: {failures:?}");
        println!("caught: {bug:?}: {}", failures[0].chars().take(160).collect::<String>());
    }
}
