//! Requests to applications of Serve and how long they took, from the metrics of the node with its proxy (ray 2.60.0).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::http::{Unread, body};

/// The timeout of the request for metrics.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// The most that is read of a node's metrics, in bytes.
const LIMIT: usize = 32 * 1024 * 1024;

/// Requests to an application, since its Serve was started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// How many there were.
    pub all: u64,
    /// How many of them failed.
    pub failed: u64,
    /// How many took at most so many milliseconds, by that time as it is written.
    buckets: Vec<(f64, f64)>,
}

impl Requests {
    /// The time in milliseconds within which this share of them was answered, estimated from a histogram as Prometheus
    /// does; `None` without any, or if it is beyond the last limit.
    pub fn within(&self, share: f64) -> Option<f64> {
        let total = self.buckets.iter().map(|(_, count)| *count).fold(0.0, f64::max);
        let rank = total * share;
        let (mut from, mut below) = (0.0, 0.0);
        for (to, count) in &self.buckets {
            if *count >= rank && total > 0.0 {
                let part = if count > &below { (rank - below) / (count - below) } else { 1.0 };
                return to.is_finite().then_some(from + (to - from) * part);
            }
            (from, below) = (*to, *count);
        }
        None
    }
}

/// Reads the requests to each application, by its name, from a node's metrics at this address: `http://127.0.0.1:PORT`.
///
/// # Errors
/// If nothing answers there.
pub async fn requests(address: &str) -> Result<BTreeMap<String, Requests>> {
    let doing = || "read the metrics of Serve".to_owned();
    let client = crate::util::http::built(crate::util::http::loopback_client(), doing)?;
    let answer = client.get(format!("{address}/metrics")).timeout(READ_LIMIT).send().await;
    let mut answer = answer.doing(ErrorKind::Ray, doing)?;
    if !answer.status().is_success() {
        return Err(Error::new(ErrorKind::Ray, doing()).because(format!("the answer is {}", answer.status())));
    }
    let text = body(&mut answer, LIMIT).await.map_err(|unread| match unread {
        Unread::Broken(error) => Error::new(ErrorKind::Ray, doing()).caused_by(&error),
        Unread::TooLong(limit) => {
            Error::new(ErrorKind::Ray, doing()).because(format!("they are longer than {limit} bytes"))
        }
    })?;
    Ok(of_text(&String::from_utf8_lossy(&text)))
}

fn of_text(text: &str) -> BTreeMap<String, Requests> {
    let mut all: BTreeMap<String, Requests> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, labels, value)) = sample(line) else { continue };
        let Some(application) = label(labels, "application").filter(|name| !name.is_empty()) else { continue };
        let mut of = |add: &mut dyn FnMut(&mut Requests)| add(all.entry(application.clone()).or_default());
        match name {
            "ray_serve_num_http_requests_total" => of(&mut |it| it.all += value as u64),
            "ray_serve_num_http_error_requests_total" => of(&mut |it| it.failed += value as u64),
            "ray_serve_http_request_latency_ms_bucket" => {
                let Some(limit) = label(labels, "le").and_then(|text| text.replace("+Inf", "inf").parse().ok()) else {
                    continue;
                };
                of(&mut |it| match it.buckets.iter_mut().find(|(to, _): &&mut (f64, f64)| *to == limit) {
                    Some((_, count)) => *count += value,
                    None => it.buckets.push((limit, value)),
                });
            }
            _ => {}
        }
    }
    for requests in all.values_mut() {
        requests.buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    all
}

/// The name, the labels and the value of a line.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once('}')?;
    Some((name, labels, value.split_whitespace().next()?.parse().ok()?))
}

/// The value of a label.
fn label(labels: &str, name: &str) -> Option<String> {
    let begin = format!("{name}=\"");
    let at = labels.match_indices(&begin).map(|(at, _)| at).find(|at| *at == 0 || labels[..*at].ends_with(','))?;
    let (mut value, mut letters) = (String::new(), labels[at + begin.len()..].chars());
    loop {
        match letters.next()? {
            '"' => return Some(value),
            '\\' => value.push(letters.next()?),
            letter => value.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_their_times_are_added_over_routes() {
        let text = "# HELP x\nray_serve_num_http_requests_total{application=\"food\",route=\"/a\",status_code=\"200\"} 8.0\n\
            ray_serve_num_http_requests_total{route=\"/b\",application=\"food\",status_code=\"500\"} 2.0\n\
            ray_serve_num_http_requests_total{application=\"\",route=\"\"} 9.0\n\
            ray_serve_num_http_error_requests_total{application=\"food\"} 2.0\n\
            ray_serve_http_request_latency_ms_bucket{application=\"food\",le=\"10.0\"} 5.0\n\
            ray_serve_http_request_latency_ms_bucket{application=\"food\",le=\"20.0\"} 10.0\n\
            ray_serve_http_request_latency_ms_bucket{application=\"food\",le=\"+Inf\"} 10.0\n";
        let all = of_text(text);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["food"]);
        let food = &all["food"];
        assert_eq!((food.all, food.failed), (10, 2));
        assert_eq!((food.within(0.5), food.within(0.95)), (Some(10.0), Some(19.0)));
        assert_eq!(Requests::default().within(0.5), None);
    }
}
