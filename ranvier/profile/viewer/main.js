"use strict";
// Unpacks the data and puts the page together.

async function unpack() {
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function byId(name) {
  return document.getElementById(name);
}

function start(data) {
  const p = data.profile, view = new View(Math.max(p.latency_ns * 10, 10));
  byId("verdict").textContent = p.verdict;
  drawTiles(byId("tiles"), p);
  drawEngines(byId("engines"), p);
  drawPath(byId("path"), p);
  const timeline = new Timeline(data, view, byId("timeline"), (event) => showDetails(data, timeline, event));
  const memory = new Memory(data, view, byId("memory"));
  const roofline = () => drawRoofline(byId("roofline"), p, data.peaks);
  roofline();
  drawTables(data, timeline);
  drawLegend(data, timeline);
  listenToControls(data, view, timeline, memory, roofline);
  showDetails(data, timeline, -1);
  return { data, view, timeline, memory };
}

function drawTables(data, timeline) {
  const p = data.profile, share = (ns) => fmt.percent(ns / p.latency_ns);
  const find = (text) => { byId("search").value = text; byId("search").dispatchEvent(new Event("input")); byId("timeline").scrollIntoView({ block: "center" }); };
  drawTable(byId("stalls"), p.stalls, [
    ["engine", (r) => r.engine, null, "text"], ["waits for", (r) => r.reason, null, "text"], ["of", (r) => r.on, null, "text"],
    ["time", (r) => r.ns, fmt.time], ["of total", (r) => r.ns, share], ["times", (r) => r.count],
  ]);
  const engines = p.engines.map((e) => e.engine).filter((e) => e !== "dma");
  const drawParts = () => drawTable(byId("parts"), byId("each").checked ? p.layers : p.parts, [
    ["part", (r) => r.scope || "(none)", null, "text"], ["copies", (r) => r.copies], ["critical", (r) => r.critical_ns, fmt.time], ["share", (r) => r.critical_ns, share],
    ...engines.map((e) => [e, (r) => r.busy_ns[e] ?? 0, fmt.time]),
    ["transfers", (r) => r.transfer_ns, fmt.time], ["HBM", (r) => r.hbm_bytes, fmt.bytes], ["FLOP", (r) => r.flops, fmt.flops],
    ["instructions", (r) => r.instructions],
  ], (row) => find(row.scope));
  byId("each").addEventListener("change", drawParts);
  drawParts();
  drawTable(byId("hot"), p.hot, [
    ["instruction", (r) => r.instruction, null, "text"], ["engine", (r) => r.engine, null, "text"],
    ["critical", (r) => r.critical_ns, fmt.time], ["share", (r) => r.critical_ns, share], ["busy", (r) => r.busy_ns, fmt.time],
    ["times", (r) => r.count], ["place", (r) => r.place, (s) => s.split("/").pop(), "text"], ["source", (r) => r.source, null, "text code"],
  ], (row) => find(row.place));
}

function listenToControls(data, view, timeline, memory, roofline) {
  const middle = () => (view.from + view.to) / 2;
  byId("color").addEventListener("change", (e) => { timeline.colorBy = e.target.value; timeline.surface.redraw(); drawLegend(data, timeline); });
  byId("critical").addEventListener("change", (e) => { timeline.criticalOnly = e.target.checked; timeline.surface.redraw(); });
  byId("search").addEventListener("input", (e) => search(data, timeline, e.target.value.trim().toLowerCase()));
  byId("in").addEventListener("click", () => view.zoom(0.5, middle()));
  byId("out").addEventListener("click", () => view.zoom(2, middle()));
  byId("fit").addEventListener("click", () => view.set(0, view.total));
  addEventListener("keydown", (e) => {
    if (e.target.matches("input, select") || e.ctrlKey || e.metaKey) return;
    const action = {
      w: () => view.zoom(0.7, middle()), s: () => view.zoom(1.43, middle()), a: () => view.pan(-0.2), d: () => view.pan(0.2),
      0: () => view.set(0, view.total), Escape: () => timeline.select(-1),
    }[e.key];
    if (action) action();
  });
  const root = document.documentElement;
  const repaint = () => { timeline.surface.redraw(); memory.surface.redraw(); roofline(); };
  byId("theme").addEventListener("click", () => { root.classList.toggle("dark"); repaint(); });
}

// What the colors mean, by time spent; a click finds the events.
function drawLegend(data, timeline) {
  const { events, slots, strings } = data, sums = new Map();
  const nameOf = {
    name: (i) => strings[slots.name[events.slot[i]]], part: (i) => strings[slots.part[events.slot[i]]] || "(none)",
    reason: (i) => data.reasons[events.reason[i]].replace("_", " "),
  }[timeline.colorBy];
  events.start.forEach((start, i) => {
    const name = events.kind[i] === 2 ? "activation table load" : nameOf(i);
    const entry = sums.get(name) ?? { ns: 0, color: timeline.colorOf(i) };
    entry.ns += (events.end[i] - start) / 10;
    sums.set(name, entry);
  });
  const shown = [...sums].sort((a, b) => b[1].ns - a[1].ns).slice(0, 14);
  byId("legend").innerHTML = shown.map(([name, { ns, color }]) =>
    `<span title="${fmt.time(ns)} in all"><i style="background:${color}"></i>${escapeHtml(name)}</span>`).join("");
  byId("legend").querySelectorAll("span").forEach((item, i) => item.addEventListener("click", () => {
    if (timeline.colorBy === "reason") return;
    const name = shown[i][0];
    byId("search").value = byId("search").value === name ? "" : name;
    search(data, timeline, byId("search").value.toLowerCase());
  }));
}

// Marks the events whose instruction, operands, place or part contain the text.
function search(data, timeline, text) {
  const { events, slots, strings } = data;
  timeline.matches = null;
  byId("found").textContent = "";
  if (text) {
    // "*" stands for a number, as in the table of parts.
    const pattern = new RegExp(text.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "\\d+"));
    const hits = strings.map((s) => pattern.test(s.toLowerCase()));
    const inSlot = slots.text.map((t, i) => hits[t] || hits[slots.part[i]] || hits[slots.source[i]] ||
      pattern.test(`${strings[slots.file[i]]}:${slots.line[i]}`.toLowerCase()));
    timeline.matches = events.slot.map((slot) => (inSlot[slot] ? 1 : 0));
    const count = timeline.matches.reduce((a, b) => a + b, 0);
    const busy = timeline.matches.reduce((sum, hit, i) => sum + (hit ? events.end[i] - events.start[i] : 0), 0);
    byId("found").textContent = `${count} events, ${fmt.time(busy / 10)}`;
  }
  timeline.surface.redraw();
}

