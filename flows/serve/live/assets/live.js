// The camera, and what the server says of each frame and question.

import { LiveSession } from "/live/session.js";

const byId = (id) => document.getElementById(id);
const video = byId("video");
const canvas = document.createElement("canvas");
const LONG_SIDE_PX = 640; // models scale frames down further
const QUALITY = 0.85;
const SHOWN_FRAMES = 160;
const SHOWN_KEPT = 8;
const SHOWN_ANSWERS = 50;
const AUDIO_HZ = 16000;
const SHOWN_CHANGES = 6; // of a standing question

let session = null;
let isWanted = false; // between Start and Stop
let stream = null;
let microphone = null; // its stream and its audio context, while it is on
let speaker = null; // its audio context, the answer that it plays, and when that ends
let audioS = 0; // seconds of audio sent
let audioEndS = 0;
let frameTimer = 0;
let startedAt = 0;
let frames = new Map(); // by frame_id: when it was sent, its tick, its thumbnail
let queries = new Map(); // by query_id: its item in the list
let nextId = 0;
let counts = {};
let ackMs = [];

function showState(text, kind = "idle") {
  byId("state").textContent = text;
  byId("state").dataset.kind = kind;
}

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

function count(name, number = 1) {
  counts[name] = (counts[name] ?? 0) + number;
  byId(name).textContent = counts[name].toLocaleString("en");
}

async function openDevice(name, wanted) {
  try {
    return await navigator.mediaDevices.getUserMedia(wanted);
  } catch (error) {
    const why = { NotAllowedError: "it was not allowed", NotFoundError: "there is none", NotReadableError: "another program uses it" };
    throw new Error(`The ${name} cannot be used: ${why[error.name] ?? error.message}.`);
  }
}

// The camera

async function openCamera() {
  if (!navigator.mediaDevices) {
    throw new Error("The browser gives the camera only to pages from this machine or by https.");
  }
  const chosen = byId("camera").value;
  const wanted = { width: { ideal: 1280 }, height: { ideal: 720 }, ...(chosen ? { deviceId: { exact: chosen } } : {}) };
  stream = await openDevice("camera", { video: wanted });
  video.srcObject = stream;
  await video.play();
  byId("no-camera").hidden = true;
  video.parentElement.style.aspectRatio = `${video.videoWidth} / ${video.videoHeight}`;
  stream.getVideoTracks()[0].addEventListener("ended", () => stop("The camera has ended."));
  const cameras = (await navigator.mediaDevices.enumerateDevices()).filter((each) => each.kind === "videoinput");
  const id = stream.getVideoTracks()[0].getSettings().deviceId;
  byId("camera").replaceChildren(
    ...cameras.map((each, index) =>
      element("option", { value: each.deviceId, textContent: each.label || `camera ${index + 1}`, selected: each.deviceId === id }),
    ),
  );
}

function closeCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  video.srcObject = null;
  byId("no-camera").hidden = false;
}

function sendFrame() {
  if (!session?.isOpen || !video.videoWidth) return;
  const scale = Math.min(1, LONG_SIDE_PX / Math.max(video.videoWidth, video.videoHeight));
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  const time_s = (performance.now() - startedAt) / 1000;
  const to = session;
  canvas.toBlob(
    (blob) => {
      const frame_id = String(nextId++);
      if (to !== session || !to.sendFrame(blob, { frame_id, time_s })) return;
      const tick = byId("ribbon").appendChild(element("i", { className: "waiting" }));
      while (byId("ribbon").childElementCount > SHOWN_FRAMES) byId("ribbon").firstElementChild.remove();
      frames.set(frame_id, { at: performance.now(), tick, blob, time_s });
      count("sent");
    },
    "image/jpeg",
    QUALITY,
  );
}

function showAck(ack) {
  const sent = frames.get(ack.frame_id);
  count(ack.status);
  if (ack.evicted) count("evicted-window", ack.evicted);
  byId("ribbon").setAttribute(
    "aria-label",
    `${counts.sent ?? 0} frames sent: ${counts.kept ?? 0} kept, ${counts.similar ?? 0} similar.`,
  );
  if (!sent) return;
  frames.delete(ack.frame_id);
  sent.tick.className = ack.status;
  ackMs = [...ackMs.slice(-99), performance.now() - sent.at];
  byId("ack-ms").textContent = median(ackMs).toFixed(0);
  byId("last").textContent = { kept: "kept", similar: "similar, not kept", evicted: "too late" }[ack.status];
  if (ack.status === "kept") showKept(sent, ack);
}

