"use strict";
// The memory map: tiles in SBUF and PSUM as rectangles of time and bytes, under the same time axis as the timeline.

const SBUF_HEIGHT = 190, PSUM_HEIGHT = 96;

class Memory {
  constructor(data, view, element) {
    this.data = data;
    this.view = view;
    this.element = element;
    this.hovered = null;
    this.panels = [
      this.panel("SBUF", data.memory.sbuf, AXIS, SBUF_HEIGHT),
      this.panel("PSUM", data.memory.psum, AXIS + SBUF_HEIGHT + 14, PSUM_HEIGHT),
    ];
    this.surface = makeCanvas(element, AXIS + SBUF_HEIGHT + PSUM_HEIGHT + 20, () => this.paint());
    view.listeners.push(() => this.surface.redraw());
    listenView(element, view, () => this.surface.width, {
      move: (x, y, mouse) => this.point(x, y, mouse),
      leave: () => { this.hovered = null; showTip(null, ""); this.surface.redraw(); },
    });
  }

  // Shown up to the highest byte in use, so that small programs are readable as well.
  panel(title, memory, y, height) {
    const top = memory.tiles.reduce((high, tile) => Math.max(high, tile[1] + tile[2]), 1);
    return { title, memory, y, height, shown: Math.min(memory.capacity, Math.ceil(top * 1.05)) };
  }

  paint() {
    const { context: g, width, height } = this.surface;
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif";
    drawAxis(g, this.view, width, height, theme("line"), theme("soft"));
    for (const panel of this.panels) this.paintPanel(g, panel, width);
  }

  box(panel, tile, width) {
    const x = this.view.x(tile[3], width), right = this.view.x(tile[4], width);
    const y = panel.y + panel.height * (1 - (tile[1] + tile[2]) / panel.shown);
    return [x, y, Math.max(right - x, 0.8), Math.max((panel.height * tile[2]) / panel.shown, 0.8)];
  }

  paintPanel(g, panel, width) {
    g.fillStyle = theme("row");
    g.fillRect(LEFT, panel.y, width - LEFT, panel.height);
    g.save();
    g.beginPath();
    g.rect(LEFT, panel.y, width - LEFT, panel.height);
    g.clip();
    for (const tile of panel.memory.tiles) {
      if (tile[4] < this.view.from) continue;
      if (tile[3] > this.view.to) break;
      const [x, y, w, h] = this.box(panel, tile, width);
      g.fillStyle = `hsl(${(tile[0] * 47) % 360} 50% 58%)`;
      g.fillRect(x, y, w > 3 ? w - 0.6 : w, h > 3 ? h - 0.6 : h);
    }
    if (panel.memory.bank) {
      g.fillStyle = theme("line");
      for (let byte = panel.memory.bank; byte < panel.shown; byte += panel.memory.bank) {
        g.fillRect(LEFT, panel.y + panel.height * (1 - byte / panel.shown), width, 1);
      }
    }
    if (this.hovered && this.hovered.panel === panel) {
      g.strokeStyle = theme("ink");
      g.lineWidth = 1.5;
      g.strokeRect(...this.box(panel, this.hovered.tile, width));
    }
    g.restore();
    g.fillStyle = theme("ink");
    g.textBaseline = "top";
    g.fillText(panel.title, 4, panel.y);
    g.fillStyle = theme("soft");
    g.fillText("peak " + fmt.bytes(panel.memory.peak), 4, panel.y + 16);
    g.fillText("of " + fmt.bytes(panel.memory.capacity), 4, panel.y + 30);
  }

  point(x, y, mouse) {
    const panel = this.panels.find((p) => y >= p.y && y < p.y + p.height);
    let found = null;
    if (panel && x >= LEFT) {
      const time = this.view.time(x, this.surface.width), byte = panel.shown * (1 - (y - panel.y) / panel.height);
      found = panel.memory.tiles.find((t) => t[3] <= time && time <= t[4] && t[1] <= byte && byte < t[1] + t[2]) ?? null;
    }
    this.hovered = found && { panel, tile: found };
    this.surface.redraw();
    showTip(mouse, found && `<b>${escapeHtml(this.data.strings[found[0]])}</b><br>` +
      `${fmt.bytes(found[2])} per partition from byte ${found[1]}<br>` +
      `<span class="soft">${fmt.time(found[3] / 10)} to ${fmt.time(found[4] / 10)} (${fmt.time((found[4] - found[3]) / 10)})</span>`);
  }
}
