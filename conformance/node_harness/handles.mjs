// The handles that the kit has opened.

import { Refusal, messageOf } from './errors.mjs';
import { log } from './lines.mjs';

/** How long a handle may take (real ms) to let go of its sockets. */
const FORCE_CLOSE_MS = 1000;

/** One BullMQ object that the kit has opened, with the little that the driver must remember about it. */
export class Handle {
  constructor(name, role) {
    this.name = name;
    this.role = role;
    this.object = null;
    this.cluster = null;
    /** The last error of the listener and its time (real ms): it explains why a call does not end. */
    this.lastError = null;
    /** Jobs that a manual worker holds, by id: finishing acts on the job as it was claimed, like a user would. */
    this.claimed = new Map();
    /** Jobs of processor `ask` that wait for `resolve`: by id, the oldest first. */
    this.asked = new Map();
    /** Subscriptions of a relay, the oldest first. */
    this.subscriptions = [];
  }

  /** Close as the client's user would. */
  async close(force) {
    await (this.role === 'worker' ? this.object.close(force) : this.object.close());
    // BullMQ does not close a connection that it was given; QUIT fails if the cluster is already lost.
    await this.cluster?.quit().catch(() => this.cluster.disconnect());
  }

  /** Drop the sockets in any state. */
  async abandon() {
    const ignore = error => log(`while abandoning ${this.name}: ${messageOf(error)}`);
    if (this.role === 'worker') {
      await this.object?.close(true).catch(ignore);
    } else if (this.role !== 'events' && this.object?.connection?.close) {
      await this.object.connection.close(true).catch(ignore);
    } else {
      // QueueEvents.close disconnects immediately, and ends its reading loop.
      await this.object?.close().catch(ignore);
    }
    this.cluster?.disconnect();
  }
}

export const handles = new Map();

/** Clients of ioredis that handles share, by their address. */
export const sharedClients = new Map();

export function handleNamed(name) {
  const handle = handles.get(name);
  if (!handle) {
    throw new Refusal('invalid-argument', `no handle is called ${name}`);
  }
  return handle;
}

/** Drop the sockets of a handle, but wait no longer for it than FORCE_CLOSE_MS. */
export function abandonInTime(handle) {
  return within(FORCE_CLOSE_MS, handle.abandon(), () => undefined);
}

export async function within(milliseconds, promise, onExpiry) {
  let timer;
  const expiry = new Promise((resolve, reject) => {
    timer = setTimeout(() => Promise.resolve().then(onExpiry).then(resolve, reject), milliseconds);
  });
  try {
    return await Promise.race([promise, expiry]);
  } finally {
    // A pending timer would keep the process alive after stdin has ended.
    clearTimeout(timer);
  }
}
