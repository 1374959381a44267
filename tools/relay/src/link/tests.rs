use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

fn datagram(contents: &[u8]) -> Batch<'_> {
    Batch { client: 0, contents, segment: contents.len().max(1), ecn: None }
}

/// The contents of all batches that are due at a time.
fn due(link: &mut Link, at: Instant) -> Vec<u8> {
    std::iter::from_fn(|| link.take_due(at)).flat_map(|entry| entry.contents).collect()
}

#[test]
fn batch_without_faults_leaves_immediately() {
    let mut link = Link::new(Impairment::default(), 0);
    assert!(link.arrive(datagram(b"a"), Instant::now()));
    assert_eq!(link.next_due(), None);
}

#[test]
fn delayed_batch_is_due_after_its_delay() {
    let mut link = Link::new(Impairment { delay: MILLISECOND, ..Default::default() }, 0);
    let now = Instant::now();
    assert!(!link.arrive(datagram(b"a"), now));
    assert_eq!(link.next_due(), Some(now + MILLISECOND));
    assert!(due(&mut link, now + MILLISECOND - Duration::from_nanos(1)).is_empty());
    assert_eq!(due(&mut link, now + MILLISECOND), b"a");
}

#[test]
fn shorter_delay_does_not_overtake_datagrams_in_flight() {
    let mut link = Link::new(Impairment { delay: MILLISECOND, ..Default::default() }, 0);
    let now = Instant::now();
    assert!(!link.arrive(datagram(b"a"), now));
    link.configure(Impairment::default());
    assert!(!link.arrive(datagram(b"b"), now));
    assert!(due(&mut link, now).is_empty());
    assert_eq!(due(&mut link, now + MILLISECOND), b"ab");
    assert!(link.arrive(datagram(b"c"), now + MILLISECOND));
}

#[test]
fn jitter_keeps_the_order() {
    let jitter = 10 * MILLISECOND;
    let mut link = Link::new(Impairment { jitter, ..Default::default() }, 3);
    let now = Instant::now();
    let all: Vec<u8> = (0..100).collect();
    all.iter().for_each(|byte| assert!(!link.arrive(datagram(&[*byte]), now)));
    assert!(link.next_due() > Some(now));
    assert_eq!(due(&mut link, now + jitter), all);
}

#[test]
fn bandwidth_spaces_datagrams() {
    let bytes_per_second = Some(1_000_000);
    let mut link = Link::new(Impairment { bytes_per_second, ..Default::default() }, 0);
    let now = Instant::now();
    let batch = Batch { client: 0, contents: &[7; 3000], segment: 1000, ecn: None };
    assert!(!link.arrive(batch, now));
    for number in 1..=3 {
        assert_eq!(link.next_due(), Some(now + number * MILLISECOND));
        assert_eq!(due(&mut link, now + number * MILLISECOND).len(), 1000);
    }
}

#[test]
fn same_seed_makes_the_same_decisions() {
    let run = |seed| {
        let mut link =
            Link::new(Impairment { loss: 0.3, duplicate: 0.2, ..Default::default() }, seed);
        let now = Instant::now();
        (0..=255).for_each(|byte| assert!(!link.arrive(datagram(&[byte]), now)));
        due(&mut link, now)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn overtaken_datagram_is_late_by_its_reorder_delay() {
    let mut link = Link::new(Impairment { reorder: 1.0, ..Default::default() }, 0);
    let now = Instant::now();
    assert!(!link.arrive(datagram(b"a"), now));
    link.configure(Impairment { jitter: Duration::from_nanos(1), ..Default::default() });
    assert!(!link.arrive(datagram(b"b"), now));
    assert_eq!(due(&mut link, now + MILLISECOND / 2), b"b");
    assert_eq!(due(&mut link, now + MILLISECOND), b"a");
    assert_eq!(link.counters.reordered, 1);
}

#[test]
fn partition_drops_datagrams_in_flight() {
    let mut link = Link::new(Impairment { delay: MILLISECOND, ..Default::default() }, 0);
    let now = Instant::now();
    assert!(!link.arrive(datagram(b"a"), now));
    link.configure(Impairment { partitioned: true, ..Default::default() });
    assert!(!link.arrive(datagram(b"b"), now));
    assert_eq!(link.next_due(), None);
    assert_eq!(link.counters.partitioned, 2);
    assert_eq!(link.bytes_in_flight, 0);
}

#[test]
fn full_queue_drops_further_datagrams() {
    let impairment = Impairment { delay: MILLISECOND, queue_bytes: 3, ..Default::default() };
    let mut link = Link::new(impairment, 0);
    let now = Instant::now();
    assert!(!link.arrive(datagram(b"ab"), now));
    assert!(!link.arrive(datagram(b"cd"), now));
    assert!(!link.arrive(datagram(b"e"), now));
    assert_eq!(link.counters.overflowed, 1);
    assert_eq!(due(&mut link, now + MILLISECOND), b"abe");
    assert!(!link.arrive(datagram(b"fgh"), now));
    assert_eq!(link.counters.overflowed, 1);
}

#[test]
fn endless_delay_does_not_overflow() {
    let longest = Impairment {
        delay: Duration::MAX,
        jitter: Duration::MAX,
        reorder: 1.0,
        reorder_delay: Duration::MAX,
        bytes_per_second: Some(0),
        ..Default::default()
    };
    let mut link = Link::new(longest, 0);
    assert!(!link.arrive(datagram(&[0; 1000]), Instant::now()));
    assert!(link.next_due().is_some());
}

#[test]
fn split_keeps_all_bytes_and_empty_datagrams() {
    let batch = Batch { client: 0, contents: &[1; 10], segment: 4, ecn: None };
    assert_eq!(batch.datagrams(), 3);
    assert_eq!(batch.split(2).map(|part| part.contents.len()).collect::<Vec<_>>(), [8, 2]);
    let empty = datagram(b"");
    assert_eq!(empty.datagrams(), 1);
    assert_eq!(empty.split(64).count(), 1);
}
