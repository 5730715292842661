// Shows the frames that each sampler would pick from a clip, computed by picks.js.

const sliders = Object.fromEntries(
  ["length", "fps", "gop", "keyframes", "frames", "sampler"].map((id) => [id, document.getElementById(id)]),
);
const replayRows = document.getElementById("replay-rows");
const MOST_TICKS = 400;
// The exact clip of a job until a slider is moved, since sliders clamp their values.
let given = null;

function readClip() {
  if (given) return given;
  const fps = Number(sliders.fps.value);
  const gop = Number(sliders.gop.value);
  const totalFrames = Math.max(1, Math.round(Number(sliders.length.value) * fps));
  return { fps, gop, totalFrames, numFrames: Number(sliders.frames.value), keyframes: placeKeyframes(totalFrames, gop) };
}

function replay() {
  const clip = readClip();
  sliders.keyframes.value = clip.keyframes.length;
  for (const [id, text] of Object.entries({
    length: `${+(clip.totalFrames / clip.fps).toFixed(1)} s`,
    fps: `${+clip.fps.toFixed(2)}`,
    gop: clip.gop === null ? "as in the file" : whole(clip.gop),
    keyframes: whole(clip.keyframes.length),
    frames: whole(clip.numFrames),
  })) document.getElementById(`${id}-out`).textContent = text;
  const name = sliders.sampler.value;
  const title = name.charAt(0).toUpperCase() + name.slice(1);
  replayRows.replaceChildren(
    replayedRow("Keyframes", "keyframes", clip, sampleKeyframes(clip)),
    replayedRow("Uniform", "uniform", clip, sampleUniformly(clip)),
    replayedRow(name === data.native_sampler ? `${title}, native to the model` : title, "sampler", clip, SAMPLERS[name](clip)),
  );
}

function replayedRow(title, id, clip, positions) {
  const spans = id === "keyframes" ? spansOfKeyframes(positions) : spansToDecode(positions, clip.keyframes);
  const repeats = countRepeats(positions);
  const decoded = countFrames(spans);
  const numbers = element("p", { class: "numbers", id: `numbers-${id}` });
  for (const [count, noun] of [[positions.length, "shown"], [repeats.length, "distinct"], [decoded, "decoded"]]) {
    numbers.append(element("b", { "data-count": noun }, whole(count)), ` ${noun}${noun === "decoded" ? ` of ${whole(clip.totalFrames)}` : ", "}`);
  }
  const track = element("div", { class: "track" });
  const row = element("div", { class: "replayed", id: `replay-${id}` }, element("h3", {}, title), numbers, track, repeatsNote(repeats, clip));
  queueMicrotask(() => place(track, replayPlot(track.clientWidth || 600, clip, spans, repeats), `${title}: ${numbers.textContent}.`));
  return row;
}

function repeatsNote(repeats, clip) {
  if (!repeats.length) return element("p", { class: "repeats" }, "This sampler takes no frames from a clip this short.");
  const listed = repeats.slice(0, 24).map(([position, times]) => `${(position / clip.fps).toFixed(2)} s${times > 1 ? ` ×${times}` : ""}`);
  return element("p", { class: "repeats" }, listed.join(", ") + (repeats.length > 24 ? `, and ${whole(repeats.length - 24)} more` : ""));
}

function replayPlot(width, clip, spans, repeats) {
  const at = (position) => position / clip.fps;
  const step = Math.ceil(clip.keyframes.length / MOST_TICKS);
  const shown = repeats.map(([position, times]) => ({ s: at(position), times }));
  return Plot.plot({
    width,
    height: 46,
    marginLeft: 10,
    marginRight: 14,
    marginTop: 4,
    marginBottom: 22,
    x: { domain: [0, at(clip.totalFrames)], label: null, tickFormat: seconds, ticks: width / 90 },
    y: { axis: null, domain: [-1, 1] },
    r: { range: [0, 8], domain: [0, Math.max(8, d3.max(shown, (frame) => frame.times) ?? 1)] },
    marks: [
      Plot.ruleY([0], { stroke: LINE, strokeWidth: 2 }),
      Plot.rect(spans, { x1: (span) => at(span[0]), x2: (span) => at(span[1] + 1), y1: -0.55, y2: 0.55, fill: MUTED, fillOpacity: 0.6 }),
      Plot.tickX(clip.keyframes.filter((_, number) => number % step === 0), { x: at, stroke: "var(--ink)", strokeOpacity: 0.7 }),
      Plot.dot(shown, { x: "s", y: 0, r: "times", fill: ACCENT }),
    ],
  });
}

// Number of frames in the file: as counted, or derived from its duration if the container does not specify it.
function replayJob(job, strip) {
  const fps = strip.fps || (strip.total_frames / strip.duration_s);
  const totalFrames = Math.max(1, strip.total_frames ?? Math.round(strip.duration_s * fps));
  const gop = Math.ceil(totalFrames / Math.max(1, strip.keyframes_in_file));
  const keyframes = strip.keyframe_times_s
    ?.map((s) => Math.round((s - strip.keyframe_times_s[0]) * fps))
    .filter((position) => position < totalFrames);
  given = {
    fps,
    gop: keyframes ? null : gop,
    totalFrames,
    numFrames: data.num_frames,
    keyframes: keyframes ?? placeKeyframes(totalFrames, gop),
  };
  sliders.fps.value = fps;
  sliders.length.value = totalFrames / fps;
  sliders.frames.value = data.num_frames;
  sliders.gop.value = gop;
  document.getElementById("replay-of").textContent = `The clip of ${job.job_id}, ${timeOf(strip.duration_s)} long.`;
  replay();
  document.getElementById("replay").scrollIntoView();
}

function moveSlider(event) {
  if (event.target === sliders.sampler) return replay();
  given = null;
  document.getElementById("replay-of").textContent = "Which frames would each sampler show of a clip like this?";
  const totalFrames = Math.max(1, Math.round(Number(sliders.length.value) * Number(sliders.fps.value)));
  if (event.target === sliders.keyframes) sliders.gop.value = Math.ceil(totalFrames / Number(sliders.keyframes.value));
  replay();
}

for (const slider of Object.values(sliders)) slider.addEventListener("input", moveSlider);
document.getElementById("replay-form").addEventListener("submit", (event) => event.preventDefault());
sliders.length.value = 30;
sliders.fps.value = 30;
sliders.gop.value = 250;
sliders.frames.value = data.num_frames;
sliders.sampler.append(...Object.keys(SAMPLERS).map((name) => element("option", {}, name)));
sliders.sampler.value = data.native_sampler in SAMPLERS ? data.native_sampler : "fps";
replay();
addEventListener("resize", replay);
