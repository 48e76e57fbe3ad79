// JSON lines in and out, and the log on stderr. Only protocol lines may reach stdout: BullMQ and ioredis print warnings
// (eviction policy, old Redis) with console.

import { Console } from 'node:console';

import { stringifyValue } from './raw_json.mjs';

export const MAX_LINE_BYTES = 16 * 1024 * 1024;

const writeOut = process.stdout.write.bind(process.stdout);
// After `writeOut` has kept the real one, and before BullMQ is loaded.
process.stdout.write = process.stderr.write.bind(process.stderr);
globalThis.console = new Console({ stdout: process.stderr, stderr: process.stderr });

export function log(message) {
  process.stderr.write(`driver: ${message}\n`);
}

export function send(message) {
  let line = `${stringifyValue(message)}\n`;
  if (Buffer.byteLength(line) > MAX_LINE_BYTES) {
    log(`a ${message.type} line of ${line.length} characters is longer than the protocol allows`);
    if (message.type !== 'result') {
      return;
    }
    const error = { code: 'too-long', definite: false, message: 'the answer is longer than a line may be' };
    line = `${stringifyValue({ type: 'result', id: message.id, status: 'info', error })}\n`;
  }
  writeOut(line);
}

export function sendEvent(handle, name, args = {}) {
  send({ type: 'event', handle: handle.name, name, args });
}

/** Cuts stdin into lines. A line over the limit is never held in memory as a whole, and never parsed. */
export class LineReader {
  constructor(onLine, onTooLong) {
    this.onLine = onLine;
    this.onTooLong = onTooLong;
    this.chunks = [];
    this.size = 0;
  }

  push(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.keep(chunk.subarray(start, end));
      this.finish();
      start = end + 1;
    }
    this.keep(chunk.subarray(start));
  }

  keep(part) {
    this.size += part.length;
    if (this.size >= MAX_LINE_BYTES) {
      // The first chunk stays: it has the id of the call, which must get an answer.
      this.chunks.length = Math.min(this.chunks.length, 1);
    } else if (part.length > 0) {
      this.chunks.push(part);
    }
  }

  finish() {
    const bytes = Buffer.concat(this.chunks);
    const tooLong = this.size >= MAX_LINE_BYTES;
    this.chunks = [];
    this.size = 0;
    if (tooLong) {
      this.onTooLong(bytes.toString('utf8', 0, 256));
    } else if (bytes.length > 0) {
      this.onLine(bytes.toString('utf8'));
    }
  }
}
