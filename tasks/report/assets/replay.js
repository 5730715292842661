// Replays which frames keyframes and uniform sampling choose of a clip, and how many are decoded for them: the
// arithmetic of reelabel/sampling and reelabel/decode, with which a test compares it.

const SVG = "http://www.w3.org/2000/svg";
const MOST_TICKS = 400;
const MOST_TIMES = 24;
const replayed = document.getElementById("replay");
const sliders = Object.fromEntries([...replayed.querySelectorAll("input")].map((input) => [input.id, input]));
const frames = new Map([...document.querySelectorAll("#frames-of-video li")].map((item) => [Number(item.dataset.position), item]));
// The exact clip of a job or video until its facts are changed, since sliders clamp their values.
let given = null;
const whole = (number) => number.toLocaleString("en");

function pickEvenly(available, wanted) {
  const picks = Array.from({ length: wanted }, (_, at) => at);
  if (available < wanted) return picks.map((at) => Math.floor((at * available) / wanted));
  if (wanted === 1) return [Math.floor(available / 2)];
  const gaps = wanted - 1;
  return picks.map((at) => Math.floor((2 * at * (available - 1) + gaps) / (2 * gaps)));
}

// NumPy's linspace: multiples of the step, with an exact last value.
function linspace(first, last, count) {
  const step = (last - first) / (count - 1);
  return Array.from({ length: count }, (_, at) => (at && at === count - 1 ? last : at ? first + at * step : first));
}

function placeKeyframes(totalFrames, gop) {
  return Array.from({ length: Math.ceil(totalFrames / gop) }, (_, number) => number * gop);
}

// The first and last frame of each run to decode.
function spansToDecode(positions, keyframes) {
  const spans = [];
  let at = 0;
  for (const position of positions) {
    while (at + 1 < keyframes.length && keyframes[at + 1] <= position) at += 1;
    const last = spans.at(-1);
    if (last && keyframes[at] <= last[1] + 1) last[1] = position;
    else spans.push([keyframes[at], position]);
  }
  return spans;
}

// What a sampler shows of a clip: frames with how often, and the spans decoded for them.
function choose(name, { keyframes, numFrames, totalFrames }) {
  const picks =
    name === "keyframes"
      ? pickEvenly(keyframes.length, numFrames).map((at) => keyframes[at])
      : linspace(0, totalFrames - 1, Math.min(numFrames, totalFrames)).map(Math.floor);
  const shown = new Map();
  for (const position of picks) shown.set(position, (shown.get(position) ?? 0) + 1);
  // Keyframes need no other frames.
  const spans = name === "keyframes" ? [...shown.keys()].map((position) => [position, position]) : spansToDecode(shown.keys(), keyframes);
  return { picks, shown: [...shown], spans, decoded: spans.reduce((sum, [first, last]) => sum + last - first + 1, 0) };
}

