// Takes the sound of the microphone, as 16-bit samples, a quarter of a second at a time.

const SAMPLES = 4000; // at 16 kHz, the rate of the context

registerProcessor(
  "microphone",
  class extends AudioWorkletProcessor {
    samples = new Int16Array(SAMPLES);
    filled = 0;

    process([[channel]]) {
      for (const value of channel ?? []) {
        this.samples[this.filled++] = Math.max(-1, Math.min(1, value)) * 32767;
        if (this.filled < SAMPLES) continue;
        this.port.postMessage(this.samples.buffer, [this.samples.buffer]);
        this.samples = new Int16Array(SAMPLES);
        this.filled = 0;
      }
      return true;
    }
  },
);
