//! The bytes of errors and of faults.
//!
//! An error is a `u16` tag, its message, and a byte string with its fields. A reader that does not know the tag still
//! has the message. Texts of errors are cut to [`TEXT`] bytes, so an error with all its causes fits in a frame.

use std::{borrow::Cow, time::Duration};

use cuda_core::{
    Error, Fault, FaultKind, FaultSite, Feature, Limit, Quantity, SourceLine, protocol::Status,
};

use super::{Field, Reader, Variants, WireError, Writer, codec::variants};

/// The maximum number of causes inside each other. A writer puts deeper causes into the message.
const DEPTH: u32 = 8;

/// The maximum number of bytes of each text of an error. An error has at most [`DEPTH`] + 1 messages, and the error at
/// the bottom at most 20 texts of its own: those of a fault with 16 source lines.
const TEXT: usize = 32 << 10;

/// The maximum number of inlined calls of a source line.
const INLINED: usize = 16;

impl Field<'_> for Error {
    fn put(&self, w: &mut Writer<'_>) {
        put_error(&mut w.with_text_limit(TEXT), self, 0);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        get_error(r, 0)
    }
}

// `Error::ContentsLost`, `Error::Fault` and `Error::OutOfMemory` have fields of other kinds. `Error::Misuse` and
// `Error::Shape` are mistakes of a client, which no node reports. The tags 5, 7 and 9 had texts in the place of fields.
variants! {
    Error: u16 {
        1 => InvalidPtx { detail },
        2 => LoadFailed { log },
        3 => Arguments { kernel, detail },
        4 => InvalidLaunch { kernel, detail },
        6 => DeviceLost { address, cause },
        8 => Host { what, detail },
        10 => NoDriver { detail },
        11 => DriverUnusable { detail },
        12 => NoDevice { address, available },
        13 => NoSuchKernel { name, available },
        14 => NoSuchVariable { name, available },
        21 => OutOfHostMemory { requested },
        23 => TimedOut { after },
        25 => Driver { call, code, name },
        26 => PtxTooNew { major, minor, detail },
        27 => Remote { address, status, detail },
        28 => Disconnected { address, cause, may_have_run },
        30 => OutOfRange { object, quantity, given, limit },
        31 => Unsupported { feature, device },
        32 => NoSuchObject { object, id },
    }

    Limit: u8 = "a limit" {
        0 => AtMost(value),
        1 => AtLeast(value),
        2 => Below(value),
        3 => Exactly(value),
        4 => MultipleOf(value),
    }

    Quantity: u16 = "a quantity" {
        0 => Elements,
        1 => Bytes,
        2 => End,
        3 => Index,
        4 => Address,
        5 => Dimensions,
        6 => Dimension,
        7 => Size,
        8 => Pieces,
        9 => Nodes,
        10 => Edges,
        11 => Accesses,
        12 => UploadedBytes,
        13 => LoopDepth,
        14 => MemoryPools,
        15 => Transfers,
        16 => Submission,
        17 => Operations,
        18 => Devices,
        19 => Tensors,
        20 => Leases,
        21 => Workers,
        22 => Start,
        23 => Streams,
    }

    Feature: u16 = "a feature" {
        0 => MemoryPool,
        1 => ManagedPool,
        2 => GrowableBuffer,
        3 => Cluster,
        4 => LaunchAttributes,
        5 => ForeignLaunchAttributes,
        6 => GraphLoop,
        7 => ForeignWork,
        8 => PeerCopy,
        9 => MachineCode,
        10 => Timestamp,
        11 => Reset,
        12 => WorkInGraph,
        13 => WorkOutsideGraph,
        14 => CapturedElsewhere,
        15 => Work,
        16 => Control,
        17 => Request,
        18 => Reply,
        19 => ModuleImage,
        20 => PoolChange,
    }
}

fn put_error(w: &mut Writer<'_>, error: &Error, depth: u32) {
    let mut fields = Vec::new();
    let tag = put_fields(&mut Writer::new(&mut fields).with_text_limit(TEXT), error, depth);
    w.put(tag).put_text(&error.to_string()).put_bytes(&fields);
}

