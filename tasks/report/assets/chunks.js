// The chunks of a job that was cut: their labels along the video, and the frames of one of them.

const MAX_CHIPS = 150;

// The job of an id, and the chunk that the id names; of a job that was cut, else the first one whose frames are here.
function findJob(id) {
  const [, jobId, number] = /^(.+)#(\d+)$/s.exec(id) ?? [];
  const named = jobs.get(id) ? undefined : jobs.get(jobId)?.chunks.find((chunk) => chunk.number === Number(number));
  const job = jobs.get(named ? jobId : id);
  if (!job || !job.chunks.length) return [job, undefined];
  return [job, named ?? job.chunks.find((chunk) => chunk.strip !== null) ?? job.chunks[0]];
}

function chunkId(job, chunk) {
  return `${job.job_id}#${chunk.number}`;
}

function placeOf(chunk) {
  return `from ${timeOf(chunk.start_s)} to ${chunk.end_s === null ? "the end" : timeOf(chunk.end_s)}`;
}

function noChunkFrames(job, chunk) {
  const id = chunkId(job, chunk);
  return `The frames of this chunk are not in this report. To see them, if the cache still has them: reelabel report ${data.run_id.slice(0, 8)} --job ${quoted(id)}`;
}

function chunkParts(job, chunk) {
  if (!chunk) return [];
  const groups = d3.rollups(job.chunks, (found) => found.length, (each) => each.label ?? each.code);
  const counts = groups.map(([outcome, count]) => `${outcome} ${whole(count)}`).join(", ");
  const outcome = chunk.label === null ? `${chunk.code}: ${chunk.message}` : `${chunk.label}, margin ${chunk.margin.toFixed(3)}`;
  return [
    element("h4", {}, "Chunks"),
    element("p", { class: "note" }, `${whole(job.chunks.length)} chunks: ${counts}.`),
    element("div", { class: "track", id: "chunks" }),
    job.chunks.length > 1 && job.chunks.length <= MAX_CHIPS ? chips(job, chunk) : null,
    element("p", { id: "shown-chunk" }, `${chunkId(job, chunk)}, ${placeOf(chunk)}: ${outcome}`),
  ];
}

function chips(job, chunk) {
  const buttons = job.chunks.map((each) => {
    const pressed = each === chunk ? "true" : "false";
    const button = element("button", { type: "button", "aria-pressed": pressed }, `#${each.number} ${each.label ?? each.code}`);
    button.addEventListener("click", () => openJob(chunkId(job, each), { focus: false }));
    return button;
  });
  return element("div", { class: "chips", role: "group", "aria-label": "Chunks" }, ...buttons);
}

function drawChunks(job, chunk) {
  const holder = document.getElementById("chunks");
  if (!holder) return;
  const length = job.chunks.length > 1 ? job.chunks[1].start_s - job.chunks[0].start_s : 1;
  const endS = data.strips[chunk.strip]?.duration_s ?? 0;
  const spans = job.chunks.map((each) => ({ ...each, toS: each.end_s ?? Math.max(endS, each.start_s + length) }));
  const label = `Timeline of ${spans.length} chunks: ${spans.filter((each) => each.label === job.facts.label).length} with the label of the job.`;
  drawWhenSized(holder, (width) => chunkPlot(width, spans, job, chunk), label);
}

function chunkPlot(width, spans, job, chunk) {
  const fill = (each) => (each.label === null ? ALARM : each.label === job.facts.label ? ACCENT : MUTED);
  const fromS = spans[0].start_s;
  const toS = spans[spans.length - 1].toS;
  const roomy = ((width - 24) * (spans[0].toS - fromS)) / (toS - fromS || 1) > 46;
  const middle = (each) => (each.start_s + each.toS) / 2;
  const shorten = (text) => (text.length > 6 ? `${text.slice(0, 5)}…` : text);
  return Plot.plot({
    width,
    height: 72,
    marginLeft: 10,
    marginRight: 14,
    marginTop: 16,
    marginBottom: 24,
    x: { domain: [fromS, toS], label: null, tickFormat: seconds, ticks: width / 90 },
    y: { axis: null, domain: [0, 1] },
    marks: [
      Plot.rect(spans, { x1: "start_s", x2: "toS", y1: 0, y2: 1, fill, insetLeft: 0.5, insetRight: 0.5 }),
      Plot.rect([spans.find((each) => each.number === chunk.number)], {
        x1: "start_s", x2: "toS", y1: 0, y2: 1, fill: "none", stroke: "var(--ink)", strokeWidth: 2,
      }),
      roomy ? Plot.text(spans, { x: middle, y: 1, dy: -8, text: (each) => shorten(each.label ?? each.code), fill: SOFT }) : null,
    ],
  });
}
