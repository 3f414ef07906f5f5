"use strict";
// The timeline: one row per engine and DMA queue. Times in the data are tenths of ns.

const LEFT = 92, AXIS = 22, ENGINE_ROW = 30, QUEUE_ROW = 15, GAP = 3;

// The stretch of time that is shown, shared by timeline and memory.
class View {
  constructor(total) {
    this.total = total;
    this.from = 0;
    this.to = total;
    this.listeners = [];
  }
  set(from, to) {
    const span = Math.min(Math.max(to - from, 20), this.total * 1.02);
    const low = -this.total * 0.01, high = this.total * 1.01;
    from = Math.min(Math.max(from, low), high - span);
    this.from = from;
    this.to = from + span;
    for (const listener of this.listeners) listener();
  }
  zoom(factor, at) {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }
  pan(share) {
    const step = (this.to - this.from) * share;
    this.set(this.from + step, this.to + step);
  }
  x(time, width) {
    return LEFT + ((time - this.from) / (this.to - this.from)) * (width - LEFT);
  }
  time(x, width) {
    return this.from + ((x - LEFT) / (width - LEFT)) * (this.to - this.from);
  }
}

class Timeline {
  constructor(data, view, element, onSelect) {
    this.data = data;
    this.view = view;
    this.element = element;
    this.onSelect = onSelect;
    this.selected = -1;
    this.hovered = -1;
    this.colorBy = "name";
    this.criticalOnly = false;
    this.matches = null;
    this.critical = new Uint8Array(data.events.start.length);
    for (const [event] of data.path) this.critical[event] = 1;
    for (const hot of data.profile.hot) colorOf(hot.instruction); // what matters most gets the clearest colors
    this.rows = this.layOut();
    const last = this.rows[this.rows.length - 1];
    this.surface = makeCanvas(element, last.y + last.height + 6, () => this.paint());
    view.listeners.push(() => this.surface.redraw());
    this.listen();
  }

  // Rows with their events in order of time, in as many sub-rows as overlapping transfers need.
  layOut() {
    const { events, tracks, engines } = this.data;
    const byTrack = tracks.map(() => []);
    for (let i = 0; i < events.start.length; i++) byTrack[events.track[i]].push(i);
    let y = AXIS;
    return tracks.map((name, track) => {
      const isEngine = engines.includes(name);
      const list = byTrack[track].sort((a, b) => events.start[a] - events.start[b]);
      const lanes = [];
      const lane = new Uint8Array(list.length);
      let longest = 0;
      list.forEach((event, place) => {
        let free = lanes.findIndex((end) => end <= events.start[event]);
        if (free < 0) free = lanes.length < 4 ? lanes.push(0) - 1 : 3;
        lanes[free] = events.end[event];
        lane[place] = free;
        longest = Math.max(longest, events.end[event] - events.start[event]);
      });
      const height = isEngine ? ENGINE_ROW : QUEUE_ROW;
      const row = { name, isEngine, list, lane, lanes: Math.max(1, lanes.length), y, height, longest };
      y += height + GAP;
      return row;
    });
  }

  colorOf(event) {
    const { events, slots, strings } = this.data;
    const slot = events.slot[event];
    if (events.kind[event] === 2) return "hsl(220 8% 50%)";
    if (this.colorBy === "part") return colorOf("part " + strings[slots.part[slot]]);
    if (this.colorBy === "reason") return colorOf("reason " + this.data.reasons[events.reason[event]]);
    return colorOf(strings[slots.name[slot]]);
  }

  firstVisible(row, from) {
    const start = this.data.events.start;
    let low = 0, high = row.list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[row.list[middle]] < from) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  paint() {
    const { context: g, width, height } = this.surface;
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif";
    drawAxis(g, this.view, width, height, theme("line"), theme("soft"));
    for (const row of this.rows) this.paintRow(g, row, width);
    if (this.selected >= 0) this.paintCauses(g, width);
  }