/// Writes the fields of an error, and returns its tag. 0 is an error without fields: the reader takes its message.
fn put_fields(w: &mut Writer<'_>, error: &Error, depth: u32) -> u16 {
    match error {
        Error::OutOfMemory { requested, free, total, pool } => {
            w.put(*requested).put(*free).put(*total);
            pool.as_ref().map_or(20, |pool| {
                w.put_text(pool);
                29
            })
        }
        Error::ContentsLost { cause } if depth < DEPTH => {
            put_error(w, cause, depth + 1);
            22
        }
        Error::Fault(fault) => {
            put_fault(w, fault);
            24
        }
        error => {
            error.put_fields(w);
            error.tag().unwrap_or(0)
        }
    }
}

fn get_error(r: &mut Reader<'_>, depth: u32) -> Result<Error, WireError> {
    if depth > DEPTH {
        return Err(WireError::TooDeep { what: "an error", limit: DEPTH });
    }
    let (tag, message, fields) = (r.get::<u16>()?, r.get_text()?, r.get_bytes()?);
    let r = &mut Reader::new(fields);
    Ok(match tag {
        20 | 29 => Error::OutOfMemory {
            requested: r.get()?,
            free: r.get()?,
            total: r.get()?,
            pool: if tag == 29 { Some(r.get::<String>()?.into()) } else { None },
        },
        22 => Error::ContentsLost { cause: Box::new(get_error(r, depth + 1)?) },
        24 => get_fault(r)?.into(),
        tag => match Error::get_fields(tag, r) {
            Ok(Some(error)) => error,
            // A newer node has tags, features and limits that this side does not know. Its message states them.
            Ok(None) | Err(WireError::Undefined { .. }) => {
                Error::Host { what: "an error of the node".into(), detail: message.to_owned() }
            }
            Err(error) => return Err(error),
        },
    })
}

impl Field<'_> for Cow<'static, str> {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get::<String>().map(Cow::Owned)
    }
}

impl Field<'_> for Duration {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX));
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get().map(Duration::from_nanos)
    }
}

impl Field<'_> for Status {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.code());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get().map(Status::from_code)
    }
}

/// The kinds, each at the index that is its number on the wire.
const KINDS: [FaultKind; 11] = [
    FaultKind::Other,
    FaultKind::IllegalAddress,
    FaultKind::Misaligned,
    FaultKind::Assert,
    FaultKind::Trap,
    FaultKind::Deadlock,
    FaultKind::BarrierDivergence,
    FaultKind::Uninitialized,
    FaultKind::Race,
    FaultKind::Budget,
    FaultKind::ReadOnlyArgument,
];

fn put_fault(w: &mut Writer<'_>, fault: &Fault) {
    let kind = KINDS.iter().position(|kind| *kind == fault.kind).unwrap_or(0);
    w.put_text(&fault.what).put(kind as u8).put_ref(&fault.kernel);
    w.put(fault.recovery.as_ref().map(ToString::to_string)).put_ref(&fault.site);
}

fn get_fault(r: &mut Reader<'_>) -> Result<Fault, WireError> {
    let what = r.get_text()?;
    let kind = KINDS.get(usize::from(r.get::<u8>()?)).copied().unwrap_or(FaultKind::Other);
    let mut fault = Fault::new(kind, what);
    fault.kernel = r.get()?;
    fault.recovery = r.get::<Option<String>>()?.map(Into::into);
    fault.site = r.get()?;
    Ok(fault)
}

impl Field<'_> for FaultSite {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.block).put(self.thread).put(self.address).put(self.ptx_line);
        w.put_ref(&self.nearest).put(lines(self.source.as_ref()));
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut site = FaultSite::new(r.get()?, r.get()?);
        site.address = r.get()?;
        site.ptx_line = r.get()?;
        site.nearest = r.get()?;
        site.source = source(r.get()?);
        Ok(site)
    }
}

/// A source line without its calls: the file, and line and column.
type Line = (String, (u32, u32));

/// The line itself, then the calls that inlined it, outwards.
fn lines(place: Option<&SourceLine>) -> Vec<Line> {
    std::iter::successors(place, |place| place.inlined_at.as_deref())
        .take(INLINED)
        .map(|place| (place.file.clone(), (place.line, place.column)))
        .collect()
}

fn source(lines: Vec<Line>) -> Option<SourceLine> {
    let lines = lines.into_iter().take(INLINED).rev();
    lines.fold(None, |call, (file, (line, column))| {
        let place = SourceLine::new(file, line, column);
        Some(match call {
            None => place,
            Some(call) => place.inlined_at(call),
        })
    })
}

