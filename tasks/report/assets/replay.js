// Replays which frames keyframes and uniform sampling choose of a clip, and how many are decoded for them: the
// arithmetic of reelabel/sampling and reelabel/decode, with which a test compares it.

const SVG = "http://www.w3.org/2000/svg";
const MOST_TICKS = 400;
const sliders = Object.fromEntries(["length", "fps", "gop", "keyframes", "frames"].map((id) => [id, document.getElementById(id)]));
const LIKE_THIS = "Which frames would keyframes and uniform sampling show of a clip like this?";
const section = document.getElementById("replay");
const images = new Map([...document.querySelectorAll("#images img")].map((image) => [Number(image.dataset.position), image]));
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

// The first and last frame of each run to decode; keyframes need no other frames.
function spansToDecode(positions, keyframes) {
  const spans = [];
  let at = 0;
  for (const position of positions) {
    while (at + 1 < keyframes.length && keyframes[at + 1] <= position) at += 1;
    const last = spans[spans.length - 1];
    if (last && keyframes[at] <= last[1] + 1) last[1] = position;
    else spans.push([keyframes[at], position]);
  }
  return spans;
}

const SAMPLERS = {
  keyframes: (clip) => pickEvenly(clip.keyframes.length, clip.numFrames).map((at) => clip.keyframes[at]),
  uniform: (clip) => linspace(0, clip.totalFrames - 1, Math.min(clip.numFrames, clip.totalFrames)).map(Math.floor),
};

// What a sampler shows of a clip: frames with how often, and the spans decoded for them.
function choose(name, clip) {
  const picks = SAMPLERS[name](clip);
  const shown = new Map();
  for (const position of picks) shown.set(position, (shown.get(position) ?? 0) + 1);
  const distinct = [...shown.keys()];
  const spans = name === "keyframes" ? distinct.map((position) => [position, position]) : spansToDecode(distinct, clip.keyframes);
  return { picks, shown: [...shown], spans, decoded: spans.reduce((sum, [first, last]) => sum + last - first + 1, 0) };
}

