//! The queue for places: one caller after the other, without work that has left.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tandem_common::admission::FairQueue;

fn callers() -> [Arc<str>; 2] {
    ["greedy", "polite"].map(Arc::from)
}

#[tokio::test]
async fn callers_take_turns() {
    let (queue, [greedy, polite]) = (FairQueue::new(1), callers());
    let mut place = queue.place(&greedy).await;
    let mut waiting: Vec<_> = (0..3).map(|number| ("greedy", number, Box::pin(queue.place(&greedy)))).collect();
    waiting.extend((0..2).map(|number| ("polite", number, Box::pin(queue.place(&polite)))));
    for (.., waits) in &mut waiting {
        assert!(waits.now_or_never().is_none(), "there is one place");
    }
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(place);
        let mut next = None;
        waiting.retain_mut(|(caller, number, waits)| match waits.now_or_never() {
            Some(place) => {
                assert!(next.is_none(), "there is one place");
                order.push((*caller, *number));
                next = Some(place);
                false
            }
            None => true,
        });
        place = next.expect("the next gets the place");
    }
    assert_eq!(order, [("greedy", 0), ("polite", 0), ("greedy", 1), ("polite", 1), ("greedy", 2)]);
}

#[tokio::test]
async fn work_that_has_left_gets_no_place() {
    let (queue, [greedy, polite]) = (FairQueue::new(1), callers());
    let place = queue.place(&greedy).await;
    let mut gone = Box::pin(queue.place(&greedy));
    let mut waits = Box::pin(queue.place(&polite));
    assert!(gone.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
    drop(gone);
    drop(place);
    let place = waits.now_or_never().expect("the next one's place");
    let mut late = Box::pin(queue.place(&greedy));
    assert!(late.as_mut().now_or_never().is_none());
    drop(place);
    // It has the place, but leaves before it learns of it.
    drop(late);
    queue.place(&polite).now_or_never().expect("the place is free again");
}

#[tokio::test]
async fn a_caller_holds_its_share_at_most() {
    let (queue, [greedy, polite]) = (FairQueue::with_share(3, 2), callers());
    let [first, _second] = [queue.place(&greedy).await, queue.place(&greedy).await];
    let mut third = Box::pin(queue.place(&greedy));
    assert!(third.as_mut().now_or_never().is_none(), "the free place is for another caller");
    let place = queue.place(&polite).now_or_never().expect("a free place");
    drop(place);
    assert!(third.as_mut().now_or_never().is_none(), "it is free again, for another caller");
    drop(first);
    third.now_or_never().expect("the caller has one place less");
    queue.place(&polite).now_or_never().expect("the last place is free");
}
