//! The bytes of errors.
//!
//! An error is a `u16` tag, its message, and a byte string with its fields. A reader that does not know the tag still has
//! the message. Texts of errors are cut to [`TEXT`] bytes, so an error with all its causes fits in a frame.

use std::time::Duration;

use cuda_core::{Error, protocol::Status};

use super::{
    Field, Reader, WireError, Writer,
    fault::{get_fault, put_fault},
};

/// The maximum number of causes inside each other. A writer states deeper causes in words.
const DEPTH: u32 = 8;

/// The maximum number of bytes of each text of an error. An error has at most [`DEPTH`] + 1 messages, and the error at the
/// bottom at most 20 texts of its own: those of a fault with 16 source lines.
const TEXT: usize = 32 << 10;

impl Field for Error {
    fn put(&self, w: &mut Writer<'_>) {
        put_error(&mut w.with_text_limit(TEXT), self, 0);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        get_error(r, 0)
    }
}

fn put_error(w: &mut Writer<'_>, error: &Error, depth: u32) {
    let mut fields = Vec::new();
    let tag = put_fields(&mut Writer::new(&mut fields).with_text_limit(TEXT), error, depth);
    w.put(tag).put_text(&error.to_string()).put_bytes(&fields);
}

/// Writes the fields, and returns the tag.
fn put_fields(w: &mut Writer<'_>, error: &Error, depth: u32) -> u16 {
    let mut texts = |tag: u16, texts: &[&str]| {
        texts.iter().for_each(|it| _ = w.put_text(it));
        tag
    };
    match error {
        Error::InvalidPtx { detail } => texts(1, &[detail]),
        Error::LoadFailed { log } => texts(2, &[log]),
        Error::Arguments { kernel, detail } => texts(3, &[kernel, detail]),
        Error::InvalidLaunch { kernel, detail } => texts(4, &[kernel, detail]),
        Error::OutOfRange { what, detail } => texts(5, &[what, detail]),
        Error::DeviceLost { address, cause } => texts(6, &[address, cause]),
        Error::Unsupported { what, device } => texts(7, &[what, device]),
        Error::Host { what, detail } => texts(8, &[what, detail]),
        Error::Misuse { what, detail } => texts(9, &[what, detail]),
        Error::NoDriver { detail } => texts(10, &[detail]),
        Error::DriverUnusable { detail } => texts(11, &[detail]),
        Error::NoDevice { address, available } => texts(12, &[address, available]),
        Error::NoSuchKernel { name, available } => texts(13, &[name, available]),
        Error::NoSuchVariable { name, available } => texts(14, &[name, available]),
        Error::OutOfMemory { requested, free, total, pool } => {
            w.put(*requested).put(*free).put(*total);
            match pool {
                None => 20,
                Some(pool) => {
                    w.put_text(pool);
                    29
                }
            }
        }
        Error::OutOfHostMemory { requested } => {
            w.put(*requested);
            21
        }
        Error::ContentsLost { cause } if depth < DEPTH => {
            put_error(w, cause, depth + 1);
            22
        }
        Error::TimedOut { after } => {
            w.put(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
            23
        }
        Error::Fault(fault) => {
            put_fault(w, fault);
            24
        }
        Error::Driver { call, code, name } => {
            w.put_text(call).put(*code).put_text(name);
            25
        }
        Error::PtxTooNew { major, minor, detail } => {
            w.put(*major).put(*minor).put_text(detail);
            26
        }
        Error::Remote { address, status, detail } => {
            w.put_text(address).put(*status).put_text(detail);
            27
        }
        Error::Disconnected { address, cause, may_have_run } => {
            w.put_text(address).put_text(cause).put(*may_have_run);
            28
        }
        _ => 0,
    }
}

fn get_error(r: &mut Reader<'_>, depth: u32) -> Result<Error, WireError> {
    if depth > DEPTH {
        return Err(WireError::TooDeep { what: "an error", limit: DEPTH });
    }
    let (tag, message, fields) = (r.get::<u16>()?, r.get_text()?, r.get_bytes()?);
    let mut r = Reader::new(fields);
    let r = &mut r;
    let error = match tag {
        1 => Error::InvalidPtx { detail: r.get()? },
        2 => Error::LoadFailed { log: r.get()? },
        3 => Error::Arguments { kernel: r.get()?, detail: r.get()? },
        4 => Error::InvalidLaunch { kernel: r.get()?, detail: r.get()? },
        5 => Error::OutOfRange { what: r.get::<String>()?.into(), detail: r.get()? },
        6 => Error::DeviceLost { address: r.get()?, cause: r.get()? },
        7 => Error::Unsupported { what: r.get::<String>()?.into(), device: r.get()? },
        8 => Error::Host { what: r.get::<String>()?.into(), detail: r.get()? },
        9 => Error::Misuse { what: r.get::<String>()?.into(), detail: r.get()? },
        10 => Error::NoDriver { detail: r.get()? },
        11 => Error::DriverUnusable { detail: r.get()? },
        12 => Error::NoDevice { address: r.get()?, available: r.get()? },
        13 => Error::NoSuchKernel { name: r.get()?, available: r.get()? },
        14 => Error::NoSuchVariable { name: r.get()?, available: r.get()? },
        20 | 29 => Error::OutOfMemory {
            requested: r.get()?,
            free: r.get()?,
            total: r.get()?,
            pool: if tag == 29 { Some(r.get::<String>()?.into()) } else { None },
        },
        21 => Error::OutOfHostMemory { requested: r.get()? },
        22 => Error::ContentsLost { cause: Box::new(get_error(r, depth + 1)?) },
        23 => Error::TimedOut { after: Duration::from_nanos(r.get()?) },
        24 => get_fault(r)?.into(),
        25 => Error::Driver { call: r.get::<String>()?.into(), code: r.get()?, name: r.get()? },
        26 => Error::PtxTooNew { major: r.get()?, minor: r.get()?, detail: r.get()? },
        27 => Error::Remote { address: r.get()?, status: r.get()?, detail: r.get()? },
        28 => Error::Disconnected { address: r.get()?, cause: r.get()?, may_have_run: r.get()? },
        _ => Error::Host { what: "an error of the node".into(), detail: message.to_owned() },
    };
    Ok(error)
}

impl Field for Status {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.code());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get().map(Status::from_code)
    }
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
