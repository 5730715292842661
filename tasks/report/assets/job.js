// Shows a job of the page by its id. Content from manifests is inserted as text, never as markup.

const jobs = new Map(data.jobs.map((job) => [job.job_id, job]));
const jobHolder = document.getElementById("shown-job");
const jobInput = document.getElementById("job-id");
const TIMES = {
  fetch_ms: "fetch", decode_ms: "decode", embed_ms: "embed", cache_write_ms: "cache write", cache_read_ms: "cache read",
  preprocess_ms: "preprocess", inference_ms: "inference",
};

function timeOf(s) {
  return `${s.toFixed(2)} s`;
}

function showJob(id) {
  const [job, chunk] = findJob(id);
  if (!job) {
    const command = `reelabel report ${data.run_id.slice(0, 8)} --job ${/^[\w./:@-]+$/.test(id) ? id : quoted(id)}`;
    jobHolder.replaceChildren(
      element("h3", {}, id),
      element("p", {}, `This job is not in this report. To create a report with it, if the run has it: `, element("code", {}, command)),
    );
    return;
  }
  const strip = data.strips[chunk ? chunk.strip : job.strip];
  jobHolder.replaceChildren(...describe(job, chunk, strip).filter((part) => part !== null));
  drawChunks(job, chunk);
  drawTrack(strip);
}

