//! Poison: reads of memory whose contents were lost.

use cuda_core::protocol::{Graph, GraphId, GraphLaunch, GraphNode};

use super::*;

const OTHER: AllocId = AllocId(2);

/// A device whose first word of the flag is poisoned, and the error of reads of it.
fn poisoned() -> (Device, Error) {
    let d = Device::new(2);
    d.client.allocate(A, OTHER, FLAG_BYTES).unwrap();
    let to = Region { alloc: OTHER, offset: 0 };
    d.submit(A, Work::Fill { to, pattern: Pattern::Word(3), count: 2 }).unwrap();
    d.launch_with(A, TRAP, 1, Access::Write).unwrap();
    let fault = d.synchronize(A).unwrap_err();
    assert_eq!(d.client.reset(), Some(fault.clone()));
    (d, Error::ContentsLost { cause: Box::new(fault) })
}

#[test]
fn reads_on_all_streams_are_skipped_with_the_same_error() {
    let (d, lost) = poisoned();
    for stream in [A, B] {
        assert_eq!(d.read(stream, 0, &[]), Err(lost.clone()));
        let kernel = d.launch(stream, SHORT, 1).unwrap();
        assert_eq!(d.outcome(kernel), Err(lost.clone()));
        // The other word was not in the write set.
        assert_eq!(d.read(stream, 4, &[]), Ok(0));
    }
    assert_eq!(d.sink.take_faults().len(), 1, "a skipped read is not a fault");
    // Work that uses other memory runs.
    let other =
        Work::Fill { to: Region { alloc: OTHER, offset: 0 }, pattern: Pattern::Byte(1), count: 8 };
    let ticket = d.submit(A, other).unwrap();
    assert_eq!(d.outcome(ticket), Ok(()));
}

/// Overwrites the flag; the ticket of the work and the value it writes.
type Overwrite = fn(&Device) -> (Ticket, u32);

#[test]
fn fill_upload_and_copy_end_poison() {
    let overwrites: [Overwrite; 3] = [
        |d| (d.fill(A, 7).unwrap(), 7),
        |d| (d.upload(A, HostBlock::heap(4).unwrap()), 0),
        |d| {
            let from = Region { alloc: OTHER, offset: 0 };
            (d.submit(A, Work::Copy { from, to: START, bytes: 4 }).unwrap(), 3)
        },
    ];
    for overwrite in overwrites {
        let (d, lost) = poisoned();
        assert_eq!(d.read(B, 0, &[]), Err(lost));
        let (ticket, value) = overwrite(&d);
        assert_eq!(d.outcome(ticket), Ok(()));
        assert_eq!(d.read(A, 0, &[]), Ok(value));
        assert_eq!(d.read(B, 0, &[ticket]), Ok(value));
    }
}

#[test]
fn kernel_that_writes_does_not_end_poison() {
    let (d, lost) = poisoned();
    let kernel = d.launch_with(A, STORE, 1, Access::Write).unwrap();
    assert_eq!(d.outcome(kernel), Err(lost.clone()));
    assert_eq!(d.read(A, 0, &[]), Err(lost.clone()));
    assert_eq!(d.read(B, 0, &[kernel]), Err(lost));
}

#[test]
fn partial_overwrite_ends_its_part_only() {
    let (d, lost) = poisoned();
    let half = Region { offset: 2, ..START };
    let ticket = d.submit(A, Work::Fill { to: half, pattern: Pattern::Half(6), count: 1 }).unwrap();
    assert_eq!(d.outcome(ticket), Ok(()));
    assert_eq!(d.read(A, 0, &[]), Err(lost));
    // The second half of the poisoned word, and the half behind it.
    assert_eq!(d.read(A, 2, &[]).map(|word| word.to_le() & 0xffff), Ok(6));
    let half = Work::Fill { to: START, pattern: Pattern::Half(1), count: 1 };
    d.submit(A, half).unwrap();
    assert_eq!(d.read(A, 0, &[]).map(u32::to_le), Ok(0x0006_0001));
}

