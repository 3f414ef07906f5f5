"use strict";
// Numbers and names as text, and colors that stay the same for the same name.

const fmt = {
  time(ns) {
    const sign = ns < 0 ? "-" : "";
    ns = Math.abs(ns);
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
      if (ns >= size) return sign + digits(ns / size) + " " + unit;
    }
    return sign + digits(ns) + " ns";
  },
  bytes(count) {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (count >= size) return digits(count / size) + " " + unit;
    }
    return count + " B";
  },
  flops(value) {
    for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
      if (value >= size) return digits(value / size) + " " + unit;
    }
    return digits(value);
  },
  percent(share) {
    return (share * 100).toFixed(share < 0.1 ? 1 : 0) + " %";
  },
};

function digits(value) {
  if (value === 0) return "0";
  return value >= 1000 ? Math.round(value).toString() : Number(value.toPrecision(4)).toString();
}

function escapeHtml(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

const engineHue = { tensor: 215, vector: 150, scalar: 30, gpsimd: 285, sync: 190, dma: 345 };
const colorCache = new Map();

function colorOf(name) {
  // Distinct hues by name; the golden angle keeps names that follow each other apart.
  let found = colorCache.get(name);
  if (!found) {
    found = `hsl(${Math.round((colorCache.size * 137.508 + 205) % 360)} 58% ${52 + (colorCache.size % 3) * 6}%)`;
    colorCache.set(name, found);
  }
  return found;
}

function engineColor(name) {
  const hue = engineHue[name];
  return hue === undefined ? colorOf(name) : `hsl(${hue} 60% 52%)`;
}

function categoryColor(category) {
  const [engine, what] = category.split(" ");
  if (what === "work") return engineColor(engine);
  if (what === "latency") return `hsl(${engineHue[engine] ?? 0} 45% 72%)`;
  return { "DMA transfer": "hsl(345 60% 55%)", "DMA launch": "hsl(345 45% 70%)", "DMA completion": "hsl(345 35% 80%)",
           "DMA trigger": "hsl(190 50% 60%)", "semaphores": "hsl(55 65% 55%)",
           "activation table load": "hsl(220 8% 50%)" }[category] ?? colorOf(category);
}

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// A canvas whose coordinates are those of the page, sharp on every screen; `paint` is called at most once per frame.
function makeCanvas(element, height, paint) {
  let waiting = false;
  const surface = {
    width: 0, height, context: element.getContext("2d"),
    redraw() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; surface.resize(); paint(surface); });
    },
    resize() {
      const scale = window.devicePixelRatio || 1, width = element.clientWidth;
      if (width !== surface.width || element.height !== Math.round(height * scale)) {
        surface.width = width;
        element.style.height = height + "px";
        element.width = Math.round(width * scale);
        element.height = Math.round(height * scale);
        surface.context.setTransform(scale, 0, 0, scale, 0, 0);
      }
    },
  };
  new ResizeObserver(() => surface.redraw()).observe(element);
  return surface;
}

function showTip(event, markup) {
  const tip = document.getElementById("tip");
  if (!markup) { tip.style.display = "none"; return; }
  tip.innerHTML = markup;
  tip.style.display = "block";
  const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
  const below = event.clientY + 16 + tip.offsetHeight > innerHeight;
  tip.style.left = (right ? Math.max(4, event.clientX - tip.offsetWidth - 12) : event.clientX + 14) + "px";
  tip.style.top = (below ? event.clientY - tip.offsetHeight - 12 : event.clientY + 14) + "px";
}