  paintRow(g, row, width) {
    const { events } = this.data, view = this.view;
    g.fillStyle = theme("row");
    g.fillRect(LEFT, row.y, width - LEFT, row.height);
    g.save();
    g.beginPath();
    g.rect(LEFT, row.y, width - LEFT, row.height);
    g.clip();
    const thick = row.height / row.lanes;
    let lastPixel = -1, lastLane = -1;
    for (let place = this.firstVisible(row, view.from - row.longest); place < row.list.length; place++) {
      const event = row.list[place];
      if (events.start[event] > view.to) break;
      const dim = (this.criticalOnly && !this.critical[event]) || (this.matches && !this.matches[event]);
      const x = view.x(events.start[event], width), right = view.x(events.end[event], width);
      // Events below a pixel: one of them stands for its neighbours.
      if (right - x < 1 && Math.floor(x) === lastPixel && row.lane[place] === lastLane && event !== this.selected) continue;
      if (right - x < 1) { lastPixel = Math.floor(x); lastLane = row.lane[place]; }
      const y = row.y + row.lane[place] * thick;
      g.globalAlpha = dim ? 0.12 : 1;
      g.fillStyle = this.colorOf(event);
      g.fillRect(x, y + 1, Math.max(right - x - (right - x > 4 ? 1 : 0), 0.8), thick - 2);
      if (events.kind[event] === 1 && right - x > 3) {
        g.fillStyle = theme("card");
        g.globalAlpha *= 0.45;
        g.fillRect(x, y + thick - 5, right - x - 1, 3);
      }
      if (event === this.selected || event === this.hovered) {
        g.globalAlpha = 1;
        g.strokeStyle = theme("ink");
        g.lineWidth = event === this.selected ? 2 : 1;
        g.strokeRect(x, y + 1, Math.max(right - x, 1), thick - 2);
      }
      if (right - x > 46 && thick > 12) this.paintLabel(g, event, x, right, y, thick);
    }
    g.restore();
    g.fillStyle = row.isEngine ? theme("ink") : theme("soft");
    g.textBaseline = "middle";
    g.fillText(row.name, 4, row.y + row.height / 2);
  }

  paintLabel(g, event, x, right, y, thick) {
    const { events, slots, strings } = this.data;
    const name = events.kind[event] === 2 ? "table load" : strings[slots.name[events.slot[event]]];
    g.save();
    g.beginPath();
    g.rect(x, y, right - x - 4, thick);
    g.clip();
    g.fillStyle = "#10151d";
    g.textBaseline = "middle";
    g.fillText(name, Math.max(x, LEFT) + 4, y + thick / 2 + 0.5);
    g.restore();
  }

  // Lines from the selected event back through what it waited for.
  paintCauses(g, width) {
    const { events } = this.data;
    g.strokeStyle = theme("warn");
    g.lineWidth = 1.3;
    let event = this.selected;
    for (let depth = 0; depth < 12 && event >= 0 && events.cause[event] >= 0; depth++) {
      const cause = events.cause[event];
      const a = this.rows[events.track[cause]], b = this.rows[events.track[event]];
      const x0 = this.view.x(Math.min(events.done[cause], events.start[event]), width);
      const x1 = this.view.x(events.start[event], width);
      if (a !== b) {
        const y0 = a.y + a.height / 2, y1 = b.y + b.height / 2;
        g.globalAlpha = 1 - depth * 0.07;
        g.beginPath();
        g.moveTo(Math.max(x0, LEFT), y0);
        g.bezierCurveTo(Math.max(x0, LEFT) + 8, y0, Math.max(x1, LEFT) - 8, y1, Math.max(x1, LEFT), y1);
        g.stroke();
        g.beginPath();
        g.arc(Math.max(x1, LEFT), y1, 2.5, 0, 7);
        g.fillStyle = theme("warn");
        g.fill();
      }
      event = cause;
    }
    g.globalAlpha = 1;
  }

  at(x, y) {
    const { events } = this.data, width = this.surface.width;
    const row = this.rows.find((r) => y >= r.y && y < r.y + r.height);
    if (!row || x < LEFT) return -1;
    const time = this.view.time(x, width), reach = (2 * (this.view.to - this.view.from)) / width;
    const lane = Math.floor((y - row.y) / (row.height / row.lanes));
    let best = -1, distance = reach;
    for (let place = this.firstVisible(row, time - row.longest - reach); place < row.list.length; place++) {
      const event = row.list[place];
      if (events.start[event] > time + reach) break;
      if (row.lane[place] !== lane) continue;
      const away = Math.max(events.start[event] - time, time - events.end[event], 0);
      if (away < distance || (away === 0 && best < 0)) { best = event; distance = away; }
    }
    return best;
  }

  select(event, reveal) {
    this.selected = event;
    const { events } = this.data;
    if (event >= 0 && reveal) {
      const length = Math.max(events.end[event] - events.start[event], 10), span = this.view.to - this.view.from;
      const outside = events.end[event] < this.view.from || events.start[event] > this.view.to;
      if (reveal === "fit") this.view.set(events.start[event] - length * 4, events.end[event] + length * 4);
      else if (outside) this.view.set(events.start[event] - span / 2, events.start[event] + span / 2);
    }
    this.onSelect(event);
    this.surface.redraw();
  }

