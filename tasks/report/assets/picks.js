// Frame selection: an exact port of reelabel/sampling.
// A test compares every function with its Python counterpart on thousands of clips.

const TEMPORAL_PATCH = 2; // frames that Qwen's and GLM's models merge into one
const LANES = 8;
const UNROLLED = 2 * LANES;
const TIMES_A_SECOND = 2;
const MOST_FRAMES = 768;

// NumPy's linspace: multiples of the step, with an exact last value.
function linspace(first, last, count) {
  const step = (last - first) / (count - 1);
  return Array.from({ length: count }, (_, at) => (at && at === count - 1 ? last : at ? first + at * step : first));
}

function roundHalfToEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2) ? floor + 1 : floor;
}

function floorToEven(count) {
  return Math.floor(count / TEMPORAL_PATCH) * TEMPORAL_PATCH;
}

function pickEvenly(available, wanted) {
  const picks = Array.from({ length: wanted }, (_, at) => at);
  if (available < wanted) return picks.map((at) => Math.floor((at * available) / wanted));
  if (wanted === 1) return [Math.floor(available / 2)];
  const gaps = wanted - 1;
  return picks.map((at) => Math.floor((2 * at * (available - 1) + gaps) / (2 * gaps)));
}

function sampleKeyframes(clip) {
  return pickEvenly(clip.keyframes.length, clip.numFrames).map((at) => clip.keyframes[at]);
}

function sampleUniformly(clip) {
  return linspace(0, clip.totalFrames - 1, Math.min(clip.numFrames, clip.totalFrames)).map(Math.floor);
}

// torch.arange(0, total, total / count).int() on a CPU, with identical rounding.
function arangeAsTorch(total, count) {
  const step = total / count;
  const length = Math.ceil(total / step);
  const inVectors = Math.floor(length / UNROLLED) * UNROLLED;
  return Array.from({ length }, (_, at) => {
    const lane = at % LANES;
    const exact = at < inVectors ? Math.fround(step * (at - lane)) + lane * step : step * at;
    return Math.trunc(Math.fround(exact));
  });
}

function sampleQwen2(clip) {
  const wanted = (clip.totalFrames / clip.fps) * TIMES_A_SECOND;
  const most = floorToEven(Math.min(MOST_FRAMES, clip.totalFrames));
  const count = floorToEven(Math.min(Math.max(wanted, 4), most));
  if (!count) return [];
  return arangeAsTorch(clip.totalFrames, count).map((at) => Math.min(at, clip.totalFrames - 1));
}

function sampleQwen3(clip) {
  const wanted = Math.trunc((clip.totalFrames / clip.fps) * TIMES_A_SECOND);
  const count = Math.min(Math.max(wanted, 4), MOST_FRAMES, clip.totalFrames);
  return linspace(0, clip.totalFrames - 1, count).map(roundHalfToEven);
}

function sampleOpenPangu(clip) {
  const last = clip.totalFrames - 1;
  let lastS = last / clip.fps;
  let count = clip.numFrames;
  const paced = Math.trunc(lastS * TIMES_A_SECOND) + 1;
  if (count >= paced) {
    count = paced;
    lastS = Math.min(lastS, (count - 1) / TIMES_A_SECOND);
  }
  return linspace(0, lastS, count).map((s) => Math.min(roundHalfToEven(s * clip.fps), last));
}

function sampleAtRate(clip) {
  const lastS = (clip.totalFrames - 1) / clip.fps;
  const paced = Math.floor(lastS * TIMES_A_SECOND + 1e-6) + 1;
  const instants =
    paced <= MOST_FRAMES
      ? Array.from({ length: paced }, (_, at) => at / TIMES_A_SECOND)
      : linspace(0, lastS, MOST_FRAMES);
  return nearestFrames(clip, instants);
}

function sampleCount(clip) {
  return nearestFrames(clip, linspace(0, (clip.totalFrames - 1) / clip.fps, clip.numFrames));
}

// NumPy's median: the mean of the two in the middle.
function median(values) {
  const ordered = Float64Array.from(values).sort();
  const half = ordered.length >> 1;
  return ordered.length % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2;
}

