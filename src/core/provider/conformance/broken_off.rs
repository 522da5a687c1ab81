//! The cases about interrupted calls: the answer is lost, the caller is gone, the effect is late.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::bench::{Bench, list};
use super::recorders::{Notebook, Silent};
use super::verdict::{Stop, Verdict, broken, ensure};
use crate::name::Scope;
use crate::provider::ResourceRequest;

pub(super) async fn answer_lost(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        lose_the_answer(bench, &scope, &request).await?;
        let seen = bench.observe_after_delay(&scope, &request.key).await?;
        again_is_the_same(bench, &scope, &request, seen.first().map(|resource| resource.id.clone())).await?;
    }
    Ok(())
}

pub(super) async fn late(bench: &Bench<'_>) -> Verdict {
    if bench.capability().consistency_delay.is_zero() {
        return Err(Stop::NotApplicable("consistency_delay"));
    }
    let delay = bench.subject.consistency_delay;
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        lose_the_answer(bench, &scope, &request).await?;
        let seen = bench.observe_after_delay(&scope, &request.key).await?;
        let Some(resource) = seen.first() else {
            let seconds = delay.as_secs_f64();
            return broken(format!(
                "{} did not show within the consistency delay, {seconds} s after its call",
                request.key
            ));
        };
        again_is_the_same(bench, &scope, &request, Some(resource.id.clone())).await?;
    }
    Ok(())
}

/// Makes the call and drops it once the recorder has the id, so that the answer is lost.
async fn lose_the_answer(bench: &Bench<'_>, scope: &Scope, request: &ResourceRequest) -> Verdict {
    let recorder = Silent::default();
    let ended = tokio::select! {
        () = recorder.called.notified() => None,
        ended = bench.try_acquire(scope, request, &recorder) => Some(ended?),
    };
    match ended {
        Some(Err(error)) => broken(format!("acquire {} failed: {error}", request.key)),
        // It returned without calling the recorder, which another case checks. Its answer is lost as well.
        Some(Ok(_)) | None => Ok(()),
    }
}

/// A repeated call returns what the lost one made, and there is only one.
async fn again_is_the_same(
    bench: &Bench<'_>,
    scope: &Scope,
    request: &ResourceRequest,
    before: Option<String>,
) -> Verdict {
    let id = bench.acquire_usable(scope, request).await?;
    if let Some(before) = before {
        ensure(before == id, || format!("{} was {before} and is now {id}", request.key))?;
    }
    let seen = bench.exactly_one(scope, &request.key).await?;
    ensure(seen.id == id, || format!("{} was acquired as {id} but shows as {}", request.key, seen.id))
}

pub(super) async fn cancel(bench: &Bench<'_>) -> Verdict {
    let scope = bench.fresh_scope()?;
    for request in bench.chain(&scope)? {
        for &points in &bench.subject.cuts {
            let ended = cut_acquire(bench, &scope, &request, points).await?;
            let released = cut_release(bench, &scope, &request, points).await?;
            if ended && released {
                break;
            }
        }
        bench.acquire_usable(&scope, &request).await?;
    }
    bench.release_all(&scope).await
}

/// Drops an acquire after `points` polls and repeats it; returns whether it had already ended.
async fn cut_acquire(bench: &Bench<'_>, scope: &Scope, request: &ResourceRequest, points: usize) -> Verdict<bool> {
    let notebook = Notebook::default();
    let cut = polled(bench.try_acquire(scope, request, &notebook), points).await;
    let ended = match cut {
        Some(ended) => {
            ended?.map_err(|error| Stop::Broken(format!("acquire {} failed: {error}", request.key)))?;
            true
        }
        None => false,
    };
    let at = |stop| match stop {
        Stop::Broken(what) => Stop::Broken(format!("acquire was dropped after {points} polls: {what}")),
        other => other,
    };
    let seen = bench.observe_after_delay(scope, &request.key).await.map_err(at)?;
    let written = notebook.ids(&request.key);
    // A recorded id without a resource would look like a leak forever.
    if let (Some(id), []) = (written.first(), seen.as_slice()) {
        return Err(at(Stop::Broken(format!("{id} was recorded, but observe shows {}", list(&seen)))));
    }
    let id = bench.acquire_usable(scope, request).await.map_err(at)?;
    let one = bench.exactly_one(scope, &request.key).await.map_err(at)?;
    ensure(one.id == id, || format!("{} was acquired as {id} but shows as {}", request.key, one.id)).map_err(at)?;
    Ok(ended)
}

/// Drops a release after `points` polls and repeats it; returns whether it had already ended.
async fn cut_release(bench: &Bench<'_>, scope: &Scope, request: &ResourceRequest, points: usize) -> Verdict<bool> {
    let one = bench.exactly_one(scope, &request.key).await?;
    let ended = polled(bench.release(scope, &one), points).await;
    let done = ended.is_some();
    ended.transpose_verdict()?;
    for left in bench.observe(scope).await?.into_iter().filter(|resource| resource.key == request.key) {
        bench.release(scope, &left).await?;
    }
    let gone = bench.until_gone(scope, &request.key).await;
    gone.or_else(|_| broken(format!("release was dropped after {points} polls, and the next did not finish it")))?;
    Ok(done)
}

trait TransposeVerdict {
    fn transpose_verdict(self) -> Verdict;
}

impl TransposeVerdict for Option<Verdict> {
    fn transpose_verdict(self) -> Verdict {
        self.unwrap_or(Ok(()))
    }
}

/// Polls a future at most `times` times, then drops it.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}
