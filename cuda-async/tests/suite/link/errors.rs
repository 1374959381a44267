//! The bytes of errors and faults.

use std::time::Duration;

use cuda_core::{Error, Fault, FaultKind, FaultSite, SourceLine};

use super::schema::{Reader, Writer};

pub fn put_error(w: &mut Writer, error: &Error) {
    let text = |w: &mut Writer, tag: u8, texts: &[&str]| {
        w.u8(tag).list(texts, |w, it| _ = w.bytes(it.as_bytes()));
    };
    match error {
        Error::InvalidPtx { detail } => text(w, 1, &[detail]),
        Error::LoadFailed { log } => text(w, 2, &[log]),
        Error::Arguments { kernel, detail } => text(w, 3, &[kernel, detail]),
        Error::InvalidLaunch { kernel, detail } => text(w, 4, &[kernel, detail]),
        Error::OutOfRange { what, detail } => text(w, 5, &[what, detail]),
        Error::DeviceLost { address, cause } => text(w, 6, &[address, cause]),
        Error::Unsupported { what, device } => text(w, 7, &[what, device]),
        Error::Host { what, detail } => text(w, 8, &[what, detail]),
        Error::OutOfMemory { requested, free, total, .. } => {
            w.u8(20).u64(*requested).u64(*free).u64(*total);
        }
        Error::OutOfHostMemory { requested } => _ = w.u8(21).u64(*requested),
        Error::ContentsLost { cause } => put_error(w.u8(22), cause),
        Error::TimedOut { after } => _ = w.u8(23).u64(after.as_nanos() as u64),
        Error::Fault(fault) => put_fault(w.u8(24), fault),
        other => unreachable!("a CPU device does not report {other}"),
    }
}

pub fn get_error(r: &mut Reader<'_>) -> Error {
    let tag = r.get_u8();
    match tag {
        20 => {
            let (requested, free, total) = (r.get_u64(), r.get_u64(), r.get_u64());
            return Error::OutOfMemory { requested, free, total, pool: None };
        }
        21 => return Error::OutOfHostMemory { requested: r.get_u64() },
        22 => return Error::ContentsLost { cause: Box::new(get_error(r)) },
        23 => return Error::TimedOut { after: Duration::from_nanos(r.get_u64()) },
        24 => return get_fault(r).into(),
        _ => {}
    }
    let mut texts = r.list(Reader::text).into_iter();
    let mut next = || texts.next().unwrap();
    match tag {
        1 => Error::InvalidPtx { detail: next() },
        2 => Error::LoadFailed { log: next() },
        3 => Error::Arguments { kernel: next(), detail: next() },
        4 => Error::InvalidLaunch { kernel: next(), detail: next() },
        5 => Error::OutOfRange { what: next().into(), detail: next() },
        6 => Error::DeviceLost { address: next(), cause: next() },
        7 => Error::Unsupported { what: next().into(), device: next() },
        _ => Error::Host { what: next().into(), detail: next() },
    }
}

const KINDS: [FaultKind; 10] = [
    FaultKind::IllegalAddress,
    FaultKind::Misaligned,
    FaultKind::Assert,
    FaultKind::Trap,
    FaultKind::Deadlock,
    FaultKind::BarrierDivergence,
    FaultKind::Uninitialized,
    FaultKind::Race,
    FaultKind::Budget,
    FaultKind::Other,
];

fn put_fault(w: &mut Writer, fault: &Fault) {
    let kind = KINDS.iter().position(|kind| *kind == fault.kind).unwrap();
    w.bytes(fault.what.as_bytes()).u8(kind as u8);
    w.option(fault.kernel.as_ref(), |w, it| _ = w.bytes(it.as_bytes()));
    w.option(fault.recovery.as_ref(), |w, it| _ = w.bytes(it.as_bytes()));
    w.option(fault.site.as_ref(), |w, site| {
        w.dims(site.block).dims(site.thread);
        w.option(site.address, |w, it| _ = w.u64(it));
        w.option(site.ptx_line, |w, it| _ = w.u32(it));
        w.option(site.nearest.as_ref(), |w, it| _ = w.bytes(it.as_bytes()));
        w.option(site.source.as_ref(), |w, it| {
            w.bytes(it.file.as_bytes()).u32(it.line).u32(it.column);
        });
    });
}

fn get_fault(r: &mut Reader<'_>) -> Fault {
    let what = r.text();
    let mut fault = Fault::new(KINDS[r.get_u8() as usize], what);
    fault.kernel = r.option(Reader::text);
    fault.recovery = r.option(Reader::text).map(Into::into);
    fault.site = r.option(|r| {
        let mut site = FaultSite::new(r.dims(), r.dims());
        site.address = r.option(Reader::get_u64);
        site.ptx_line = r.option(Reader::get_u32);
        site.nearest = r.option(Reader::text);
        site.source = r.option(|r| SourceLine::new(r.text(), r.get_u32(), r.get_u32()));
        site
    });
    fault
}
