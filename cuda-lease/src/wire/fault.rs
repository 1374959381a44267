//! The bytes of faults.

use cuda_core::{Fault, FaultKind, FaultSite, SourceLine};

use super::{Field, Reader, WireError, Writer};

/// The maximum number of inlined calls of a source line.
const INLINED: usize = 16;

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

pub(super) fn put_fault(w: &mut Writer<'_>, fault: &Fault) {
    let kind = KINDS.iter().position(|kind| *kind == fault.kind).unwrap_or(0);
    w.put_text(&fault.what).put(kind as u8).put_ref(&fault.kernel);
    w.put(fault.recovery.as_ref().map(ToString::to_string)).put_ref(&fault.site);
}

pub(super) fn get_fault(r: &mut Reader<'_>) -> Result<Fault, WireError> {
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
