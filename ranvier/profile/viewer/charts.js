"use strict";
// Everything around the timeline: tiles, gauges, roofline, tables.

function drawTiles(element, p) {
  const tiles = [
    [fmt.time(p.latency_ns), "latency", `${fmt.time(p.latency_ns + p.head_ns + p.tail_ns)} in a hardware profile`],
    [p.times_bound ? digits(p.times_bound) + " ×" : "–", `of the ${p.bound} bound`, fmt.time(p.bound_ns)],
    [fmt.percent(p.mfu), "MFU", `of ${fmt.flops(p.peak_flops)}FLOP/s (${p.flops_dtype})`],
    [fmt.percent(p.mbu), "MBU", `of ${digits(p.hbm_bytes_per_ns)} GB/s`],
    [fmt.bytes(p.hbm_bytes), "HBM traffic", `${fmt.bytes(p.once_bytes)} would do`],
    [fmt.percent(p.estimated_share), "on estimated facts", "of the critical path"],
  ];
  element.innerHTML = tiles.map(([value, label, note]) =>
    `<div class="tile"><div class="label">${label}</div><div class="value">${value}</div><div class="note">${note}</div></div>`).join("");
}

function drawEngines(element, p) {
  element.innerHTML = p.engines.map((e) =>
    `<div class="gauge" title="${e.instructions} instructions, stalled ${fmt.time(e.stall_ns)}"><span>${e.engine}</span>` +
    `<div class="trough"><div style="width:${e.busy_share * 100}%;background:${engineColor(e.engine)}"></div></div>` +
    `<span class="number">${fmt.percent(e.busy_share)} · ${fmt.time(e.busy_ns)}</span></div>`).join("") +
    `<p class="hint">a transfer waits ${fmt.time(p.transfer_wait_ns)} for DMA engines; HBM traffic: ${Object.entries(p.moved_bytes).filter(([, n]) => n).map(([k, n]) => `${k} ${fmt.bytes(n)}`).join(", ") || "none"}</p>`;
}

function drawPath(element, p) {
  const shares = Object.entries(p.critical_shares), largest = shares.length ? shares[0][1] : 1;
  element.innerHTML = shares.filter(([, share]) => share >= 0.005).map(([name, share]) =>
    `<div class="gauge" style="grid-template-columns:150px 1fr 130px"><span>${name}</span>` +
    `<div class="trough"><div style="width:${(share / largest) * 100}%;background:${categoryColor(name)}"></div></div>` +
    `<span class="number">${fmt.percent(share)} · ${fmt.time(share * p.latency_ns)}</span></div>`).join("");
}

