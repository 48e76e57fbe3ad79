// The package under test, loaded after the clock and JSON have been replaced, so that no module of it keeps the real ones.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import './clock.mjs';
import { log } from './lines.mjs';
import './raw_json.mjs';

/** What BullMQ's behaviour depends on: how it speaks to Redis, packs options and reads cron patterns. */
const LIBRARIES = ['ioredis', 'msgpackr', 'cron-parser'];

/** The library that connects, and the package that has it; Bun has its own. */
export const library = process.env.BULLMQ_CONFORMANCE_REDIS_LIBRARY || 'ioredis';
const PACKAGES = { redis: 'redis', 'valkey-glide': '@valkey/valkey-glide' };

const modules = process.env.BULLMQ_CONFORMANCE_MODULES || path.dirname(fileURLToPath(import.meta.url));
export const { bullmq, ioredis, libraryModule, version, packages } = loadBullMQ(modules);
export const { FlowProducer, Job, Queue, QueueEvents, Worker } = bullmq;

function loadBullMQ(root) {
  try {
    const fromRoot = createRequire(path.join(path.resolve(root), 'driver.cjs'));
    const entry = fromRoot.resolve('bullmq');
    const packageRoot = entry.slice(0, entry.lastIndexOf(`${path.sep}dist${path.sep}`));
    // BullMQ's own ioredis, or else `instanceof` would fail between two copies of it.
    const fromPackage = createRequire(entry);
    const more = PACKAGES[library] ? [PACKAGES[library]] : [];
    const versionIn = folder => JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).version;
    return {
      bullmq: fromPackage(entry),
      ioredis: fromPackage('ioredis'),
      libraryModule: PACKAGES[library] ? fromPackage(PACKAGES[library]) : null,
      version: versionIn(packageRoot),
      packages: {
        ...Object.fromEntries([...LIBRARIES, ...more].flatMap(name => found(name, fromPackage, versionIn))),
        node: process.versions.node,
        ...(process.versions.bun ? { bun: process.versions.bun } : {}),
      },
    };
  } catch (error) {
    log(`cannot load bullmq from ${root}: ${error.message}`);
    return process.exit(3);
  }
}

/** Name and version of a library of BullMQ; nothing where this version of BullMQ has it not. */
function found(name, fromPackage, versionIn) {
  for (const folder of fromPackage.resolve.paths(name) ?? []) {
    if (existsSync(path.join(folder, name, 'package.json'))) {
      return [[name, versionIn(path.join(folder, name))]];
    }
  }
  return [];
}

/** The scripts behind a Queue, Worker or Job: `scripts` in 5.x, `backend` from 6.0 on. */
export function scriptsOf(owner) {
  return owner.scripts ?? owner.backend;
}
