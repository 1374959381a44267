//! Reports of progress and failures.

use std::time::Duration;

use super::*;

#[test]
fn want_of_a_complete_ticket_is_reported() {
    let d = Device::new(2);
    let done = d.fill(A, 1).unwrap();
    d.client.block_until(done).unwrap();
    assert!(d.notices.try_recv().is_err(), "no caller asked");
    for number in [done.number, 1] {
        d.client.want(Ticket { number, ..done });
        // Cumulative: at least this number.
        assert_eq!(d.next_report(), done);
    }
    assert_eq!(d.client.peek(A), Ok(done.number));
}

#[test]
fn want_of_a_ticket_in_flight_is_reported_when_it_completes() {
    let d = Device::new(2);
    let go = d.hold(A);
    let [first, second] = [1, 2].map(|value| d.fill(A, value).unwrap());
    // In the wrong order, and twice.
    [second, first, second].into_iter().for_each(|ticket| d.client.want(ticket));
    assert!(d.notices.recv_timeout(Duration::from_millis(30)).is_err());
    drop(go);
    let mut report = d.next_report();
    assert!(report.number >= first.number);
    while report != second {
        report = d.next_report();
    }
    assert!(d.notices.recv_timeout(Duration::from_millis(30)).is_err(), "reported twice");
}

#[test]
fn after_orders_across_streams() {
    let d = Device::new(2);
    let go = d.hold(A);
    let ticket = d.fill(A, 8).unwrap();
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        let d = &d.client;
        let block = Arc::new(HostBlock::heap(4).unwrap());
        let to = HostRegion { block: block.id(), offset: 0 };
        let work = Work::Download { from: START, to, bytes: 4 };
        let read = d.submit(B, &[ticket], work, std::slice::from_ref(&block)).unwrap();
        scope.spawn(move || {
            d.block_until(read).unwrap();
            // SAFETY: the download has run.
            done.send(unsafe { block.shared_bytes() }.to_vec()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(30)).is_err());
        drop(go);
        assert_eq!(is_done.recv().unwrap(), 8_u32.to_ne_bytes());
    });
}

#[test]
fn after_may_name_a_retired_stream_that_is_idle() {
    let d = Device::new(2);
    let ticket = d.fill(A, 8).unwrap();
    d.client.drain(A);
    d.client.retire_stream(A);
    assert_eq!(d.read(B, 0, &[ticket]), Ok(8));
}

#[test]
fn after_orders_behind_a_retired_stream_that_is_busy() {
    let d = Device::new(2);
    let go = d.hold(A);
    let ticket = d.fill(A, 8).unwrap();
    d.client.retire_stream(A);
    let joined = d.join(B, &[ticket]);
    d.want(B);
    assert!(d.notices.recv_timeout(Duration::from_millis(30)).is_err());
    drop(go);
    assert_eq!(d.next_report(), joined);
    assert_eq!(d.flag(), 8);
}

/// The sink checks every notice, see `client`.
#[test]
fn reports_never_go_back_and_never_overtake_a_failure() {
    for seed in 0..4 {
        let mut options = CpuOptions::default();
        options.workers = Some(2);
        let max_delay = Duration::from_micros(400);
        options.timing = Timing::Adversarial { seed, max_delay };
        let d = Device::with(options);
        for round in 0..20 {
            for stream in [A, B] {
                for _ in 0..8 {
                    if d.launch(stream, SHORT, 1).is_ok() {
                        d.want(stream);
                    }
                    d.client.want(Ticket { stream, number: 1 });
                }
            }
            _ = d.launch(if round % 2 == 0 { A } else { B }, TRAP, 1);
            let last = [A, B].map(|stream| d.want(stream));
            let mut open = last.to_vec();
            while !open.is_empty() {
                let report = d.next_report();
                open.retain(|other| other.stream != report.stream || other.number > report.number);
            }
            assert!(!d.sink.take_faults().is_empty());
            assert!(d.client.reset().is_some());
            // Everything behind the fault on its stream failed; its error was there when the report came.
            let failed = [A, B].map(|stream| d.sink.take_failure(stream));
            assert!(failed.iter().flatten().all(|error| is_fault(error, FaultKind::Trap)));
            assert!(failed.iter().any(Option::is_some));
        }
    }
}

/// Other threads request reports of complete numbers while the stream runs.
#[test]
fn reports_of_many_threads_never_go_back() {
    let d = Device::new(2);
    std::thread::scope(|scope| {
        let client = &d.client;
        for _ in 0..3 {
            scope.spawn(move || {
                for _ in 0..3000 {
                    let ticket = client.submit(A, &[], Work::Join, &[]).unwrap();
                    client.want(ticket);
                    client.want(Ticket { number: 1, ..ticket });
                }
            });
        }
    });
    d.client.drain(A);
    let last = d.want(A);
    while d.next_report() != last {}
}
