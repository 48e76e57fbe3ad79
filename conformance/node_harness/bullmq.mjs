// The package under test, loaded after the clock and JSON have been replaced, so that no module of it keeps the real ones.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import './clock.mjs';
import { log } from './lines.mjs';
import './raw_json.mjs';

const modules = process.env.BULLMQ_CONFORMANCE_MODULES || path.dirname(fileURLToPath(import.meta.url));
export const { bullmq, ioredis, version } = loadBullMQ(modules);
export const { FlowProducer, Job, Queue, QueueEvents, Worker } = bullmq;

function loadBullMQ(root) {
  try {
    const fromRoot = createRequire(path.join(path.resolve(root), 'driver.cjs'));
    const entry = fromRoot.resolve('bullmq');
    const packageRoot = entry.slice(0, entry.lastIndexOf(`${path.sep}dist${path.sep}`));
    // BullMQ's own ioredis, or else `instanceof` would fail between two copies of it.
    const fromPackage = createRequire(entry);
    return {
      bullmq: fromPackage(entry),
      ioredis: fromPackage('ioredis'),
      version: JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')).version,
    };
  } catch (error) {
    log(`cannot load bullmq from ${root}: ${error.message}`);
    return process.exit(3);
  }
}

/** The scripts behind a Queue, Worker or Job: `scripts` in 5.x, `backend` from 6.0 on. */
export function scriptsOf(owner) {
  return owner.scripts ?? owner.backend;
}