function draw(svg, clip, { shown, spans }) {
  const end = clip.totalFrames;
  const at = (position) => `${1 + (98 * position) / end}%`;
  const most = Math.max(8, ...shown.map(([, times]) => times));
  const part = (name, attributes, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const step = Math.ceil(clip.keyframes.length / MOST_TICKS);
  const ticks = clip.keyframes.filter((_, number) => number % step === 0);
  const gops = step > 1 ? [] : ticks.flatMap((first, number) => (number % 2 ? [[first, (ticks[number + 1] ?? end) - 1]] : []));
  const bar = ([first, last], y, height, name) => part("rect", { x: at(first), width: `${(98 * (last + 1 - first)) / end}%`, y, height, class: name });
  const lengthS = end / clip.fps;
  svg.replaceChildren(
    ...gops.map((span) => bar(span, 4, 20, "gop")),
    part("line", { x1: "1%", x2: "99%", y1: 14, y2: 14, class: "grid" }),
    ...spans.map((span) => bar(span, 9, 10, "muted")),
    ...ticks.map((position) => part("line", { x1: at(position), x2: at(position), y1: 4, y2: 24, class: "tick" })),
    ...shown.map(([position, times]) => part("circle", { cx: at(position), cy: 14, r: (8 * Math.sqrt(times / most)).toFixed(1), class: "accent" })),
    ...[0, 1, 2, 3, 4].map((tick) => part("text", { x: at((end * tick) / 4), y: 42, "text-anchor": "middle" }, `${+((lengthS * tick) / 4).toFixed(1)} s`)),
  );
}

// The frames themselves, if the page has them.
function drawFrames(strip, items) {
  strip.replaceChildren(...items.map(([position, times]) => {
    const image = images.get(position)?.cloneNode() ?? document.createElement("i");
    const time = image.dataset.time ?? `${(position / given.fps).toFixed(2)} s`;
    image.className = image.src ? "" : "none";
    image.alt = `Frame at ${time}, shown ${times === 1 ? "once" : `${times} times`}`;
    const caption = document.createElement("span");
    const repeat = document.createElement("b");
    repeat.textContent = times > 1 ? `×${times}` : "";
    caption.append(time, repeat);
    const item = document.createElement("li");
    item.append(image, caption);
    return item;
  }));
}

function readClip() {
  if (given) return given;
  const [fps, gop] = [Number(sliders.fps.value), Number(sliders.gop.value)];
  const totalFrames = Math.max(1, Math.round(Number(sliders.length.value) * fps));
  return { fps, gop, totalFrames, numFrames: Number(sliders.frames.value), keyframes: placeKeyframes(totalFrames, gop) };
}

function replay() {
  const clip = readClip();
  if (!given) document.getElementById("replay-of").textContent = LIKE_THIS;
  document.getElementById("replay-back").hidden = Boolean(given) || !section.dataset.clip;
  sliders.keyframes.value = clip.keyframes.length;
  const texts = {
    length: `${+(clip.totalFrames / clip.fps).toFixed(1)} s`,
    fps: `${+clip.fps.toFixed(2)}`,
    gop: clip.gop === null ? "as in the file" : whole(clip.gop),
    keyframes: whole(clip.keyframes.length),
    frames: whole(clip.numFrames),
  };
  for (const [id, text] of Object.entries(texts)) document.getElementById(`${id}-out`).textContent = text;
  for (const name of Object.keys(SAMPLERS)) {
    const row = document.getElementById(`replay-${name}`);
    const chosen = choose(name, clip);
    const counts = `${whole(chosen.picks.length)} shown, ${whole(chosen.shown.length)} distinct, ${whole(chosen.decoded)} decoded of ${whole(clip.totalFrames)}`;
    row.querySelector(".numbers").textContent = counts;
    row.querySelector("svg").setAttribute("aria-label", `${name}: ${counts}.`);
    draw(row.querySelector("svg"), clip, chosen);
    const withFrames = given && images.size;
    if (images.size) drawFrames(row.querySelector("ul"), withFrames ? chosen.shown : []);
    const listed = (withFrames ? [] : chosen.shown).slice(0, 24).map(([position, times]) => `${(position / clip.fps).toFixed(2)} s${times > 1 ? ` ×${times}` : ""}`);
    const more = chosen.shown.length - listed.length;
    row.querySelector(".repeats").textContent = listed.join(", ") + (more && !withFrames ? `, and ${whole(more)} more` : "");
  }
}

// Starts from the clip of a job or video, whose keyframes may be known.
function replayClip(text, clip) {
  const numFrames = Number(sliders.frames.defaultValue);
  given = { ...clip, numFrames, gop: clip.keyframes ? null : clip.gop, keyframes: clip.keyframes ?? placeKeyframes(clip.totalFrames, clip.gop) };
  sliders.fps.value = clip.fps;
  sliders.length.value = clip.totalFrames / clip.fps;
  sliders.frames.value = numFrames;
  sliders.gop.value = clip.gop;
  document.getElementById("replay-of").textContent = `${text}, ${(clip.totalFrames / clip.fps).toFixed(2)} s long.`;
  replay();
}

function replayVideo() {
  replayClip("The video", JSON.parse(section.dataset.clip));
}

document.getElementById("sliders").addEventListener("input", (event) => {
  if (given && event.target === sliders.frames) {
    given.numFrames = Number(sliders.frames.value);
  } else {
    given = null;
    const totalFrames = Math.max(1, Math.round(Number(sliders.length.value) * Number(sliders.fps.value)));
    if (event.target === sliders.keyframes) sliders.gop.value = Math.ceil(totalFrames / Number(sliders.keyframes.value));
  }
  replay();
});
document.getElementById("sliders").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("replay-back").addEventListener("click", replayVideo);
document.addEventListener("click", ({ target }) => {
  if (target.tagName !== "BUTTON" || !target.dataset.clip) return;
  replayClip(`The clip of ${target.closest(".card").id.slice("job-".length)}`, JSON.parse(target.dataset.clip));
  section.scrollIntoView();
});
if (section.dataset.clip) replayVideo();
else replay();
// For the test that compares it with the Python code.
window.reelabelReplay = { choose, placeKeyframes };