  listen() {
    listenView(this.element, this.view, () => this.surface.width, {
      move: (x, y, mouse) => {
        const event = this.at(x, y);
        if (event !== this.hovered) { this.hovered = event; this.surface.redraw(); }
        showTip(mouse, event >= 0 ? eventTip(this.data, event) : "");
      },
      leave: () => { this.hovered = -1; showTip(null, ""); this.surface.redraw(); },
      click: (x, y) => this.select(this.at(x, y)),
      double: (x, y) => { const event = this.at(x, y); if (event >= 0) this.select(event, "fit"); },
    });
  }
}

// Wheel and drag on a canvas move the view; everything else goes to `handlers`.
function listenView(element, view, width, handlers) {
  let drag = null;
  element.addEventListener("wheel", (mouse) => {
    mouse.preventDefault();
    if (mouse.shiftKey || Math.abs(mouse.deltaX) > Math.abs(mouse.deltaY)) view.pan((mouse.deltaX || mouse.deltaY) / width());
    else view.zoom(Math.exp(mouse.deltaY * 0.0016), view.time(mouse.offsetX, width()));
  }, { passive: false });
  element.addEventListener("pointerdown", (mouse) => {
    drag = { x: mouse.offsetX, y: mouse.offsetY, from: view.from, to: view.to, moved: false };
    element.setPointerCapture(mouse.pointerId);
  });
  element.addEventListener("pointermove", (mouse) => {
    if (!drag) { handlers.move(mouse.offsetX, mouse.offsetY, mouse); return; }
    if (Math.abs(mouse.offsetX - drag.x) > 3) drag.moved = true;
    if (drag.moved) {
      const shift = ((drag.x - mouse.offsetX) / (width() - LEFT)) * (drag.to - drag.from);
      view.set(drag.from + shift, drag.to + shift);
      showTip(null, "");
    }
  });
  element.addEventListener("pointerup", (mouse) => {
    if (drag && !drag.moved && handlers.click) handlers.click(mouse.offsetX, mouse.offsetY);
    drag = null;
  });
  element.addEventListener("pointerleave", () => handlers.leave());
  if (handlers.double) element.addEventListener("dblclick", (mouse) => handlers.double(mouse.offsetX, mouse.offsetY));
}

function drawAxis(g, view, width, height, line, ink) {
  const span = (view.to - view.from) / 10;
  let step = 10 ** Math.floor(Math.log10(span / 6));
  for (const factor of [1, 2, 5, 10]) if (span / (step * factor) <= 10) { step *= factor; break; }
  g.textBaseline = "middle";
  for (let tick = Math.ceil(view.from / 10 / step) * step; tick <= view.to / 10; tick += step) {
    const x = view.x(tick * 10, width);
    if (x < LEFT) continue;
    g.fillStyle = line;
    g.fillRect(Math.round(x), AXIS - 6, 1, height - AXIS + 6);
    g.fillStyle = ink;
    const text = tick < step / 2 ? "0" : fmt.time(tick);
    if (x + g.measureText(text).width < width) g.fillText(text, x + 3, 8);
  }
}

function eventName(data, event) {
  const kind = data.events.kind[event], name = data.strings[data.slots.name[data.events.slot[event]]];
  return kind === 2 ? "activation table load" : kind === 1 ? name + " (trigger)" : kind === 3 ? name + " (transfer)" : name;
}

function stallText(data, event) {
  const { events } = data, waited = (events.start[event] - events.ready[event]) / 10;
  if (waited < 0.05 || events.cause[event] < 0) return "";
  const cause = events.cause[event];
  return `${fmt.time(waited)} for ${data.reasons[events.reason[event]].replace("_", " ")}: ` +
    `${eventName(data, cause)} on ${data.tracks[events.track[cause]]}`;
}

function eventTip(data, event) {
  const { events, slots, strings } = data, slot = events.slot[event];
  const stall = stallText(data, event);
  return `<b>${escapeHtml(eventName(data, event))}</b> on ${data.tracks[events.track[event]]}<br>` +
    `${fmt.time((events.end[event] - events.start[event]) / 10)}` +
    `<span class="soft"> at ${fmt.time(events.start[event] / 10)}</span>` +
    (stall ? `<br><span class="soft">waited ${escapeHtml(stall)}</span>` : "") +
    (strings[slots.part[slot]] ? `<br><span class="soft">${escapeHtml(strings[slots.part[slot]])}</span>` : "") +
    (strings[slots.source[slot]] ? `<br><code>${escapeHtml(strings[slots.source[slot]])}</code>` : "");
}
