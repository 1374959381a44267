//! Writes a snapshot as OpenMetrics text.

use std::fmt::{self, Write};

use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text::encode,
    },
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{Histogram, OPERATIONS, Snapshot};

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the metrics of a node as OpenMetrics text.
///
/// # Errors
/// Never in practice: writing to a string does not fail.
pub fn open_metrics(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("cuda_node");
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A label: its name and its value.
type Label<'a> = (&'static str, &'a str);

/// Writes metrics.
struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    fn bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let unit = Some(&Unit::Bytes);
        let metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn counters<'b>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Label<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (label, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&[label])?)?;
        }
        Ok(())
    }

    fn gauges<'b>(
        &mut self,
        (name, unit): (&str, Option<Unit>),
        help: &str,
        values: impl IntoIterator<Item = (Label<'b>, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (label, value) in values {
            ConstGauge::new(value).encode(family.encode_family(&[label])?)?;
        }
        Ok(())
    }

    fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: &[(L, &Histogram)],
    ) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, histogram) in values {
            write_histogram(family.encode_family(labels)?, histogram)?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        write_histogram(metric, histogram)
    }
}

fn write_histogram(mut metric: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let (sum, count) = (histogram.sum(), histogram.count());
    metric.encode_histogram::<NoLabelSet>(sum, count, &histogram.buckets(), None)
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Metrics(encoder);
        self.leases(out)?;
        self.data(out)?;
        self.latencies(out)
    }
}

impl Snapshot {
    fn leases(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let totals = &self.totals;
        out.counter("leases_acquired", "Leases that were granted", totals.acquired)?;
        let ended = totals.ended.iter().map(|(reason, count)| (("reason", *reason), *count));
        out.counters("leases_ended", "Leases whose end has begun, by reason", ended)?;
        let refused = totals.refused.iter().map(|(status, count)| (("status", &**status), *count));
        out.counters("leases_refused", "Requests for a lease that were refused", refused)?;
        out.counter("leases_renewed", "Renewals of leases", totals.renewed)?;
        out.gauge("leases_waiting", "Requests for a lease that wait", self.queue as u64)?;
        out.gauge("sessions", "Leases with a session", self.sessions as u64)?;
        out.gauge("connections", "Open connections", self.connections)?;
        out.counter("connections_accepted", "Connections so far", totals.connections)?;
        let help = "Sessions that a new connection resumed";
        out.counter("connections_resumed", help, totals.resumed)?;

        let of = |value: fn(&super::DeviceStatus) -> u64| {
            self.devices.iter().map(move |device| (("device", &*device.name), value(device)))
        };
        out.gauges(("leases", None), "Leases of a device", of(|device| device.leases as u64))?;
        let help = "Device memory that leases may use";
        out.gauges(("vram_capacity", Some(Unit::Bytes)), help, of(|device| device.capacity))?;
        let help = "Device memory that leases are charged with: quotas and contexts";
        out.gauges(("vram_allocated", Some(Unit::Bytes)), help, of(|device| device.allocated))?;
        let help = "Spare workers that are ready";
        out.gauges(("spare_workers", None), help, of(|device| device.spares as u64))?;
        let help = "Whether a device is out of service";
        out.gauges(("fenced", None), help, of(|device| device.fenced.into()))?;

        let of = |value: fn(&super::TenantStatus) -> u64| {
            self.tenants.iter().map(move |tenant| (("tenant", &*tenant.name), value(tenant)))
        };
        let help = "Leases of a tenant that the quotas name; without a name, of all others";
        out.gauges(("tenant_leases", None), help, of(|tenant| tenant.leases as u64))?;
        let help = "The sum of the quotas of a tenant's leases";
        out.gauges(("tenant_vram", Some(Unit::Bytes)), help, of(|tenant| tenant.memory))?;
        let help = "Submissions of a tenant's sessions that are not known to be complete";
        out.gauges(("tenant_backlog", None), help, of(|tenant| tenant.backlog))?;
        let help = "Host memory that workers hold for the backlog of a tenant";
        let bytes = of(|tenant| tenant.backlog_bytes);
        out.gauges(("tenant_backlog_memory", Some(Unit::Bytes)), help, bytes)
    }

