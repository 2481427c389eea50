"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a7a00", "#7a7a7a"];
  const DASHES = ["", "9 4", "3 3", "12 3 3 3", "2 2", "7 2 2 2 2 2"];
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const $ = (id) => document.getElementById(id);

  // The formula of kvcalc.core.counting: rows · bytes a row, added over parts, layers and sequences.
  function rowsKept(reach, tokens) {
    if (reach.fixed !== null) return reach.fixed;
    let kept = Math.floor(tokens / reach.ratio);
    if (reach.cap !== null && kept > reach.cap) kept = reach.cap;
    return reach.step > 1 ? Math.ceil(kept / reach.step) * reach.step : kept;
  }
  function slabBytes(slab, tokens, batch) { return batch * rowsKept(slab.reach, tokens) * slab.row_bytes; }
  function byKind(model, tokens, batch) {
    const found = new Map();
    if (model.rows) {
      for (const row of model.rows) {
        const size = row.count * row.slabs.reduce((sum, slab) => sum + slabBytes(slab, tokens, batch), 0);
        if (size) found.set(row.kind, (found.get(row.kind) || 0) + size);
      }
      return found;
    }
    const cell = model.grid.bytes[data.batches.indexOf(batch)][data.lengths.indexOf(tokens)];
    if (cell === null) return null;
    model.grid.kinds.forEach((kind, index) => { if (cell[index]) found.set(kind, cell[index]); });
    return found;
  }
  function total(model, tokens, batch) {
    const kinds = byKind(model, tokens, batch);
    return kinds === null ? null : [...kinds.values()].reduce((sum, size) => sum + size, 0);
  }

  function bytes(count) {
    let unit = 0;
    while (unit < UNITS.length - 1 && count >= 1024 ** (unit + 1)) unit += 1;
    const scaled = count / 1024 ** unit;
    return (Number.isInteger(scaled) ? scaled.toLocaleString("en") : scaled.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })) + " " + UNITS[unit];
  }
  function count(value) {
    for (const [suffix, factor] of [["m", 2 ** 20], ["k", 2 ** 10]]) if (value >= factor && value % factor === 0) return value / factor + suffix;
    return value.toLocaleString("en");
  }
  function el(name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function cells(row, tag, values) {
    for (const [text, numeric] of values) {
      const cell = document.createElement(tag);
      if (numeric) cell.className = "n";
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }
  function fill(table, heads, rows) {
    table.tHead.replaceChildren(cells(document.createElement("tr"), "th", heads));
    table.tBodies[0].replaceChildren(...rows);
  }
  function ticks(top, most) {
    let step = 1;
    while (step * most < top) step *= 2;
    const found = [];
    for (let value = 0; value <= top + step * 0.999; value += step) found.push(value);
    return found;
  }

  const state = { tokens: data.tokens, batch: data.batch, budget: data.budget };

  function models() {
    const rows = data.models.map((model) => {
      const size = total(model, state.tokens, state.batch);
      const row = document.createElement("tr");
      row.dataset.bytes = size === null ? "" : String(size);
      const over = state.budget !== null && size !== null && size > state.budget;
      if (over) row.className = "no";
      const next = model.rows && size !== null ? total(model, state.tokens + 1, state.batch) - size : null;
      const fits = state.budget === null ? [] : [[size === null ? "" : over ? "no" : "yes", false]];
      const beyond = model.max_tokens !== null && state.tokens > model.max_tokens ? " (beyond its maximum)" : "";
      return cells(row, "td", [[model.name + beyond, false], [model.types, false], [size === null ? "refused" : size.toLocaleString("en"), true],
        [size === null ? "" : bytes(size), true], [next === null ? "" : next.toLocaleString("en"), true], ...fits]);
    });
    const heads = [["model", false], ["type", false], ["bytes", true], ["", true], ["bytes a further token", true], ...(state.budget === null ? [] : [["fits", false]])];
    fill($("models"), heads, rows);
  }

  function layers() {
    const model = data.models[Number($("which").value)];
    const rows = [];
    if (model.rows) {
      for (const part of model.rows) {
        const sizes = part.slabs.map((slab) => slabBytes(slab, state.tokens, state.batch));
        const slabs = part.slabs.length ? part.slabs : [{ label: "nothing", reach: null }];
        slabs.forEach((slab, index) => {
          const shape = slab.reach ? `${slab.label} ${slab.heads}×${slab.width} ${slab.dtype}` : "nothing";
          const kept = slab.reach ? (state.batch * rowsKept(slab.reach, state.tokens)).toLocaleString("en") : "";
          const size = slab.reach ? part.count * sizes[index] : 0;
          rows.push(cells(document.createElement("tr"), "td", [[index ? "" : String(part.count), true], [index ? "" : part.at, false],
            [index ? "" : part.kind, false], [shape, false], [kept, true], [slab.reach ? slab.row_bytes.toLocaleString("en") : "", true],
            [size.toLocaleString("en"), true]]));
        });
      }
      fill($("layers"), [["layers", true], ["at", false], ["kind", false], ["holds", false], ["rows", true], ["bytes a row", true], ["bytes", true]], rows);
      return;
    }
    for (const [kind, size] of byKind(model, state.tokens, state.batch) || []) rows.push(cells(document.createElement("tr"), "td", [[kind, false], [size.toLocaleString("en"), true]]));
    fill($("layers"), [["kind", false], ["bytes", true]], rows);
  }

  function lines() {
    const svg = $("lines"), left = 84, right = 690, top = 14, bottom = 372;
    const first = data.lengths[0], last = data.lengths[data.lengths.length - 1];
    const series = data.models.map((model) => data.lengths.map((tokens) => total(model, tokens, state.batch)));
    const high = Math.max(1, ...series.flat().filter((size) => size !== null));
    const marks = ticks(state.budget !== null && state.budget < 4 * high ? Math.max(high, state.budget * 1.05) : high, 6);
    const y = (size) => bottom - ((bottom - top) * size) / marks[marks.length - 1];
    const x = (tokens) => left + ((right - left) * (tokens - first)) / Math.max(1, last - first);
    const parts = [];
    for (const mark of marks) {
      parts.push(el("line", { class: "grid", x1: left, x2: right, y1: y(mark), y2: y(mark) }));
      parts.push(el("text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, mark ? bytes(mark) : "0"));
    }
    for (const mark of ticks(last, 8).filter((value) => value >= first && value <= last)) {
      parts.push(el("line", { class: "grid", x1: x(mark), x2: x(mark), y1: top, y2: bottom }));
      parts.push(el("text", { x: x(mark), y: bottom + 19, "text-anchor": "middle" }, count(mark)));
    }
    parts.push(el("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }), el("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }));
    parts.push(el("text", { x: (left + right) / 2, y: bottom + 40, "text-anchor": "middle" }, "tokens of each sequence"));
    if (state.tokens >= first && state.tokens <= last) parts.push(el("line", { class: "now", x1: x(state.tokens), x2: x(state.tokens), y1: top, y2: bottom }));
    if (state.budget !== null && state.budget <= marks[marks.length - 1]) {
      parts.push(el("line", { class: "budget", x1: left, x2: right, y1: y(state.budget), y2: y(state.budget) }));
      parts.push(el("text", { x: left + 8, y: y(state.budget) - 6, style: "fill: var(--budget); font-weight: 700" }, "budget " + bytes(state.budget)));
    }
    series.forEach((sizes, index) => {
      const points = sizes.map((size, at) => (size === null ? null : `${x(data.lengths[at]).toFixed(1)},${y(size).toFixed(1)}`)).filter(Boolean).join(" ");
      const look = { fill: "none", stroke: COLOURS[index % COLOURS.length], "stroke-width": 2.2, "stroke-dasharray": DASHES[index % DASHES.length] };
      parts.push(el("polyline", { ...look, points }));
      parts.push(el("line", { ...look, x1: right + 12, x2: right + 44, y1: top + 12 + 22 * index, y2: top + 12 + 22 * index }));
      parts.push(el("text", { x: right + 52, y: top + 16 + 22 * index }, data.models[index].label));
    });
    svg.setAttribute("viewBox", `0 0 900 ${Math.max(420, top + 30 + 22 * series.length)}`);
    svg.replaceChildren(...parts);
  }

  function pattern(index, colour) {
    const node = el("pattern", { id: "kind" + index, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${[0, 45, 0, -45, 45, 0][index % 6]})` });
    node.append(el("rect", { width: 8, height: 8, fill: colour }));
    const ink = { stroke: "var(--ground)", "stroke-width": 1.6, fill: "var(--ground)" };
    if (index % 6 === 1 || index % 6 === 3) node.append(el("line", { x1: 0, x2: 0, y1: 0, y2: 8, ...ink }));
    if (index % 6 === 2) node.append(el("circle", { cx: 4, cy: 4, r: 1.3, ...ink }));
    if (index % 6 === 4) node.append(el("line", { x1: 0, x2: 0, y1: 0, y2: 8, ...ink }), el("line", { x1: 0, x2: 8, y1: 0, y2: 0, ...ink }));
    if (index % 6 === 5) node.append(el("line", { x1: 0, x2: 8, y1: 4, y2: 4, ...ink }));
    return node;
  }

  function bars() {
    const svg = $("bars"), left = 190, right = 700, each = 34;
    const splits = data.models.map((model) => byKind(model, state.tokens, state.batch) || new Map());
    const kinds = [...new Set(splits.flatMap((split) => [...split.keys()]))];
    const high = Math.max(1, ...splits.map((split) => [...split.values()].reduce((sum, size) => sum + size, 0)));
    const definitions = el("defs", {});
    kinds.forEach((_, index) => definitions.append(pattern(index, COLOURS[index % COLOURS.length])));
    const parts = [definitions];
    splits.forEach((split, row) => {
      let at = left;
      parts.push(el("text", { x: left - 10, y: 22 + each * row, "text-anchor": "end" }, data.models[row].label));
      kinds.forEach((kind, index) => {
        const width = ((right - left) * (split.get(kind) || 0)) / high;
        if (width) parts.push(el("rect", { x: at, y: 6 + each * row, width, height: each - 11, fill: `url(#kind${index})`, stroke: "var(--ink)", "stroke-width": 0.7 }));
        at += width;
      });
      parts.push(el("text", { x: at + 8, y: 22 + each * row }, bytes([...split.values()].reduce((sum, size) => sum + size, 0))));
    });
    const below = 16 + each * splits.length;
    let across = left;
    kinds.forEach((kind, index) => {
      parts.push(el("rect", { x: across, y: below, width: 26, height: 14, fill: `url(#kind${index})`, stroke: "var(--ink)", "stroke-width": 0.7 }));
      parts.push(el("text", { x: across + 32, y: below + 12 }, kind));
      across += 56 + 7.2 * kind.length;
    });
    svg.setAttribute("viewBox", `0 0 900 ${below + 28}`);
    svg.replaceChildren(...parts);
  }

  function show() {
    $("tokens-out").textContent = state.tokens.toLocaleString("en");
    $("batch-out").textContent = state.batch.toLocaleString("en");
    models(); lines(); bars(); layers();
  }
  function nearest(values, wanted) {
    let found = 0;
    values.forEach((value, index) => { if (Math.abs(value - wanted) < Math.abs(values[found] - wanted)) found = index; });
    return found;
  }
  function whole(text) { const value = Number(text); return Number.isInteger(value) && value >= 1 && value <= 2 ** 40 ? value : null; }

  function start() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const formula = data.models.every((model) => model.rows);
    const tokens = whole(asked.get("tokens")), batch = whole(asked.get("batch"));
    state.tokens = formula ? tokens || data.tokens : data.lengths[nearest(data.lengths, tokens || data.tokens)];
    state.batch = data.batches[nearest(data.batches, batch || data.batch)];
    $("tokens").max = data.lengths.length - 1;
    $("batch").max = data.batches.length - 1;
    $("tokens").value = nearest(data.lengths, state.tokens);
    $("batch").value = nearest(data.batches, state.batch);
    $("exact").value = state.tokens;
    $("exact").disabled = !formula;
    if (state.budget !== null) $("budget").value = state.budget / 2 ** 30;
    data.models.forEach((model, index) => { const option = document.createElement("option"); option.value = index; option.textContent = model.label; $("which").append(option); });
    $("tokens").addEventListener("input", () => { state.tokens = data.lengths[Number($("tokens").value)]; $("exact").value = state.tokens; show(); });
    $("batch").addEventListener("input", () => { state.batch = data.batches[Number($("batch").value)]; show(); });
    $("exact").addEventListener("input", () => { const value = whole($("exact").value); if (value) { state.tokens = value; $("tokens").value = nearest(data.lengths, value); show(); } });
    $("budget").addEventListener("input", () => { const value = Number($("budget").value); state.budget = value > 0 ? Math.round(value * 2 ** 30) : null; show(); });
    $("which").addEventListener("change", layers);
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    show();
  }
  start();
})();
