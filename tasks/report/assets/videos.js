// Searches the described videos of the page, and shows one: its film strip by scenes, and its tags over time. Content
// of videos and banks is inserted as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const ACCENT = "var(--accent)";
const SOFT = "var(--soft)";
const whole = d3.format(",");
const MAX_HITS = 50;
const MAX_ROWS = 8;
const videos = new Map(data.videos.map((video) => [video.id, video]));
const queryInput = document.getElementById("query");
const hitHolder = document.getElementById("hits");
const foundHolder = document.getElementById("found");
const videoHolder = document.getElementById("shown-video");

function clock(s) {
  const shown = Math.round(s * 10) / 10; // before it is cut into minutes, or 59.97 would be 0:60.0
  const minutes = Math.floor(shown / 60);
  const rest = (shown - minutes * 60).toFixed(1).padStart(4, "0");
  if (minutes < 60) return `${minutes}:${rest}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

// The best moment of a video whose texts have all words of the query, or the video itself if its ID has them.
function bestMoment(video, fits) {
  const moments = video.parts.flatMap(([start, end, tags, caption]) => [
    ...tags.filter(([text]) => fits[text]).map(([text, score]) => ({ text, score, start, end })),
    ...(caption !== null && fits[caption] ? [{ text: caption, score: 0, start, end }] : []),
  ]);
  const own = [...video.tags, ...(video.caption ? [video.caption] : [])].filter(([text]) => fits[text]);
  moments.push(...own.map(([text, score]) => ({ text, score, start: 0, end: video.length })));
  return d3.greatest(moments, (moment) => moment.score);
}

function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const hasAll = (text) => words.every((word) => text.toLowerCase().includes(word));
  const fits = data.texts.map(hasAll);
  const hits = data.videos.flatMap((video) => {
    const moment = bestMoment(video, fits);
    if (moment) return [{ video, ...moment }];
    return hasAll(video.id) ? [{ video, text: null, score: -1, start: 0, end: video.length }] : [];
  });
  return d3.sort(hits, (hit) => -hit.score);
}

function show(query) {
  const hits = search(query);
  const more = hits.length > MAX_HITS ? `, the best ${MAX_HITS} of which are listed` : "";
  foundHolder.textContent = query.trim() ? `${whole(hits.length)} of ${whole(data.videos.length)} videos${more}.` : "";
  hitHolder.replaceChildren(...hits.slice(0, query.trim() ? MAX_HITS : 12).map(hitItem));
  if (hits.length) showVideo(hits[0].video.id);
  else videoHolder.replaceChildren();
}

function hitItem({ video, text, score, start, end }) {
  const button = element("button", { type: "button", "data-video": video.id }, video.id);
  button.addEventListener("click", () => showVideo(video.id, { focus: true }));
  const what = text === null ? "" : `${data.texts[text]}${score > 0 ? `, ${score.toFixed(3)}` : ""}`;
  const when = end - start < video.length ? `${clock(start)} to ${clock(end)}` : "";
  return element("li", {}, button, " ", element("span", { class: "note" }, [what, when].filter(Boolean).join(" · ")));
}

function showVideo(id, { focus = false } = {}) {
  const video = videos.get(id);
  const tags = video.tags.map(([text, score]) => `${data.texts[text]} ${score.toFixed(3)}`).join(" · ");
  const scenes = `${whole(video.scenes.length)} scene${video.scenes.length === 1 ? "" : "s"}, ${whole(video.changes)} change${video.changes === 1 ? "" : "s"} found by ${video.method}`;
  videoHolder.replaceChildren(...[
    element("h3", {}, video.id),
    element("p", { class: "outcome" }, video.caption ? data.texts[video.caption[0]] : "no caption"),
    element("p", { class: "note" }, `${clock(video.length)} · ${tags || "no tags"}`),
    element("h4", {}, "Film strip"),
    ...stripParts(video),
    element("p", { class: "note" }, [scenes, ...video.notes].join(". ")),
    element("h4", {}, "Tags over time"),
    video.parts.length
      ? element("div", { class: "track", id: "tags" })
      : element("p", { class: "note" }, "Its chunks did not fit into this report."),
    captionsOverTime(video),
    video.uri ? element("p", { class: "note" }, element("code", {}, video.uri)) : null,
  ].filter((part) => part !== null));
  drawTags(video);
  if (focus) videoHolder.scrollIntoView();
}

// The frames, scene by scene; a scene without a frame on the page is told as well.
function stripParts(video) {
  if (!video.strip.length) return [element("p", { class: "note" }, video.no_strip)];
  const scenes = video.scenes.length ? video.scenes : [[0, video.length, 1]];
  const numberOf = (time) => Math.max(0, d3.bisectRight(scenes.map(([start]) => start), time + 1e-3) - 1);
  const byScene = d3.group(video.strip, (frame) => numberOf(frame.time_s));
  const groups = scenes.map(([start, end], number) => {
    const frames = (byScene.get(number) ?? []).map((frame) => element(
      "li", {},
      element("img", { src: frame.image, alt: `Frame at ${clock(frame.time_s)}`, loading: "lazy" }),
      element("span", {}, clock(frame.time_s)),
    ));
    const title = `scene ${number + 1}, ${clock(start)} to ${clock(end)}`;
    return element("li", { class: "scene" }, element("p", {}, title), frames.length ? element("ul", { class: "strip" }, ...frames) : null);
  });
  return [element("ol", { class: "scenes" }, ...groups)];
}

function captionsOverTime(video) {
  const spans = [];
  for (const [start, end, , caption] of video.parts) {
    const last = spans[spans.length - 1];
    if (last && last.caption === caption) last.end = end;
    else spans.push({ start, end, caption });
  }
  if (spans.length < 2) return null;
  const items = spans.slice(0, 40).map(({ start, end, caption }) => element(
    "li", {}, element("span", { class: "note" }, `${clock(start)} to ${clock(end)} `), caption === null ? "no frames" : data.texts[caption],
  ));
  return element("ol", { class: "captions" }, ...items);
}

function drawTags(video) {
  const holder = document.getElementById("tags");
  if (!holder) return;
  const cells = video.parts.flatMap(([start, end, tags]) => tags.map(([text, score]) => ({ start, end, text: data.texts[text], score })));
  const order = d3.rollups(cells, (of) => d3.sum(of, (cell) => cell.score * (cell.end - cell.start)), (cell) => cell.text);
  const rows = d3.sort(order, ([, sum]) => -sum).slice(0, MAX_ROWS).map(([text]) => text);
  const kept = cells.filter((cell) => rows.includes(cell.text));
  const label = `Tags over time, by their score: ${rows.join(", ")}.`;
  drawWhenSized(holder, (width) => tagPlot(width, video, kept, rows), label);
}

function tagPlot(width, video, cells, rows) {
  const borders = video.scenes.slice(1).map(([start]) => start);
  const shorten = (text) => (text.length > 18 ? `${text.slice(0, 17)}…` : text);
  const fromS = video.parts[0][0];
  const toS = video.parts[video.parts.length - 1][1];
  const [low, high] = d3.extent(cells, (cell) => cell.score);
  return Plot.plot({
    width,
    height: 44 + rows.length * 22,
    marginLeft: 130,
    marginRight: 14,
    marginTop: 6,
    marginBottom: 28,
    x: { domain: [fromS, Math.max(toS, fromS + 1e-3)], label: null, tickFormat: clock, ticks: width / 130 },
    y: { domain: rows, label: null, tickSize: 0, padding: 0.15, tickFormat: shorten },
    marks: [
      Plot.rect(cells, {
        x1: "start", x2: "end", y: "text", fill: ACCENT,
        fillOpacity: (cell) => 0.15 + 0.85 * (high > low ? (cell.score - low) / (high - low) : 1),
        title: (cell) => `${cell.text} ${cell.score.toFixed(3)}`,
      }),
      Plot.ruleX(borders, { stroke: "var(--ink)", strokeOpacity: 0.7 }),
      Plot.text(rows.length ? [] : [0], { text: () => "no tags", fill: SOFT, frameAnchor: "middle" }),
    ],
  });
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  show(queryInput.value);
});
queryInput.addEventListener("input", () => show(queryInput.value));
for (const button of document.querySelectorAll("[data-query]")) {
  button.addEventListener("click", () => {
    queryInput.value = button.dataset.query;
    show(button.dataset.query);
    document.getElementById("videos").scrollIntoView();
  });
}
show("");