    fn data(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let totals = &self.totals;
        let kinds = OPERATIONS.iter().zip(totals.operations);
        let kinds = kinds.map(|(kind, count)| (("kind", *kind), count));
        out.counters("operations", "Operations of sessions that workers got", kinds)?;
        let help = "Operations of sessions that failed or were skipped";
        out.counter("operations_failed", help, totals.failed)?;
        out.counter("kernel_faults", "Faults of kernels in sessions", totals.faults)?;
        let submits = totals.submits.iter().map(|(status, count)| (("status", &**status), *count));
        out.counters("submits", "Stateless submits by the status of their reply", submits)?;
        out.bytes("uploaded", "Bytes of uploads and inputs", totals.uploaded_bytes)?;
        out.bytes("output", "Bytes of downloads and outputs", totals.output_bytes)
    }

    fn latencies(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let of = &self.latencies;
        let help = "Time from a request for a lease to its grant";
        out.histogram("lease_wait", help, &of.admission)?;
        let series = [("session", &of.session), ("submit", &of.submit)].map(|(path, parts)| {
            [("queue", &parts.queue), ("wire", &parts.wire), ("device", &parts.device)]
                .map(|(part, histogram)| ([("path", path), ("part", part)], histogram))
        });
        let help =
            "Sampled times of operations: waiting in the node, on the network, on the device";
        out.histograms("latency", help, series.as_flattened())
    }
}

/// Returns the text of a status as the value of a label: `capacity_exceeded`.
pub fn status_label(status: cuda_lease::wire::Status) -> String {
    let mut label = String::new();
    // Writing to a string does not fail.
    _ = write!(label, "{status}");
    label.replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use cuda_lease::wire::Status;

    use crate::metrics::DeviceStatus;

    #[test]
    fn snapshot_becomes_open_metrics_text() {
        let mut snapshot = Snapshot { queue: 3, ..Snapshot::default() };
        let name = "cuda:0 \"quoted\"\n".to_owned();
        snapshot.devices.push(DeviceStatus { name, capacity: 1 << 30, ..DeviceStatus::default() });
        snapshot.totals.ended.insert("expired", 2);
        snapshot.totals.refused.insert(status_label(Status::CapacityExceeded), 4);
        snapshot.totals.operations[0] = 7;
        snapshot.totals.output_bytes = 1024;
        snapshot.latencies.session.queue.record(Duration::from_micros(2));
        snapshot.latencies.session.queue.record(Duration::from_secs(100));
        let text = open_metrics(snapshot).unwrap();
        for line in [
            "# TYPE cuda_node_leases_acquired counter",
            "cuda_node_leases_acquired_total 0",
            "cuda_node_leases_ended_total{reason=\"expired\"} 2",
            "cuda_node_leases_refused_total{status=\"capacity_exceeded\"} 4",
            "cuda_node_leases_waiting 3",
            "# UNIT cuda_node_vram_capacity_bytes bytes",
            "cuda_node_vram_capacity_bytes{device=\"cuda:0 \\\"quoted\\\"\\n\"} 1073741824",
            "cuda_node_operations_total{kind=\"launch\"} 7",
            "cuda_node_output_bytes_total 1024",
            "# TYPE cuda_node_latency_seconds histogram",
            "cuda_node_latency_seconds_bucket{le=\"0.000001\",path=\"session\",part=\"queue\"} 0",
            "cuda_node_latency_seconds_bucket{le=\"0.000002\",path=\"session\",part=\"queue\"} 1",
            "cuda_node_latency_seconds_bucket{le=\"+Inf\",path=\"session\",part=\"queue\"} 2",
            "cuda_node_latency_seconds_count{path=\"session\",part=\"queue\"} 2",
            "cuda_node_latency_seconds_count{path=\"submit\",part=\"wire\"} 0",
            "cuda_node_lease_wait_seconds_count 0",
        ] {
            assert!(text.lines().any(|printed| printed == line), "no line {line:?} in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
