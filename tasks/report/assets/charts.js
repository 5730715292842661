// Charts in the colours of the page's style, so that switching themes needs no redraw.

const data = JSON.parse(document.getElementById("data").textContent);
const ACCENT = "var(--accent)";
const MUTED = "var(--muted)";
const ALARM = "var(--alarm)";
const SOFT = "var(--soft)";
const LINE = "var(--line)";
const whole = d3.format(",");
const percent = d3.format(".0%");

function seconds(s) {
  if (s < 120) return `${s >= 10 ? Math.round(s) : +s.toFixed(1)} s`;
  return s < 7200 ? `${+(s / 60).toFixed(1)} min` : `${+(s / 3600).toFixed(1)} h`;
}

function drawParts(width) {
  const total = d3.sum(data.parts, (part) => part.ms);
  const parts = data.parts.map((part) => ({ ...part, isAnswer: part.name === "answer" }));
  return Plot.plot({
    width,
    height: 8 + parts.length * 24,
    marginTop: 4,
    marginBottom: 4,
    marginLeft: 84,
    marginRight: 110,
    x: { axis: null, domain: [0, d3.max(parts, (part) => part.ms)] },
    y: { label: null, tickSize: 0, domain: parts.map((part) => part.name) },
    marks: [
      Plot.barX(parts, { x: "ms", y: "name", fill: (part) => (part.isAnswer ? ACCENT : MUTED), insetTop: 3, insetBottom: 3 }),
      Plot.text(parts, {
        x: "ms",
        y: "name",
        text: (part) => `${seconds(part.ms / 1000)}  ${percent(part.ms / total)}`,
        textAnchor: "start",
        dx: 6,
        fill: SOFT,
      }),
    ],
  });
}

function drawTimeline(width) {
  const spans = data.timeline;
  const rowHeight = Math.max(6, Math.min(18, 420 / spans.length));
  const shards = spans.map((_, at) => at);
  const bar = (from, to, fill, inset) => ({
    x1: from, x2: to, y: (_, at) => at, fill, insetTop: inset[0], insetBottom: inset[1],
  });
  const half = rowHeight / 2;
  return Plot.plot({
    width,
    height: 48 + spans.length * rowHeight,
    marginTop: 4,
    marginLeft: 44,
    marginBottom: 44,
    x: { label: "time since the run started", labelOffset: 40, tickFormat: seconds, ticks: width / 110 },
    y: {
      domain: shards, padding: 0.15, label: "shard", tickSize: 0,
      ticks: shards.filter((at) => at % Math.ceil(spans.length / 12) === 0), tickFormat: (at) => spans[at].shard,
    },
    marks: [
      Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks: width / 110 }),
      Plot.barX(spans, bar("extract_from_s", "extract_to_s", MUTED, [0, half * 0.8])),
      Plot.barX(spans, bar("infer_from_s", "infer_to_s", ACCENT, [half * 0.8, 0])),
    ],
  });
}

function drawLabels(width) {
  const named = data.label_counts.map((each) => ({ ...each, name: each.label ?? "all others" }));
  const shorten = (name) => (name.length > 22 ? `${name.slice(0, 21)}…` : name);
  return Plot.plot({
    width,
    height: 8 + named.length * 24,
    marginTop: 4,
    marginBottom: 4,
    marginLeft: 20 + 6.4 * d3.max(named, (each) => shorten(each.name).length),
    marginRight: 70,
    x: { axis: null },
    y: { label: null, tickSize: 0, domain: named.map((each) => each.name), tickFormat: shorten },
    marks: [
      Plot.barX(named, { x: "jobs", y: "name", fill: (each) => (each.label === null ? MUTED : ACCENT), insetTop: 3, insetBottom: 3 }),
      Plot.text(named, { x: "jobs", y: "name", text: (each) => whole(each.jobs), textAnchor: "start", dx: 6, fill: SOFT }),
    ],
  });
}