function showKept(sent, ack) {
  const url = URL.createObjectURL(sent.blob);
  const time = `${(ack.time_s ?? sent.time_s).toFixed(1)} s`;
  const image = element("img", { src: url, alt: `Frame kept at ${time}` });
  byId("frames").append(element("li", {}, image, element("span", { textContent: time })));
  while (byId("frames").childElementCount > SHOWN_KEPT) {
    URL.revokeObjectURL(byId("frames").firstElementChild.querySelector("img").src);
    byId("frames").firstElementChild.remove();
  }
}

// The microphone

async function openMicrophone() {
  const sound = await openDevice("microphone", { audio: { channelCount: 1 } });
  let context = null;
  try {
    context = new AudioContext({ sampleRate: AUDIO_HZ });
    await context.audioWorklet.addModule("/live/microphone.js");
    const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = ({ data }) => sendAudio(data);
    context.createMediaStreamSource(sound).connect(node);
  } catch (error) {
    sound.getTracks().forEach((track) => track.stop());
    context?.close();
    throw new Error(`This browser cannot read the microphone at 16 kHz: ${error.message}`);
  }
  microphone = { sound, context };
}

function closeMicrophone() {
  microphone?.sound.getTracks().forEach((track) => track.stop());
  microphone?.context.close();
  microphone = null;
}

async function switchMicrophone() {
  const wanted = byId("microphone");
  if (!wanted || !isWanted || wanted.checked === Boolean(microphone)) return;
  if (!wanted.checked) return closeMicrophone();
  wanted.disabled = true; // until it is open
  try {
    await openMicrophone();
  } catch (error) {
    wanted.checked = false;
    showState(error.message, "fault");
  }
  wanted.disabled = false;
  if (!isWanted) closeMicrophone();
}

function sendAudio(samples) {
  // A frame comes first, as the clock of a session begins with what it is sent first.
  if (!counts.sent || !session) return;
  const seconds = samples.byteLength / 2 / AUDIO_HZ;
  const time_s = Math.max(audioEndS, (performance.now() - startedAt) / 1000 - seconds); // never before the last one's end
  if (!session.sendAudio(samples, { time_s })) return;
  audioEndS = time_s + seconds;
  audioS += seconds;
  byId("audio").textContent = audioS.toFixed(0);
}

// The session

function connect() {
  const modalities = byId("speech") ? ["text", "audio"] : ["text"];
  const begun = new LiveSession(location.href, { token: byId("token")?.value || null, config: { modalities } });
  session = begun;
  begun.addEventListener("message", ({ data, speech }) => begun === session && onEvent(data, speech));
  begun.addEventListener("lost", () => {
    if (begun !== session || !isWanted) return;
    byId("send").disabled = true;
    showState("The connection was lost; connecting again.", "fault");
  });
  begun.addEventListener("end", ({ why }) => {
    if (begun !== session || !isWanted) return;
    const refused = `The server refused the connection${byId("token") ? "; check the token" : " or is not there"}.`;
    const ended = byId("state").dataset.kind === "fault" ? byId("state").textContent : "The session has ended.";
    stop(why === "refused" ? refused : why ?? ended);
  });
}

function onEvent(event, speech) {
  switch (event.type) {
    case "response.audio":
      play(event, speech);
      break;
    case "session.created":
      if (event.is_resumed) forgetFrames(); // those that never arrived are never acknowledged
      byId("send").disabled = !isWanted;
      if (isWanted) showState(`Live: ${event.model}`, "live");
      byId("about").textContent = `Session ${event.session_id}`;
      break;
    case "frame.ack":
    case "video.frame.ack":
      showAck(event);
      break;
    case "response.text.delta":
      queries.get(event.query)?.text.append(event.delta);
      break;
    case "response.start": {
      if (speaker?.query === event.query) silence(); // it begins again, as the engine was lost
      const item = queries.get(event.query_id);
      if (!item) break;
      item.text.textContent = "";
      queries.set(event.query, item);
      break;
    }
    case "response.done":
      showAnswer(event);
      break;
    case "session.notice":
      if (event.code === "standing_ended") endStanding(event);
      else if (isWanted) showState(event.message, event.code === "engine_lost" ? "fault" : "live");
      break;
    case "error":
      showError(event);
  }
}