function quoted(id) {
  return `'${id.replaceAll("'", `'\\''`)}'`;
}

function describe(job, chunk, strip) {
  const { facts } = job;
  const [question, systemPrompt] = [data.texts[job.question], data.texts[job.system_prompt]];
  return [
    element("h3", {}, job.job_id),
    element("p", { class: "outcome" }, facts.label ?? facts.code),
    outcomeNote(job),
    job.choices ? probabilities(job) : null,
    ...chunkParts(job, chunk),
    element("h4", {}, chunk ? `Frames the model saw of ${chunkId(job, chunk)}` : "Frames the model saw"),
    ...(job.media.length && !chunk ? mediaParts(job) : strip ? stripParts(job, strip) : [element("p", { class: "note" }, chunk ? noChunkFrames(job, chunk) : job.no_strip)]),
    ...otherSamplers(job),
    element("h4", {}, "Question"),
    systemPrompt ? element("pre", { tabindex: "0", "aria-label": "System prompt" }, systemPrompt) : null,
    question
      ? element("pre", { tabindex: "0", "aria-label": "Question" }, question)
      : element("p", { class: "note" }, "The manifest no longer has this question."),
    job.video ? element("p", { class: "note" }, element("code", {}, job.video), segmentOf(job)) : null,
    element("h4", {}, "Time"),
    timings(facts),
  ];
}

function segmentOf(job) {
  if (job.start_s === null && job.end_s === null) return "";
  return `, from ${timeOf(job.start_s ?? 0)} to ${job.end_s === null ? "the end" : timeOf(job.end_s)}`;
}

function outcomeNote(job) {
  const { facts } = job;
  const parts = [facts.message];
  if (facts.margin !== undefined) parts.push(`margin ${facts.margin.toFixed(3)}`);
  if (facts.answer !== undefined) parts.push(facts.answer === facts.label ? "correct" : `correct answer: ${facts.answer}`);
  if (job.before !== null) parts.push(`previously ${job.before}`);
  if (facts.task) parts.push([facts.task, facts.subtask].filter(Boolean).join(", "));
  parts.push(`listed as: ${job.reasons.join(", ")}`);
  return element("p", { class: "note" }, parts.filter(Boolean).join(" · "));
}

function probabilities(job) {
  const rows = job.choices.map(([text, share]) => {
    const bar = element("i");
    bar.style.width = `${share * 100}%`;
    const isChosen = text === job.facts.label;
    return element(
      "div", { class: isChosen ? "row chosen" : "row" },
      element("dt", {}, text),
      element("dd", { class: "track", "aria-hidden": "true" }, bar),
      element("dd", { class: "share" }, share.toFixed(3)),
    );
  });
  return element("dl", { class: "bars" }, ...rows);
}

function stripItems(strip) {
  const repeats = new Map(countRepeats(strip.picks));
  return strip.frames.map((frame, at) => {
    const times = repeats.get(at) ?? 0;
    const name = `Frame at ${timeOf(frame.time_s)}, shown ${times === 1 ? "once" : `${times} times`}`;
    return element(
      "li", {},
      frame.image ? element("img", { src: frame.image, alt: name, loading: "lazy" }) : element("i", { class: "none" }),
      element("span", {}, timeOf(frame.time_s), times > 1 ? element("b", {}, `×${times}`) : null),
    );
  });
}

// What other samplers chose of the same video, if an earlier run left it in the cache: nothing is decoded for a page.
function otherSamplers(job) {
  if (!job.others.length) return [];
  const rows = job.others.map((number) => data.strips[number]).flatMap((strip) => [
    element("h5", {}, strip.sampler),
    element("p", { class: "note" }, `${whole(strip.picks.length)} frames, ${whole(strip.frames.length)} distinct, ${whole(strip.frames_decoded)} decoded in ${strip.decode_ms.toFixed(1)} ms`),
    element("ul", { class: "strip" }, ...stripItems(strip)),
  ]);
  return [element("h4", {}, "Frames of other samplers, from the cache"), ...rows];
}

function stripParts(job, strip) {
  const inFile = `${whole(strip.keyframes_in_file)} keyframe${strip.keyframes_in_file === 1 ? "" : "s"}`;
  const summary = `${whole(strip.picks.length)} frames shown, ${whole(strip.frames.length)} distinct, ${strip.width_px}×${strip.height_px} pixels; the file has ${inFile} in ${timeOf(strip.duration_s)}.`;
  const coverage = job.facts.coverage ? `Its keyframes may not be enough: ${job.facts.coverage.replaceAll("_", " ").replaceAll(",", ", ")}.` : "";
  const replayButton = element("button", { type: "button", id: "replay-this" }, "Replay its picks");
  replayButton.addEventListener("click", () => replayJob(job, strip));
  return [
    element("ul", { class: "strip" }, ...stripItems(strip)),
    element("div", { class: "track", id: "track" }),
    element("p", { class: "note" }, [summary, coverage, job.facts.decode_note ?? strip.note].filter(Boolean).join(" ")),
    strip.total_frames || strip.fps ? replayButton : null,
  ].filter(Boolean);
}

// Each of several videos and images, in the order in which the model saw them.
function mediaParts(job) {
  return job.media.flatMap((medium, at) => {
    const strip = data.strips[medium.strip];
    return [
      element("h5", {}, `${at + 1}. ${medium.kind === "image" ? "Image" : "Video"} `, element("code", {}, medium.uri)),
      strip ? element("ul", { class: "strip" }, ...stripItems(strip)) : element("p", { class: "note" }, medium.no_strip),
      strip && medium.kind === "video" ? element("p", { class: "note" }, `${whole(strip.picks.length)} frames shown, ${whole(strip.frames.length)} distinct, by ${strip.sampler}.`) : null,
    ].filter(Boolean);
  });
}

function framesBy(facts) {
  const decoded = facts.frames_decoded === undefined ? "" : `, ${whole(facts.frames_decoded)} decoded`;
  return `${facts.sampler ?? "frames"} by ${facts.decode_method || "the cache"}${decoded}`;
}

function timings(facts) {
  const rows = Object.entries(TIMES).filter(([key]) => facts[key] !== undefined && (facts[key] || key !== "embed_ms"));
  if (!rows.length) return element("p", { class: "note" }, `Failed in stage ${facts.stage}.`);
  const text = rows.map(([key, name]) => `${name} ${facts[key].toFixed(1)} ms`).join(" · ");
  const tokens = `${whole(facts.prompt_tokens)} prompt tokens, ${whole(facts.cached_tokens)} of them cached`;
  return element("p", { class: "note" }, [text, tokens, framesBy(facts), `shard ${facts.shard_index}`].join(" · "));
}

// Timeline of the whole file: keyframes as ticks, shown frames as dots, larger if repeated.
function drawTrack(strip) {
  const holder = document.getElementById("track");
  if (!holder || !strip) return;
  const shown = countRepeats(strip.picks).map(([at, times]) => ({ ...strip.frames[at], times }));
  const keyframes = strip.keyframe_times_s ?? strip.frames.filter((frame) => frame.is_keyframe).map((frame) => frame.time_s);
  const endS = Math.max(strip.duration_s, d3.max(shown, (frame) => frame.time_s));
  const known = strip.keyframe_times_s ? "keyframes" : "decoded keyframes";
  const label = `Timeline of the file, ${timeOf(endS)}: ${keyframes.length} ${known}, ${shown.length} frames shown.`;
  drawWhenSized(holder, (width) => trackPlot(width, { keyframes, shown, endS }), label);
}

function trackPlot(width, { keyframes, shown, endS }) {
  return Plot.plot({
    width,
    height: 64,
    marginLeft: 10,
    marginRight: 14,
    marginTop: 12,
    marginBottom: 24,
    x: { domain: [0, endS || 1], label: null, tickFormat: seconds, ticks: width / 90 },
    y: { axis: null, domain: [-1, 1] },
    r: { range: [0, 8], domain: [0, Math.max(8, d3.max(shown, (frame) => frame.times))] },
    marks: [
      Plot.ruleY([0], { stroke: LINE, strokeWidth: 2 }),
      Plot.tickX(keyframes, { x: (s) => s, stroke: "var(--ink)", strokeOpacity: 0.7, insetTop: 4, insetBottom: 4 }),
      Plot.dot(shown, { x: "time_s", y: 0, r: "times", fill: ACCENT }),
      Plot.text(shown.filter((frame) => frame.times > 1), {
        x: "time_s", y: 1, dy: -4, text: (frame) => `×${frame.times}`, fill: ACCENT, fontWeight: 600,
      }),
    ],
  });
}

function openJob(id, { focus = true } = {}) {
  jobInput.value = id;
  showJob(id);
  if (focus) document.getElementById("job").scrollIntoView();
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  if (jobInput.value.trim()) showJob(jobInput.value.trim());
});
for (const link of document.querySelectorAll("[data-job]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    openJob(link.dataset.job);
  });
}

// One button per reason; pressing it again shows the next job with that reason.
const byReason = d3.group(data.jobs.flatMap((job) => job.reasons.map((reason) => ({ reason, id: job.job_id }))), (each) => each.reason);
for (const [reason, found] of byReason) {
  let at = 0;
  const button = element("button", { type: "button" }, `${reason} (${whole(found.length)})`);
  button.addEventListener("click", () => openJob(found[at++ % found.length].id, { focus: false }));
  document.getElementById("reasons").append(button);
}