// The middles of equal parts of the time that the frames fill; the last one fills as much as the others do.
function sampleMiddles(clip) {
  const times = Array.from({ length: clip.totalFrames }, (_, at) => at / clip.fps);
  const lastS = times.length > 1 ? median(d3.pairs(times, (before, after) => after - before)) : 0;
  const partS = (times.at(-1) + lastS) / clip.numFrames;
  return nearestFrames(clip, d3.range(clip.numFrames).map((at) => (at + 0.5) * partS));
}

// The frame nearest to each instant; the earlier one of a tie, which rounding seldom leaves exact.
function nearestFrames(clip, instants) {
  const times = Array.from({ length: clip.totalFrames }, (_, at) => at / clip.fps);
  return instants.map((instant) => {
    const after = Math.min(d3.bisectLeft(times, instant), clip.totalFrames - 1);
    const before = Math.max(after - 1, 0);
    return instant - times[before] <= times[after] - instant + 1e-6 ? before : after;
  });
}

function unique(positions) {
  return [...new Set(positions)];
}

function sampleDynamically(clip) {
  const last = clip.totalFrames - 1;
  const lengthS = clip.totalFrames / clip.fps;
  const firstFrom = (positions) => unique(positions.map((position) => Math.min(Math.ceil(position), last)));
  if (lengthS <= 300) {
    return firstFrom(Array.from({ length: Math.floor(lengthS * TIMES_A_SECOND) }, (_, at) => (at * clip.fps) / TIMES_A_SECOND));
  }
  if (clip.totalFrames <= 600) return d3.range(clip.totalFrames);
  return firstFrom(linspace(0, lengthS, 600).map((s) => s * clip.fps));
}

// For each whole step, the first frame at or after it that has not been picked yet.
function walk(clip, stepS, endS) {
  const most = Math.min(clip.totalFrames, Math.trunc(endS / stepS) + 2);
  const frameS = 1 / clip.fps;
  const taken = [];
  let dueS = 0;
  for (let turn = 0, at = 0; turn < most && (turn === 0 || dueS < endS); turn += 1, dueS += stepS, at += 1) {
    while (at < clip.totalFrames && at * frameS < dueS) at += 1;
    if (at >= clip.totalFrames) break;
    taken.push(at);
  }
  return taken;
}

// Spread evenly if the walk found too many or too few.
function respread(clip, walked, count) {
  if (walked.length === count) return walked;
  const [first, last] = walked.length > count ? [0, clip.totalFrames - 1] : [walked[0], walked.at(-1)];
  return linspace(first, last, count).map(Math.floor);
}

// Without repeats; then the last frame is repeated if their number is odd.
function paired(positions) {
  const once = unique(positions);
  return once.length % TEMPORAL_PATCH ? [...once, once.at(-1)] : once;
}

function sampleGlm46(clip) {
  const lengthS = Math.min(clip.totalFrames / clip.fps, 2400);
  const pairs = lengthS <= 30 ? 3 : lengthS <= 300 ? 1 : 0.5;
  const count = Math.min(Math.trunc(lengthS * pairs * TEMPORAL_PATCH), 640);
  if (clip.totalFrames < count) return paired(linspace(0, clip.totalFrames - 1, count).map(Math.floor));
  return paired(respread(clip, walk(clip, 1 / (TEMPORAL_PATCH * pairs), Math.trunc(lengthS)), count));
}

function sampleGlm5Next(clip) {
  const lengthS = clip.totalFrames / clip.fps;
  const count = Math.min(Math.trunc(lengthS * TIMES_A_SECOND), 2048);
  if (clip.totalFrames < count) return paired(d3.range(count).map((at) => Math.floor((at * clip.totalFrames) / count)));
  return paired(respread(clip, walk(clip, 1 / (TEMPORAL_PATCH * TIMES_A_SECOND), Math.trunc(lengthS)), count));
}

function sampleGlmga(clip) {
  const lengthS = clip.totalFrames / clip.fps;
  const count = Math.min(Math.trunc(lengthS * TIMES_A_SECOND), 640, clip.totalFrames);
  return paired(respread(clip, walk(clip, 1 / TIMES_A_SECOND, lengthS - 1 / TIMES_A_SECOND), count));
}