// Speech

function play(event, speech) {
  if (!byId("speech").checked) return;
  speaker ??= { context: new AudioContext(), endS: 0 };
  speaker.query = event.query;
  const samples = Float32Array.from(new Int16Array(speech), (sample) => sample / 2 ** 15);
  const buffer = new AudioBuffer({ length: samples.length, sampleRate: event.sample_rate });
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(speaker.context, { buffer });
  source.connect(speaker.context.destination);
  const startS = Math.max(speaker.context.currentTime, speaker.endS); // after the piece before
  source.start(startS);
  speaker.endS = startS + buffer.duration;
}

function silence() {
  speaker?.context.close();
  speaker = null;
}

function forgetFrames() {
  for (const sent of frames.values()) sent.tick.remove();
  count("sent", -frames.size);
  frames.clear();
}

function showError(event) {
  const item = queries.get(event.query_id);
  if (item) {
    item.text.classList.remove("pending");
    item.text.textContent = "No answer";
    item.note.textContent = event.message;
    if (!item.isStanding || event.query === null) forget(event, item);
    return;
  }
  frames.get(event.frame_id)?.tick.classList.replace("waiting", "refused");
  frames.delete(event.frame_id);
  showState(event.message, "fault");
}

// Questions

function forget(event, item) {
  queries.delete(event.query_id);
  queries.delete(event.query);
  item.cancel.remove();
}

function endStanding(event) {
  const item = queries.get(event.query_id);
  if (!item) return;
  forget(event, item);
  item.text.classList.remove("pending");
  item.often.textContent = "Ended";
}

function ask() {
  const text = byId("question").value.trim();
  if (!text || !session?.isOpen) return;
  const choices = byId("choices").value.split("|").map((choice) => choice.trim()).filter(Boolean);
  const often = byId("every").selectedOptions[0];
  const isChange = often.value === "change";
  if (isChange && choices.length < 2) {
    showState("To be told when an answer changes, give its choices.", "fault");
    return;
  }
  const isStanding = often.value !== "0";
  const standing = isChange ? { on_change: true } : isStanding ? { every_s: Number(often.value) } : {};
  const query_id = session.ask(text, { ...(choices.length ? { choices } : {}), ...standing });
  const item = {
    at: performance.now(),
    choices,
    isStanding,
    text: element("p", { className: "outcome pending" }),
    bars: element("dl", { className: "bars", hidden: true }),
    note: element("p", { className: "note" }),
    often: element("span", { className: "often", textContent: isStanding ? often.textContent : "" }),
    cancel: element("button", { type: "button", className: "cancel", textContent: "Cancel" }),
    changes: element("ol", { className: "changes", hidden: true }),
  };
  item.cancel.setAttribute("aria-label", `Cancel: ${text}`);
  item.cancel.addEventListener("click", () => {
    session?.cancel(query_id);
    silence();
  });
  item.changes.setAttribute("aria-label", "Earlier answers");
  const head = element("div", { className: "head" }, element("h2", { textContent: text }), item.often, item.cancel);
  byId("answers").prepend(element("li", {}, head, item.text, item.bars, item.note, item.changes));
  while (byId("answers").childElementCount > SHOWN_ANSWERS) byId("answers").lastElementChild.remove();
  queries.set(query_id, item);
}

