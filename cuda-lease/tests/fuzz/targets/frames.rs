//! The decoder: any bytes as the stream of a client, of a node or of a worker.

use cuda_core::Error;
use cuda_lease::wire::{
    Ack, Allocate, Attach, Attached, CONTENT_BLOCK, Chunk, Command, Event, Frame, FrameBuffer,
    Free, Granted, Hello, Inventory, InventoryReply, PutBlob, Reader, Refused, Renew, Renewed,
    Submit, Submitted, TraceContext, Welcome, decode_changes, decode_graph, encode_changes,
    encode_graph,
    opcode::{LAUNCH, LAUNCH_WITH},
    put_frame,
};

/// The first byte is the length of the parts in which the rest arrives.
///
/// A message that is read is written again: its bytes must give the same message.
pub fn frames(bytes: &[u8]) {
    let Some((&part, bytes)) = bytes.split_first() else { return };
    let mut buffer = FrameBuffer::default();
    let mut whole = Vec::new();
    for part in bytes.chunks(usize::from(part) + 1) {
        buffer.extend(part);
        let Ok(frames) = buffer.take() else { break };
        for frame in frames.iter() {
            let header = frame.header;
            put_frame(&mut whole, header.opcode, header.epoch, header.sequence, |out| {
                out.extend_from_slice(frame.body);
            });
            decode(&frame);
        }
    }
    // The flags of a header are skipped, and written as 0.
    assert!(whole.len() <= bytes.len());
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(trace) = TraceContext::parse(text)
    {
        assert_eq!(TraceContext::parse(&trace.to_string()), Some(trace));
    }
}

fn decode(frame: &Frame<'_>) {
    let (opcode, body) = (frame.header.opcode, frame.body);
    let mut again = Vec::new();
    if let Ok(command) = Command::decode(opcode, body) {
        command.encode(&mut again);
        // Attributes of a launch that are all the default ones are not written.
        let written = command.opcode().unwrap();
        assert!(written == opcode || (opcode, written) == (LAUNCH_WITH, LAUNCH));
        assert_eq!(Command::decode(written, &again).as_ref(), Ok(&command));
    }
    again.clear();
    if let Ok(event) = Event::decode(opcode, body) {
        event.encode(&mut again);
        // The message of an error that has no tag of its own is a field when it is read.
        let read = Event::decode(opcode, &again).map(|event| event.opcode());
        assert_eq!(read, Ok(opcode));
    }
    again.clear();
    if let Ok(error) = Reader::new(body).get::<Error>() {
        cuda_lease::wire::Writer::new(&mut again).put(error.clone());
        assert!(error.to_string().len() < 16 << 20);
        assert!(Reader::new(&again).get::<Error>().is_ok(), "{error}");
    }
    again.clear();
    // The second content is without fields that the reader does not know, so its uploads are at other offsets.
    let (mut graph, mut changes) = (Vec::new(), Vec::new());
    if let Ok(decoded) = decode_graph(body) {
        encode_graph(&decoded, &[(CONTENT_BLOCK, body)], "lease", &mut graph).unwrap();
        let decoded = decode_graph(&graph).unwrap();
        encode_graph(&decoded, &[(CONTENT_BLOCK, &graph)], "lease", &mut again).unwrap();
        assert_eq!(again, graph);
    }
    again.clear();
    if let Ok(decoded) = decode_changes(body) {
        encode_changes(&decoded, &[(CONTENT_BLOCK, body)], "lease", &mut changes).unwrap();
        let decoded = decode_changes(&changes).unwrap();
        encode_changes(&decoded, &[(CONTENT_BLOCK, &changes)], "lease", &mut again).unwrap();
        assert_eq!(again, changes);
    }
    again.clear();
    if let Ok(chunk) = Chunk::decode(body) {
        chunk.encode(&mut again);
        assert_eq!(Chunk::decode(&again).as_ref(), Ok(&chunk));
    }
    messages(body);
}

/// Reads the body as every message with fixed fields.
fn messages(body: &[u8]) {
    macro_rules! each {
        ($($ty:ident)*) => {$(
            if let Ok(message) = $ty::decode(body) {
                let mut again = Vec::new();
                message.encode(&mut again);
                assert_eq!($ty::decode(&again).as_ref(), Ok(&message));
            }
        )*};
    }
    each!(
        Ack Allocate Attach Attached Free Granted Hello Inventory InventoryReply PutBlob Refused Renew Renewed Submit
        Submitted Welcome
    );
}