function drawRoofline(element, p, peaks) {
  if (!p.flops || !p.hbm_bytes) { element.innerHTML = `<p class="hint">no matmul, or no HBM traffic</p>`; return; }
  const width = 640, height = 300, left = 62, bottom = 262, right = 470, top = 14;
  const achieved = (p.flops / p.latency_ns) * 1e9, bandwidth = p.hbm_bytes_per_ns * 1e9;
  const points = [["now", p.flops / p.hbm_bytes, achieved, theme("accent")]];
  if (p.once_bytes && p.once_bytes < p.hbm_bytes * 0.98) points.push(["each byte once", p.flops / p.once_bytes, achieved, theme("soft")]);
  const roofs = mergedRoofs(peaks);
  const highest = roofs[0][1] * 2, lowest = Math.min(achieved / 4, highest / 1e4);
  const xs = [Math.min(0.5, ...points.map((q) => q[1] / 2)), Math.max(1000, ...points.map((q) => q[1] * 3))];
  const px = (v) => left + (Math.log(v / xs[0]) / Math.log(xs[1] / xs[0])) * (right - left);
  const py = (v) => bottom - (Math.log(v / lowest) / Math.log(highest / lowest)) * (bottom - top);
  const line = (x0, y0, x1, y1, color, dash) =>
    `<line x1="${px(x0)}" y1="${py(y0)}" x2="${px(x1)}" y2="${py(y1)}" stroke="${color}" stroke-width="1.5" ${dash ? 'stroke-dasharray="4 4"' : ""}/>`;
  let out = "";
  for (let e = Math.ceil(Math.log10(xs[0])); 10 ** e <= xs[1]; e++) out += `<text x="${px(10 ** e)}" y="${bottom + 16}" text-anchor="middle">${10 ** e}</text>` + line(10 ** e, lowest, 10 ** e, highest, theme("line"));
  for (let e = Math.ceil(Math.log10(lowest)); 10 ** e <= highest; e++) out += `<text x="${left - 6}" y="${py(10 ** e) + 4}" text-anchor="end">${fmt.flops(10 ** e)}</text>` + line(xs[0], 10 ** e, xs[1], 10 ** e, theme("line"));
  // Names stand beside the plot and below it, where no line and no point can be.
  let free = -Infinity;
  for (const [names, roof] of roofs) {
    const main = names.includes(p.flops_dtype);
    free = Math.max(py(roof) + 4, free + 14);
    out += line(roof / bandwidth, roof, xs[1], roof, main ? theme("ink") : theme("soft"), !main) +
      `<text x="${right + 8}" y="${free}">${names.join(", ")} ${fmt.flops(roof)}</text>`;
  }
  out += line(Math.max(xs[0], lowest / bandwidth), Math.max(xs[0] * bandwidth, lowest), roofs[0][1] / bandwidth, roofs[0][1], theme("ink"));
  for (const [, x, y, color] of [...points].reverse()) out += `<circle cx="${px(x)}" cy="${py(y)}" r="5.5" fill="${color}"/>`;
  const key = points.map(([name, x, , color]) =>
    `<span><i style="background:${color}"></i>${name}: ${digits(x)} FLOP/B, ${fmt.flops(achieved)}FLOP/s</span>`).join("");
  out += `<text x="${(left + right) / 2}" y="${height - 4}" text-anchor="middle">FLOP per byte of HBM traffic</text><text x="4" y="${top - 2}">FLOP/s</text>`;
  element.innerHTML = `<svg viewBox="0 0 ${width} ${height}">${out}</svg><div class="key">${key}</div>`;
}

// Pairs of the dtypes that share a peak and that peak, the highest first.
function mergedRoofs(peaks) {
  const names = new Map();
  for (const [name, peak] of Object.entries(peaks)) names.set(peak, [...(names.get(peak) ?? []), name]);
  return [...names].map(([peak, dtypes]) => [dtypes, peak]).sort((a, b) => b[1] - a[1]);
}

// A table sorted by the column that is clicked. Columns: [title, value of a row, text of a value, class].
function drawTable(element, rows, columns, onClick) {
  let sorted = -1;
  const limit = 400;
  function draw() {
    const shown = rows.slice(0, limit);
    element.innerHTML = "<table><thead><tr>" +
      columns.map(([title, , , kind], i) => `<th class="${kind ?? ""} ${i === sorted ? "sorted" : ""}">${title}</th>`).join("") +
      "</tr></thead><tbody>" +
      shown.map((row, r) => `<tr data-row="${r}">` + columns.map(([, value, text, kind]) =>
        `<td class="${kind ?? ""}" title="${kind ? escapeHtml(value(row)) : ""}">${escapeHtml(text ? text(value(row)) : value(row))}</td>`).join("") + "</tr>").join("") +
      "</tbody></table>" + (rows.length > limit ? `<p class="hint">${rows.length - limit} more rows</p>` : "");
    element.querySelectorAll("th").forEach((head, i) => head.addEventListener("click", () => {
      const value = columns[i][1];
      rows = [...rows].sort((a, b) => typeof value(a) === "number" ? value(b) - value(a) : String(value(a)).localeCompare(String(value(b))));
      sorted = i;
      draw();
    }));
    if (onClick) element.querySelectorAll("tbody tr").forEach((line) => {
      line.style.cursor = "pointer";
      line.addEventListener("click", () => onClick(rows[Number(line.dataset.row)]));
    });
  }
  draw();
}