function showAnswer(done) {
  const item = queries.get(done.query_id);
  if (!item) return;
  queries.delete(done.query);
  if (!item.isStanding) forget(done, item);
  item.text.classList.remove("pending");
  item.text.textContent = done.text || (done.finish_reason === "cancelled" ? "Cancelled" : "");
  if (item.isStanding) showChange(item, done);
  if (done.finish_reason === "cancelled") {
    item.note.textContent = "Cancelled before its end.";
    return;
  }
  if (done.probabilities) showBars(item, done);
  const here = performance.now() - item.at;
  item.note.textContent =
    `First token after ${done.first_token_ms.toFixed(0)} ms, whole answer after ${done.total_ms.toFixed(0)} ms` +
    (item.isStanding ? " · " : ` (${here.toFixed(0)} ms at this browser) · `) +
    `${done.frames_used} ${done.frames_used === 1 ? "frame" : "frames"}, the last at ${done.last_frame_s.toFixed(1)} s · ` +
    (done.turns ? `${done.turns} earlier ${done.turns === 1 ? "question" : "questions"} · ` : "") +
    (done.audio_s ? `${done.audio_s.toFixed(1)} s of audio · ` : "") +
    (done.speech_s ? `${done.speech_s.toFixed(1)} s of speech · ` : "") +
    `${done.prompt_tokens} tokens, ${done.cached_tokens} of them prefilled`;
}

function showBars(item, done) {
  item.bars.hidden = false;
  item.bars.replaceChildren(
    ...done.probabilities.map((share, index) => {
      const fill = element("i", { className: index === done.choice ? "accent" : "" });
      fill.style.width = `${share * 100}%`;
      return element(
        "div",
        { className: "row" },
        element("dt", { textContent: item.choices[index] }),
        element("dd", { className: "track" }, fill),
        element("dd", { className: "share", textContent: `${(share * 100).toFixed(1)}%` }),
      );
    }),
  );
}

// The latest answer to a standing question is shown as any answer is, above its earlier ones.
function showChange(item, done) {
  if (item.latest) {
    item.changes.prepend(element("li", { textContent: item.latest }));
    item.changes.hidden = false;
    while (item.changes.childElementCount > SHOWN_CHANGES) item.changes.lastElementChild.remove();
  }
  item.latest = `${done.last_frame_s.toFixed(1)} s: ${done.text}`;
}

// Start, stop, forms

async function start() {
  isWanted = true;
  [counts, ackMs] = [{}, []];
  frames.clear();
  queries.clear();
  for (const id of ["sent", "kept", "similar", "evicted", "evicted-window"]) byId(id).textContent = "0";
  byId("ribbon").replaceChildren();
  byId("frames").replaceChildren();
  byId("start").textContent = "Stop";
  byId("start").dataset.running = "true";
  showState("Opening the camera.");
  try {
    await openCamera();
  } catch (error) {
    stop(error.message);
    return;
  }
  if (!isWanted) return closeCamera();
  startedAt = performance.now();
  [audioS, audioEndS] = [0, 0];
  if (byId("audio")) byId("audio").textContent = "0";
  showState("Connecting.");
  connect();
  setPace();
  switchMicrophone();
}

function stop(why = "Stopped.") {
  const isFault = why !== "Stopped.";
  isWanted = false;
  clearInterval(frameTimer);
  session?.finish();
  for (const item of queries.values()) {
    item.text.classList.remove("pending");
    item.cancel.remove();
    if (item.isStanding) item.often.textContent = "Ended";
  }
  closeCamera();
  closeMicrophone();
  silence();
  byId("last").textContent = "";
  byId("send").disabled = true;
  byId("start").textContent = "Start";
  byId("start").dataset.running = "false";
  showState(why, isFault ? "fault" : "idle");
}

function setPace() {
  clearInterval(frameTimer);
  if (isWanted) frameTimer = setInterval(sendFrame, 1000 / Number(byId("fps").value));
}

byId("session").addEventListener("submit", (event) => {
  event.preventDefault();
  isWanted ? stop() : start();
});
byId("fps").addEventListener("change", setPace);
byId("camera").addEventListener("change", async () => {
  if (!isWanted) return;
  stream?.getTracks().forEach((track) => track.stop());
  try {
    await openCamera();
  } catch (error) {
    stop(error.message);
  }
});
byId("microphone")?.addEventListener("change", switchMicrophone);
byId("speech")?.addEventListener("change", () => byId("speech").checked || silence());
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
addEventListener("pagehide", () => session?.close());
