//! Which connections are admitted, wait, and give way.

use tokio::time::advance;

use super::*;

const WAITING: Duration = Duration::from_secs(2);
const STALLED: Duration = Duration::from_secs(60);

fn gate(total: usize) -> Gate<&'static str> {
    Gate::new(Limits { total, waiting: WAITING, stalled: STALLED })
}

fn place(gate: &Gate<&'static str>, holder: &'static str) -> Place<&'static str> {
    match gate.try_admit(&holder, usize::MAX) {
        Admission::Admitted(place) => {
            place.seat().waits();
            place
        }
        other => panic!("{other:?}"),
    }
}

fn gave_way(place: &Place<&'static str>) -> bool {
    futures::FutureExt::now_or_never(place.seat().wanted()).is_some()
}

#[tokio::test(start_paused = true)]
async fn the_quietest_connection_of_the_largest_holder_gives_way() {
    let gate = gate(4);
    let few = place(&gate, "few");
    advance(Duration::from_millis(1)).await;
    let many: Vec<_> = (0..3).map(|_| place(&gate, "many")).collect();
    assert!(matches!(gate.try_admit(&"new", 9), Admission::Full), "all have just come");
    advance(WAITING).await;
    for moving in [&many[0], &many[2]] {
        moving.seat().moved();
    }
    let new = place(&gate, "new");
    assert!(gave_way(&many[1]), "the quiet one of the greediest");
    assert!(!gave_way(&few) && !gave_way(&many[0]) && !gave_way(&many[2]));
    assert_eq!(gate.taken(), 4);
    // Its end frees nothing a second time.
    drop(many);
    assert_eq!(gate.taken(), 2);
    drop((few, new));
    assert_eq!(gate.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_for_us_is_not_quiet() {
    let gate = gate(1);
    let ours = place(&gate, "one");
    ours.seat().heard();
    advance(STALLED * 2).await;
    assert!(matches!(gate.try_admit(&"new", 9), Admission::Full), "its bytes came, and were not looked at yet");
    ours.seat().waits();
    advance(WAITING).await;
    drop(place(&gate, "new"));
    assert!(gave_way(&ours));
}

#[tokio::test(start_paused = true)]
async fn only_a_stalled_request_gives_way() {
    let gate = gate(1);
    let download = place(&gate, "machine");
    let busy = download.seat().begin();
    advance(STALLED - Duration::from_millis(1)).await;
    assert!(matches!(gate.try_admit(&"new", 9), Admission::Full));
    advance(Duration::from_millis(1)).await;
    drop(place(&gate, "new"));
    assert!(gave_way(&download));
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn one_holder_has_no_more_than_its_own_share() {
    let gate = gate(10);
    let held: Vec<_> = (0..3).map(|_| place(&gate, "greedy")).collect();
    assert!(matches!(gate.try_admit(&"greedy", 3), Admission::TooMany));
    assert!(gate.admit(&"greedy", 3).await.is_none(), "it is not made to wait");
    drop(place(&gate, "other"));
    // Its own quiet ones make room for its newest.
    advance(WAITING).await;
    let newest = gate.try_admit(&"greedy", 3);
    assert!(matches!(newest, Admission::Admitted(_)));
    assert_eq!(gate.taken(), 3);
    drop(held);
    assert_eq!(gate.taken(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_greedy_holders_lock_no_other_out() {
    let gate = gate(2 * MANY + 2);
    let mut greedy: Vec<_> = (0..=MANY).map(|_| place(&gate, "one")).collect();
    greedy.extend((0..=MANY).map(|_| place(&gate, "other")));
    let begun = Instant::now();
    let honest: Vec<_> = (0..2).map(|_| place(&gate, "honest")).collect();
    assert_eq!(greedy.iter().filter(|place| gave_way(place)).count(), 2, "all had just come");
    assert!(gave_way(&greedy[0]) && gave_way(&greedy[MANY + 1]), "the oldest of each");
    assert_eq!(gate.taken(), 2 * MANY + 2);
    // Now neither holds many, so all are in legitimate use; a new connection waits.
    assert!(matches!(gate.try_admit(&"one", 999), Admission::Full));
    drop(greedy.pop());
    greedy.push(place(&gate, "one"));
    assert!(gate.admit(&"one", 999).await.is_none(), "nor does it keep others waiting behind it");
    assert_eq!((begun.elapsed(), honest.iter().filter(|place| gave_way(place)).count()), (Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_connection_gets_a_freed_or_quiet_place() {
    let gate = gate(1);
    let first = place(&gate, "first");
    let waiting = tokio::spawn({
        let gate = gate.clone();
        async move { gate.admit(&"second", 9).await }
    });
    tokio::task::yield_now().await;
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    second.seat().waits();
    // Nothing is freed any more, but the second says nothing.
    let begun = Instant::now();
    let third = gate.admit(&"third", 9).await.unwrap();
    assert!(begun.elapsed() <= WAITING + 2 * LOOK_AGAIN, "{:?}", begun.elapsed());
    assert!(gave_way(&second));
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn a_first_request_has_a_shorter_idle_limit() {
    let gate = gate(1);
    let place = place(&gate, "one");
    let seat = place.seat().clone();
    let (first, between) = (Duration::from_secs(10), Duration::from_secs(30));
    let begun = Instant::now();
    seat.idle(first, between).await;
    assert_eq!(begun.elapsed(), first);

    let busy = seat.begin();
    let ended = tokio::spawn({
        let seat = seat.clone();
        async move { seat.idle(first, between).await }
    });
    tokio::time::sleep(between * 10).await;
    assert!(!ended.is_finished(), "a request is under way");
    drop(busy);
    let begun = Instant::now();
    ended.await.unwrap();
    assert!(begun.elapsed() >= between && begun.elapsed() <= between * 2, "{:?}", begun.elapsed());
}