#[test]
fn copy_from_poisoned_memory_poisons_its_destination_with_the_root_cause() {
    let (d, lost) = poisoned();
    let to = Region { alloc: OTHER, offset: 0 };
    let copy = d.submit(A, Work::Copy { from: START, to, bytes: 4 }).unwrap();
    assert_eq!(d.outcome(copy), Err(lost.clone()));
    let back = d.submit(A, Work::Copy { from: to, to: Region { offset: 4, ..START }, bytes: 4 });
    assert_eq!(d.outcome(back.unwrap()), Err(lost.clone()));
    assert_eq!(d.read(A, 4, &[]), Err(lost));
}

/// The read is still in the queue when the free is submitted.
#[test]
fn free_does_not_end_poison_for_submissions_before_it() {
    let (d, lost) = poisoned();
    let word = |alloc| Region { alloc, offset: 0 };
    // OTHER is poisoned too, so that the stream can be held by an upload to FLAG.
    let copy = d.submit(A, Work::Copy { from: START, to: word(OTHER), bytes: 4 }).unwrap();
    assert_eq!(d.outcome(copy), Err(lost.clone()));
    let go = d.hold(A);
    let to = Region { offset: 4, ..START };
    let read = d.submit(A, Work::Copy { from: word(OTHER), to, bytes: 4 }).unwrap();
    d.client.free(A, OTHER, &[]).unwrap();
    drop(go);
    assert_eq!(d.outcome(read), Err(lost));
    // A new allocation of that name is not poisoned.
    d.client.allocate(A, OTHER, FLAG_BYTES).unwrap();
    let read = d.submit(A, Work::Copy { from: word(OTHER), to, bytes: 4 }).unwrap();
    assert_eq!(d.outcome(read), Ok(()));
}

/// Creates a graph of these nodes, one after the other, and launches it.
fn launch_graph(d: &Device, nodes: Vec<Work<'static>>) -> Ticket {
    let node = |work| GraphNode { work, after: Vec::new(), name: None };
    let graph = Graph { nodes: nodes.into_iter().map(node).collect(), host: Vec::new() };
    let (id, graph) = (GraphId(1), Arc::new(graph));
    d.client.control(Control::CreateGraph { id, graph }).unwrap();
    let launch = GraphLaunch { graph: id, uses: (&[]).into(), changes: Vec::new() };
    d.submit(A, Work::Graph(launch)).unwrap()
}

/// Otherwise a read after the reset returns the contents from before the launch.
#[test]
fn nodes_behind_a_fault_lose_what_they_write() {
    let d = Device::new(2);
    let fill = |offset| {
        let to = Region { offset, ..START };
        Work::Fill { to, pattern: Pattern::Word(7), count: 1 }
    };
    let launch = launch_graph(&d, vec![kernel(TRAP, 1, START, Access::Read), fill(4)]);
    let fault = d.outcome(launch).unwrap_err();
    assert!(is_fault(&fault, FaultKind::Trap), "{fault}");
    assert_eq!(d.client.reset(), Some(fault.clone()));
    assert_eq!(d.read(A, 0, &[]), Ok(0));
    assert_eq!(d.read(A, 4, &[]), Err(Error::ContentsLost { cause: Box::new(fault) }));
}

/// Otherwise the nodes behind the fault are skipped, and later work goes on as if they had run.
#[test]
fn fault_behind_a_node_that_is_skipped_loses_the_device() {
    let (d, _) = poisoned();
    let before = d.sink.take_faults();
    let second = Region { offset: 4, ..START };
    let to = Region { alloc: OTHER, offset: 0 };
    let copy = Work::Copy { from: START, to, bytes: 4 };
    let launch = launch_graph(&d, vec![copy, kernel(TRAP, 1, second, Access::Write)]);
    let fault = d.outcome(launch).unwrap_err();
    assert!(is_fault(&fault, FaultKind::Trap), "{fault}");
    assert_eq!((before.len(), d.sink.take_faults()), (1, vec![fault.clone()]));
    assert!(matches!(d.fill(A, 1), Err(Error::DeviceLost { .. })));
}