function showDetails(data, timeline, event) {
  const box = byId("details");
  if (event < 0) { box.innerHTML = `<span class="soft">Click an event to see its instruction, its source line and what it waited for.</span>`; return; }
  const { events, slots, strings } = data, slot = events.slot[event], at = (column) => strings[slots[column][slot]];
  const rows = [];
  const add = (name, markup) => { if (markup) rows.push(`<dt>${name}</dt><dd>${markup}</dd>`); };
  add("instruction", `<code>${escapeHtml(at("text"))}</code>`);
  add("line", at("file") && `${escapeHtml(at("file"))}:${slots.line[slot]} &nbsp; <code>${escapeHtml(at("source"))}</code>`);
  add("part", escapeHtml(at("part")));
  add("time", `${fmt.time(events.start[event] / 10)} to ${fmt.time(events.end[event] / 10)}, ` +
    `<b>${fmt.time((events.end[event] - events.start[event]) / 10)}</b>; visible after ${fmt.time((events.done[event] - events.start[event]) / 10)}` +
    (events.bytes[event] ? `; ${fmt.bytes(events.bytes[event])} of HBM traffic, ${digits((events.bytes[event] * 10) / (events.end[event] - events.start[event]))} GB/s` : ""));
  const stall = stallText(data, event);
  add("waited", stall && `${escapeHtml(stall)} <a data-go="${events.cause[event]}">go there</a>`);
  if (!stall && events.cause[event] >= 0) add("after", `${escapeHtml(eventName(data, events.cause[event]))} <a data-go="${events.cause[event]}">go there</a>`);
  add("needs", escapeHtml(at("waits")));
  add("signals", escapeHtml(at("signals")));
  box.innerHTML = `<b>${escapeHtml(eventName(data, event))}</b> on ${data.tracks[events.track[event]]}` +
    `<span class="soft"> · event ${event}, instruction ${slots.order[slot]} of the kernel${timeline.critical[event] ? " · on the critical path" : ""}</span><dl>${rows.join("")}</dl>`;
  box.querySelectorAll("a").forEach((link) => link.addEventListener("click", () => timeline.select(Number(link.dataset.go), true)));
}

if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
unpack().then(start);
