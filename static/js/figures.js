// Draws every figure of a page: <figure data-figure="address of its JSON"> with a [data-plot] inside.
// Colours are names of CSS tokens in the JSON and become colours here, anew when the scheme changes.
// Tools and keys: zoom, pan, from mark to mark, Enter opens. The table below says the same without any of it.
"use strict";

(() => {
  const CONFIG = {
    displaylogo: false,
    showSendToCloud: false, // version 4 would upload the figure by default
    displayModeBar: false, // the tools below have words and are reached by Tab
    responsive: true,
    doubleClick: "reset",
  };
  const TEXTS = new Set(["x", "y", "text", "hovertext", "customdata", "ticktext", "tickvals"]);
  const TOKEN = /^(--[a-z-]+)(?:\/(0?\.\d+|1))?$/;
  const figures = [];

  const colour = (value, style) => {
    const [, name, opacity] = TOKEN.exec(value);
    const found = style.getPropertyValue(name).trim();
    const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(found)?.[1];
    if (!opacity || !hex) return found;
    const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
    const parts = [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
    return `rgba(${parts.join(",")},${opacity})`;
  };

  // A copy in which every token is a colour; texts and coordinates stay as they are.
  const coloured = (value, style) => {
    if (typeof value === "string") return TOKEN.test(value) ? colour(value, style) : value;
    if (Array.isArray(value)) return value.map((each) => coloured(each, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, TEXTS.has(key) ? each : coloured(each, style)]),
    );
  };

  const resolved = (figure) => {
    const style = getComputedStyle(document.documentElement);
    const layout = coloured(figure.source.layout, style);
    layout.autosize = true;
    layout.showlegend = false;
    const zoomed = figure.plot._fullLayout?.xaxis.range; // a redraw keeps the zoom
    if (zoomed) Object.assign(layout.xaxis, { range: [...zoomed], autorange: false });
    // Labels of instants are wide: as many as there is room for, so that none lies on another.
    const room = figure.plot.clientWidth - (layout.margin?.l ?? 0) - 40;
    if (layout.xaxis.type === "date") layout.xaxis.nticks = Math.max(3, Math.floor(room / 60));
    layout.font = { family: getComputedStyle(document.body).fontFamily, ...layout.font };
    layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls the page
    return [coloured(figure.source.data, style), layout];
  };

  const draw = async (figure) => {
    const [data, layout] = resolved(figure);
    data.forEach((trace) => { if (figure.hidden.has(groupOf(trace))) trace.visible = false; });
    legend(figure, data);
    await Plotly.react(figure.plot, data, layout, CONFIG);
    figure.element.dataset.drawn = String((Number(figure.element.dataset.drawn) || 0) + 1);
  };

  // The legend: buttons with words, so that kinds can be hidden from the keyboard too. plotly's own takes
  // half of a narrow drawing and hears the mouse alone.
  const SHAPES = {
    circle: "M8 2a6 6 0 1 0 .1 0z",
    octagon: "M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5z",
    square: "M3 3h10v10H3z",
    "triangle-up": "M8 2l6.5 12h-13z",
    diamond: "M8 1l6 7-6 7-6-7z",
    "diamond-tall": "M8 0l4 8-4 8-4-8z",
    hourglass: "M3 2h10L3 14h10z",
    star: "M8 1l2 5h5l-4 3.4 1.6 5L8 11.3l-4.6 3.1L5 9.4 1 6h5z",
    cross: "M6 2h4v4h4v4h-4v4H6v-4H2V6h4z",
  };
  const HATCHES = {
    "/": "M1 13l8-10M7 13l8-10",
    "\\": "M1 3l8 10M7 3l8 10",
    x: "M1 13l8-10M7 13l8-10M1 3l8 10M7 3l8 10",
    "-": "M1 6h14M1 10h14",
    "|": "M5 3v10M11 3v10",
    "+": "M1 8h14M5 3v10M11 3v10",
    ".": "M3 6h2M7 6h2M11 6h2M3 10h2M7 10h2M11 10h2",
  };
  const groupOf = (trace) => trace.legendgroup ?? trace.name;

  const glyph = (trace) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const marker = trace.mode?.includes("markers") && trace.marker;
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    if (marker) {
      path.setAttribute("d", SHAPES[marker.symbol] ?? SHAPES.circle);
      path.setAttribute("fill", marker.color);
      path.setAttribute("stroke", marker.line?.color ?? "none");
    } else if (trace.fill || trace.type === "bar") {
      path.setAttribute("d", "M1 3h14v10H1z");
      path.setAttribute("fill", trace.fillcolor ?? trace.marker?.color ?? "none");
    } else {
      path.setAttribute("d", "M0 8h16");
      path.setAttribute("fill", "none");
      path.setAttribute("stroke", trace.line?.color ?? "currentColor");
      path.setAttribute("stroke-width", Math.min(trace.line?.width ?? 2, 6));
      if (!["solid", undefined].includes(trace.line?.dash)) path.setAttribute("stroke-dasharray", "4 2");
    }
    svg.append(path);
    const pattern = trace.fillpattern ?? trace.marker?.pattern;
    if (pattern?.shape) {
      const hatch = document.createElementNS("http://www.w3.org/2000/svg", "path");
      hatch.setAttribute("d", HATCHES[pattern.shape] ?? "");
      hatch.setAttribute("fill", "none");
      hatch.setAttribute("stroke", pattern.fgcolor);
      svg.append(hatch);
    }
    return svg;
  };

  const legend = (figure, data) => {
    const list = figure.legend;
    const held = list.contains(document.activeElement) ? document.activeElement.dataset.group : null;
    list.replaceChildren();
    const groups = new Set();
    for (const trace of data) {
      const group = groupOf(trace);
      if (trace.showlegend === false || !trace.name || groups.has(group)) continue;
      groups.add(group);
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.group = group;
      button.setAttribute("aria-pressed", String(!figure.hidden.has(group)));
      button.append(glyph(trace), plain(trace.name));
      button.addEventListener("click", async () => {
        if (!figure.hidden.delete(group)) figure.hidden.add(group);
        await draw(figure);
        [figure.marks, figure.cursor] = [marksOf(figure), -1];
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    }
    list.hidden = groups.size < 2;
    if (held !== null) [...list.querySelectorAll("button")].find((each) => each.dataset.group === held)?.focus();
  };

  // Points that say or lead something, in order of x: [{curve, point, at, y, href, text}]. Heights are numbers, of
  // stacked bars their tops. Of the points of a line that say the same one stop is enough.
  const marksOf = ({ source, plot, hidden }) => {
    const marks = [], tops = new Map();
    const { xaxis } = plot._fullLayout, stacked = source.layout.barmode === "stack";
    source.data.forEach((trace, curve) => {
      if (hidden.has(groupOf(trace))) return;
      let before = "";
      trace.x.forEach((x, point) => {
        if (x === null) return (before = "");
        const text = Array.isArray(trace.hovertext) ? trace.hovertext[point] : trace.hovertext;
        const href = trace.customdata?.[point] ?? "";
        if (stacked) tops.set(x, (tops.get(x) ?? 0) + trace.y[point]);
        const again = trace.mode !== "markers" && trace.type !== "bar" && text === before;
        before = text;
        if (again || (!text && !href)) return;
        marks.push({ curve, point, at: xaxis.d2l(x), y: stacked ? tops.get(x) : trace.y[point], href, text });
      });
    });
    return marks.sort((one, other) => one.at - other.at || one.y - other.y);
  };

  const plain = (text) =>
    new DOMParser().parseFromString(String(text ?? "").replaceAll("<br>", "; "), "text/html").body.textContent;

  // Only addresses of this product: figures carry no others, and a slip must not become a way out.
  const open = (href) => {
    if (typeof href === "string" && /^\/(?!\/)/.test(href)) location.assign(href);
  };

  const range = (figure) => {
    const axis = figure.plot._fullLayout.xaxis;
    return axis.range.map((end) => axis.r2l(end)); // milliseconds of a date axis
  };

  const setRange = (figure, [from, to]) => {
    const axis = figure.plot._fullLayout.xaxis;
    return Plotly.relayout(figure.plot, { "xaxis.range": [axis.l2r(from), axis.l2r(to)] });
  };

  const zoom = (figure, factor) => {
    const [from, to] = range(figure);
    const held = figure.marks[figure.cursor]?.at;
    const middle = held >= from && held <= to ? held : (from + to) / 2;
    return setRange(figure, [middle - (middle - from) * factor, middle + (to - middle) * factor]);
  };

  const shift = (figure, part) => {
    const [from, to] = range(figure);
    const by = (to - from) * part;
    return setRange(figure, [from + by, to + by]);
  };

  const all = (figure) => {
    const given = figure.source.layout.xaxis?.range;
    return Plotly.relayout(figure.plot, given ? { "xaxis.range": [...given] } : { "xaxis.autorange": true });
  };

  const picture = (figure) =>
    Plotly.downloadImage(figure.plot, { format: "png", scale: 2, filename: figure.element.id });

  const TOOLS = [
    ["Earlier", "\u2190", (figure) => shift(figure, -0.5)],
    ["Later", "\u2192", (figure) => shift(figure, 0.5)],
    ["Zoom in", "+", (figure) => zoom(figure, 0.5)],
    ["Zoom out", "\u2212", (figure) => zoom(figure, 2)],
    ["Show everything", "All", all],
    ["Save as a picture", "PNG", picture],
  ];

  const toolbar = (figure) => {
    const bar = document.createElement("div");
    bar.className = "figure-tools";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `Tools of ${figure.element.getAttribute("aria-label")}`);
    for (const [name, glyph, act] of TOOLS) {
      const button = document.createElement("button");
      button.type = "button";
      button.title = name;
      button.setAttribute("aria-label", name);
      button.textContent = glyph;
      button.addEventListener("click", () => act(figure));
      bar.append(button);
    }
    return bar;
  };

  const hold = async (figure, index) => {
    const mark = figure.marks[index];
    if (!mark) return;
    figure.cursor = index;
    const [from, to] = range(figure);
    if (mark.at < from || mark.at > to) {
      const half = (to - from) / 2;
      await setRange(figure, [mark.at - half, mark.at + half]);
    }
    const { xaxis = "x", yaxis = "y" } = figure.source.data[mark.curve];
    Plotly.Fx.hover(figure.plot, [{ curveNumber: mark.curve, pointNumber: mark.point }], [xaxis + yaxis]);
    figure.status.textContent = plain(mark.text);
  };

  // The next mark in a direction of x; up and down go to the next lane, and without lanes to the next height there.
  const step = (figure, key) => {
    const { marks, cursor } = figure;
    if (cursor < 0) return marks.length - 1;
    if (key === "ArrowLeft") return Math.max(0, cursor - 1);
    if (key === "ArrowRight") return Math.min(marks.length - 1, cursor + 1);
    const here = marks[cursor].y;
    const wanted = key === "ArrowUp" ? 1 : -1;
    const lanes = Boolean(figure.source.layout.yaxis2);
    let best = cursor, least = Infinity;
    marks.forEach((mark, index) => {
      const rise = (mark.y - here) * wanted;
      if (rise <= 0) return;
      const away = Math.abs(mark.at - marks[cursor].at);
      const cost = lanes ? rise * 1e15 + away : away * 1e6 + rise;
      if (cost < least) [best, least] = [index, cost];
    });
    return best;
  };

  const keyed = (figure, event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    const moves = { Home: 0, End: figure.marks.length - 1 };
    if (key.startsWith("Arrow") && figure.marks.length) hold(figure, step(figure, key));
    else if (key.startsWith("Arrow")) shift(figure, { ArrowLeft: -0.25, ArrowRight: 0.25 }[key] ?? 0);
    else if (key in moves) hold(figure, moves[key]);
    else if (key === "+" || key === "=") zoom(figure, 0.5);
    else if (key === "-") zoom(figure, 2);
    else if (key === "0") all(figure);
    else if (key === "Enter") open(figure.marks[figure.cursor]?.href);
    else if (key === "Escape") Plotly.Fx.unhover(figure.plot);
    else return;
    event.preventDefault();
  };

  const ready = (figure) => {
    const { plot } = figure;
    figure.marks = marksOf(figure);
    figure.cursor = -1;
    figure.status = document.createElement("p");
    figure.status.className = "vh";
    figure.status.setAttribute("role", "status");
    figure.legend.before(toolbar(figure));
    plot.after(figure.status);
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    const leads = figure.marks.some((mark) => mark.href) ? ", Enter opens one" : "";
    const ways = figure.marks.length ? `Arrow keys go from mark to mark${leads}. ` : "";
    plot.setAttribute("aria-label", `Drawing. ${ways}Plus and minus zoom, 0 shows everything. The table below says the same.`);
    plot.addEventListener("keydown", (event) => keyed(figure, event));
    plot.on("plotly_click", ({ points }) => open(points[0]?.customdata));
    plot.on("plotly_hover", ({ points }) => plot.classList.toggle("plot-link", Boolean(points[0]?.customdata)));
    plot.on("plotly_unhover", () => plot.classList.remove("plot-link"));
  };

  // This script comes before plotly's, which is a hundred times as long: figures are asked for while that loads.
  const library = new Promise((resolve, reject) => {
    document.addEventListener("DOMContentLoaded", () =>
      typeof Plotly === "undefined" ? reject(new Error("its script did not come")) : resolve());
  });
  library.catch(() => {}); // each figure says so by itself

  const asked = async (address) => {
    const answer = await fetch(address, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer.json();
  };

  const show = async (figure) => {
    try {
      [figure.source] = await Promise.all([asked(figure.element.dataset.figure), library]);
      figure.hidden = new Set();
      figure.legend = document.createElement("ul");
      figure.legend.className = "figure-legend";
      figure.legend.setAttribute("aria-label", "Kinds of marks, shown or hidden");
      figure.plot.before(figure.legend);
      await draw(figure);
      ready(figure);
      figures.push(figure);
    } catch (fault) {
      const note = document.createElement("p");
      note.className = "note note-error";
      note.setAttribute("role", "alert");
      note.textContent = `The drawing could not be loaded (${fault.message}); the table says the same.`;
      figure.plot.replaceWith(note);
      figure.element.querySelector("details")?.setAttribute("open", "");
    }
  };

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      show({ element: target, plot: target.querySelector("[data-plot]") });
    }
  }, { rootMargin: "400px" });

  document.querySelectorAll("[data-figure]").forEach((element) => seen.observe(element));

  // What nobody scrolled to is not drawn, and paper cannot scroll: there its table stands unfolded.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("[data-figure]:not([data-drawn]) details:not([open])")];
    unfolded.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => unfolded.forEach((details) => (details.open = false)));

  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => figures.forEach(draw));
  }
})();