function draw(svg, { keyframes, totalFrames: end, fps }, { shown, spans }) {
  const at = (position) => `${1 + (98 * position) / end}%`;
  const most = Math.max(8, ...shown.map(([, times]) => times));
  const part = (name, attributes, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const bar = ([first, last], y, height, name) => part("rect", { x: at(first), width: `${(98 * (last + 1 - first)) / end}%`, y, height, class: name });
  const step = Math.ceil(keyframes.length / MOST_TICKS);
  const ticks = keyframes.filter((_, number) => number % step === 0);
  const gops = step > 1 ? [] : ticks.flatMap((first, number) => (number % 2 ? [[first, (ticks[number + 1] ?? end) - 1]] : []));
  svg.replaceChildren(
    ...gops.map((span) => bar(span, 4, 20, "gop")),
    part("line", { x1: "1%", x2: "99%", y1: 14, y2: 14, class: "grid" }),
    ...spans.map((span) => bar(span, 9, 10, "muted")),
    ...ticks.map((position) => part("line", { x1: at(position), x2: at(position), y1: 4, y2: 24, class: "tick" })),
    ...shown.map(([position, times]) => part("circle", { cx: at(position), cy: 14, r: (8 * Math.sqrt(times / most)).toFixed(1), class: "accent" })),
    ...[0, 1, 2, 3, 4].map((tick) => part("text", { x: at((end * tick) / 4), y: 42, "text-anchor": "middle" }, `${+((end * tick) / 4 / fps).toFixed(1)} s`)),
  );
}

// The item of a frame that the page has, with how often it is shown.
function drawFrame([position, times]) {
  const item = frames.get(position).cloneNode(true);
  if (item.firstChild.alt) item.firstChild.alt += `, shown ${times === 1 ? "once" : `${times} times`}`;
  if (times > 1) item.lastChild.append(Object.assign(document.createElement("b"), { textContent: `×${times}` }));
  return item;
}

function readClip() {
  const [fps, gop] = [Number(sliders.fps.value), Number(sliders.gop.value)];
  const totalFrames = Math.max(1, Math.round(Number(sliders.length.value) * fps));
  return { fps, gop, totalFrames, numFrames: Number(sliders.frames.value), keyframes: placeKeyframes(totalFrames, gop) };
}

function replay() {
  const clip = given ?? readClip();
  const title = given?.title ?? "Which frames would keyframes and uniform sampling show of a clip like this?";
  document.getElementById("replay-of").textContent = title;
  document.getElementById("replay-back").hidden = Boolean(given) || !replayed.dataset.clip;
  sliders.keyframes.value = clip.keyframes.length;
  const texts = {
    length: `${+(clip.totalFrames / clip.fps).toFixed(1)} s`,
    fps: +clip.fps.toFixed(2),
    gop: clip.gop === null ? "as in the file" : whole(clip.gop),
    keyframes: whole(clip.keyframes.length),
    frames: whole(clip.numFrames),
  };
  for (const [id, text] of Object.entries(texts)) document.getElementById(`${id}-out`).textContent = text;
  for (const row of document.querySelectorAll(".replayed")) {
    const { sampler } = row.dataset;
    const chosen = choose(sampler, clip);
    const counts = `${whole(chosen.picks.length)} shown, ${whole(chosen.shown.length)} distinct, ${whole(chosen.decoded)} decoded of ${whole(clip.totalFrames)}`;
    row.querySelector(".numbers").textContent = counts;
    row.querySelector("svg").ariaLabel = `${sampler}: ${counts}.`;
    draw(row.querySelector("svg"), clip, chosen);
    const hasFrames = given && frames.size;
    row.querySelector("ul")?.replaceChildren(...(hasFrames ? chosen.shown.map(drawFrame) : []));
    const times = chosen.shown.slice(0, MOST_TIMES).map(([position, times]) => `${(position / clip.fps).toFixed(2)} s${times > 1 ? ` ×${times}` : ""}`);
    const more = chosen.shown.length - times.length;
    row.querySelector(".repeats").textContent = hasFrames ? "" : times.join(", ") + (more ? `, and ${whole(more)} more` : "");
  }
}

// Starts from the clip of a job or video, whose keyframes may be known.
function replayClip(name, clip) {
  const numFrames = Number(sliders.frames.defaultValue);
  const lengthS = clip.totalFrames / clip.fps;
  for (const [id, value] of Object.entries({ fps: clip.fps, length: lengthS, frames: numFrames, gop: clip.gop })) sliders[id].value = value;
  const keyframes = clip.keyframes ?? placeKeyframes(clip.totalFrames, clip.gop);
  given = { ...clip, numFrames, keyframes, gop: clip.keyframes ? null : clip.gop, title: `${name}, ${lengthS.toFixed(2)} s long.` };
  replay();
}

function replayVideo() {
  if (replayed.dataset.clip) replayClip("The video", JSON.parse(replayed.dataset.clip));
  else replay();
}

document.getElementById("sliders").addEventListener("input", ({ target }) => {
  if (given && target === sliders.frames) {
    given.numFrames = Number(target.value);
  } else {
    given = null;
    if (target === sliders.keyframes) sliders.gop.value = Math.ceil(readClip().totalFrames / Number(target.value));
  }
  replay();
});
document.getElementById("replay-back").addEventListener("click", replayVideo);
for (const card of document.querySelectorAll(".card")) {
  card.addEventListener("click", ({ target: { dataset } }) => {
    if (!dataset.clip) return;
    replayClip(`The clip of ${card.id.slice("job-".length)}`, JSON.parse(dataset.clip));
    replayed.scrollIntoView();
  });
}
replayVideo();
// For the test that compares it with the Python code.
window.reelabelReplay = { choose, placeKeyframes };
