// A live session: `import { LiveSession } from "/live/session.js"`. Frames and questions go in; events, as in
// docs/live.md, come to listeners of "message". A lost connection is resumed, and questions are sent again.
//
//   const session = new LiveSession("http://127.0.0.1:8020", { token: null, config: { window: 32 } });
//   session.addEventListener("message", ({ data }) => data.type === "response.done" && console.log(data.text));
//   session.sendFrame(jpegBlob, { time_s: 0 });
//   session.ask("Is the door open?", { choices: ["yes", "no"], on_change: true });

const PATH = "/v1/video/chat/stream";
const RESUME_EVERY_MS = 1000;
const MAX_WAITING_BYTES = 2 ** 20; // of a slow line: newer frames are then not sent

export class LiveSession extends EventTarget {
  created = null; // what session.created said
  #address;
  #config;
  #socket = null;
  #seq = 0;
  #lostAt = 0;
  #hasBegun = false; // on the present connection
  #isOver = false;
  #isFinishing = false;
  #open = new Map(); // questions by their ids, until they are answered
  #asked = 0;
  #announced = null; // an event whose binary message has not come yet

  // Events: "message" (`data`, and `speech` if it brings some), "lost", and "end" once no message follows.
  constructor(url, { token = null, config = {} } = {}) {
    super();
    this.#address = new URL(PATH, url);
    this.#address.protocol = this.#address.protocol.replace("http", "ws");
    if (token) this.#address.searchParams.set("token", token);
    this.#config = config;
    this.#connect();
  }

  get isOpen() {
    return this.#hasBegun && this.#socket.readyState === WebSocket.OPEN;
  }

  // Returns whether it was sent: nothing is while the connection is lost, or slower than the frames.
  sendFrame(picture, fields = {}) {
    return this.#sendData({ type: "video.frame", ...fields }, picture);
  }

  sendAudio(samples, fields = {}) {
    return this.#sendData({ type: "audio.chunk", ...fields }, samples);
  }

  // Returns the question's id, which the events about it have as well.
  ask(text, fields = {}) {
    const query = { type: "video.query", query_id: `query-${this.#asked++}`, text, ...fields };
    this.#open.set(query.query_id, query);
    this.#send(query);
    return query.query_id;
  }

  // Without an id, the question that is being answered.
  cancel(query_id = null) {
    this.#send({ type: "response.cancel", query_id });
  }

  // Ends the session once all questions are answered.
  finish() {
    this.#isFinishing = true;
    this.#send({ type: "video.done" });
  }

  close() {
    this.#isOver = true;
    this.#socket?.close(1000);
  }

  #connect() {
    const socket = new WebSocket(this.#address);
    socket.binaryType = "arraybuffer";
    [this.#socket, this.#hasBegun] = [socket, false];
    socket.addEventListener("open", () => {
      const { session_id, resume_token } = this.created ?? {};
      const begins = { type: "session.config", speech_event: "response.audio", ...this.#config };
      const first = session_id ? { type: "session.resume", session_id, resume_token, last_seq: this.#seq } : begins;
      socket.send(JSON.stringify(first));
    });
    socket.addEventListener("message", ({ data }) => this.#receive(data));
    socket.addEventListener("close", ({ code }) => this.#lose(code));
  }

  #send(message) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #sendData(message, data) {
    if (!this.isOpen || this.#socket.bufferedAmount > MAX_WAITING_BYTES) return false;
    this.#send(message);
    this.#socket.send(data); // it follows its announcement
    return true;
  }

  #receive(received) {
    if (typeof received !== "string") {
      this.#dispatch(this.#announced, received);
      return;
    }
    const event = JSON.parse(received);
    if (event.type === "response.audio") this.#announced = event;
    else this.#dispatch(event);
  }

  #dispatch(event, speech = null) {
    this.#seq = Math.max(this.#seq, event.seq);
    if (event.type === "session.created") {
      [this.created, this.#lostAt, this.#hasBegun] = [event, 0, true];
      const again = event.is_resumed ? { again: true } : {};
      for (const query of this.#open.values()) this.#send({ ...query, ...again }); // it may not have arrived
      if (this.#isFinishing) this.#send({ type: "video.done" });
    }
    this.#forget(event);
    this.dispatchEvent(Object.assign(new Event("message"), { data: event, speech }));
    if (event.type === "session.closed" || (event.is_fatal && !event.seq)) this.#end();
  }

  #forget(event) {
    const query = this.#open.get(event.query_id);
    const isStanding = query?.on_change || query?.every_s;
    const hasEnded = !isStanding && ["response.done", "error"].includes(event.type);
    const isRefused = event.type === "error" && event.query === null;
    if (hasEnded || isRefused || event.code === "standing_ended") this.#open.delete(event.query_id);
  }

  #lose(code) {
    if (this.#isOver) return;
    this.#lostAt ||= performance.now();
    const isLate = performance.now() - this.#lostAt > (this.created?.resume_s ?? 0) * 1000;
    if (!this.created || isLate) {
      this.#end(this.created ? "The connection was lost and could not be resumed in time." : "refused");
      return;
    }
    this.dispatchEvent(Object.assign(new Event("lost"), { code }));
    setTimeout(() => this.#isOver || this.#connect(), RESUME_EVERY_MS);
  }

  #end(why = null) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#socket?.close(1000);
    this.dispatchEvent(Object.assign(new Event("end"), { why }));
  }
}
