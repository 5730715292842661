// Replays which frames keyframes and uniform sampling choose of a clip, and how many are decoded for them: the
// arithmetic of reelabel/sampling and reelabel/decode, with which a test compares it.

const MOST_TICKS = 400;
const MOST_TIMES = 24;
const replayed = document.getElementById("replay");
const sliders = [...replayed.querySelectorAll("input")];
const frames = new Map([...document.querySelectorAll("#frames-of-video li")].map((item) => [Number(item.dataset.position), item]));
const whole = (number) => number.toLocaleString("en");
// The name of a job's or video's clip, and its keyframes if they are known; otherwise each GOP begins with one.
let [name, known] = [null, null];

function pickEvenly(available, wanted) {
  const picks = Array.from({ length: wanted }, (_, at) => at);
  if (available < wanted) return picks.map((at) => Math.floor((at * available) / wanted));
  if (wanted === 1) return [Math.floor(available / 2)];
  const gaps = wanted - 1;
  return picks.map((at) => Math.floor((2 * at * (available - 1) + gaps) / (2 * gaps)));
}

// As NumPy's linspace: multiples of the step, with an exact last value.
function pickUniformly(available, wanted) {
  const picks = Array.from({ length: Math.min(wanted, available) }, (_, at) => at);
  const step = (available - 1) / Math.max(1, picks.length - 1);
  return picks.map((at) => (at && at === picks.length - 1 ? available - 1 : Math.floor(at * step)));
}

const placeKeyframes = (totalFrames, gop) => Array.from({ length: Math.ceil(totalFrames / gop) }, (_, number) => number * gop);

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
function choose(sampler, { numFrames, totalFrames, keyframes }) {
  const picks = sampler === "keyframes" ? pickEvenly(keyframes.length, numFrames).map((at) => keyframes[at]) : pickUniformly(totalFrames, numFrames);
  const shown = new Map();
  for (const position of picks) shown.set(position, (shown.get(position) ?? 0) + 1);
  const spans = spansToDecode(shown.keys(), keyframes);
  return { picks, shown, spans, decoded: spans.reduce((sum, [first, last]) => sum + last - first + 1, 0) };
}

// Returns markup, which holds only numbers.
function draw({ keyframes, totalFrames, fps }, { shown, spans }) {
  const at = (position, left = 1) => `${left + (98 * position) / totalFrames}%`;
  const most = Math.max(8, ...shown.values());
  const every = Math.ceil(keyframes.length / MOST_TICKS);
  return [
    '<line x1="1%" x2="99%" y1="14" y2="14" class="grid"/>',
    ...spans.map(([first, last]) => `<rect x="${at(first)}" width="${at(last + 1 - first, 0)}" y="9" height="10" class="muted"/>`),
    ...keyframes.filter((_, number) => number % every === 0).map((first) => `<line x1="${at(first)}" x2="${at(first)}" y1="4" y2="24" class="tick"/>`),
    ...[...shown].map(([position, times]) => `<circle cx="${at(position)}" cy="14" r="${8 * Math.sqrt(times / most)}" class="accent"/>`),
    ...[0, 0.25, 0.5, 0.75, 1].map((part) => `<text x="${1 + 98 * part}%" y="42" text-anchor="middle">${+((part * totalFrames) / fps).toFixed(1)} s</text>`),
  ].join("");
}

// The frame, if the page has it, or else its time; and how often it is shown.
function makeItem(position, times, fps) {
  const item = (frames.get(position) ?? document.createElement("li")).cloneNode(true);
  if (!item.firstChild) item.append(Object.assign(document.createElement("span"), { textContent: `${(position / fps).toFixed(2)} s` }));
  if (times > 1) item.lastChild.append(Object.assign(document.createElement("b"), { textContent: `×${times}` }));
  return item;
}

function replay() {
  const [numFrames, lengthS, fps, gop] = sliders.map((slider) => slider.valueAsNumber);
  const totalFrames = Math.max(1, Math.round(lengthS * fps));
  const clip = { numFrames, fps, totalFrames, keyframes: known ?? placeKeyframes(totalFrames, gop) };
  const texts = [whole(numFrames), `${+lengthS.toFixed(1)} s`, +fps.toFixed(2), known ? "as in the file" : whole(gop)];
  sliders.forEach((slider, number) => (slider.previousElementSibling.textContent = texts[number]));
  const title = `${name ?? "A clip of this length and GOP"}: ${whole(clip.keyframes.length)} keyframe`;
  document.getElementById("replay-of").textContent = clip.keyframes.length === 1 ? `${title}.` : `${title}s.`;
  for (const row of replayed.querySelectorAll(".replayed")) {
    const { picks, shown, spans, decoded } = choose(row.dataset.sampler, clip);
    row.querySelector(".numbers").textContent =
      `${whole(picks.length)} shown, ${whole(shown.size)} distinct, ${whole(decoded)} decoded of ${whole(totalFrames)}`;
    row.querySelector("svg").innerHTML = draw(clip, { shown, spans });
    const items = [...shown].slice(0, frames.size || MOST_TIMES).map(([position, times]) => makeItem(position, times, fps));
    row.querySelector("ul").replaceChildren(...items);
    if (shown.size > items.length) row.querySelector("ul").insertAdjacentHTML("beforeend", `<li><span>and ${whole(shown.size - items.length)} more</span></li>`);
  }
}

// Moves the sliders to the clip of a job or video, beyond their range if necessary. The length then has steps of one
// frame. A browser rounds a value to whole steps from the minimum, which is therefore moved by less than a step.
function replayClip(title, { fps, totalFrames, gop, keyframes }) {
  const values = { length: totalFrames / fps, fps, gop };
  for (const slider of sliders) {
    const value = Number(values[slider.id] ?? slider.defaultValue);
    const step = slider.id === "length" ? 1 / fps : Number(slider.step);
    slider.step = step;
    slider.min = value < 1 ? value : 1 + ((value - 1) % step);
    slider.max = Math.max(slider.max, value + step / 2);
    slider.value = value;
  }
  [name, known] = [title, keyframes];
  replay();
}

document.getElementById("sliders").addEventListener("input", ({ target }) => {
  if (target.id !== "frames") [name, known] = [null, null];
  replay();
});
document.getElementById("cards")?.addEventListener("click", ({ target }) => {
  if (!target.dataset.clip) return;
  replayClip(`The clip of ${target.closest(".card").id.slice("job-".length)}`, JSON.parse(target.dataset.clip));
  replayed.scrollIntoView();
});
if (replayed.dataset.clip) replayClip("The video", JSON.parse(replayed.dataset.clip));
else replay();
// For the test that compares it with the Python code.
window.reelabelReplay = { choose, placeKeyframes };