function drawHistogram(bins, label, width) {
  const stacked = bins.flatMap((bin) => {
    const parts = [["right", ACCENT], ["wrong", "url(#hatch)"], ["unknown", data.known ? MUTED : ACCENT]];
    let from = 0;
    return parts.map(([name, fill]) => ({ low: bin.low, high: bin.high, from, to: (from += bin[name]), fill, name }));
  });
  return Plot.plot({
    width,
    height: 264,
    marginTop: 28,
    marginBottom: 44,
    marginLeft: 48,
    x: { label, labelOffset: 40, domain: [0, 1], ticks: 5 },
    y: { label: "jobs", grid: true, ticks: 4, tickFormat: "~s", nice: true },
    marks: [
      () => svgPattern(),
      Plot.rect(stacked.filter((bin) => bin.to > bin.from), {
        x1: "low", x2: "high", y1: "from", y2: "to", insetLeft: 1, insetRight: 1,
        fill: (bin) => bin.fill, stroke: (bin) => (bin.name === "wrong" ? ALARM : "none"), strokeWidth: 0.75,
      }),
      Plot.ruleY([0], { stroke: SOFT }),
    ],
    color: { type: "identity" },
  });
}

function svgPattern() {
  const svg = d3.create("svg:defs");
  const pattern = svg.append("pattern").attr("id", "hatch").attr("width", 4).attr("height", 4);
  pattern.attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
  pattern.append("line").attr("y2", 4).attr("stroke", ALARM).attr("stroke-width", 3);
  return svg.node();
}

function drawReliability(width) {
  return Plot.plot({
    width,
    height: Math.min(width, 380),
    marginTop: 28,
    marginBottom: 44,
    marginLeft: 52,
    x: { label: "probability of the label", labelOffset: 40, domain: [0, 1], ticks: 5, tickFormat: percent },
    y: { label: "accuracy", domain: [0, 1], ticks: 5, tickFormat: percent, grid: true },
    r: { range: [2, 12], domain: [0, d3.max(data.reliability, (bin) => bin.jobs)] },
    marks: [
      Plot.line([[0, 0], [1, 1]], { stroke: SOFT, strokeDasharray: "3 4" }),
      Plot.ruleX(data.reliability, { x: "confidence", y1: "confidence", y2: "accuracy", stroke: ACCENT, strokeOpacity: 0.5 }),
      Plot.dot(data.reliability, { x: "confidence", y: "accuracy", r: "jobs", fill: ACCENT, fillOpacity: 0.85 }),
    ],
  });
}

function drawTrade(width) {
  const specs = data.trade.specs;
  const colour = (spec) => (spec.is_baseline ? "var(--ink)" : ACCENT);
  return Plot.plot({
    width,
    height: 320,
    marginTop: 28,
    marginBottom: 44,
    marginLeft: 52,
    marginRight: 90,
    x: { label: "frames decoded", labelOffset: 40, domain: [0, 1.15 * d3.max(specs, (spec) => spec.frames)], ticks: width / 110, tickFormat: "~s" },
    y: { label: "accuracy", tickFormat: percent, grid: true, ticks: 5, nice: true },
    marks: [
      Plot.ruleX(specs, { x: "frames", y1: "low", y2: "high", stroke: colour, strokeWidth: 1.5 }),
      Plot.dot(specs, { x: "frames", y: "value", r: 5, fill: colour }),
      Plot.text(specs, { x: "frames", y: "value", text: "name", textAnchor: "start", dx: 9, fill: "var(--ink)" }),
    ],
  });
}

function drawDeltas(width) {
  const groups = data.trade.deltas;
  const points = (share) => d3.format("+.0f")(share * 100);
  return Plot.plot({
    width,
    height: 52 + groups.length * 26,
    marginTop: 4,
    marginBottom: 44,
    marginLeft: 30 + 6.4 * d3.max(groups, (group) => group.title.length),
    marginRight: 60,
    x: { label: "points", labelOffset: 40, grid: true, ticks: width / 110, tickFormat: points },
    y: { label: null, tickSize: 0, domain: groups.map((group) => group.title) },
    marks: [
      Plot.ruleX([0], { stroke: SOFT }),
      Plot.ruleY(groups, { y: "title", x1: "low", x2: "high", stroke: ACCENT, strokeWidth: 1.5 }),
      Plot.dot(groups, { y: "title", x: "value", r: 4, fill: ACCENT }),
      Plot.text(groups, { y: "title", x: "high", text: (group) => points(group.value), textAnchor: "start", dx: 8, fill: SOFT }),
    ],
  });
}

const CHARTS = {
  parts: drawParts,
  timeline: drawTimeline,
  labels: drawLabels,
  margins: (width) => drawHistogram(data.margins, "margin", width),
  choice_masses: (width) => drawHistogram(data.choice_masses, "probability", width),
  reliability: drawReliability,
  trade: drawTrade,
  deltas: drawDeltas,
};

for (const holder of document.querySelectorAll("[data-chart]")) {
  drawWhenSized(holder, CHARTS[holder.dataset.chart], holder.dataset.label);
}
