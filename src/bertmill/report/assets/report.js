"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const RUNS = DATA.runs;
  const SVG = "http://www.w3.org/2000/svg";

  // Elements. Text always becomes a text node, so nothing in the data is parsed as HTML.

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
    }
    return element;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const replace = (element, ...children) => element.replaceChildren(...children.flat().filter((each) => each !== null));

  // Accessibility: one live region speaks for the whole page, and only when the keyboard moves something.

  const live = h("div", { class: "spoken", role: "status", "aria-live": "polite" });
  const announce = (text) => { live.textContent = text; };
  function onKeys(element, moves, act) {
    element.addEventListener("keydown", (event) => {
      if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act(moves[event.key]);
    });
  }
  const focusPressed = (element) => element.querySelector('[aria-pressed="true"]').focus();
  const between = (low, number, high) => Math.max(low, Math.min(high, number));

  // A table whose columns are [heading, class]. Row headings are the callers' `th`, made by `rowHeading`.
  const rowHeading = (...content) => h("th", { scope: "row" }, ...content);
  function table(label, columns, body) {
    const headings = columns.map(([name, kind]) => (name === "" ? h("td", {}) : h("th", { scope: "col", class: kind }, name)));
    const holder = h("div", { class: "scroll" }, h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, headings)), body));
    // A table that is wider than the page can be scrolled with the keyboard.
    new ResizeObserver(() => {
      const scrolls = holder.scrollWidth > holder.clientWidth;
      for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", label]]) {
        if (scrolls) holder.setAttribute(name, value);
        else holder.removeAttribute(name);
      }
    }).observe(holder);
    return holder;
  }

  // Numbers and names.

  const words = (name) => name.replaceAll("_", " ");
  const ACRONYMS = { mlm: "MLM", nsp: "NSP", sop: "SOP", clm: "CLM", f1: "F1" };
  const title = (name) => words(name).replace(/\b(mlm|nsp|sop|clm|f1)\b/g, (each) => ACRONYMS[each]);
  const grouped = (number) => Math.round(number).toLocaleString("en-US");
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const fixed = (number) => (typeof number === "number" ? number.toFixed(4) : "–");
  function short(number) {
    if (number === null || number === undefined) return "–";
    const size = Math.abs(number);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return number.toExponential(2);
    if (Number.isInteger(number) || size >= 1000) return grouped(number);
    return number.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 4);
  }
  function duration(seconds) {
    const rest = Math.round(seconds);
    const parts = [[Math.floor(rest / 3600), "h"], [Math.floor(rest / 60) % 60, "min"], [rest % 60, "s"]];
    return parts.filter(([count], place) => count || (place === 2 && rest < 60)).map((each) => each.join(" ")).join(" ");
  }
  function shown(value) {
    if (Array.isArray(value)) return value.join(", ");
    if (typeof value !== "object" || value === null) return String(value);
    return Object.entries(value).filter(([, each]) => each !== null).map(([name, each]) => `${words(name)} ${shown(each)}`).join(", ");
  }
  const seriesColor = (number) => `var(--s${number % 8})`;

  // Line plots: hover, or focus and use the arrow keys, to read values.

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => (first + place) * step);
  }
  function tickLabel(value, step) {
    if (value === 0) return "0";
    if (Math.abs(value) >= 1e4) return `${+(value / 1000).toPrecision(4)}k`;
    if (Math.abs(step) < 1e-3) return value.toExponential(0);
    return String(+value.toPrecision(6));
  }

  function linePlot({ name, series, references = [], format = short, zero = false }) {
    const points = (each) => each.xs.map((x, place) => [x, each.ys[place]]).filter(([, y]) => y !== null && y !== undefined);
    const drawn = series.map((each) => ({ ...each, points: points(each) })).filter((each) => each.points.length);
    if (drawn.every((each) => each.points.length < 2)) return null;  // no curve; tiles and tables show single values
    const all = drawn.flatMap((each) => each.points);
    const xs = all.map((each) => each[0]);
    const ys = [...all.map((each) => each[1]), ...references.map((each) => each.y)];
    const least = (values, start) => values.reduce((one, other) => Math.min(one, other), start);
    const most = (values) => values.reduce((one, other) => Math.max(one, other), -Infinity);
    const [minX, maxX] = [least(xs, 0), most(xs)];
    let [minY, maxY] = [zero ? 0 : least(ys, Infinity), most(ys)];
    if (minY === maxY) [minY, maxY] = [minY - 0.5, maxY + 0.5];
    const pad = 0.05 * (maxY - minY);
    [minY, maxY] = [zero ? 0 : minY - pad, maxY + pad];
    const readout = h("div", { class: "readout" });
    const ends = (each) => [each.points[0], each.points[each.points.length - 1]].map(([x, value]) => `${format(value)} at step ${grouped(x)}`);
    const summary = drawn.map((each) => `${each.name} ${each.points.length > 1 ? `from ${ends(each).join(" to ")}` : ends(each)[0]}`).join("; ");
    const svg = s("svg", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "line plot", "aria-label": `${name}: ${summary}. Use the arrow keys to read values.` });
    const picture = s("g", { "aria-hidden": "true" });
    svg.append(picture);
    const cursor = s("g", {});
    const steps = [...new Set(xs)].sort((one, other) => one - other);
    let place = -1;
    let scaleX = (x) => x;
    const height = 230;
    const [left, right, top, bottom] = [52, 12, 8, 26];
    const y = (value) => top + ((maxY - value) / (maxY - minY)) * (height - top - bottom);

    function nearest(each, step) {
      let best = each.points[0];
      for (const point of each.points) if (Math.abs(point[0] - step) < Math.abs(best[0] - step)) best = point;
      return best;
    }
    function show() {
      cursor.replaceChildren();
      if (place < 0) { readout.textContent = ""; return; }
      const step = steps[place];
      cursor.append(s("line", { class: "cursor", x1: scaleX(step), x2: scaleX(step), y1: top, y2: height - bottom }));
      const texts = [];
      for (const each of drawn) {
        const [x, value] = nearest(each, step);
        if (x !== step && each.points.length === steps.length) continue;
        cursor.append(s("circle", { cx: scaleX(x), cy: y(value), r: 3.5, fill: each.color }));
        texts.push(`${each.name} ${format(value)}${x === step ? "" : ` (step ${grouped(x)})`}`);
      }
      readout.textContent = `step ${grouped(step)}: ${texts.join(", ")}`;
    }
    function draw(width) {
      scaleX = (x) => left + ((x - minX) / (maxX - minX || 1)) * (width - left - right);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      picture.replaceChildren();
      const tickY = ticks(minY, maxY, 4);
      for (const value of tickY) {
        picture.append(s("line", { class: "gridline", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
        picture.append(s("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, tickLabel(value, tickY.length > 1 ? tickY[1] - tickY[0] : 1)));
      }
      const tickX = ticks(minX, maxX, width < 420 ? 3 : 6);
      for (const value of tickX) {
        picture.append(s("text", { x: scaleX(value), y: height - 7, "text-anchor": "middle" }, tickLabel(value, 1)));
      }
      picture.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
      for (const each of references) {
        picture.append(s("line", { class: "reference", x1: left, x2: width - right, y1: y(each.y), y2: y(each.y) }));
        picture.append(s("text", { x: width - right - 2, y: y(each.y) - 4, "text-anchor": "end" }, `${each.name} ${format(each.y)}`));
      }
      for (const each of drawn) {
        const path = each.points.map(([x, value]) => `${scaleX(x).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
        picture.append(s("polyline", { points: path, fill: "none", stroke: each.color, "stroke-width": each.dashed ? 1.5 : 2, "stroke-dasharray": each.dashed ? "5 4" : null, "stroke-linejoin": "round" }));
        if (each.dots || each.points.length === 1) {
          for (const [x, value] of each.points.length > 60 ? [] : each.points) {
            picture.append(s("circle", { cx: scaleX(x), cy: y(value), r: 3, fill: "var(--card)", stroke: each.color, "stroke-width": 2 }));
          }
        }
      }
      picture.append(cursor);
      show();
    }
    function moveTo(event) {
      const box = svg.getBoundingClientRect();
      const step = minX + ((event.clientX - box.left - left) / (box.width - left - right)) * (maxX - minX);
      place = steps.reduce((best, each, number) => (Math.abs(each - step) < Math.abs(steps[best] - step) ? number : best), 0);
      show();
    }
    svg.addEventListener("pointermove", moveTo);
    svg.addEventListener("pointerdown", moveTo);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { place = -1; show(); } });
    svg.addEventListener("blur", () => { place = -1; show(); });
    onKeys(svg, { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }, (move) => {
      place = between(0, place + move, steps.length - 1);
      show();
      announce(readout.textContent);
    });
    const legend = h("div", { class: "legend" }, drawn.map((each) =>
      h("span", { class: "key" }, h("i", { class: each.dots ? "dots" : each.dashed ? "dashed" : "", style: `border-color:${each.color}` }), each.name)));
    const figure = h("div", { class: "figure" }, h("h3", {}, name), svg, legend, readout);
    new ResizeObserver((entries) => { const width = Math.round(entries[0].contentRect.width); if (width > 0) draw(width); }).observe(figure);
    return figure;
  }

  // Sections. Each returns an element, or null if there is nothing to show.

  function section(id, heading, note, ...content) {
    const parts = content.flat().filter((each) => each !== null && each !== undefined);
    if (!parts.length) return null;
    return h("section", { id, "aria-labeledby": `${id}-heading` }, h("h2", { id: `${id}-heading` }, heading), note ? h("p", { class: "note" }, note) : null, parts);
  }
  const isCrossValidated = (run) => run.evaluation.on === "cross-validation";
  const judgedRows = (run) => (isCrossValidated(run) ? "cross-validated rows" : "dev rows");
  const evaluatedName = (run) => (run.command === "pretrain" ? "held-out" : "dev");
  const isLoss = (name) => name === "loss" || name.endsWith("_loss");
  const hasReferences = (name) => name === "mlm_loss" || name === "clm_loss";

  function curves() {
    const several = RUNS.length > 1;
    const series = (pick, name, kind) => RUNS.flatMap((run, number) => {
      const columns = pick(run);
      if (!columns[name]) return [];
      const prefix = several ? `${run.name} ` : "";
      const color = several ? seriesColor(number) : kind === "evaluated" ? seriesColor(1) : seriesColor(0);
      const label = kind === "evaluated" ? evaluatedName(run) : "training";
      return [{ name: several ? `${prefix}(${label})` : label, xs: columns.step, ys: columns[name], color, dots: kind === "evaluated", dashed: several && kind !== "evaluated" && RUNS.some((each) => each.evaluated[name]) }];
    });
    const training = (name) => series((run) => run.training, name, "training");
    const evaluated = (name) => series((run) => run.evaluated, name, "evaluated");
    const names = (pick) => [...new Set(RUNS.flatMap((run) => Object.keys(pick(run))))];
    const losses = names((run) => run.training).filter(isLoss);
    // With one objective, the total equals its loss. A fine-tuning has only the total.
    const isRedundant = losses.length === 2 && RUNS.every((run) => !run.training.loss || losses.every((name) => run.training[name]));
    const only = isRedundant ? losses.filter((name) => name !== "loss") : losses;
    const references = (name) => (hasReferences(name) || (name === "loss" && only.length === 1)
      ? RUNS.slice(0, 1).flatMap((run) => [["random guessing", run.references.uniform], ["piece frequencies alone", run.references.unigram]].filter(([, y]) => y).map(([label, y]) => ({ name: label, y }))) : []);
    const plots = only.map((name) => linePlot({ name: title(name), series: [...training(name), ...evaluated(name)], references: references(name), format: (y) => y.toFixed(4) }));
    const selecting = new Set(RUNS.map((run) => run.evaluation.metric));
    const isMain = (name) => selecting.has(name) || name.endsWith("_accuracy");
    const metricPlot = (name) => linePlot({ name: title(name), series: [...training(name), ...evaluated(name)] });
    const others = names((run) => run.evaluated).filter((name) => name !== "step" && !isLoss(name));
    plots.push(...others.filter(isMain).map(metricPlot));
    const more = others.filter((name) => !isMain(name)).map(metricPlot).filter(Boolean);
    plots.push(linePlot({ name: "learning rate", series: training("rate"), format: (y) => y.toExponential(2), zero: true }));
    plots.push(linePlot({ name: "pieces per second", series: training("pieces_per_second"), format: grouped, zero: true }));
    return section("curves", "Curves", "Hover over a plot, or focus it and use the arrow keys, to read values. The horizontal axis shows steps.",
      h("div", { class: "columns" }, plots.filter(Boolean)),
      more.length ? h("details", {}, h("summary", {}, `${more.length} more metric${more.length > 1 ? "s" : ""}`), h("div", { class: "columns" }, more)) : null);
  }

  function tiles(run) {
    const evaluation = run.evaluation;
    const items = [];
    const add = (name, value, more) => { if (value !== undefined && value !== null) items.push([name, value, more]); };
    const isObjective = run.command === "pretrain";
    const figures = evaluation.metrics || {};
    const baselines = evaluation.baseline ? evaluation.baseline.metrics : {};
    for (const [name, metric] of Object.entries(isObjective ? figures : {})) {
      if (name === "loss") continue;
      const format = name.endsWith("_accuracy") ? percent : short;
      const interval = `95% CI: ${format(metric.low)} – ${format(metric.high)}`;
      const reference = name in baselines ? `${evaluation.baseline.answer}: ${format(baselines[name])}`
        : hasReferences(name) && run.references.unigram ? `piece frequencies alone: ${run.references.unigram.toFixed(2)}` : null;
      add(title(name), format(metric.value), reference ? `${interval}; ${reference}` : interval);
    }
    const selecting = isObjective ? undefined : figures[evaluation.metric];
    if (selecting) {
      add(title(evaluation.metric), fixed(selecting.value), `95% CI: ${fixed(selecting.low)} – ${fixed(selecting.high)}`);
      add("baseline", fixed(baselines[evaluation.metric]), evaluation.baseline.answer);
    }
    const method = run.metadata.method;
    if (method) add("method", method.name === "probe" ? "probe" : "all weights trained", method.name === "probe" ? `features: ${method.features}` : null);
    if (evaluation.rows) add(judgedRows(run), grouped(evaluation.rows));
    const steps = run.training.step || [];
    if (steps.length) add("steps", grouped(steps[steps.length - 1]), run.is_finished ? "finished" : "not finished");
    const seconds = run.training.seconds || [];
    if (seconds.length) add("time", duration(seconds[seconds.length - 1]));
    const speeds = (run.training.pieces_per_second || []).filter((each) => each !== null).sort((one, other) => one - other);
    if (speeds.length) add("pieces per second", grouped(speeds[Math.floor(speeds.length / 2)]), "median");
    return h("div", { class: "tiles" }, items.map(([name, value, more]) =>
      h("div", { class: "tile" }, h("div", { class: "name" }, name), h("div", { class: "value" }, value), more ? h("div", { class: "more" }, more) : null)));
  }

  function intervalBar(metric, baseline) {
    if (Math.min(metric.low, baseline ?? 0) < 0 || Math.max(metric.high, baseline ?? 0) > 1) return "";
    const x = (value) => 2 + 116 * value;
    return s("svg", { width: 120, height: 18, "aria-hidden": "true" },
      s("line", { class: "gridline", x1: 2, x2: 118, y1: 9, y2: 9 }),
      baseline === undefined || baseline === null ? null : s("line", { x1: x(baseline), x2: x(baseline), y1: 2, y2: 16, stroke: "var(--bad)", "stroke-width": 2 }),
      s("line", { x1: x(metric.low), x2: x(metric.high), y1: 9, y2: 9, stroke: "var(--accent)", "stroke-width": 3 }),
      s("circle", { cx: x(metric.value), cy: 9, r: 4, fill: "var(--accent)" }));
  }

  function metrics(run) {
    const { metrics: figures, baseline, metric: selecting, warning } = run.evaluation;
    if (!figures) return null;
    const rows = Object.entries(figures).filter(([name]) => name !== "loss").map(([name, metric]) => {
      const constant = baseline.metrics[name];
      return h("tr", {}, rowHeading(title(name), name === selecting ? " ★" : ""), h("td", { class: "number" }, short(metric.value)),
        h("td", { class: "number" }, `${short(metric.low)} – ${short(metric.high)}`), h("td", { class: "number" }, short(constant)), h("td", { class: "wide" }, intervalBar(metric, constant)));
    });
    const constant = `The baseline is the best constant prediction: ${baseline.answer}.`;
    const [heading, note] = run.command === "pretrain"
      ? ["Metrics on held-out text", `At ${grouped(run.evaluation.selected)} selected positions. Intervals are 95% bootstrap intervals over groups of instances. ${constant}`]
      : [`Metrics on the ${judgedRows(run)}`, `${isCrossValidated(run) ? "Each row was judged by a model that was not trained on it. " : ""}★ marks the metric that selects the checkpoint and the method. Intervals are 95% bootstrap intervals over the rows. ${constant}`];
    return section("metrics", heading, note,
      warning ? h("p", { class: "warning" }, `Warning: ${warning}`) : null,
      table("Metrics", [["metric"], ...["value", "95% CI", "baseline"].map((each) => [each, "number"]), [""]], h("tbody", {}, rows)));
  }

  function classes(run) {
    const figures = run.evaluation.classes || [];
    if (!figures.length) return null;
    let key = "rows";
    const body = h("tbody", {});
    const order = { label: (one, other) => one.label.localeCompare(other.label), rows: (one, other) => other.rows - one.rows, f1: (one, other) => one.f1 - other.f1 };
    const row = (each) => h("tr", {}, rowHeading(each.label), ...["precision", "recall", "f1"].map((name) => h("td", { class: "number" }, fixed(each[name]))), h("td", { class: "number" }, grouped(each.rows)));
    let limit = 20;
    const more = h("button", { onclick: () => { const first = limit; limit = Infinity; update(); body.children[first].tabIndex = -1; body.children[first].focus(); } }, `Show all ${grouped(figures.length)} classes`);
    const sorts = h("div", { class: "controls", role: "group", "aria-label": "order of the classes" });
    function update() {
      replace(body, [...figures].sort(order[key]).slice(0, limit).map(row));
      replace(sorts, h("span", { class: "note" }, "Sort by"), ...[["rows", "rows"], ["f1", "lowest F1"], ["label", "name"]].map(([name, label]) =>
        h("button", { "aria-pressed": String(key === name), onclick: () => { key = name; update(); focusPressed(sorts); } }, label)));
      more.hidden = limit >= figures.length;
    }
    update();
    return section("classes", "Classes", null, sorts,
      table("Classes", [["class"], ...["precision", "recall", "F1", "rows"].map((each) => [each, "number"])], body), more);
  }

  const CELL_MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  function confusionMatrix(run) {
    const { confusion: cells = [], classes: figures = [] } = run.evaluation;
    if (!cells.length) return null;
    const labels = figures.map((each) => each.label);
    const totals = figures.map((each) => Math.max(1, each.rows));
    const counts = new Map(cells.map(([expected, predicted, count]) => [`${expected},${predicted}`, count]));
    const size = labels.length;
    const readout = h("div", { class: "readout" });
    const right = cells.reduce((sum, [expected, predicted, count]) => sum + (expected === predicted ? count : 0), 0);
    const all = cells.reduce((sum, each) => sum + each[2], 0);
    const svg = s("svg", { class: "plot confusion", tabindex: 0, role: "application", "aria-roledescription": "matrix", "aria-label": `Confusion matrix of ${size} classes: ${grouped(right)} of ${grouped(all)} rows are on the diagonal. Use the arrow keys to read cells.` });
    const picture = s("g", { "aria-hidden": "true" });
    svg.append(picture);
    let chosen = [0, 0];
    const frame = s("rect", { fill: "none", stroke: "var(--text)", "stroke-width": 1.5, visibility: "hidden" });
    let cell = 10, margin = 0;
    function choose(expected, predicted) {
      chosen = [between(0, expected, size - 1), between(0, predicted, size - 1)];
      fill(frame, { x: margin + chosen[1] * cell, y: margin + chosen[0] * cell, width: cell, height: cell, visibility: "visible" }, []);
      const count = counts.get(chosen.join(",")) || 0;
      readout.textContent = `expected ${labels[chosen[0]]}, predicted ${labels[chosen[1]]}: ${grouped(count)} of ${grouped(figures[chosen[0]].rows)} rows (${percent(count / totals[chosen[0]])})`;
    }
    function draw(width) {
      const withLabels = size <= 30;
      const longest = Math.max(...labels.map((each) => each.length));
      margin = withLabels ? Math.min(110, 12 + 6.6 * Math.min(longest, 14)) : 4;
      cell = Math.max(3, Math.min(46, (Math.min(width, 640) - margin - 4) / size));
      const extent = margin + cell * size + 4;
      svg.setAttribute("viewBox", `0 0 ${extent} ${extent}`);
      svg.style.width = `${extent}px`;
      svg.style.height = `${extent}px`;
      picture.replaceChildren();
      picture.append(s("rect", { x: margin, y: margin, width: cell * size, height: cell * size, fill: "none", class: "axis" }));
      for (const [expected, predicted, count] of cells) {
        const share = count / totals[expected];
        const [x, y] = [margin + predicted * cell, margin + expected * cell];
        const hue = expected === predicted ? "var(--good)" : "var(--bad)";
        picture.append(s("rect", { x, y, width: cell - 0.5, height: cell - 0.5, fill: hue, style: `fill-opacity:calc(${(0.2 + 0.8 * Math.sqrt(share)).toFixed(3)} * var(--strength))` }));
        if (cell >= 26) picture.append(s("text", { x: x + cell / 2, y: y + cell / 2 + 4, "text-anchor": "middle", style: "fill:var(--text)" }, grouped(count)));
      }
      if (withLabels) {
        const cut = (label) => (label.length > 14 ? `${label.slice(0, 13)}…` : label);
        labels.forEach((label, number) => {
          const middle = margin + number * cell + cell / 2;
          picture.append(s("text", { x: margin - 5, y: middle + 4, "text-anchor": "end" }, cut(label)));
          picture.append(s("text", { x: 0, y: 0, "text-anchor": "start", transform: `translate(${middle + 4} ${margin - 6}) rotate(-55)` }, cut(label)));
        });
      }
      picture.append(frame);
    }
    const pointAt = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = (margin + cell * size + 4) / box.width;
      const [x, y] = [(event.clientX - box.left) * scale - margin, (event.clientY - box.top) * scale - margin];
      if (x >= 0 && y >= 0 && x < cell * size && y < cell * size) choose(Math.floor(y / cell), Math.floor(x / cell));
    };
    svg.addEventListener("pointermove", pointAt);
    svg.addEventListener("pointerdown", pointAt);
    svg.addEventListener("focus", () => choose(...chosen));
    onKeys(svg, CELL_MOVES, ([down, across]) => { choose(chosen[0] + down, chosen[1] + across); announce(readout.textContent); });
    const holder = h("div", {}, h("h3", {}, "Confusion matrix (rows: expected, columns: predicted)"), h("div", { class: "scroll" }, svg), readout);
    new ResizeObserver((entries) => { const width = entries[0].contentRect.width; if (width > 0) draw(width); }).observe(holder);
    return holder;
  }

  function confusedPairs(run) {
    const pairs = run.evaluation.confused || [];
    if (!pairs.length) return null;
    return h("div", {}, h("h3", {}, "Most confused pairs"), table("Most confused pairs", [["expected"], ["predicted"], ["rows", "number"]],
      h("tbody", {}, pairs.slice(0, 15).map((each) => h("tr", {}, h("td", { class: "value" }, each.expected), h("td", { class: "value" }, each.predicted), h("td", { class: "number" }, grouped(each.count)))))));
  }

  function reliability(run) {
    const bins = run.evaluation.reliability || [];
    if (!bins.length) return null;
    const total = bins.reduce((sum, each) => sum + each.count, 0);
    const gap = bins.reduce((sum, each) => sum + (each.count / total) * Math.abs(each.confidence - each.accuracy), 0);
    const [size, left, bottom, top] = [300, 40, 36, 8];
    const x = (value) => left + value * (size - left - 18);
    const y = (value) => top + (1 - value) * (size - top - bottom);
    const svg = s("svg", { class: "plot", viewBox: `0 0 ${size} ${size}`, style: "max-width:340px", tabindex: 0, role: "application", "aria-roledescription": "plot", "aria-label": `Reliability diagram of ${bins.length} bins: expected calibration error ${percent(gap)}. Use the arrow keys to read bins.` });
    const picture = s("g", { "aria-hidden": "true" });
    svg.append(picture);
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      picture.append(s("line", { class: "gridline", x1: x(0), x2: x(1), y1: y(value), y2: y(value) }));
      picture.append(s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, `${100 * value}`));
      picture.append(s("text", { x: x(value), y: size - bottom + 16, "text-anchor": "middle" }, `${100 * value}`));
    }
    picture.append(s("line", { class: "reference", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
    picture.append(s("text", { x: x(0.5), y: size - 4, "text-anchor": "middle" }, "confidence (%)"));
    const readout = h("div", { class: "readout" });
    const dots = bins.map((each) => s("circle", { class: "dot", cx: x(each.confidence), cy: y(each.accuracy), r: 4 + 10 * Math.sqrt(each.count / total), fill: "var(--accent)", "fill-opacity": 0.65 }));
    let chosen = -1;
    function choose(number) {
      if (dots[chosen]) dots[chosen].classList.remove("chosen");
      chosen = number;
      dots[chosen].classList.add("chosen");
      const { count, confidence, accuracy } = bins[chosen];
      readout.textContent = `${grouped(count)} decisions with a mean confidence of ${percent(confidence)}: accuracy ${percent(accuracy)}`;
    }
    dots.forEach((dot, number) => dot.addEventListener("pointerenter", () => choose(number)));
    onKeys(svg, { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity }, (move) => {
      choose(between(0, chosen + move, bins.length - 1));
      announce(readout.textContent);
    });
    picture.append(...dots);
    return h("div", {}, h("h3", {}, "Reliability diagram: accuracy (%) by confidence"), svg,
      h("p", { class: "note" }, `A calibrated model lies on the dashed line. Expected calibration error: ${percent(gap)}.`), readout);
  }

  function confusion(run) {
    const parts = [confusionMatrix(run), confusedPairs(run), reliability(run)].filter(Boolean);
    return parts.length ? section("confusion", "Confusion and confidence", null, h("div", { class: "columns" }, parts)) : null;
  }

  function errors(run) {
    const worst = run.evaluation.worst || [];
    if (!worst.length) return null;
    const known = new Set(["place", "id", "expected", "shown"]);
    const asText = (name, value) => (Array.isArray(value) ? value.join(name === "words" ? " " : " | ") : value);
    const item = (error) => {
      const texts = Object.entries(error).filter(([name]) => !known.has(name)).map(([name, value]) => [name, asText(name, value)]).filter(([, value]) => typeof value === "string");
      return h("div", { class: "error" },
        h("div", {}, "expected ", h("span", { class: "expected" }, error.expected || "none"), ", predicted ", h("span", { class: "got" }, error.shown), " ", h("span", { class: "note" }, error.place)),
        texts.map(([name, value]) => h("div", { class: `text${value.length > 600 ? " long" : ""}`, tabindex: value.length > 600 ? 0 : null }, texts.length > 1 ? h("span", { class: "note" }, `${name}: `) : null, value)));
    };
    const list = h("div", {}, worst.slice(0, 5).map(item));
    const more = worst.length > 5 ? h("button", { onclick: (event) => { list.append(...worst.slice(5).map(item)); event.target.remove(); list.children[5].tabIndex = -1; list.children[5].focus(); } }, `Show all ${worst.length} errors`) : null;
    return section("errors", "Worst errors", `Wrong predictions for ${judgedRows(run)}, the most confident first.`, list, more);
  }

  // Pieces, predictions at selected positions, and attention.

  const pieceText = (piece) => (piece === null ? "[?]" : piece);
  const segment = (place, numFirst) => (place < numFirst ? "a" : "b");

  function probabilityBar(name, probability, isExpected) {
    return h("div", { class: "bar" }, h("span", { class: "name", style: isExpected ? "font-weight:700;color:var(--good)" : "" }, pieceText(name)),
      h("span", {}, h("div", { class: "fill", style: `width:${(100 * probability).toFixed(2)}%` })), h("span", { class: "figure" }, percent(probability)));
  }

  const guessTexts = (guesses) => guesses.slice(0, 3).map(([name, probability]) => `${name} ${percent(probability)}`).join(", ");

  function predictions(run) {
    const instances = run.evaluation.predictions || [];
    if (!instances.length) return null;
    const view = h("div", {});
    const choose = h("select", {}, instances.map((_, number) => h("option", { value: number }, `instance ${number + 1}`)));
    function show() {
      const instance = instances[+choose.value];
      const positions = new Map(instance.positions.map((each) => [each.place, each]));
      const detail = h("div", { class: "predictions-detail" });
      const select = (position, button) => {
        view.querySelectorAll(".piece.query").forEach((each) => each.classList.remove("query"));
        button.classList.add("query");
        replace(detail, h("h3", {}, `Position ${position.place}: expected `, h("b", {}, pieceText(position.expected))), position.guesses.map((each) => probabilityBar(each.piece, each.probability, each.piece === position.expected)));
      };
      const chips = instance.pieces.map((piece, place) => {
        const position = positions.get(place);
        if (!position) return h("span", { class: `piece ${segment(place, instance.num_first)}` }, pieceText(piece));
        const isRight = position.guesses[0].piece === position.expected;
        const button = h("button", { class: `piece blank ${isRight ? "right" : "wrong"}`, title: `input: ${pieceText(piece)}`, "aria-label": `${pieceText(position.expected)}, ${isRight ? "correct" : "wrong"}` }, pieceText(position.expected));
        button.addEventListener("click", () => select(position, button));
        button.addEventListener("focus", () => {
          select(position, button);
          announce(`Position ${place}, expected ${pieceText(position.expected)}. Predicted: ${guessTexts(position.guesses.map((each) => [pieceText(each.piece), each.probability]))}`);
        });
        return button;
      });
      replace(view, h("div", { class: "pieces" }, chips), detail);
      const first = view.querySelector("button.piece");
      if (first) select(instance.positions[0], first);
    }
    choose.addEventListener("change", show);
    show();
    const source = run.evaluation.on === "heldout" ? "The text is held out." : "The text is from the training corpus, since none is held out.";
    return section("predictions", "Predicted pieces", `Selected positions show the expected piece, in green if it is the most likely prediction and in red if not. Choose one to see the predictions. ${source}`,
      h("div", { class: "controls" }, h("label", {}, "text", choose)), view);
  }

  async function unpacked(content) {
    const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function paint(canvas, size, weight) {
    canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    const [red, green, blue] = getComputedStyle(document.documentElement).getPropertyValue("--heat").split(",").map(Number);
    const image = context.createImageData(size, size);
    for (let place = 0; place < size * size; place++) {
      image.data.set([red, green, blue, weight(Math.floor(place / size), place % size)], 4 * place);
    }
    context.putImageData(image, 0, 0);
  }

  function attention(run) {
    const texts = run.evaluation.attention || [];
    if (!texts.length) return null;
    const state = { text: 0, page: 0, layer: 0, head: 0, query: 0, key: 0 };
    const label = (text) => { const start = text.pieces.slice(1, 9).map(pieceText).join(" "); return start.length > 60 ? `${start.slice(0, 60)} …` : `${start} …`; };
    const textChoice = h("select", {}, texts.map((text, number) => h("option", { value: number }, label(text))));
    const pageChoice = h("select", {});
    const pageLabel = h("label", {}, "pieces", pageChoice);
    const layers = h("div", { class: "controls", role: "group", "aria-label": "layer" });
    const heads = h("div", { class: "heads", role: "group", "aria-label": "head" });
    const pieces = h("div", { class: "pieces", role: "group", "aria-label": "pieces; use the arrow keys to move" });
    const matrix = h("canvas", { class: "matrix", tabindex: 0, role: "application", "aria-roledescription": "matrix" });
    const cell = h("div", { class: "cell", hidden: true });
    const readout = h("div", { class: "readout" });
    const detail = h("div", { class: "attention-detail" });
    const missing = h("p", { class: "note" });
    let weights = null, size = 0, numLayers = 0, numHeads = 0;
    const at = (layer, head, query, key) => weights[((layer * numHeads + head) * size + query) * size + key];
    const share = (level) => (level / 255) ** 2;

    function showPieces() {
      const text = texts[state.text];
      const start = text.pages[state.page].start;
      [...pieces.children].forEach((chip, key) => {
        chip.style.background = `rgba(var(--heat), calc(${(at(state.layer, state.head, state.query, key) / 255).toFixed(3)} * var(--strength)))`;
        chip.classList.toggle("query", key === state.query);
        chip.tabIndex = key === state.query ? 0 : -1;
      });
      const row = Array.from({ length: size }, (_, key) => [key, share(at(state.layer, state.head, state.query, key))]);
      const inside = row.reduce((sum, each) => sum + each[1], 0);
      const best = row.sort((one, other) => other[1] - one[1]).slice(0, 6);
      const place = start + state.query;
      const hasPair = text.num_first < text.pieces.length;
      replace(detail,
        h("h3", {}, "From ", h("b", {}, pieceText(text.pieces[place])), ` (piece ${place}, id ${text.ids[place]}${hasPair ? `, segment ${place < text.num_first ? "A" : "B"}` : ""}), layer ${state.layer + 1}, head ${state.head + 1}, to`),
        best.map(([key, value]) => probabilityBar(`${pieceText(text.pieces[start + key])} ·${start + key}`, value, false)),
        text.pages.length > 1 && inside < 0.98 ? h("p", { class: "note" }, `About ${percent(Math.max(0, 1 - inside))} of the attention goes to pieces on other pages.`) : null);
    }
    const spoken = () => [...detail.querySelectorAll(".bar")].slice(0, 3).map((bar) => [...bar.querySelectorAll(".name, .figure")].map((each) => each.textContent).join(" ")).join(", ");
    function showCell() {
      const { pieces: names, pages } = texts[state.text];
      const [from, to] = [state.query, state.key].map((each) => pages[state.page].start + each);
      readout.textContent = `from ${pieceText(names[from])} (${from}) to ${pieceText(names[to])} (${to}): ${percent(share(at(state.layer, state.head, state.query, state.key)))}`;
      Object.assign(cell.style, { left: `${(100 * state.key) / size}%`, top: `${(100 * state.query) / size}%`, width: `${100 / size}%`, height: `${100 / size}%` });
      cell.hidden = false;
    }
    function hideCell() {
      cell.hidden = true;
      readout.textContent = "";
    }
    function showHeads() {
      replace(heads, Array.from({ length: numHeads }, (_, head) => {
        const canvas = h("canvas", { "aria-hidden": "true" });
        paint(canvas, size, (query, key) => at(state.layer, head, query, key));
        return h("button", { "aria-pressed": String(head === state.head), onclick: () => { state.head = head; show(); heads.children[head].focus(); } }, canvas, `head ${head + 1}`);
      }));
    }
    function show() {
      replace(layers, h("span", { class: "note" }, "layer"), ...Array.from({ length: numLayers }, (_, layer) =>
        h("button", { "aria-pressed": String(layer === state.layer), onclick: () => { state.layer = layer; show(); layers.children[layer + 1].focus(); } }, layer + 1)));
      showHeads();
      paint(matrix, size, (query, key) => at(state.layer, state.head, query, key));
      matrix.setAttribute("aria-label", `Attention map of layer ${state.layer + 1}, head ${state.head + 1}: from ${size} pieces (rows) to ${size} pieces (columns). Use the arrow keys to read weights.`);
      hideCell();
      showPieces();
    }
    async function load() {
      const text = texts[state.text];
      const page = text.pages[state.page];
      pageLabel.hidden = text.pages.length < 2;
      const last = text.pages[text.pages.length - 1].stop;
      missing.textContent = last < text.pieces.length ? `Pieces ${last} – ${text.pieces.length - 1} are not stored, to keep the file small.` : "";
      replace(pageChoice, text.pages.map((each, number) => h("option", { value: number, selected: number === state.page }, `${each.start} – ${each.stop - 1}`)));
      const loaded = await unpacked(page.weights);
      if (page !== texts[state.text].pages[state.page]) return;  // another page was chosen in the meantime
      weights = loaded;
      size = page.stop - page.start;
      numHeads = text.num_heads;
      numLayers = weights.length / (numHeads * size * size);
      state.layer = Math.min(state.layer, numLayers - 1);
      state.query = Math.min(state.query, size - 1);
      state.key = Math.min(state.key, size - 1);
      replace(pieces, text.pieces.slice(page.start, page.stop).map((piece, key) => {
        const choose = () => { state.query = key; showPieces(); };
        return h("button", { class: `piece ${segment(page.start + key, text.num_first)}`, onclick: choose, onfocus: () => { choose(); announce(`${pieceText(piece)} attends to ${spoken()}`); }, onpointerenter: choose }, pieceText(piece));
      }));
      show();
    }
    onKeys(pieces, { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }, (move) => {
      pieces.children[between(0, state.query + move, size - 1)].focus();
    });
    function chooseCell(query, key) {
      Object.assign(state, { query: between(0, query, size - 1), key: between(0, key, size - 1) });
      showPieces();
      showCell();
    }
    const pointAt = (event) => {
      const box = matrix.getBoundingClientRect();
      const inside = (distance, extent) => Math.floor((distance / extent) * size);
      if (weights) chooseCell(inside(event.clientY - box.top, box.height), inside(event.clientX - box.left, box.width));
    };
    onKeys(matrix, CELL_MOVES, ([down, across]) => {
      if (!weights) return;
      chooseCell(state.query + (cell.hidden ? 0 : down), state.key + (cell.hidden ? 0 : across));
      announce(readout.textContent);
    });
    matrix.addEventListener("blur", hideCell);
    matrix.addEventListener("pointermove", pointAt);
    matrix.addEventListener("pointerdown", pointAt);
    textChoice.addEventListener("change", () => { Object.assign(state, { text: +textChoice.value, page: 0, query: 0 }); load(); });
    pageChoice.addEventListener("change", () => { Object.assign(state, { page: +pageChoice.value, query: 0 }); load(); });
    document.addEventListener("themechange", () => { if (weights) show(); });
    load();
    return section("attention", "Attention", "Choose a layer and a head, then a piece: hover, click or use the arrow keys. The stronger the color of a piece, the more attention it receives. A solid underline marks the first segment, a dashed underline the second. Pieces that start with ## continue a word.",
      h("div", { class: "controls" }, h("label", {}, "text", textChoice), pageLabel), missing, layers, heads,
      h("div", { class: "columns" }, h("div", {}, pieces, detail), h("div", {}, h("h3", {}, "Attention from each piece (row) to each piece (column)"), h("div", { class: "map" }, matrix, cell), readout)));
  }

  // Settings and provenance.

  const isHash = (value) => /^[0-9a-f]{64}$/.test(value);
  const valueGrid = (entries) => h("div", { class: "values" }, entries.map(([name, value]) =>
    h("div", {}, h("span", {}, words(name)), isHash(value) ? h("div", { class: "hash" }, value) : shown(value))));

  function settings(run) {
    const isKnown = ([name, value]) => value !== null && value !== "" && !(name in run.sources);
    const parts = [["Settings", Object.entries(run.settings)], ["Data", Object.entries(run.sources).filter(([, value]) => value !== "")], ["Model", Object.entries(run.metadata).filter(isKnown)]];
    return section("settings", "Settings and provenance", "To repeat this run, pass its config.toml with --config.",
      parts.filter(([, entries]) => entries.length).map(([name, entries]) => h("div", {}, h("h3", {}, name), valueGrid(entries))));
  }

  function comparison() {
    if (RUNS.length < 2) return null;
    const names = [...new Set(RUNS.flatMap((run) => Object.keys(run.settings)))].filter((name) => name !== "out" && new Set(RUNS.map((run) => JSON.stringify(run.settings[name]))).size > 1);
    const results = RUNS.map((run) => new Map(Object.entries(run.evaluation.metrics || {}).filter(([name]) => name !== "loss").map(([name, each]) => [title(name), `${short(each.value)} (${short(each.low)} – ${short(each.high)})`])));
    const figures = [...new Set(results.flatMap((each) => [...each.keys()]))];
    const row = (name, values) => h("tr", {}, rowHeading(name), values.map((each) => h("td", { class: "value" }, each === undefined ? "–" : shown(each))));
    const columns = () => [[""], ...RUNS.map((run, number) => [h("span", { style: `color:${seriesColor(number)}` }, run.name)])];
    return section("comparison", "Comparison", "Results on dev rows, cross-validated rows or held-out text, with 95% confidence intervals where available.",
      table("Results", columns(), h("tbody", {}, figures.map((name) => row(name, results.map((each) => each.get(name)))))),
      names.length ? h("details", {}, h("summary", {}, names.length > 1 ? `${names.length} settings differ` : "1 setting differs"), table("Settings that differ", columns(), h("tbody", {}, names.map((name) => row(words(name), RUNS.map((run) => run.settings[name])))))) : null);
  }

  // The page.

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  }

  function page() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", follow);
    follow();
    const several = RUNS.length > 1;
    const kind = (run) => (run.command === "pretrain" ? `pre-training, ${run.settings.objective}` : `fine-tuning, ${run.settings.task}`);
    document.title = several ? "bertmill: comparison of runs" : `bertmill: ${RUNS[0].name}`;
    const body = h("div", {});
    const links = h("nav", { "aria-label": "sections" });
    const tabs = several ? h("div", { class: "tabs", role: "group", "aria-label": "run" }) : null;
    function show(number) {
      const run = RUNS[number];
      if (tabs) replace(tabs, h("span", { class: "note" }, "Details of"), ...RUNS.map((each, place) => h("button", { "aria-pressed": String(place === number), onclick: () => { show(place); focusPressed(tabs); } }, each.name)));
      replace(body, [tiles(run), several ? null : curves(), metrics(run), classes(run), confusion(run), errors(run), predictions(run), attention(run), settings(run)].filter(Boolean));
      const sections = document.querySelectorAll("#report section");
      replace(links, [...sections].map((each) => h("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));
    }
    const theme = h("button", { onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark") }, "Switch theme");
    const heading = several ? `Comparison of ${RUNS.length} runs` : RUNS[0].name;
    const state = several ? "" : `${kind(RUNS[0])}${RUNS[0].is_finished ? "" : " (not finished)"}`;
    document.getElementById("report").append(
      h("header", { class: "top" }, h("h1", {}, heading), h("span", { class: "note" }, state), h("span", { class: "spring" }), theme), links,
      ...[several ? comparison() : null, several ? curves() : null, tabs, body, h("footer", {}, `Generated by bertmill ${DATA.version}.`)].filter(Boolean));
    document.body.append(live);
    show(0);
  }

  page();
})();