#[cfg(test)]
mod tests {
    use cuda_core::{Fault, FaultKind, FaultSite, SourceLine};

    use super::*;
    use crate::wire::FRAME_LIMIT;

    fn round_trip(error: &Error) -> Result<Error, WireError> {
        let mut out = Vec::new();
        Writer::new(&mut out).put(error.clone());
        Reader::new(&out).get()
    }

    #[test]
    fn error_without_a_tag_of_its_own_keeps_its_message() {
        let read = round_trip(&Error::AlreadyEnded).unwrap();
        assert!(read.to_string().contains("has already ended"), "{read}");
    }

    #[test]
    fn every_feature_quantity_and_limit_keeps_its_fields() {
        let features =
            (0..).map_while(|tag| Feature::get_fields(tag, &mut Reader::new(&[])).ok()?);
        let quantities =
            (0..).map_while(|tag| Quantity::get_fields(tag, &mut Reader::new(&[])).ok()?);
        let limits = [
            Limit::AtMost(7),
            Limit::AtLeast(7),
            Limit::Below(7),
            Limit::Exactly(7),
            Limit::MultipleOf(7),
        ];
        let errors = features
            .map(|feature| Error::unsupported(feature, "cuda:0"))
            .chain(
                quantities
                    .map(|quantity| Error::out_of_range("a buffer", quantity, 9, Limit::AtMost(8))),
            )
            .chain(limits.map(|limit| Error::out_of_range("a buffer", Quantity::Bytes, 9, limit)))
            .chain([Error::no_such_object("stream", 3)]);
        for error in errors {
            assert_eq!(round_trip(&error).as_ref(), Ok(&error));
        }
    }

    #[test]
    fn unknown_feature_of_a_newer_node_keeps_its_message() {
        let (mut fields, mut out) = (Vec::new(), Vec::new());
        Writer::new(&mut fields).put(999u16).put_text("cuda:0");
        Writer::new(&mut out)
            .put(31u16)
            .put_text("time travel is not supported")
            .put_bytes(&fields);
        let read = Reader::new(&out).get::<Error>().unwrap();
        assert!(read.to_string().contains("time travel is not supported"), "{read}");
    }

    fn nested(error: Error, times: u32) -> Error {
        (0..times).fold(error, |cause, _| Error::ContentsLost { cause: Box::new(cause) })
    }

    #[test]
    fn causes_below_the_limit_are_stated_in_words() {
        let fault = Error::from(Fault::new(FaultKind::Trap, "a trap"));
        let lost = nested(fault.clone(), DEPTH);
        assert_eq!(round_trip(&lost).unwrap(), lost);
        let read = round_trip(&nested(fault, DEPTH + 1)).unwrap();
        assert!(read.to_string().contains("a trap"), "{read}");
    }

    #[test]
    fn reader_refuses_more_causes_than_the_limit() {
        let mut body = Vec::new();
        Writer::new(&mut body).put(21u16).put_text("").put_bytes(&[0; 8]);
        for depth in 1..=DEPTH + 1 {
            let mut outer = Vec::new();
            Writer::new(&mut outer).put(22u16).put_text("").put_bytes(&body);
            body = outer;
            let read = Reader::new(&body).get::<Error>();
            assert_eq!(read.is_ok(), depth <= DEPTH, "{depth}: {read:?}");
        }
    }

    #[test]
    fn error_with_texts_of_any_length_fits_in_a_frame() {
        let long = "é".repeat(1 << 20);
        let mut line = SourceLine::new(long.clone(), 1, 1);
        for _ in 0..20 {
            line = SourceLine::new(long.clone(), 1, 1).inlined_at(line);
        }
        let mut site = FaultSite::new([0; 3], [0; 3]);
        (site.source, site.nearest) = (Some(line), Some(long.clone()));
        let fault = Fault::new(FaultKind::Trap, long.clone()).in_kernel(long.clone()).at(site);
        let error = nested(fault.recovery(long).into(), DEPTH);
        let mut out = Vec::new();
        Writer::new(&mut out).put(error);
        assert!(out.len() < FRAME_LIMIT as usize - 64, "{}", out.len());
        assert!(Reader::new(&out).get::<Error>().is_ok());
    }
}
