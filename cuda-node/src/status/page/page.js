// Shows /status.json, and reads it again each second. All text of the node is set as text, never as HTML.
"use strict";

const PERIOD = 1000;
let before = null;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const separator = units[unit] ? " " : "";
  return value.toFixed(digits) + separator + units[unit];
}

const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const count = (value) => scaled(value, 1000, ["", "k", "M", "G"]);

function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return seconds + " s";
  const two = (value) => String(value).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes + ":" + two(seconds % 60) + " min";
  return Math.floor(minutes / 60) + ":" + two(minutes % 60) + " h";
}

function latency(seconds) {
  if (seconds === null) return "–";
  return seconds < 1e-3 ? "≤ " + (seconds * 1e6).toFixed(0) + " µs"
    : seconds < 1 ? "≤ " + (seconds * 1e3).toFixed(0) + " ms" : "≤ " + seconds.toFixed(1) + " s";
}

function memory(used, total) {
  const cell = element("td", undefined, "wide");
  cell.append(bytes(used) + " of " + bytes(total));
  const bar = element("span", undefined, "bar");
  const filled = element("span");
  filled.style.width = (total > 0 ? Math.min(100, 100 * used / total) : 0) + "%";
  bar.append(filled);
  cell.append(bar);
  return cell;
}

function rows(id, made) {
  document.querySelector("#" + id + " tbody").replaceChildren(...made);
}

function row(cells) {
  const made = element("tr");
  made.append(...cells);
  return made;
}

const cell = (text, kind) => element("td", text, kind);
const number = (text) => cell(text, "number");

// The change of a counter in a second, or null before the second reading.
function rates(now, earlier, ms) {
  return (name) => earlier && ms > 0 ? Math.max(0, now[name] - earlier[name]) * 1000 / ms : null;
}

const each = (rate, write) => rate === null ? "–" : write(rate);
const sum = (of) => Object.values(of).reduce((total, value) => total + value, 0);

function showFigures(now, rate) {
  const submits = sum(now.totals.submits);
  const good = now.totals.submits.ok || 0;
  const figures = [
    ["Leases", now.leases.length],
    ["Waiting requests", now.queue],
    ["Sessions", now.sessions],
    ["Connections", now.connections],
    ["Operations/s", each(rate("operations"), count)],
    ["Uploads/s", each(rate("uploaded_bytes"), bytes)],
    ["Output/s", each(rate("output_bytes"), bytes)],
    ["Leases acquired", count(now.totals.acquired)],
    ["Submits (failed)", count(submits) + " (" + count(submits - good) + ")"],
    ["Failed operations", count(now.totals.failed)],
    ["Kernel faults", count(now.totals.faults)],
    ["Resumed sessions", count(now.totals.resumed)],
  ];
  document.getElementById("figures").replaceChildren(...figures.map(([name, value]) => {
    const group = element("div");
    group.append(element("dt", name), element("dd", String(value)));
    return group;
  }));
}

function showDevices(now) {
  rows("devices", now.devices.map((it) => row([
    cell(it.name), cell(it.model), memory(it.allocated, it.capacity),
    number(it.leases + " of " + it.max_leases), number(String(it.spares)),
    it.fenced ? cell("fenced", "bad") : cell("in service"), sandbox(it.sandbox),
  ])));
}

// Workers that are threads of the node have no sandbox, like processes with an empty list of parts.
function sandbox(parts) {
  if (!parts || parts.length === 0) return cell("none", "bad");
  const missing = parts.filter((it) => it.missing !== null);
  if (missing.length === 0) return cell("complete");
  const name = (it) => it.part.replaceAll("_", " ");
  const made = cell("without " + missing.map(name).join(", "), "warn");
  made.title = missing.map((it) => name(it) + ": " + it.missing).join("\n");
  return made;
}

function showLeases(now, ms) {
  rows("leases", now.leases.map((it) => {
    const earlier = before && before.leases.find((other) => other.id === it.id);
    const rate = rates(it, earlier, ms);
    const state = it.cause ? it.state + ": " + it.cause : it.connected ? it.state : it.state + ", disconnected";
    const made = row([
      number(String(it.id)), cell(it.tenant), cell(it.device), cell(it.class),
      cell(state, it.state === "active" && it.connected ? "" : "warn"),
      memory(it.memory_used, it.memory), number(duration(it.age_ms)),
      number(it.left_ms === null ? "–" : duration(it.left_ms)),
      number(each(rate("operations"), count)), number(each(rate("uploaded_bytes"), bytes)),
      number(each(rate("output_bytes"), bytes)),
    ]);
    made.dataset.lease = it.id;
    return made;
  }));
  document.getElementById("none").hidden = now.leases.length > 0;
}

function show(now) {
  const ms = before ? now.uptime_ms - before.uptime_ms : 0;
  if (ms < 0) before = null; // The node was started again.
  showFigures(now, rates(now.totals, before && before.totals, ms));
  showDevices(now);
  showLeases(now, ms);
  rows("latency", now.latency.map((it) => row([
    cell(it.name), number(count(it.count)), number(latency(it.p50)), number(latency(it.p99)),
  ])));
  const table = (name, of) => Object.entries(of).filter(([, value]) => value > 0)
    .map(([reason, value]) => row([cell(name), cell(reason.replaceAll("_", " ")), number(count(value))]));
  rows("ends", [...table("lease ended", now.totals.ended), ...table("request refused", now.totals.refused),
    ...table("submit", now.totals.submits)]);
  // A snapshot may serve two readings. The rates are those between different ones.
  if (!before || ms > 0) before = now;
}

async function refresh() {
  const state = document.getElementById("state");
  try {
    const reply = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!reply.ok) throw new Error("status " + reply.status);
    const now = await reply.json();
    show(now);
    state.textContent = "up for " + duration(now.uptime_ms);
    state.className = "";
  } catch (error) {
    state.textContent = "the node does not answer (" + error.message + ")";
    state.className = "bad";
  }
  setTimeout(refresh, PERIOD);
}

refresh();