function sampleLlavaOnevision2(clip) {
  const wanted = clip.totalFrames / clip.fps; // one a second
  const most = Math.min(floorToEven(clip.numFrames), clip.totalFrames);
  const count = Math.max(floorToEven(Math.min(Math.max(wanted, 4), most)), 2);
  return linspace(0, clip.totalFrames - 1, count).map(roundHalfToEven);
}

function sampleEmbeddingGemma2(clip) {
  const count = Math.max(1, Math.trunc(clip.totalFrames / clip.fps)); // one a second
  const steps = count <= 32 ? d3.range(count) : linspace(0, count - 1, 32).map(Math.floor);
  return steps.map((step) => Math.trunc(Math.min(step * clip.fps, clip.totalFrames - 1)));
}

function sampleMinimaxM3(clip) {
  const stepS = 1 - 1e-4;
  const picks = [0];
  for (;;) {
    const dueS = picks.at(-1) / clip.fps + stepS;
    const next = Math.max(Math.ceil(dueS * clip.fps), picks.at(-1) + 1);
    if (next >= clip.totalFrames) return picks;
    picks.push(next);
  }
}

function sampleClefOmni(clip) {
  const at = d3.range(MOST_FRAMES + 1).map((step) => Math.max(0, Math.ceil(step * (clip.fps / TIMES_A_SECOND) - 1e-6)));
  const picks = at.filter((position) => position < clip.totalFrames);
  if (picks.length > MOST_FRAMES) return [];
  return picks.length % 2 ? [...picks, picks.at(-1)] : picks;
}

function sampleMolmo2(clip) {
  const last = clip.totalFrames - 1;
  if (clip.totalFrames < 3) return d3.range(clip.totalFrames);
  if (clip.totalFrames / clip.fps > (clip.numFrames - 1) / TIMES_A_SECOND) {
    return linspace(0, last, Math.min(clip.numFrames, clip.totalFrames)).map(Math.floor);
  }
  const step = clip.fps / TIMES_A_SECOND;
  const spaced = Array.from({ length: Math.ceil(last / step) }, (_, at) => at * step);
  if (roundHalfToEven(spaced.at(-1)) !== last) spaced.push(last);
  return spaced.length <= clip.numFrames ? spaced.map(roundHalfToEven) : [];
}

// Keyed by the names of dense samplers in reelabel/sampling; samplers missing here cannot be replayed.
const SAMPLERS = {
  uniform: sampleUniformly,
  qwen2_vl: sampleQwen2,
  qwen3_vl: sampleQwen3,
  glm46v: sampleGlm46,
  glm5_next: sampleGlm5Next,
  glmga: sampleGlmga,
  dynamic: sampleDynamically,
  molmo2: sampleMolmo2,
  openpangu: sampleOpenPangu,
  llava_onevision2: sampleLlavaOnevision2,
  minimax_m3_vl: sampleMinimaxM3,
  embedding_gemma2: sampleEmbeddingGemma2,
  clef_omni: sampleClefOmni,
  fps: sampleAtRate,
  num_frames: sampleCount,
  middles: sampleMiddles,
};

// First and last frame of each range to decode, as in reelabel/strategies/gop.py.
function spansToDecode(positions, keyframes) {
  const spans = [];
  for (const position of new Set(positions)) {
    const start = keyframes[d3.bisectRight(keyframes, position) - 1];
    const run = spans.at(-1);
    if (run && start <= run[1] + 1) run[1] = position;
    else spans.push([start, position]);
  }
  return spans;
}

function spansOfKeyframes(positions) {
  return [...new Set(positions)].map((position) => [position, position]);
}

function countFrames(spans) {
  return d3.sum(spans, ([first, last]) => last - first + 1);
}

// Distinct frames, with their number of repeats.
function countRepeats(positions) {
  return d3.rollups(positions, (same) => same.length, (position) => position);
}

// Positions of keyframes with a fixed GOP.
function placeKeyframes(totalFrames, gop) {
  return d3.range(0, totalFrames, gop);
}

window.reelabelPicks = {
  SAMPLERS,
  countFrames,
  countRepeats,
  pickEvenly,
  placeKeyframes,
  sampleKeyframes,
  sampleUniformly,
  spansToDecode,
};
