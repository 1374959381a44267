//! The place of a request in a distributed trace.

use std::fmt;

use super::{Field, Reader, WireError, Writer};

/// The place of a request in a distributed trace: the `traceparent` of the W3C recommendation "Trace Context".
///
/// ```
/// use cuda_lease::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b9902b7-01";
/// let trace = TraceContext::parse(text).ok_or("no traceparent")?;
/// assert_eq!(trace.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(trace.to_string(), text);
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// The length of a `traceparent` of version 00 in bytes.
const LENGTH: usize = 55;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// Bytes that are written as lowercase hexadecimal digits: the id of a trace or of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HexId<const N: usize>([u8; N]);

impl<const N: usize> fmt::Display for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TraceContext {
    /// The tag of the optional field that has a trace context.
    pub const TAG: u16 = 0x0001;

    /// Begins a trace with random ids. The ids of a trace and of a span are not 0, so the last bit of a 0 is set.
    pub fn from_random(trace: [u8; 16], span: [u8; 8]) -> Self {
        Self { trace: not_zero(trace), span: not_zero(span), flags: SAMPLED }
    }

    /// Returns the context of another span of the same trace.
    #[must_use]
    pub fn with_span(self, span: [u8; 8]) -> Self {
        Self { span: not_zero(span), ..self }
    }

    /// Reads a `traceparent`. Returns `None` if the text is none. Of a version after 00, reads the parts of version 00.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, behind) = text.as_bytes().split_at_checked(LENGTH)?;
        let version = hex::<1>(&text[..2])?;
        let is_later = version != [0] && behind.first().is_none_or(|byte| *byte == b'-');
        let is_known = version == [0] && behind.is_empty();
        let has_dashes = [2, 35, 52].iter().all(|at| text[*at] == b'-');
        if version == [0xff] || !(is_known || is_later) || !has_dashes {
            return None;
        }
        let (trace, span) = (hex::<16>(&text[3..35])?, hex::<8>(&text[36..52])?);
        let [flags] = hex::<1>(&text[53..])?;
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, flags })
    }

    /// Returns the id of the trace.
    pub fn trace_id(&self) -> HexId<16> {
        HexId(self.trace)
    }

    /// Returns the id of the span.
    pub fn span_id(&self) -> HexId<8> {
        HexId(self.span)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.span_id(), self.flags)
    }
}

fn not_zero<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    if id == [0; N]
        && let Some(last) = id.last_mut()
    {
        *last = 1;
    }
    id
}

/// Reads lowercase hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The text of the `traceparent`, without a length.
impl Field<'_> for TraceContext {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_raw(self.to_string().as_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let text = std::str::from_utf8(r.take(LENGTH)?).map_err(|_| WireError::NotText)?;
        let value = u64::from(text.as_bytes()[0]);
        Self::parse(text).ok_or(WireError::Undefined { what: "a trace context", value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b9902b7-01";

    #[test]
    fn context_survives_text_and_wire() {
        let trace = TraceContext::parse(TEXT).unwrap();
        assert_eq!(trace.to_string(), TEXT);
        let mut body = Vec::new();
        Writer::new(&mut body).put(trace);
        assert_eq!((&body[..], Reader::new(&body).get()), (TEXT.as_bytes(), Ok(trace)));
        let child = trace.with_span([7; 8]);
        assert_eq!(
            (child.trace_id(), child.span_id().to_string()),
            (trace.trace_id(), "07".repeat(8))
        );
    }

    #[test]
    fn malformed_text_is_no_context() {
        for (part, other) in [
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            ("00f067aa0b9902b7", "0000000000000000"),
            ("00-4b", "ff-4b"),
            ("00-4b", "00_4b"),
            ("4bf9", "4BF9"),
            ("-01", "-0"),
            ("-01", "-01-extra"),
        ] {
            let text = TEXT.replacen(part, other, 1);
            assert_ne!(text, TEXT);
            assert_eq!(TraceContext::parse(&text), None, "{text}");
        }
        assert_eq!(TraceContext::parse(""), None);
    }

    #[test]
    fn later_version_has_the_parts_of_the_first() {
        let later = TEXT.replacen("00-", "01-", 1) + "-extra";
        assert_eq!(TraceContext::parse(&later), TraceContext::parse(TEXT));
        assert_eq!(TraceContext::parse(&(later.replacen("01-extra", "01extra", 1))), None);
    }

    #[test]
    fn random_zeros_are_a_valid_id() {
        let trace = TraceContext::from_random([0; 16], [0; 8]);
        assert_eq!(TraceContext::parse(&trace.to_string()), Some(trace));
    }
}
