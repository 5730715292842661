// The camera, the session, and what the server says of each frame and question.

const byId = (id) => document.getElementById(id);
const video = byId("video");
const canvas = document.createElement("canvas");
const LONG_SIDE_PX = 640; // models see less
const QUALITY = 0.85;
const SHOWN_FRAMES = 160;
const SHOWN_KEPT = 8;
const SHOWN_ANSWERS = 50;
const AUDIO_HZ = 16000;
const RESUME_EVERY_MS = 1000;
const MAX_WAITING_BYTES = 2 ** 20; // of a slow line: newer frames are then not sent

let socket = null; // null while nothing is connected
let session = null; // what session.created said, and the last event received
let isWanted = false; // between Start and Stop
let lostAt = 0;
let stream = null;
let microphone = null; // its stream and its audio context, while it is on
let audioS = 0; // seconds of audio sent
let audioEndS = 0;
let frameTimer = 0;
let askTimer = 0;
let startedAt = 0;
let frames = new Map(); // by frame_id: when it was sent, its tick, its thumbnail
let queries = new Map(); // by query_id: its item in the list
let asked = []; // all questions, in order: the server has received the first so many
let isRecounting = false;
let nextId = 0;
let counts = {};
let ackMs = [];

function tell(text, kind = "idle") {
  byId("state").textContent = text;
  byId("state").dataset.kind = kind;
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
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
  if (socket?.readyState !== WebSocket.OPEN || !session || !video.videoWidth) return;
  if (socket.bufferedAmount > MAX_WAITING_BYTES) return;
  const scale = Math.min(1, LONG_SIDE_PX / Math.max(video.videoWidth, video.videoHeight));
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  const time_s = (performance.now() - startedAt) / 1000;
  const to = socket;
  canvas.toBlob(
    (blob) => {
      if (to !== socket || to.readyState !== WebSocket.OPEN) return;
      const frame_id = String(nextId++);
      const tick = byId("ribbon").appendChild(element("i", { className: "waiting" }));
      while (byId("ribbon").childElementCount > SHOWN_FRAMES) byId("ribbon").firstElementChild.remove();
      frames.set(frame_id, { at: performance.now(), tick, blob, time_s });
      to.send(JSON.stringify({ type: "video.frame", frame_id, time_s }));
      to.send(blob); // the picture follows its announcement
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
  const heard = await openDevice("microphone", { audio: { channelCount: 1 } });
  let context = null;
  try {
    context = new AudioContext({ sampleRate: AUDIO_HZ });
    await context.audioWorklet.addModule("/live/microphone.js");
    const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = ({ data }) => sendAudio(data);
    context.createMediaStreamSource(heard).connect(node);
  } catch (error) {
    heard.getTracks().forEach((track) => track.stop());
    context?.close();
    throw new Error(`This browser cannot read the microphone at 16 kHz: ${error.message}`);
  }
  microphone = { heard, context };
}

function closeMicrophone() {
  microphone?.heard.getTracks().forEach((track) => track.stop());
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
    tell(error.message, "fault");
  }
  wanted.disabled = false;
  if (!isWanted) closeMicrophone();
}

function sendAudio(samples) {
  // A frame comes first, as the clock of a session begins with what it is sent first.
  if (!counts.sent || socket?.readyState !== WebSocket.OPEN || !session) return;
  if (socket.bufferedAmount > MAX_WAITING_BYTES) return;
  const seconds = samples.byteLength / 2 / AUDIO_HZ;
  const time_s = Math.max(audioEndS, (performance.now() - startedAt) / 1000 - seconds); // never before the last one's end
  audioEndS = time_s + seconds;
  audioS += seconds;
  socket.send(JSON.stringify({ type: "audio.chunk", time_s }));
  socket.send(samples); // the audio follows its announcement
  byId("audio").textContent = audioS.toFixed(0);
}

// The session

function connect() {
  const address = new URL("/v1/video/chat/stream", location.href);
  address.protocol = address.protocol.replace("http", "ws");
  if (byId("token")) address.searchParams.set("token", byId("token").value);
  const opened = new WebSocket(address);
  socket = opened;
  opened.addEventListener("open", () => {
    const resumed = session && { type: "session.resume", session_id: session.session_id, resume_token: session.resume_token, last_seq: session.seq };
    opened.send(JSON.stringify(resumed ?? { type: "session.config", modalities: ["text"] }));
  });
  opened.addEventListener("message", (message) => {
    if (opened === socket && typeof message.data === "string") hear(JSON.parse(message.data));
  });
  opened.addEventListener("close", () => {
    if (opened === socket) lose();
  });
}

function lose() {
  socket = null;
  byId("send").disabled = true;
  if (!isWanted) return;
  if (!session) {
    stop(`The server refused the connection${byId("token") ? "; check the token" : " or is not there"}.`);
    return;
  }
  lostAt ||= performance.now();
  if (performance.now() - lostAt > session.resume_s * 1000) {
    stop("The connection was lost and could not be resumed in time.");
    return;
  }
  tell("The connection was lost; connecting again.", "fault");
  setTimeout(() => isWanted && !socket && connect(), RESUME_EVERY_MS);
}

function hear(event) {
  if (session && event.seq) session.seq = Math.max(session.seq, event.seq);
  switch (event.type) {
    case "session.created":
      session = { ...event, seq: event.is_resumed ? session.seq : event.seq };
      lostAt = 0;
      if (event.is_resumed) {
        isRecounting = true;
        forgetFrames(); // those that never arrived are never acknowledged
        socket.send(JSON.stringify({ type: "session.stats" }));
      }
      byId("send").disabled = false;
      tell(`Live: ${event.model}`, "live");
      byId("about").textContent = `Session ${event.session_id}`;
      break;
    case "frame.ack":
    case "video.frame.ack":
      showAck(event);
      break;
    case "response.text.delta":
      queryOf(event)?.text.append(event.delta);
      break;
    case "response.start": {
      const item = queries.get(event.query_id);
      if (item) {
        item.text.textContent = ""; // it begins again if the engine was lost
        queries.set(event.query, item);
      }
      break;
    }
    case "response.done":
      showAnswer(event);
      break;
    case "session.stats":
      if (isRecounting) asked.slice(event.queries).forEach((query) => socket.send(JSON.stringify(query)));
      isRecounting = false;
      break;
    case "session.notice":
      tell(event.message, event.code === "engine_back" ? "live" : "fault");
      break;
    case "error":
      showError(event);
      break;
    case "session.closed":
      session = null;
      if (isWanted) stop(`${byId("state").dataset.kind === "fault" ? byId("state").textContent : "The session has ended"} (${event.reason.replace("_", " ")}).`);
  }
}

function forgetFrames() {
  for (const sent of frames.values()) sent.tick.remove();
  count("sent", -frames.size);
  frames.clear();
}

function showError(event) {
  const item = queryOf(event);
  if (item) {
    forgetQuery(event);
    if (event.query === null) asked = asked.filter((query) => query.query_id !== event.query_id); // it is not counted
    item.text.classList.remove("pending");
    item.text.textContent = "No answer";
    item.note.textContent = event.message;
    return;
  }
  frames.get(event.frame_id)?.tick.classList.replace("waiting", "refused");
  frames.delete(event.frame_id);
  tell(event.message, "fault");
}

// Questions

const queryOf = (event) => queries.get(event.query_id) ?? queries.get(event.query);

function forgetQuery(event) {
  queries.delete(event.query_id);
  queries.delete(event.query);
}

function ask() {
  const text = byId("question").value.trim();
  if (!text || socket?.readyState !== WebSocket.OPEN || !session) return;
  const choices = byId("choices").value.split("|").map((choice) => choice.trim()).filter(Boolean);
  const query_id = `q${nextId++}`;
  const answer = element("p", { className: "outcome pending" });
  const bars = element("dl", { className: "bars", hidden: true });
  const note = element("p", { className: "note" });
  byId("answers").prepend(element("li", {}, element("h2", { textContent: text }), answer, bars, note));
  while (byId("answers").childElementCount > SHOWN_ANSWERS) byId("answers").lastElementChild.remove();
  queries.set(query_id, { at: performance.now(), text: answer, bars, note, choices });
  asked.push({ type: "video.query", text, query_id, ...(choices.length ? { choices } : {}) });
  if (!isRecounting) socket.send(JSON.stringify(asked.at(-1))); // else it is sent with those that never arrived
}

function showAnswer(done) {
  const item = queryOf(done);
  if (!item) return;
  forgetQuery(done);
  item.text.classList.remove("pending");
  item.text.textContent = done.text;
  if (done.probabilities) {
    item.bars.hidden = false;
    item.bars.replaceChildren(
      ...done.probabilities.map((share, index) => {
        const fill = element("i");
        fill.style.width = `${share * 100}%`;
        return element(
          "div",
          { className: index === done.choice ? "row chosen" : "row" },
          element("dt", { textContent: item.choices[index] }),
          element("dd", { className: "track" }, fill),
          element("dd", { className: "share", textContent: `${(share * 100).toFixed(1)}%` }),
        );
      }),
    );
  }
  const here = performance.now() - item.at;
  item.note.textContent =
    `First token after ${done.first_token_ms.toFixed(0)} ms, whole answer after ${done.total_ms.toFixed(0)} ms (${here.toFixed(0)} ms at this browser) · ` +
    `${done.frames_used} ${done.frames_used === 1 ? "frame" : "frames"}, the last at ${done.last_frame_s.toFixed(1)} s · ` +
    (done.audio_s ? `${done.audio_s.toFixed(1)} s of audio · ` : "") +
    `${done.prompt_tokens} tokens, ${done.cached_tokens} of them read before`;
}

// Start, stop, forms

async function start() {
  isWanted = true;
  session = null;
  [counts, ackMs, lostAt, asked, isRecounting] = [{}, [], 0, [], false];
  frames.clear();
  queries.clear();
  for (const id of ["sent", "kept", "similar", "evicted", "evicted-window"]) byId(id).textContent = "0";
  byId("ribbon").replaceChildren();
  byId("frames").replaceChildren();
  byId("start").textContent = "Stop";
  byId("start").dataset.running = "true";
  tell("Opening the camera.");
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
  tell("Connecting.");
  connect();
  setPace();
  switchMicrophone();
}

function stop(why = "Stopped.") {
  const isFault = why !== "Stopped.";
  isWanted = false;
  clearInterval(frameTimer);
  clearInterval(askTimer);
  byId("every").value = "0";
  if (socket?.readyState === WebSocket.OPEN && session) socket.send(JSON.stringify({ type: "video.done" }));
  else socket?.close();
  for (const item of queries.values()) item.text.classList.remove("pending");
  closeCamera();
  closeMicrophone();
  byId("last").textContent = "";
  byId("send").disabled = true;
  byId("start").textContent = "Start";
  byId("start").dataset.running = "false";
  tell(why, isFault ? "fault" : "idle");
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
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
  clearInterval(askTimer);
  const every_s = Number(byId("every").value);
  if (every_s) askTimer = setInterval(() => queries.size || ask(), every_s * 1000); // none while one is not answered yet
});
byId("every").addEventListener("change", () => clearInterval(askTimer));
addEventListener("pagehide", () => socket?.close());
